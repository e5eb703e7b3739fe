"""Parameters that tools count differently: frozen, or in no layer."""

from typing import Any

from crossflops.testing.probes.probe import Probe, function, nn

_ROWS = ("4x16",)
_LINEAR = nn("Linear", 16, 8, bias=False)  # 4 x 16 x 8 = 512


def _model() -> Any:
    return function(lambda model, x: model.layer(x), layer=_LINEAR)()


def _frozen() -> Any:
    model = _model()
    model.layer.weight.requires_grad_(False)
    return model


def _bare() -> Any:
    import torch

    model = _model()
    model.scale = torch.nn.Parameter(torch.ones(5))
    return model


def _in_turns() -> Any:
    """Two lists of layers, gone through side by side: each list is left and entered again."""
    import torch

    def layers(make: Any) -> Any:
        return torch.nn.ModuleList(make() for _ in range(2))

    def forward(model: Any, x: Any) -> Any:
        for layer, norm in zip(model.layers, model.norms, strict=True):
            x = norm(layer(x))
        return x

    square, norm = nn("Linear", 16, 16, bias=False), nn("LayerNorm", 16)
    return function(forward, layers=lambda: layers(square), norms=lambda: layers(norm))()


PROBES = (
    Probe("lists_in_turns", _in_turns, _ROWS, 2 * 4 * 16 * 16),
    Probe("frozen_weight", _frozen, _ROWS, 512),
    Probe("bare_parameter", _bare, _ROWS, 512),
)
