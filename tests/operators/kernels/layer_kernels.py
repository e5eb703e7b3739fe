"""Layers of PyTorch, for those of Transformer Engine and apex."""

import random

from torch.nn import functional as F  # noqa: N812

from tests.operators.kernels.calls import Case, Kernel


def linear(inp, weight, bias=None):
    """A linear layer."""
    return F.linear(inp, weight, bias)


def _draw_linear(draw: random.Random) -> Case:
    rows = tuple(draw.randint(1, 3) for _ in range(draw.randint(1, 2)))
    depth, outputs = draw.randint(1, 5), draw.randint(1, 5)
    tensors = {"inp": (*rows, depth), "weight": (outputs, depth)}
    if draw.random() < 0.5:
        tensors["bias"] = (outputs,)
    return Case(tensors, tuple(tensors), [(*rows, outputs)])


def layer_norm(inp, weight, bias):
    """A layer normalization."""
    return F.layer_norm(inp, inp.shape[-1:], weight, bias)


def rms_norm(inp, weight):
    """Without a mean."""
    return F.rms_norm(inp, inp.shape[-1:], weight, 1e-5)


def _draw_norm(names):
    def draw_call(draw: random.Random) -> Case:
        shape = (draw.randint(1, 4), draw.randint(1, 4), draw.randint(2, 5))
        tensors = {"inp": shape} | dict.fromkeys(names, shape[-1:])
        return Case(tensors, tuple(tensors), [shape])

    return draw_call


def layer_norm_linear(inp, layer_norm_weight, layer_norm_bias, weight, bias, normalization):
    """Both."""
    return F.linear(layer_norm(inp, layer_norm_weight, layer_norm_bias), weight, bias)


def _draw_norm_linear(draw: random.Random) -> Case:
    rows, depth, outputs = draw.randint(1, 4), draw.randint(2, 5), draw.randint(1, 5)
    tensors = {
        "inp": (rows, depth),
        "layer_norm_weight": (depth,),
        "layer_norm_bias": (depth,),
        "weight": (outputs, depth),
        "bias": (outputs,),
    }
    attributes = {"normalization": "LayerNorm"}
    return Case(tensors, tuple(tensors), [(rows, outputs)], attributes)


def layer_norm_mlp(
    inp, layer_norm_weight, layer_norm_bias, fc1_weight, fc1_bias, fc2_weight, fc2_bias,
    normalization, activation,
):  # fmt: skip
    """A normalization and a perceptron."""
    x = F.linear(layer_norm(inp, layer_norm_weight, layer_norm_bias), fc1_weight, fc1_bias)
    if activation == "swiglu":
        gated, gate = x.chunk(2, -1)
        x = F.silu(gated) * gate
    else:
        x = F.relu(x) if activation == "relu" else F.gelu(x, approximate="tanh")
    return F.linear(x, fc2_weight, fc2_bias)


def _draw_mlp(draw: random.Random) -> Case:
    rows, depth, inner = draw.randint(1, 4), draw.randint(2, 5), draw.randint(1, 3)
    activation = draw.choice(["swiglu", "gelu", "relu"])
    wide = 2 * inner if activation == "swiglu" else inner
    tensors = {
        "inp": (rows, depth),
        "layer_norm_weight": (depth,),
        "layer_norm_bias": (depth,),
        "fc1_weight": (wide, depth),
        "fc1_bias": (wide,),
        "fc2_weight": (depth, inner),
        "fc2_bias": (depth,),
    }
    attributes = {"normalization": "LayerNorm", "activation": activation}
    return Case(tensors, tuple(tensors), [(rows, depth)], attributes)


KERNELS = [
    Kernel(
        "transformer_engine::linear",
        _draw_linear,
        linear,
        others={"transformer_engine::Linear": {}, "apex::FusedDense": {"inp": "input"}},
    ),
    Kernel(
        "transformer_engine::layer_norm",
        _draw_norm(("weight", "bias")),
        layer_norm,
        others={
            "transformer_engine::LayerNorm": {},
            "apex::FusedLayerNorm": {"inp": "input"},
            "apex::MixedFusedLayerNorm": {"inp": "input"},
            "apex::FastLayerNorm": {"inp": "x"},
        },
    ),
    Kernel(
        "transformer_engine::rms_norm",
        _draw_norm(("weight",)),
        rms_norm,
        others={
            "transformer_engine::RMSNorm": {},
            "apex::FusedRMSNorm": {"inp": "input"},
            "apex::MixedFusedRMSNorm": {"inp": "input"},
        },
    ),
    Kernel(
        "transformer_engine::layer_norm_linear",
        _draw_norm_linear,
        layer_norm_linear,
        others={"transformer_engine::LayerNormLinear": {}},
    ),
    Kernel(
        "transformer_engine::layer_norm_mlp",
        _draw_mlp,
        layer_norm_mlp,
        others={"transformer_engine::LayerNormMLP": {}},
    ),
]
