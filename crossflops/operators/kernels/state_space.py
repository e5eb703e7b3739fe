"""The cost of Mamba: the selective scan, the chunked scan of Mamba-2, and the causal convolution
before them.

Sources: Gu and Dao, Mamba (2023), algorithm 2; Dao and Gu, Transformers are SSMs (2024), 6.
"""

from collections.abc import Sequence

from crossflops.ir.ledger import ZERO, Cost
from crossflops.operators.formula import OperatorCall, operator
from crossflops.operators.kernels.steps import (
    KernelSteps,
    KernelTensor,
    call_argument,
    register_kernel,
)

_MAMBA = "https://github.com/state-spaces/mamba/blob/main/mamba_ssm/ops/"
_CONVOLUTION = "https://github.com/Dao-AILab/causal-conv1d/blob/main/causal_conv1d/"


def _has_silu(call: OperatorCall) -> bool:
    """Return whether the call applies SiLU to its result."""
    if "silu_activation" in call.attributes:
        return bool(call.attributes["silu_activation"])
    return call_argument(call, "activation") in ("silu", "swish")


@register_kernel(
    "DaoAILab::_causal_conv1d_fwd_cpp",
    source=f"{_CONVOLUTION}cpp_functions.py",
    modules=("causal_conv1d.causal_conv1d_interface:CausalConv1dFn",),
    writes=True,
)
def causal_convolution(call: OperatorCall, steps: KernelSteps) -> None:
    """Count a convolution of n elements: n*width MACs; bias: n adds; SiLU: n*(sigmoid, mul).

    x [B, D, L], weight [D, width]: a convolution of each channel with what came before it. Tokens
    before the first are zeros, and count.
    """
    x, weight = steps.operand(call, "x"), steps.operand(call, "weight")
    _record_convolution_steps(call, steps, x, weight, "bias", _has_silu(call))


@operator(
    "DaoAILab::_causal_conv1d_bwd_cpp", backward="none", source=f"{_CONVOLUTION}cpp_functions.py"
)
def causal_convolution_backward(call: OperatorCall) -> Cost:
    """Count gradients of n elements: 2*n*width MACs (dx, dweight), n-D adds (dbias); SiLU: more.

    What comes before the activation is not kept: with SiLU the convolution runs again, with its
    bias, and dY s (1 + y (1 - s)) takes a sigmoid, 3 muls and 2 adds for each element.
    """
    trainable = [name for name in ("x", "weight", "bias") if call.has_input(name)]
    steps, has_silu = KernelSteps(frozenset(trainable)), _has_silu(call)
    x, weight = steps.operand(call, "x"), steps.operand(call, "weight")
    _record_convolution_steps(call, steps, x, weight, "bias", has_silu)
    back = steps.gradient
    again = KernelSteps()
    if has_silu:
        _record_convolution_steps(call, again, x, weight, "bias", False)
    return sum(back.operands.values(), back.inner + again.forward)


def _record_convolution_steps(
    call: OperatorCall,
    steps: KernelSteps,
    x: KernelTensor,
    weight: KernelTensor,
    bias: str,
    has_silu: bool,
) -> KernelTensor:
    """Record the steps of a convolution of x [B, D, L] with a weight [D, width] or [D, 1, width];
    return its result.
    """
    value = steps.contract(x, weight, weight.shape[-1], *x.shape)
    if call.has_input(bias):
        value = steps.add(value, steps.operand(call, bias, weight.shape[0], 1))
    return steps.silu(value) if has_silu else value


