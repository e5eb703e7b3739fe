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


PROBES = (
    Probe("frozen_weight", _frozen, _ROWS, 512),
    Probe("bare_parameter", _bare, _ROWS, 512),
)
