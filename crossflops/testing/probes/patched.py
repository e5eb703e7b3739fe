"""What tools count otherwise that replace functions, or divide by the batch."""

from importlib.util import find_spec
from typing import Any

from crossflops.testing.probes.probe import Probe, function, inside, nn


def _vmapped(name: str) -> Any:
    def body(model: Any, *tensors: Any) -> Any:
        import torch

        return torch.vmap(getattr(torch, name))(*tensors)

    return function(body)


def _vmapped_layer(model: Any, x: Any) -> Any:
    import torch

    return torch.vmap(model.layer)(x)


def _complex(name: str) -> Any:
    def body(model: Any, *tensors: Any) -> Any:
        import torch

        return getattr(torch, name)(*(torch.complex(one, one) for one in tensors)).real

    return function(body)


def _functional(name: str, *args: Any, **kwargs: Any) -> Any:
    def body(model: Any, x: Any) -> Any:
        import torch.nn.functional

        return getattr(torch.nn.functional, name)(x, *args, **kwargs)

    return function(body)


def _sum(model: Any, a: Any, b: Any) -> Any:
    import torch

    return torch.add(a, b) + torch.mul(a, 2)


def _own_row(model: Any, x: Any) -> Any:
    return x + model.layer(model.other.weight)


def _methods(model: Any, a: Any, b: Any) -> Any:
    return a.matmul(b).add(a.bmm(b)).mul(a[0].mm(b[0]))


def _captured() -> Any:
    from torch import bmm  # before anybody can replace the attribute

    return function(lambda model, a, b: bmm(a, b))()


def _timm() -> Any:
    import importlib

    from crossflops.normalize.torchvision import mended

    made = mended(lambda: importlib.import_module("timm.models.vision_transformer")).Attention
    return function(lambda model, x: model.layer(x), layer=lambda: made(16, 2, qkv_bias=True))()


def _parametrized() -> Any:
    from torch import nn as torch_nn
    from torch.nn.utils import parametrize

    class LowRank(torch_nn.Module):
        def forward(self, weight: Any) -> Any:
            return weight.matmul(weight.mT).mm(weight)

    layer = torch_nn.Linear(6, 4)
    parametrize.register_parametrization(layer, "weight", LowRank())
    return function(lambda model, x: model.layer(x), layer=lambda: layer)()


def _hooked() -> Any:
    """Hooks of the model and of a layer: ahead of them and behind, a sum, a product of 8 x 8."""
    import torch
    from torch import nn as torch_nn

    layer, weight = torch_nn.Linear(8, 8, bias=False), torch.ones(8, 8)
    model = torch_nn.Sequential(layer)
    for one in (layer, model):
        one.register_forward_pre_hook(lambda module, given: (torch.matmul(given[0], weight),))
        one.register_forward_hook(lambda module, given, y: torch.add(y, y))
    return model


def _hooked_lstm() -> Any:
    import torch
    from torch import nn as torch_nn

    layer = torch_nn.LSTM(16, 32)
    layer.register_forward_hook(lambda module, given, y: (torch.mul(y[0], 2), y[1]))
    return function(lambda model, x: model.layer(x)[0], layer=lambda: layer)()


_ENLARGED = {"scale_factor": 1.5}
_PROBES = (
    # 2 times 3 x 4 x 5
    Probe("vmap_bmm", _vmapped("matmul"), ("2x3x4", "2x4x5"), 120),
    Probe("vmap_addmm", _vmapped("addmm"), ("2x3x5", "2x3x4", "2x4x5"), 120),
    # 5 times 8 x 8 x 8 inputs x 4 x 9
    Probe(
        "vmap_transposed",
        function(_vmapped_layer, layer=nn("ConvTranspose2d", 8, 4, 3)),
        ("5x8x8x8",),
        92160,
    ),
    # a product of complex numbers is four of real ones
    Probe("complex_bmm", _complex("bmm"), ("2x3x4", "2x4x5"), 4 * 120),
    Probe("complex_addmm", _complex("addmm"), ("3x5", "3x4", "4x5"), 4 * 60),
    Probe("add_misaligned", function(_sum), ("2x3x4", "4"), 0),
    # three products: 2 x 3 x 3 x 4 for two of them, 3 x 3 x 4
    Probe("methods", function(_methods), ("2x3x4", "2x4x3"), 72 + 72 + 36),
    Probe("bmm_captured", _captured, ("2x3x4", "2x4x5"), 120),
    Probe("F.interpolate_half", _functional("interpolate", **_ENLARGED), ("1x3x5x5",), 0),
    Probe("F.interpolate_int", _functional("interpolate", 7), ("2x3x5x5",), 0),
    Probe("F.interpolate_area", _functional("interpolate", 2, mode="area"), ("2x3x5x5",), 0),
    Probe("F.lp_pool2d", _functional("lp_pool2d", 2, 2), ("2x3x6x6",), 0),
    Probe("Up_pair", inside(nn("Upsample", scale_factor=(2, 1.5))), ("2x3x4x4",), 0),
    # 4 rows of 3 inputs and 5 outputs, whatever the batch of 3
    Probe(
        "batch_of_three",
        function(_own_row, layer=nn("Linear", 3, 5), other=nn("Linear", 3, 4)),
        ("3x4x5",),
        60,
    ),
    # 3 rows of 6 x 4, and the weight: 4 x 6 x 4 and 4 x 4 x 6
    Probe("parametrized", _parametrized, ("3x6",), 72 + 96 + 96),
    # 3 rows of 8 x 8: two pre-hooks and the layer
    Probe("hooked", _hooked, ("3x8",), 3 * 192),
    # T B x 4 H (I + H); alone, with a state: T B x 3 H (I + H)
    Probe("LSTM_hooked", _hooked_lstm, ("5x2x16",), 61440),
    Probe("GRU_alone", nn("GRU", 16, 32), ("5x2x16", "1x2x32"), 46080),
    # E = 32: 2 x 5 x (4 x 32 x 32 + 2 x 5 x 32)
    Probe("MHA_alone", nn("MultiheadAttention", 32, 4), ("5x2x32",) * 3, 44160),
    # E = 32, keys of 16 and values of 24 features, 7 of them and 5 queries, batch 2:
    # 2 (5 x 32 x 32 + 7 x 16 x 32 + 7 x 24 x 32 + 2 x 5 x 7 x 32 + 5 x 32 x 32)
    Probe(
        "MHA_sizes",
        inside(nn("MultiheadAttention", 32, 4, kdim=16, vdim=24, batch_first=True)),
        ("2x5x32", "2x7x16", "2x7x24"),
        42880,
    ),
)
# 10 tokens x 16 x (48 + 16), 2 x 2 x 2 heads x 5 x 5 x 8
_TIMM = (Probe("timm_attention", _timm, ("2x5x16",), 10240 + 1600),) if find_spec("timm") else ()
PROBES = (*_PROBES, *_TIMM)
