"""The cost of flash-linear-attention: recurrences over a state of keys by values, one for each
head.

A step of a token is that of the recurrence (Yang et al., Gated Linear Attention, 2023, equation
3; Delta Rule, 2024, equation 4; Gated Delta Networks, 2024, equation 10).
The fused recurrent kernels run it so. The chunked ones compute the same by products
of whole chunks, whose size their library chooses: of them this is an estimate.
"""

from crossflops.ir.ledger import Cost
from crossflops.operators.formula import OperatorCall
from crossflops.operators.kernels.steps import (
    KernelSteps,
    KernelTensor,
    call_argument,
    register_kernel,
)

_OPS = "https://github.com/fla-org/flash-linear-attention/tree/main/fla/ops"
_CHUNKED = (
    "fla.ops.gla.chunk:ChunkGLAFunction",
    "fla.ops.simple_gla.chunk:ChunkSimpleGLAFunction",
    "fla.ops.linear_attn.chunk:ChunkLinearAttentionFunction",
    "fla.ops.retention.chunk:ChunkRetentionFunction",
    "fla.ops.delta_rule.chunk:ChunkDeltaRuleFunction",
    "fla.ops.gated_delta_rule.chunk:ChunkGatedDeltaRuleFunction",
    "fla.ops.kda.chunk:ChunkKDAFunction",
)
_RECURRENT = (
    "fla.ops.common.fused_recurrent:FusedRecurrentFunction",
    "fla.ops.gated_delta_rule.fused_recurrent:FusedRecurrentGatedDeltaRuleFunction",
)


def linear_recurrence(call: OperatorCall, steps: KernelSteps) -> None:
    """Count B*T*H*dk*dv*2 MACs and adds; delta: 1 MAC more; gates: muls; less the first state.

    q, k [B, T, H, dk], v [B, T, Hv, dv]; a state S [dk, dv] for each of Hv heads. Per token
    S = decay S + k u^T, o = S^T q. Delta rule: u = beta (v - S^T k), else u = v. Gates g, of each
    head [B, T, Hv] or key [B, T, H, dk], gk of keys, gv of values: an exp for each, a mul for each
    element of S and gate. q is scaled, n(q) muls. With use_qk_l2norm_in_kernel q and k are
    x / sqrt(sum(x^2) + eps). The first token meets no state where there is no initial one;
    of a call that has no other token, no gate is read.
    """
    batch, length, heads, depth = call.input("q").shape
    states, wide = call.input("v").shape[2:]
    query, key = steps.operand(call, "q"), steps.operand(call, "k")
    if _has_normalization_option(call) and call_argument(call, "use_qk_l2norm_in_kernel"):
        query, key = _record_row_normalization(steps, query), _record_row_normalization(steps, key)
    query = steps.multiply(query, steps.constant_tensor(1))
    shared = heads, max(states // heads, 1)
    has_state = call.has_input("initial_state")
    decays = length > 1 or has_state  # else there is no state that a gate could decay
    gates = {
        name: steps.exponential(steps.operand(call, name))
        for name in ("g", "gk", "gv") if decays and call.has_input(name)
    }  # fmt: skip
    tensors = {"query": query, "key": key, "v": steps.operand(call, "v")} | gates
    if call.has_input("beta"):
        tensors["beta"] = steps.operand(call, "beta")
    for value in tensors.values():
        steps.record_read_by_pieces(value)
    state_shape = batch, *shared, depth, wide
    state = steps.operand(call, "initial_state", *state_shape) if has_state else None
    for runs in (min(length, 1), min(max(length - 1, 0), 1), max(length - 2, 0)):
        if runs:
            with steps.repeating(runs):
                state = _record_token_steps(steps, tensors, state, state_shape)
                reader = steps.piece(query, batch, heads, 1, 1, depth)
                steps.contract(reader, state, depth, batch, *shared, 1, wide)


def _record_token_steps(
    steps: KernelSteps,
    tensors: dict[str, KernelTensor],
    state: KernelTensor | None,
    state_shape: tuple[int, ...],
) -> KernelTensor:
    """Record the steps of one more token of a linear attention, and return the state after it."""
    batch, heads, shared, depth, wide = state_shape
    key = steps.piece(tensors["key"], batch, heads, 1, depth, 1)
    value = steps.piece(tensors["v"], batch, heads, shared, 1, wide)
    for name in ("g", "gk", "gv"):
        if state is not None and name in tensors:
            shape = _gate_broadcast_shape(tensors[name].shape, name, state_shape)
            state = steps.multiply(state, steps.piece(tensors[name], *shape))
    if "beta" in tensors:
        if state is not None:
            across = steps.view(key, batch, heads, 1, 1, depth)
            known = steps.contract(across, state, depth, batch, heads, shared, 1, wide)
            value = steps.subtract(value, known)
        beta = tensors["beta"].shape
        last = beta[-1] if len(beta) == 4 else 1
        value = steps.multiply(value, steps.piece(tensors["beta"], batch, heads, shared, 1, last))
    written = steps.contract(key, value, 1, *state_shape)
    return written if state is None else steps.add(state, written)


def _gate_broadcast_shape(
    shape: tuple[int, ...], name: str, state_shape: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the shape in which the gate of one token (named "g", "gk" or "gv") broadcasts to the
    state.
    """
    batch, heads, shared, depth, wide = state_shape
    if len(shape) == 3:
        return batch, heads, shared, 1, 1
    if name == "gv":
        return batch, heads, shared, 1, wide
    return batch, heads, shape[2] // heads, depth, 1


def _has_normalization_option(call: OperatorCall) -> bool:
    """Return whether the kernel is one of a delta rule, which has an option to normalize
    q and k.
    """
    return "DeltaRule" in call.operator or "use_qk_l2norm_in_kernel" in call.attributes


def _record_row_normalization(steps: KernelSteps, value: KernelTensor) -> KernelTensor:
    """Record the steps of x / sqrt(sum(x^2) + eps) along the last axis, and return its result."""
    rows = (*value.shape[:-1], 1)
    total = steps.sum_to_shape(steps.multiply(value, value), *rows)
    total = steps.add(total, steps.constant_tensor(1))
    root = steps.elementwise(Cost(specials=1), (Cost(divs=1, muls=1),), total)
    inverse = steps.elementwise(Cost(divs=1), (Cost(muls=2, adds=1),), root)
    return steps.multiply(value, inverse)


register_kernel("fla::chunk_linear_attention", source=_OPS, doubt="estimate", modules=_CHUNKED)(
    linear_recurrence
)
register_kernel("fla::fused_recurrent", source=_OPS, modules=_RECURRENT)(linear_recurrence)
