"""Recurrences step by step, for the scans of Mamba and of flash-linear-attention."""

# ruff: noqa: N803  the names that the operators have for their operands

import random

import torch
from torch.nn import functional as F  # noqa: N812

from tests.operators.kernels.calls import Case, Kernel


def _convolution(x, weight, bias=None, silu_activation=False, **_):
    padded = F.pad(x, (weight.shape[1] - 1, 0))
    done = F.conv1d(padded, weight.unsqueeze(1), bias, groups=weight.shape[0])
    return F.silu(done) if silu_activation else done


def _draw_convolution(draw: random.Random) -> Case:
    batch, channels, length, width = (draw.randint(1, n) for n in (3, 4, 6, 4))
    tensors = {"x": (batch, channels, length), "weight": (channels, width)}
    if draw.random() < 0.5:
        tensors["bias"] = (channels,)
    attributes = {"silu_activation": draw.random() < 0.5}
    return Case(tensors, tuple(tensors), [tensors["x"]], attributes)


def _scan(u, delta, A, B, C, D=None, z=None, delta_bias=None, delta_softplus=False, **_):
    batch, channels, length = u.shape
    states = A.shape[1]
    if delta_bias is not None:
        delta = delta + delta_bias[:, None]
    if delta_softplus:
        delta = torch.log1p(torch.exp(delta))
    decay = torch.exp(delta[..., None] * A[None, :, None])
    groups = next((x.shape[1] for x in (B, C) if x.dim() == 4), 1)

    def tokens_first(x):
        if x.dim() == 2:
            return x.view(1, groups, channels // groups, 1, states)
        return x.view(batch, groups, 1, states, length).transpose(3, 4)

    split = batch, groups, channels // groups, length
    driven = (delta * u).view(*split, 1) * tokens_first(B)
    decays = decay.view(*split, states).split(1, 3)
    state, every = None, []
    for kept, new in zip(decays, driven.split(1, 3), strict=True):
        state = new if state is None else kept * state + new
        every.append(state)
    states_ = torch.cat(every, 3)
    if C.dim() == 2:
        read = C.view(1, groups, channels // groups, states, 1)
        done = (states_ @ read).view(u.shape)
    else:
        lengthwise = states_.transpose(2, 3)  # [B, G, L, channels, N]
        read = C.view(batch, groups, 1, states, length).permute(0, 1, 4, 3, 2)
        done = (lengthwise @ read).squeeze(-1).transpose(2, 3).reshape(u.shape)
    if D is not None:
        done = done + u * D[:, None]
    return done if z is None else done * F.silu(z)


def _draw_scan(draw: random.Random) -> Case:
    groups = draw.randint(1, 2)
    channels = groups * draw.randint(1, 2)
    batch, length, states = draw.randint(1, 2), draw.randint(2, 4), draw.randint(1, 3)
    x = (batch, channels, length)
    tensors = {"u": x, "delta": x, "A": (channels, states)}
    grouped = (batch, groups, states, length) if draw.random() < 0.6 else (batch, states, length)
    for name in ("B", "C"):
        tensors[name] = grouped if draw.random() < 0.8 else (channels, states)
    for name, shape in (("D", (channels,)), ("z", x), ("delta_bias", (channels,))):
        if draw.random() < 0.5:
            tensors[name] = shape
    attributes = {"delta_softplus": draw.random() < 0.5}
    return Case(tensors, tuple(tensors), [x], attributes)


def _chunks(
    x, dt, A, B, C, chunk_size, D=None, z=None, dt_bias=None, initial_states=None,
    dt_softplus=False, **_,
):  # fmt: skip
    """Chunk by chunk: weights within it, the state that it leaves, what came before it."""
    batch, _, heads, width = x.shape
    groups, states = B.shape[2:]
    shared = heads // groups
    if dt_bias is not None:
        dt = dt + dt_bias
    if dt_softplus:
        dt = torch.log1p(torch.exp(dt))
    rates = dt * A
    state, done = initial_states, []
    if state is not None:
        state = state.view(batch, groups, shared, width, states)
    parts = (part.split(chunk_size, 1) for part in (x, dt, rates, B, C))
    for inputs, step, rate, drive, read in zip(*parts, strict=True):
        tokens = inputs.shape[1]

        def by_head(part, tokens=tokens):
            moved = part.transpose(1, 2)
            return moved.reshape(batch, groups, shared, tokens, *part.shape[3:])

        def by_group(part, tokens=tokens):
            return part.transpose(1, 2).unsqueeze(2)

        sums = torch.cumsum(by_head(rate), -1)
        step, inputs = by_head(step), by_head(inputs)
        drive, read = by_group(drive), by_group(read)
        fade = torch.exp(sums[..., :, None] - sums[..., None, :])
        weights = (read @ drive.transpose(-1, -2)) * fade * step[..., None, :]
        result = weights @ inputs
        last = sums.split([tokens - 1, 1], -1)[1] if tokens > 1 else sums
        rest = torch.exp(last - sums) * step
        left = inputs.transpose(-1, -2) @ (drive * rest[..., None])
        if state is not None:
            known = read @ state.transpose(-1, -2)
            result = result + known * torch.exp(sums)[..., None]
            left = state * torch.exp(last)[..., None] + left
        state = left
        done.append(result.reshape(batch, heads, tokens, width).transpose(1, 2))
    out = torch.cat(done, 1)
    if D is not None:
        out = out + x * (D if D.dim() == 2 else D[:, None])
    return (out if z is None else out * F.silu(z)), state


def _draw_chunks(draw: random.Random) -> Case:
    groups = draw.randint(1, 2)
    heads = groups * draw.randint(1, 2)
    batch, length = draw.randint(1, 2), draw.randint(1, 7)
    width, states = draw.randint(1, 3), draw.randint(1, 3)
    tensors = {
        "x": (batch, length, heads, width),
        "dt": (batch, length, heads),
        "A": (heads,),
        "B": (batch, length, groups, states),
        "C": (batch, length, groups, states),
    }
    optional = {
        "D": draw.choice([(heads,), (heads, width)]),
        "z": tensors["x"],
        "dt_bias": (heads,),
        "initial_states": (batch, heads, width, states),
    }
    tensors |= {name: shape for name, shape in optional.items() if draw.random() < 0.4}
    attributes = {"chunk_size": draw.randint(2, 4), "dt_softplus": draw.random() < 0.5}
    return Case(tensors, tuple(tensors), [tensors["x"]], attributes)


def _normalized(x):
    return x * torch.reciprocal(torch.sqrt((x * x).sum(-1, keepdim=True) + 1e-6))


def _linear(
    q, k, v, g=None, gk=None, gv=None, beta=None, initial_state=None,
    use_qk_l2norm_in_kernel=False, **_,
):  # fmt: skip
    """S = decay S + k u^T, o = S^T q, token by token."""
    batch, length, heads, depth = q.shape
    states, wide = v.shape[2:]
    shared = states // heads
    if use_qk_l2norm_in_kernel:
        q, k = _normalized(q), _normalized(k)
    q = q * 0.5

    def gate(x, name):
        x = torch.exp(x)
        if x.dim() == 3:
            return x.view(batch, length, heads, shared, 1, 1).split(1, 1)
        if name == "gv":
            return x.view(batch, length, heads, shared, 1, wide).split(1, 1)
        return x.view(batch, length, heads, x.shape[2] // heads, depth, 1).split(1, 1)

    given = {"g": g, "gk": gk, "gv": gv}
    gates = [gate(x, name) for name, x in given.items() if x is not None]
    keys = k.view(batch, length, heads, 1, depth).split(1, 1)
    queries = q.view(batch, length, heads, 1, 1, depth).split(1, 1)
    values = v.view(batch, length, heads, shared, 1, wide).split(1, 1)
    if beta is not None:
        last = beta.shape[-1] if beta.dim() == 4 else 1
        beta = beta.view(batch, length, heads, shared, 1, last).split(1, 1)
    state, done = initial_state, []
    if state is not None:
        state = state.view(batch, heads, shared, depth, wide)
    for at in range(length):
        key, value = keys[at].squeeze(1), values[at].squeeze(1)
        if state is not None:
            for each in gates:
                state = state * each[at].squeeze(1)
        if beta is not None:
            if state is not None:
                value = value - key[..., None, :] @ state
            value = value * beta[at].squeeze(1)
        written = key[..., None] @ value
        state = written if state is None else state + written
        done.append(queries[at].squeeze(1) @ state)
    return torch.stack(done, 1)


def _draw_linear(rule: str):
    def draw_call(draw: random.Random) -> Case:
        heads = draw.randint(1, 2)
        shared = draw.randint(1, 2)
        batch, length = draw.randint(1, 2), draw.randint(1, 4)
        depth, wide = draw.randint(1, 3), draw.randint(1, 3)
        keys, states = (batch, length, heads, depth), heads * shared
        tensors = {"q": keys, "k": keys, "v": (batch, length, states, wide)}
        if "gated" in rule:
            tensors["g"] = draw.choice([(batch, length, states), keys])
        if "delta" in rule:
            tensors["beta"] = (batch, length, states)
        if rule == "keys and values":
            tensors |= {"gk": keys, "gv": tensors["v"]}
        if draw.random() < 0.4:
            tensors["initial_state"] = (batch, states, depth, wide)
        attributes = {"scale": 0.5, "use_qk_l2norm_in_kernel": draw.random() < 0.3}
        return Case(tensors, tuple(tensors), [tensors["v"]], attributes)

    return draw_call


KERNELS = [
    Kernel("causal_conv1d::CausalConv1dFn", _draw_convolution, _convolution),
    Kernel("DaoAILab::_causal_conv1d_fwd_cpp", _draw_convolution, _convolution, backward=False),
    Kernel(
        "mamba_ssm::selective_scan_fwd",
        _draw_scan,
        _scan,
        others={"mamba_ssm::SelectiveScanFn": {}},
    ),
    Kernel(
        "mamba_ssm::mamba_chunk_scan_combined",
        _draw_chunks,
        _chunks,
        others={"mamba_ssm::MambaChunkScanCombinedFn": {}},
    ),
    Kernel(
        "fla::ChunkGLAFunction",
        _draw_linear("gated"),
        _linear,
        others={
            "fla::ChunkSimpleGLAFunction": {},
            "fla::ChunkLinearAttentionFunction": {},
            "fla::ChunkRetentionFunction": {},
            "fla::chunk_linear_attention": {},
        },
    ),
    Kernel("fla::ChunkDeltaRuleFunction", _draw_linear("delta"), _linear),
    Kernel(
        "fla::ChunkGatedDeltaRuleFunction",
        _draw_linear("gated delta"),
        _linear,
        others={
            "fla::ChunkKDAFunction": {},
            "fla::FusedRecurrentGatedDeltaRuleFunction": {},
        },
    ),
    Kernel(
        "fla::FusedRecurrentFunction",
        _draw_linear("keys and values"),
        _linear,
        others={"fla::fused_recurrent": {}},
    ),
]
