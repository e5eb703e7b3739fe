"""Define formulas that count parameters: 6 x parameters x tokens, and variants that add
attention.
"""

from crossflops.ir.architecture import TokenSequence
from crossflops.rules.rule import with_formula
from crossflops.tools.formulas import differences as of
from crossflops.tools.formulas.formula import ArchitectureFormula

# Which parameters are N.


def _add_all_parameters(formula: ArchitectureFormula) -> ArchitectureFormula:
    """Add the rules for a formula that counts all parameters, not only the matrices that a token
    passes: embeddings, unused experts, norms and biases; return the formula.
    """
    return (
        formula.adds("formula.embedding-as-matmul", of.embedding_table, of.position_table)
        .adds("formula.all-experts", of.inactive_experts)
        .adds("formula.norms-as-matmul", of.norm_parameters)
        .adds("formula.biases-as-matmul", of.bias_parameters)
    )


@with_formula("6 P for each token, P all parameters")
def six_n_d(work: TokenSequence) -> int:
    """Return the training FLOPs of a sequence as 6 x number of all parameters x tokens."""
    return 6 * work.architecture.parameters.total * work.tokens


def _six_n_d(tool: str, edition: str, source: str) -> ArchitectureFormula:
    """Return the formula 6 x parameters x tokens with its rules, under the given tool name,
    edition and source.
    """
    formula = ArchitectureFormula(tool, edition, six_n_d, source=source, prints="FLOPs")
    return _add_all_parameters(formula).adds("formula.attention-missing", of.attention_dropped)


SIX_N_D = _six_n_d("6nd", "2022", "Hoffmann et al., Training Compute-Optimal LLMs, C = 6 N D")
EUROPE = _six_n_d("eu", "2025", "Guidelines for providers of general-purpose AI models, annex")
AWS = _six_n_d(
    "aws", "full", "flops_meter.py: calculate_finetuning_flops, all parameters trainable"
)


# Kaplan et al., 2020, section 2.1: N without the table, positions and the head.


@with_formula("6 N for each token, N the matrices of the layers that a token uses")
def kaplan(work: TokenSequence) -> int:
    """Return the training FLOPs of a sequence by Kaplan's formula: 6 x matrix elements of the
    layers that a token passes x tokens, without embeddings, output matrix and attention scores.
    """
    model = work.architecture
    return 6 * (model.projection_macs + model.ffn_macs + model.router_macs) * work.tokens


@with_formula("2 N + 2 L T H d for each token, N the matrices of the layers that it uses")
def kaplan_forward(work: TokenSequence) -> int:
    """Return the forward FLOPs of a sequence by Kaplan's formula: matrices of the layers that a
    token passes, and one attention product.
    """
    model = work.architecture
    attention = work.sum_attention(lambda layer: layer.heads * layer.value_dim) * work.tokens
    return (
        2 * (model.projection_macs + model.ffn_macs + model.router_macs + attention) * work.tokens
    )


_KAPLAN = "Kaplan et al., Scaling Laws for Neural Language Models, 2.1"
KAPLAN = (
    ArchitectureFormula("kaplan", "2020", kaplan, source=_KAPLAN, prints="FLOPs")
    .adds("formula.head-missing", of.head_dropped)
    .adds("formula.attention-missing", of.attention_dropped)
)
KAPLAN_FORWARD = (
    ArchitectureFormula(
        "kaplan", "2020-forward", kaplan_forward, source=_KAPLAN, prints="FLOPs", passes="forward"
    )
    .adds("formula.head-missing", of.head_dropped)
    .adds("formula.head-dim-assumed", of.heads_of_value_depth)
    .adds("formula.one-attention-matmul", of.second_attention_product)
)


# PaLM, appendix B, with P for N as it is mostly applied.


@with_formula("6 P + 12 L H d T for each token")
def palm(work: TokenSequence) -> int:
    """Return the training FLOPs of a sequence by PaLM's formula: all parameters, and both
    attention products over all pairs of tokens.
    """
    width = work.sum_attention(lambda layer: layer.heads * layer.value_dim)
    return (6 * work.architecture.parameters.total + 12 * width * work.tokens) * work.tokens


PALM = _add_all_parameters(
    ArchitectureFormula(
        "palm",
        "2022",
        palm,
        source="Chowdhery et al., PaLM, appendix B",
        prints="FLOPs",
    )
).adds("formula.head-dim-assumed", of.heads_of_value_depth)


# nanoGPT, model.py: estimate_mfu.