@register_kernel(
    "mamba_ssm::selective_scan_fwd",
    source=f"{_MAMBA}selective_scan_interface.py",
    modules=("mamba_ssm.ops.selective_scan_interface:SelectiveScanFn",),
)
def selective_scan(call: OperatorCall, steps: KernelSteps) -> None:
    """Count a scan of N states: B*D*L*N*(MAC, 3 muls, exp, add), less the first state; gates.

    h = exp(delta A) h + delta B u, y = C h. Per token and channel delta u, a mul; per state
    delta A a mul and exp, delta B u a mul, h a mul and an add (none for
    the first token, whose state was zero), y a MAC. delta_bias B*D*L adds; softplus;
    D B*D*L (mul, add); z B*D*L (SiLU, mul).
    u, delta, z [B, D, L], A [D, N], B, C [B, N, L] or [B, G, N, L].
    """
    record_selective_scan_steps(
        call, steps, steps.operand(call, "u"), steps.operand(call, "delta")
    )


def record_selective_scan_steps(
    call: OperatorCall,
    steps: KernelSteps,
    u: KernelTensor,
    delta: KernelTensor,
    z: KernelTensor | None = None,
) -> KernelTensor:
    """Record the steps of a selective scan of u [B, D, L], with steps `delta` of the same shape;
    return its result.
    """
    batch, channels, length = u.shape
    states = call.input("A").shape[1]
    groups, drive, read = 1, None, None
    shapes = [call.input(name).shape for name in ("B", "C")]
    groups = next((shape[1] for shape in shapes if len(shape) == 4), 1)
    split = batch, groups, channels // groups
    drive, read = (
        steps.operand(call, name, 1, groups, channels // groups, 1, states)
        if len(shape) == 2
        else steps.operand(call, name, batch, groups, 1, length, states)
        for name, shape in zip(("B", "C"), shapes, strict=True)
    )
    if call.has_input("delta_bias"):
        delta = steps.add(delta, steps.operand(call, "delta_bias", channels, 1))
    if call_argument(call, "delta_softplus"):
        delta = steps.softplus(delta)
    decay_rates = steps.operand(call, "A", 1, channels, 1, states)
    decay = steps.exponential(steps.multiply(steps.view(delta, *delta.shape, 1), decay_rates))
    driven = steps.multiply(delta, u)
    driven = steps.multiply(steps.view(driven, *split, length, 1), drive)
    state_shape = (*split, states)
    if length > 1:
        steps.record_read_by_pieces(decay)
    steps.record_read_by_pieces(driven)
    state = steps.piece(driven, *state_shape)
    for runs in (min(length - 1, 1), max(length - 2, 0)):
        if runs > 0:
            with steps.repeating(runs):
                kept = steps.multiply(steps.piece(decay, *state_shape), state)
                steps.add_gradient_cost(state, ZERO)
                state = steps.add(kept, steps.piece(driven, *state_shape))
    steps.add_gradient_cost(state, ZERO)
    every = steps.tensor_from(driven, decay, shape=(*split, length, states))
    result = steps.contract(every, read, states, batch, channels, length)
    if call.has_input("D"):
        skip = steps.operand(call, "D", channels, 1)
        result = steps.add(result, steps.multiply(u, skip))
    if z is None and call.has_input("z"):
        z = steps.operand(call, "z")
    return result if z is None else steps.multiply(result, steps.silu(z))


@register_kernel(
    "mamba_ssm::mamba_chunk_scan_combined",
    source=f"{_MAMBA}triton/ssd_combined.py",
    modules=("mamba_ssm.ops.triton.ssd_combined:MambaChunkScanCombinedFn",),
)
def chunk_scan(call: OperatorCall, steps: KernelSteps) -> None:
    """Count per chunk of q tokens G*q*q*N + H*(q*q*P + 2*q*P*N) MACs, H*q*q*(exp, sub, 2 muls) ...

    x [B, L, H, P], dt [B, L, H], A [H], B, C [B, L, G, N]. Within a chunk (C B^T * decay * dt) x,
    whole squares; the state of a chunk, (B * decay * dt)^T x; between chunks
    S = exp(sum) S + state; from before C S * exp(cumsum). dt A, its running sums; dt_bias,
    softplus, D and z as in the selective scan. The last chunk is as long as what is left.
    """
    x, step = steps.operand(call, "x"), steps.operand(call, "dt")
    record_chunk_scan_steps(
        call, steps, x, step, steps.operand(call, "B"), steps.operand(call, "C")
    )


def record_chunk_scan_steps(
    call: OperatorCall,
    steps: KernelSteps,
    x: KernelTensor,
    step: KernelTensor,
    drive: KernelTensor,
    read: KernelTensor,
) -> KernelTensor:
    """Record the steps of a scan in chunks, for x [B, L, H, P], B and C [B, L, G, N], steps [B, L,
    H]; return its result.
    """
    batch, length, heads, width = x.shape
    groups, states = drive.shape[2:]
    size = int(call_argument(call, "chunk_size"))
    if call.has_input("dt_bias"):
        step = steps.add(step, steps.operand(call, "dt_bias", heads))
    if call_argument(call, "dt_softplus"):
        step = steps.softplus(step)
    rates = steps.multiply(step, steps.operand(call, "A", heads))
    state_carry = (batch, groups, heads // groups, width, states)
    state: KernelTensor | None = None
    if call.has_input("initial_states"):
        state = steps.operand(call, "initial_states", *state_carry)
    full, left = divmod(length, size)
    chunks = [(size, min(full, 1)), (size, max(full - 1, 0)), (left, 1 if left else 0)]
    operands = [steps.record_read_by_pieces(value) for value in (x, step, rates, drive, read)]
    for tokens, runs in chunks:
        if runs:
            with steps.repeating(runs):
                state = _record_one_chunk_steps(steps, tokens, operands, state, state_carry)
    result = steps.tensor_from(*operands, shape=x.shape)
    if call.has_input("D"):
        skip = steps.operand(call, "D", heads, call.input("D").shape[-1] if
                             call.input("D").rank == 2 else 1)  # fmt: skip
        result = steps.add(result, steps.multiply(x, skip))
    if call.has_input("z"):
        result = steps.multiply(result, steps.silu(steps.operand(call, "z")))
    return result


def _record_one_chunk_steps(
    steps: KernelSteps,
    tokens: int,
    operands: Sequence[KernelTensor],
    before: KernelTensor | None,
    state_carry: tuple[int, ...],
) -> KernelTensor:
    """Record the steps of one chunk of `tokens` tokens, and return the state after it."""
    x, step, rates, drive, read = operands
    batch, groups, shared, width, states = state_carry
    heads = batch, groups, shared
    columns, rows, row = (*heads, tokens, 1), (*heads, 1, tokens), (*heads, tokens)
    sums = steps.running_sum(steps.piece(rates, *row))
    step = steps.piece(step, *row)
    inputs = steps.piece(x, *heads, tokens, width)
    drive = steps.piece(drive, batch, groups, 1, tokens, states)
    read = steps.piece(read, batch, groups, 1, tokens, states)
    # within the chunk
    weights = steps.contract(read, drive, states, batch, groups, 1, tokens, tokens)
    fade = steps.subtract(steps.view(sums, *columns), steps.view(sums, *rows))
    weights = steps.multiply(weights, steps.exponential(fade))
    weights = steps.multiply(weights, steps.view(step, *rows))
    result = steps.contract(weights, inputs, tokens, *heads, tokens, width)
    # the state that it leaves
    steps.record_read_by_pieces(sums)
    last = steps.piece(sums, *heads, 1)
    rest = steps.multiply(steps.exponential(steps.subtract(last, sums)), step)
    scaled = steps.multiply(drive, steps.view(rest, *columns))
    state = steps.contract(inputs, scaled, tokens, *state_carry)
    if before is None:
        return state
    # what came before it
    faded = steps.exponential(sums)
    known = steps.contract(read, before, states, *heads, tokens, width)
    steps.add(result, steps.multiply(known, steps.view(faded, *columns)))
    kept = steps.multiply(before, steps.view(steps.exponential(last), *heads, 1, 1))
    return steps.add(kept, state)
