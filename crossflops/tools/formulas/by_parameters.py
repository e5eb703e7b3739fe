"""Define formulas that count parameters: 6 x parameters x tokens, and variants that add
attention.
"""

from crossflops.ir.architecture import TokenSequence
from crossflops.rules.rule import with_formula
from crossflops.tools.formulas import differences as of
from crossflops.tools.formulas.formula import (
    ALL_PARTS,
    ArchitectureFormula,
    Part,
    rule_amount,
)

_MATRICES: tuple[Part, ...] = ("other matrix",)  # a formula over the number of all parameters

# Which parameters are N.


def _add_all_parameter_rules(formula: ArchitectureFormula) -> ArchitectureFormula:
    """Add the rules for a formula that counts all parameters, not only the matrices that a token
    passes: embeddings, unused experts, norms and biases; return the formula.
    """
    return (
        formula.adds(
            "formula.embedding-as-matmul",
            of.embedding_lookup_macs_if_untied,
            of.position_table_macs,
        )
        .adds("formula.all-experts", of.inactive_expert_macs)
        .adds("formula.norms-as-matmul", of.norm_parameter_macs)
        .adds("formula.biases-as-matmul", of.bias_parameter_macs)
    )


def _add_rules_of_other_parts(formula: ArchitectureFormula) -> ArchitectureFormula:
    """Add the rules for a formula that multiplies parameters by the tokens of `input_ids`, and so
    is defined for encoder-decoders, state spaces and shared layers; return the formula.
    """
    return (
        formula.adds("formula.attention-missing", of.minus_attention_macs)
        .adds("formula.other-stack", of.decoder_macs_of_source_tokens)
        .adds("formula.scan-missing", of.minus_scan_macs)
        .adds("formula.convolution-ends", of.minus_macs_of_convolution_ends)
        .adds("formula.shared-layers", of.minus_repeated_layer_macs)
    )


@with_formula("6 P for each token, P all parameters")
def six_n_d_training_flops(work: TokenSequence) -> int:
    """Return the training FLOPs of a sequence as 6 x number of all parameters x tokens."""
    parameters = work.architecture.parameters
    return 6 * (parameters.total + parameters.other_parts) * work.tokens


def _six_n_d_formula(tool: str, edition: str, source: str) -> ArchitectureFormula:
    """Return the formula 6 x parameters x tokens with its rules, under the given tool name,
    edition and source.
    """
    formula = ArchitectureFormula(
        tool, edition, six_n_d_training_flops, source=source, prints="FLOPs", covers=ALL_PARTS
    )
    return _add_rules_of_other_parts(_add_all_parameter_rules(formula)).adds(
        "formula.other-modality", of.other_part_macs
    )


SIX_N_D = _six_n_d_formula(
    "6nd", "2022", "Hoffmann et al., Training Compute-Optimal LLMs, C = 6 N D"
)
EUROPE = _six_n_d_formula(
    "eu", "2025", "Guidelines for providers of general-purpose AI models, annex"
)
AWS = _six_n_d_formula(
    "aws", "full", "flops_meter.py: calculate_finetuning_flops, all parameters trainable"
)


# Kaplan et al., 2020, section 2.1: N without the table, positions and the head.


@with_formula("6 N for each token, N the matrices of the layers that a token uses")
def kaplan_training_flops(work: TokenSequence) -> int:
    """Return the training FLOPs of a sequence by Kaplan's formula: 6 x matrix elements of the
    layers that a token passes x tokens, without embeddings, output matrix and attention scores.
    """
    model = work.architecture
    return 6 * (model.projection_macs + model.ffn_macs + model.router_macs) * work.tokens


@with_formula("2 N + 2 L T H d for each token, N the matrices of the layers that it uses")
def kaplan_forward_flops(work: TokenSequence) -> int:
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
    ArchitectureFormula("kaplan", "2020", kaplan_training_flops, source=_KAPLAN, prints="FLOPs")
    .adds("formula.head-missing", of.minus_head_macs)
    .adds("formula.attention-missing", of.minus_attention_macs)
)
KAPLAN_FORWARD = (
    ArchitectureFormula(
        "kaplan",
        "2020-forward",
        kaplan_forward_flops,
        source=_KAPLAN,
        prints="FLOPs",
        passes="forward",
    )
    .adds("formula.head-missing", of.minus_head_macs)
    .adds("formula.head-dim-assumed", of.extra_attention_macs_of_value_dim)
    .adds("formula.one-attention-matmul", of.minus_second_attention_product_macs)
)


# PaLM, appendix B, with P for N as it is mostly applied.


@with_formula("6 P + 12 L H d T for each token")
def palm_training_flops(work: TokenSequence) -> int:
    """Return the training FLOPs of a sequence by PaLM's formula: all parameters, and both
    attention products over all pairs of tokens.
    """
    width = work.sum_attention(lambda layer: layer.heads * layer.value_dim)
    return (6 * work.architecture.parameters.total + 12 * width * work.tokens) * work.tokens


PALM = _add_all_parameter_rules(
    ArchitectureFormula(
        "palm",
        "2022",
        palm_training_flops,
        source="Chowdhery et al., PaLM, appendix B",
        prints="FLOPs",
        covers=_MATRICES,
    )
).adds("formula.head-dim-assumed", of.extra_attention_macs_of_value_dim)


# nanoGPT, model.py: estimate_mfu.