@with_formula("6 N + 12 L H (h // H) T for each token, N all parameters but positions")
def nanogpt(work: TokenSequence) -> int:
    """Return the training FLOPs of a sequence by nanoGPT's formula: all parameters except
    positions, and attention with heads of size (hidden size // heads).
    """
    model, tokens = work.architecture, work.tokens
    number = model.parameters.total - model.parameters.positions
    depth = work.sum_attention(lambda layer: layer.heads * (model.hidden // layer.heads))
    return (6 * number + 12 * depth * tokens) * tokens


NANOGPT = (
    ArchitectureFormula(
        "nanogpt", "3adf61e", nanogpt, source="model.py: estimate_mfu", prints="flops"
    )
    .adds("formula.embedding-as-matmul", of.embedding_table)
    .adds("formula.all-experts", of.inactive_experts)
    .adds("formula.norms-as-matmul", of.norm_parameters)
    .adds("formula.biases-as-matmul", of.bias_parameters)
    .adds("formula.head-dim-assumed", of.heads_by_division)
)


# litgpt, utils.py: estimate_flops. Its models have a head of their own.


@with_formula("6 P + 12 L h T + 8 L h T for each token, P including both the head and the table")
def litgpt(work: TokenSequence) -> int:
    """Return the training FLOPs of a sequence by litgpt's formula, which adds the attention work
    twice and counts an output matrix separate from the embedding table.
    """
    model, tokens = work.architecture, work.tokens
    number = model.parameters.total + (model.head_macs if model.tied else 0)
    return (6 * number + 20 * len(model.layers) * model.hidden * tokens) * tokens


@with_formula("4 L h T^2 of 2 FLOPs: attention again, for frozen weights that do not exist")
def attention_of_frozen(work: TokenSequence) -> int:
    """Return the MACs that litgpt's formula adds for the attention of frozen weights, although no
    weight is frozen: layers x hidden size x tokens^2, to be multiplied by 8 FLOPs.
    """
    model = work.architecture
    return len(model.layers) * model.hidden * work.tokens**2


@with_formula("Latent attention, and attention sinks: litgpt has no such models")
def other_library_model(work: TokenSequence) -> int:
    """Return 1 for a model with latent attention or attention sinks, which litgpt does not have,
    else 0.
    """
    model = work.architecture
    return int(model.model_type == "gpt_oss" or any(x.attention.is_latent for x in model.layers))


LITGPT = (
    ArchitectureFormula(
        "litgpt",
        "0.5.13",
        litgpt,
        source="litgpt/utils.py: estimate_flops",
        prints="FLOPs",
        per="sequence",
    )
    .adds("formula.embedding-as-matmul", of.embedding_always, of.position_table)
    .adds("formula.all-experts", of.inactive_experts)
    .adds("formula.norms-as-matmul", of.norm_parameters)
    .adds("formula.biases-as-matmul", of.bias_parameters)
    .adds("formula.head-dim-assumed", of.heads_of_width)
    .adds("formula.attention-twice", attention_of_frozen, factor=8)
    .fails(other_library_model)
)


# transformers, Trainer.floating_point_ops: what it logs as total_flos.


@with_formula("6 (P - elements of nn.Embedding) for each token")
def total_flos(work: TokenSequence) -> int:
    """Return the training FLOPs of a sequence by the Trainer of transformers (`total_flos`): 6 x
    parameters outside nn.Embedding x tokens.
    """
    parameters = work.architecture.parameters
    return 6 * (parameters.total - parameters.table - parameters.positions) * work.tokens


TOTAL_FLOS = (
    ArchitectureFormula(
        "total-flos",
        "5.23",
        total_flos,
        source="transformers/trainer.py: Trainer.floating_point_ops",
        prints="total_flos",
        per="sequence",
    )
    .adds("formula.head-missing", of.tied_head_dropped)
    .adds("formula.all-experts", of.inactive_experts)
    .adds("formula.norms-as-matmul", of.norm_parameters)
    .adds("formula.biases-as-matmul", of.bias_parameters)
    .adds("formula.attention-missing", of.attention_dropped)
)


# llm-foundry, modeling_mpt.py: flops_per_batch, which composer's SpeedMonitor asks for.


@with_formula(
    "6 N + 12 L h T for each token, N the parameters that a token uses, including the table"
)
def llm_foundry(work: TokenSequence) -> int:
    """Return the training FLOPs of a sequence by llm-foundry's formula: the parameters that a
    token passes, with the embedding table, and attention with heads whose total width is the
    hidden size.
    """
    model, tokens = work.architecture, work.tokens
    number = model.parameters.total - model.inactive_weights - model.inactive_biases
    return (6 * number + 12 * len(model.layers) * model.hidden * tokens) * tokens


LLM_FOUNDRY = (
    ArchitectureFormula(
        "llm-foundry",
        "0.22",
        llm_foundry,
        source="llmfoundry/models/mpt/modeling_mpt.py: flops_per_batch",
        prints="flops_per_batch",
        per="sequence",
    )
    .adds("formula.embedding-as-matmul", of.embedding_table, of.position_table)
    .adds("formula.norms-as-matmul", of.norm_parameters)
    .adds("formula.biases-as-matmul", of.active_biases)
    .adds("formula.head-dim-assumed", of.heads_of_width)
)

CONVENTIONS = tuple(
    formula.convention
    for formula in (
        SIX_N_D, EUROPE, AWS, KAPLAN, KAPLAN_FORWARD, PALM, NANOGPT, LITGPT, TOTAL_FLOS,
        LLM_FOUNDRY,
    )
)  # fmt: skip
