"""Define the formulas of torchtitan: the parameters of the built model, and attention by its
config.

0.1 to 0.2.0: get_dense_model_nparams_and_flops and get_moe_model_nparams_and_flops of
torchtitan/models/utils.py; the depth of a head is h // H, and the head goes with a table that it
shares (issue 1920). From 0.2.1 on the depths are those of the config; 0.3.0 keeps a shared head.
Its Hugging Face backend passes d for dqk + dv, and sees no table to take out.
"""

from crossflops.ir.architecture import TokenSequence
from crossflops.rules.rule import with_formula
from crossflops.tools.formulas import differences as of
from crossflops.tools.formulas.formula import Amount, ArchitectureFormula, Part

_MATRICES: tuple[Part, ...] = ("other matrix",)  # it counts all parameters of the model
_SOURCE = "torchtitan/models/utils.py: get_dense_model_nparams_and_flops"


def _active_parameter_count(work: TokenSequence) -> int:
    """Return the number of parameters that torchtitan counts for a token: all except the embedding
    table and the experts that the token does not pass.

    Of the experts it is a share.
    """
    model = work.architecture
    parameters = model.parameters
    return parameters.total - parameters.table - model.inactive_weights - model.inactive_biases


@with_formula("6 (P - table - inactive experts) + 12 L H (h // H) T for each token")
def torchtitan_training_flops_by_division(work: TokenSequence) -> int:
    """Return the training FLOPs of a sequence by the formula of torchtitan 0.2.0, which uses
    hidden size // heads as the size of a head.
    """
    model, tokens = work.architecture, work.tokens
    depth = work.sum_attention(lambda layer: layer.heads * (model.hidden // layer.heads))
    return (6 * _active_parameter_count(work) + 12 * depth * tokens) * tokens


@with_formula("6 (P - table - inactive experts) + 6 L H (dqk + dv) T for each token")
def torchtitan_training_flops_without_shared_head(work: TokenSequence) -> int:
    """Return the training FLOPs of a sequence by the formula of torchtitan 0.2.1, which leaves out
    an output matrix that is also the embedding table.
    """
    pairs = work.architecture.macs_per_pair * work.tokens
    return 6 * (_active_parameter_count(work) + pairs) * work.tokens


@with_formula(
    "6 (P - table - inactive experts + a shared head) + 6 L H (dqk + dv) T for each token"
)
def torchtitan_training_flops(work: TokenSequence) -> int:
    """Return the training FLOPs of a sequence by the formula of torchtitan 0.3.0, which counts an
    output matrix also if it is the embedding table.
    """
    model = work.architecture
    shared = model.head_macs * work.tokens if model.tied else 0
    return torchtitan_training_flops_without_shared_head(work) + 6 * shared


@with_formula("6 P + 6 L H d T for each token")
def torchtitan_huggingface_training_flops(work: TokenSequence) -> int:
    """Return the training FLOPs of a sequence by the formula of torchtitan's Hugging Face backend:
    all parameters, and one head size for queries and values.
    """
    depth = work.sum_attention(lambda layer: layer.heads * layer.value_dim)
    return 6 * (work.architecture.parameters.total + depth * work.tokens) * work.tokens


def _torchtitan_formula(
    edition: str, training_flops: Amount, source: str = _SOURCE
) -> ArchitectureFormula:
    """Return torchtitan's formula for training FLOPs per token in one edition, without rules."""
    return ArchitectureFormula(
        "torchtitan",
        edition,
        training_flops,
        source=source,
        prints="num_flops_per_token",
        covers=_MATRICES,
    )


def _add_active_parameter_rules(formula: ArchitectureFormula) -> ArchitectureFormula:
    """Add the rules for a formula that counts all active parameters as matrix elements (positions,
    norms and biases); return the formula.
    """
    return formula.adds(
        "formula.embedding-as-matmul", of.position_table_macs
    ).adds(
        "formula.norms-as-matmul", of.norm_parameter_macs
    ).adds("formula.biases-as-matmul", of.active_bias_macs)  # fmt: skip


CONVENTIONS = tuple(
    formula.convention
    for formula in (
        _add_active_parameter_rules(_torchtitan_formula("0.3.0", torchtitan_training_flops)),
        _add_active_parameter_rules(
            _torchtitan_formula("0.2.1", torchtitan_training_flops_without_shared_head)
        ).adds("formula.head-missing", of.minus_tied_head_macs),
        _add_active_parameter_rules(
            _torchtitan_formula("0.2.0", torchtitan_training_flops_by_division)
        )
        .adds("formula.head-missing", of.minus_tied_head_macs)
        .adds("formula.head-dim-assumed", of.extra_attention_macs_of_divided_width),
        _torchtitan_formula(
            "0.3.0-hf",
            torchtitan_huggingface_training_flops,
            "torchtitan's Hugging Face backend: get_moe_model_nparams_and_flops, head_dims",
        )
        .adds(
            "formula.embedding-as-matmul",
            of.embedding_lookup_macs_if_untied,
            of.position_table_macs,
        )
        .adds("formula.all-experts", of.inactive_expert_macs)
        .adds("formula.norms-as-matmul", of.norm_parameter_macs)
        .adds("formula.biases-as-matmul", of.bias_parameter_macs)
        .adds("formula.head-dim-assumed", of.extra_attention_macs_of_value_dim)
        .adds("formula.one-attention-matmul", of.minus_second_attention_product_macs),
    )
)