@with_formula("6 N + 12 L H (h // H) T for each token, N all parameters but positions")
def nanogpt_training_flops(work: TokenSequence) -> int:
    """Return the training FLOPs of a sequence by nanoGPT's formula: all parameters except
    positions, and attention with heads of size (hidden size // heads).
    """
    model, tokens = work.architecture, work.tokens
    number = model.parameters.total - model.parameters.positions
    depth = work.sum_attention(lambda layer: layer.heads * (model.hidden // layer.heads))
    return (6 * number + 12 * depth * tokens) * tokens


NANOGPT = (
    ArchitectureFormula(
        "nanogpt",
        "3adf61e",
        nanogpt_training_flops,
        source="model.py: estimate_mfu",
        prints="flops",
        covers=_MATRICES,
    )
    .adds("formula.embedding-as-matmul", of.embedding_lookup_macs_if_untied)
    .adds("formula.all-experts", of.inactive_expert_macs)
    .adds("formula.norms-as-matmul", of.norm_parameter_macs)
    .adds("formula.biases-as-matmul", of.bias_parameter_macs)
    .adds("formula.head-dim-assumed", of.extra_attention_macs_of_divided_width)
)


# litgpt, utils.py: estimate_flops. Its models have a head of their own.


@with_formula("6 P + 12 L h T + 8 L h T for each token, P including both the head and the table")
def litgpt_training_flops(work: TokenSequence) -> int:
    """Return the training FLOPs of a sequence by litgpt's formula, which adds the attention work
    twice and counts an output matrix separate from the embedding table.
    """
    model, tokens = work.architecture, work.tokens
    number = model.parameters.total + (model.head_macs if model.tied else 0)
    return (6 * number + 20 * len(model.layers) * model.hidden * tokens) * tokens


@rule_amount(
    "attention_of_frozen",
    "4 L h T^2 of 2 FLOPs: attention again, for frozen weights that do not exist",
)
def attention_macs_of_frozen_weights(work: TokenSequence) -> int:
    """Return the MACs that litgpt's formula adds for the attention of frozen weights, although no
    weight is frozen: layers x hidden size x tokens^2, to be multiplied by 8 FLOPs.
    """
    model = work.architecture
    return len(model.layers) * model.hidden * work.tokens**2


@rule_amount(
    "other_library_model", "Latent attention, and attention sinks: litgpt has no such models"
)
def is_unsupported_by_litgpt(work: TokenSequence) -> int:
    """Return 1 for a model with latent attention or attention sinks, which litgpt does not have,
    else 0.
    """
    model = work.architecture
    return int(model.model_type == "gpt_oss" or any(x.is_latent for x in model.attentions))


LITGPT = (
    ArchitectureFormula(
        "litgpt",
        "0.5.13",
        litgpt_training_flops,
        source="litgpt/utils.py: estimate_flops",
        prints="FLOPs",
        per="sequence",
    )
    .adds("formula.embedding-as-matmul", of.embedding_lookup_macs, of.position_table_macs)
    .adds("formula.all-experts", of.inactive_expert_macs)
    .adds("formula.norms-as-matmul", of.norm_parameter_macs)
    .adds("formula.biases-as-matmul", of.bias_parameter_macs)
    .adds("formula.head-dim-assumed", of.extra_attention_macs_of_hidden_width)
    .adds("formula.attention-twice", attention_macs_of_frozen_weights, factor=8)
    .fails(is_unsupported_by_litgpt)
)


# transformers, Trainer.floating_point_ops: what it logs as total_flos.


@with_formula("6 (P - elements of nn.Embedding) for each token")
def trainer_training_flops(work: TokenSequence) -> int:
    """Return the training FLOPs of a sequence by the Trainer of transformers (`total_flos`): 6 x
    parameters outside nn.Embedding x tokens of the main input, which an encoder reads if the model
    has one.
    """
    parameters = work.architecture.parameters
    embeddings = parameters.table + parameters.positions + parameters.other_embeddings
    return 6 * (parameters.total + parameters.other_parts - embeddings) * work.tokens


TOTAL_FLOS = _add_rules_of_other_parts(
    ArchitectureFormula(
        "total-flos",
        "5.23",
        trainer_training_flops,
        source="transformers/trainer.py: Trainer.floating_point_ops",
        prints="total_flos",
        per="sequence",
        covers=ALL_PARTS,
    )
    .adds("formula.head-missing", of.minus_tied_head_macs)
    .adds("formula.all-experts", of.inactive_expert_macs)
    .adds("formula.norms-as-matmul", of.norm_parameter_macs)
    .adds("formula.biases-as-matmul", of.bias_parameter_macs)
    .adds("formula.other-modality", of.other_part_macs_without_embeddings)
)


# llm-foundry, modeling_mpt.py: flops_per_batch, which composer's SpeedMonitor asks for.


@with_formula(
    "6 N + 12 L h T for each token, N the parameters that a token uses, including the table"
)
def llm_foundry_training_flops(work: TokenSequence) -> int:
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
        llm_foundry_training_flops,
        source="llmfoundry/models/mpt/modeling_mpt.py: flops_per_batch",
        prints="flops_per_batch",
        per="sequence",
        covers=_MATRICES,
    )
    .adds(
        "formula.embedding-as-matmul", of.embedding_lookup_macs_if_untied, of.position_table_macs
    )
    .adds("formula.norms-as-matmul", of.norm_parameter_macs)
    .adds("formula.biases-as-matmul", of.active_bias_macs)
    .adds("formula.head-dim-assumed", of.extra_attention_macs_of_hidden_width)
)

CONVENTIONS = tuple(
    formula.convention
    for formula in (
        SIX_N_D, EUROPE, AWS, KAPLAN, KAPLAN_FORWARD, PALM, NANOGPT, LITGPT, TOTAL_FLOS,
        LLM_FOUNDRY,
    )
)  # fmt: skip
