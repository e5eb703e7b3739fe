"""The cost of layers of Transformer Engine, apex and bitsandbytes, as whole modules by their
class.

Each is what its layer of PyTorch is: a linear layer, a normalization, or both in one kernel. FP8
changes in what precision a product runs, and no number of products; casts are not counted.
"""

from crossflops.ir.ledger import Cost
from crossflops.operators.formula import OperatorCall, operator
from crossflops.operators.gradient import Gradient
from crossflops.operators.kernels.attention import (
    Lengths,
    ScoreExtras,
    ScoreSizes,
    attention_cost,
    attention_gradient,
)
from crossflops.operators.kernels.steps import (
    KernelSteps,
    KernelTensor,
    call_argument,
    register_kernel,
)
from crossflops.operators.pointwise import GELU_TANH, GELU_TANH_BACK

_ENGINE = "https://github.com/NVIDIA/TransformerEngine/tree/main/transformer_engine/pytorch"
_APEX = "https://github.com/NVIDIA/apex/tree/master/apex"
_TE = "transformer_engine.pytorch"


def _first_operand(call: OperatorCall, steps: KernelSteps) -> KernelTensor:
    """Return the first operand of a call, as a tensor for steps."""
    return steps.operand(call, call.names[0])


def _optional_operand(call: OperatorCall, steps: KernelSteps, name: str) -> KernelTensor | None:
    """Return an operand of a call as a tensor for steps; None if it is not given or empty."""
    if not call.has_input(name) or call.input(name).numel == 0:
        return None
    return steps.operand(call, name)


def _record_linear_steps(
    steps: KernelSteps, x: KernelTensor, weight: KernelTensor, bias: KernelTensor | None
) -> KernelTensor:
    """Record the steps of x W^T + b, and return its result as a tensor for steps."""
    outputs, depth = weight.shape
    done = steps.contract(x, weight, depth, *x.shape[:-1], outputs)
    return done if bias is None else steps.add(done, bias)


def _record_norm_steps(
    call: OperatorCall, steps: KernelSteps, x: KernelTensor, prefix: str, subtracts_mean: bool
) -> KernelTensor:
    """Record the steps of a normalization with the operands PREFIXweight and PREFIXbias if given;
    return its result.
    """
    scale, bias = (
        _optional_operand(call, steps, f"{prefix}{kind}") for kind in ("weight", "bias")
    )
    return steps.normalize(x, scale, bias, subtracts_mean)


@register_kernel(
    "transformer_engine::linear",
    source=f"{_ENGINE}/module/linear.py",
    modules=(
        f"{_TE}.module.linear:Linear",
        "apex.fused_dense.fused_dense:FusedDense",
    ),
)
def linear_layer(call: OperatorCall, steps: KernelSteps) -> None:
    """Count a linear layer: per element of the result `in` MACs; with a bias 1 add."""
    x, weight = _first_operand(call, steps), steps.operand(call, "weight")
    _record_linear_steps(steps, x, weight, _optional_operand(call, steps, "bias"))


@register_kernel(
    "transformer_engine::layer_norm",
    source=f"{_ENGINE}/module/layernorm.py",
    modules=(
        f"{_TE}.module.layernorm:LayerNorm",
        "apex.normalization.fused_layer_norm:FusedLayerNorm",
        "apex.normalization.fused_layer_norm:MixedFusedLayerNorm",
        "apex.contrib.layer_norm.layer_norm:FastLayerNorm",
    ),
)
def layer_norm(call: OperatorCall, steps: KernelSteps) -> None:
    """Count LayerNormalization of n elements as in ONNX; weight: n muls; bias: n adds."""
    _record_norm_steps(call, steps, _first_operand(call, steps), "", subtracts_mean=True)


@register_kernel(
    "transformer_engine::rms_norm",
    source=f"{_ENGINE}/module/rmsnorm.py",
    modules=(
        f"{_TE}.module.rmsnorm:RMSNorm",
        "apex.normalization.fused_layer_norm:FusedRMSNorm",
        "apex.normalization.fused_layer_norm:MixedFusedRMSNorm",
    ),
)
def rms_norm(call: OperatorCall, steps: KernelSteps) -> None:
    """Count RMSNormalization of n elements as in ONNX; weight: n muls."""
    _record_norm_steps(call, steps, _first_operand(call, steps), "", subtracts_mean=False)


