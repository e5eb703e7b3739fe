"""Layers with parameters of their own, and what some tools read instead of the work."""

from collections.abc import Callable
from typing import Any

from crossflops.testing.probes.probe import Probe, function, inside, nn

_IMAGE, _ROWS, _TOKENS = ("1x3x16x16",), ("4x64",), ("2x10x64",)


def _layer(name: str, body: Callable[..., Any], **shapes: tuple[int, ...]) -> Callable[[], Any]:
    """A layer of a class of this name, with these parameters; its forward is `body(layer, x)`."""

    def build() -> Any:
        import torch

        made = type(name, (torch.nn.Module,), {"forward": body})()
        for parameter, shape in shapes.items():
            made.register_parameter(parameter, torch.nn.Parameter(torch.randn(shape)))
        return made

    return build


class _Result:
    """What no tool takes apart."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _packed(layer: Any, x: Any) -> Any:
    return _Result(x @ layer.kernel)


def _unpacked(model: Any, x: Any) -> Any:
    return model.layer(x).value


def _linear(layer: Any, x: Any) -> Any:
    import torch

    return torch.nn.functional.linear(x, layer.weight, layer.bias)


def _columns(layer: Any, x: Any) -> Any:
    """As transformers writes the linear layers of GPT-2."""
    import torch

    rows = torch.addmm(layer.bias, x.view(-1, x.size(-1)), layer.weight)
    return rows.view(*x.shape[:-1], layer.weight.size(1))


def _scaled(layer: Any, x: Any) -> Any:
    return x * layer.weight


def _shifted(layer: Any, x: Any) -> Any:
    return x + layer.bias


def _mixed(layer: Any, x: Any) -> Any:
    return x @ layer.kernel


def _norm(layer: Any, x: Any) -> Any:
    return layer.weight * x * (x * x).mean(-1, keepdim=True).rsqrt()


def _total(layer: Any, x: Any) -> Any:
    return (x * layer.weight).sum()


def _subclass(name: str, new: str, *args: Any, **kwargs: Any) -> Callable[[], Any]:
    """A layer of torch.nn in a subclass of this new name."""

    def build() -> Any:
        import torch

        return type(new, (getattr(torch.nn, name),), {})(*args, **kwargs)

    return build


def _with_empty_child() -> Any:
    import torch

    layer = torch.nn.Linear(64, 32)
    layer.add_module("after", torch.nn.Sequential())
    return layer


def _with_child() -> Any:
    import torch

    layer = torch.nn.Linear(64, 32)
    layer.add_module("after", torch.nn.Identity())
    return layer


def _pruned() -> Any:
    import torch
    from torch.nn.utils import prune

    layer = torch.nn.Conv2d(3, 8, 3)
    mask = torch.ones(8, 3, 3, 3)
    mask[:2] = 0
    return prune.custom_from_mask(layer, "weight", mask)


def _spectral() -> Any:
    import torch

    return torch.nn.utils.spectral_norm(torch.nn.Conv2d(3, 8, 3))


def _weight_normed() -> Any:
    import torch

    return torch.nn.utils.parametrizations.weight_norm(torch.nn.Conv2d(3, 8, 3))


_NAMES = (
    # rows x in x out; convolutions: outputs x Ci x K
    Probe("conv_renamed", inside(_subclass("Conv2d", "Patches", 3, 8, 3)), _IMAGE, 8 * 196 * 27),
    Probe(
        "own_Conv1D",
        inside(_layer("Conv1D", _columns, weight=(64, 32), bias=(32,))),
        _TOKENS,
        40960,
    ),
    Probe("own_ConvShift", inside(_layer("ConvShift", _shifted, bias=(64,))), _TOKENS, 0),
    Probe(
        "own_linear", inside(_layer("Dense", _linear, weight=(32, 64), bias=(32,))), _TOKENS, 40960
    ),
    Probe("own_scale", inside(_layer("Scale", _scaled, weight=(64,))), _TOKENS, 0),
    Probe("own_shift", inside(_layer("Shift", _shifted, bias=(64,))), _TOKENS, 0),
    Probe("own_kernel", inside(_layer("Mix", _mixed, kernel=(64, 32))), _TOKENS, 40960),
    Probe("own_RMSNorm", inside(_layer("OwnRMSNorm", _norm, weight=(64,))), _TOKENS, 0),
    Probe("own_total", inside(_layer("Total", _total, weight=(64,))), _TOKENS, 0),
)
_RESULTS = (
    Probe(
        "returns_object",
        function(_unpacked, layer=_layer("Packed", _packed, kernel=(64, 32))),
        _TOKENS,
        40960,
    ),
)
_CHILDREN = (
    Probe("linear_empty_child", inside(_with_empty_child), _ROWS, 8192),
    Probe("linear_child", inside(_with_child), _ROWS, 8192),
)
_COMPUTED = (
    Probe("pruned_conv", inside(_pruned), _IMAGE, 8 * 196 * 27),
    # its hook multiplies the weight with a vector, and that with another
    Probe("spectral_conv", inside(_spectral), _IMAGE, 8 * 196 * 27 + 8 * 27 + 8),
    Probe("weight_norm_conv", inside(_weight_normed), _IMAGE, 8 * 196 * 27),
    Probe("EmbeddingBag", inside(nn("EmbeddingBag", 100, 16)), ("2x10:int64",), 0),
    Probe("Bilinear", lambda: nn("Bilinear", 6, 7, 5)(), ("4x6", "4x7"), 4 * 5 * 7 * (6 + 1)),
)

PROBES = (*_NAMES, *_RESULTS, *_CHILDREN, *_COMPUTED)