def _is_layer_norm(call: OperatorCall) -> bool:
    """Return whether the normalization of a call is LayerNorm, which subtracts the mean."""
    return bool(call_argument(call, "normalization") == "LayerNorm")


@register_kernel(
    "transformer_engine::layer_norm_linear",
    source=f"{_ENGINE}/module/layernorm_linear.py",
    modules=(f"{_TE}.module.layernorm_linear:LayerNormLinear",),
)
def layer_norm_linear(call: OperatorCall, steps: KernelSteps) -> None:
    """Count a normalization, then per element of the result `in` MACs (bias: 1 add).

    layer_norm_weight, layer_norm_bias [in], weight [out, in], bias [out].
    """
    x = _record_norm_steps(
        call, steps, _first_operand(call, steps), "layer_norm_", _is_layer_norm(call)
    )
    _record_linear_steps(
        steps, x, steps.operand(call, "weight"), _optional_operand(call, steps, "bias")
    )


@register_kernel(
    "transformer_engine::layer_norm_mlp",
    source=f"{_ENGINE}/module/layernorm_mlp.py",
    modules=(f"{_TE}.module.layernorm_mlp:LayerNormMLP",),
)
def layer_norm_mlp(call: OperatorCall, steps: KernelSteps) -> None:
    """Count a normalization, two linear layers, and GELU by tanh, ReLU or SwiGLU between them."""
    x = _record_norm_steps(
        call, steps, _first_operand(call, steps), "layer_norm_", _is_layer_norm(call)
    )
    weight = steps.operand(call, "fc1_weight")
    x = _record_linear_steps(steps, x, weight, _optional_operand(call, steps, "fc1_bias"))
    activation = call_argument(call, "activation")
    if activation == "swiglu":
        steps.record_read_by_pieces(x)
        half = (*x.shape[:-1], x.shape[-1] // 2)
        gated = steps.silu(steps.piece(x, *half))
        x = steps.multiply(gated, steps.piece(x, *half))
    elif activation == "gelu":
        x = steps.elementwise(GELU_TANH, (GELU_TANH_BACK,), x)
    elif activation == "relu":
        x = steps.elementwise(Cost(compares=1), (Cost(compares=1),), x)
    else:
        raise call.uncounted(f"the activation {activation!r} has no formula here")
    _record_linear_steps(
        steps, x, steps.operand(call, "fc2_weight"), _optional_operand(call, steps, "fc2_bias")
    )


def _transformer_engine_score_sizes(call: OperatorCall) -> ScoreSizes:
    """Return the score sizes of an attention of Transformer Engine. Raises UncountedCallError for
    packed sequences.
    """
    form = call.attributes.get("qkv_format", "sbhd")
    if form not in ("sbhd", "bshd"):
        raise call.uncounted(f"the lengths of the sequences of the form {form!r} depend on data")
    query, key, value = (call.inputs[position].shape for position in range(3))
    at = (1, 0) if form == "sbhd" else (0, 1)
    batch, queries, keys = query[at[0]], query[at[1]], key[at[1]]
    lengths = Lengths(batch * queries * keys, batch * queries, batch * keys)
    return ScoreSizes(lengths, query[2], key[2], query[3], value[3])


def _transformer_engine_score_extras(call: OperatorCall) -> ScoreExtras:
    """Return what an attention of Transformer Engine does with its scores: whether it
    masks them.
    """
    return ScoreExtras(masked=call.attributes.get("attn_mask_type", "causal") != "no_mask")


def _transformer_engine_gradient(call: OperatorCall, trainable: frozenset[str]) -> Gradient:
    """Return the cost of those gradients of a Transformer Engine attention that are trainable."""
    names = (*call.names[:3], "")
    return attention_gradient(
        _transformer_engine_score_sizes(call),
        _transformer_engine_score_extras(call),
        trainable,
        names,
    )


@operator(
    "transformer_engine::DotProductAttention",
    module=f"{_TE}.attention.dot_product_attention.dot_product_attention:DotProductAttention",
    backward=_transformer_engine_gradient,
    source=f"{_ENGINE}/attention/dot_product_attention",
)
def transformer_engine_attention(call: OperatorCall) -> Cost:
    """Count S scores: S*(D+Dv) MACs, softmax, 1 mul per element of Q, K; mask: S adds."""
    return attention_cost(
        _transformer_engine_score_sizes(call), _transformer_engine_score_extras(call)
    )
