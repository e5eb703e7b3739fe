"""What tools that look at traced or dispatched operators tell apart."""

from typing import Any

from crossflops.testing.probes.probe import Probe, function, inside, nn

_MAPS = ("1x8x16x16",)


def _torch(name: str, **options: Any) -> Any:
    def body(model: Any, *tensors: Any) -> Any:
        import torch

        return getattr(torch, name)(*tensors, **options)

    return function(body)


def _einsum(model: Any, a: Any, b: Any) -> Any:
    import torch

    return torch.einsum("ij, kj -> ik", a, b)


def _resampled(mode: str) -> Any:
    def body(model: Any, x: Any, grid: Any) -> Any:
        import torch.nn.functional

        return torch.nn.functional.grid_sample(x, grid, mode=mode, align_corners=False)

    return function(body)


def _heads(model: Any, x: Any) -> Any:
    # sizes that are multiplied are shape arithmetic, which a tracer keeps
    batch, length, width = x.shape
    return model.layer(x.reshape(batch * length, width)).view(batch, length * 2, width // 2)


def _unused(model: Any, x: Any) -> Any:
    model.layer(x * 3)
    return x * 2


def _summary(model: Any, x: Any) -> Any:
    return {"maps": [model.layer(x)], "mean": (x.mean(), None)}


PROBES = (
    # outputs x K
    Probe("torch.addmv", _torch("addmv"), ("10", "10x8", "8"), 80),
    Probe("baddbmm_whole", _torch("baddbmm"), ("2x10x4", "2x10x8", "2x8x4"), 640),
    Probe("einsum_labels", function(_einsum), ("10x8", "4x8"), 320),
    Probe("shape_arithmetic", function(_heads, layer=nn("Linear", 32, 32)), ("2x10x32",), 20480),
    # inputs x Co/g x K; as many channels out as in
    Probe(
        "convT_square",
        inside(nn("ConvTranspose2d", 8, 8, 2, 2, groups=2)),
        ("1x8x4x4",),
        8 * 16 * 4 * 4,
    ),
    Probe("dead_product", function(_unused, layer=nn("Linear", 16, 4)), _MAPS, 0),
    Probe("outputs_in_a_dict", function(_summary, layer=nn("Conv2d", 8, 4, 1)), _MAPS, 8192),
    *(
        Probe(name, model, inputs, 0)
        for name, model, inputs in (
            ("grid_bicubic", _resampled("bicubic"), (*_MAPS, "1x4x4x2")),
            ("grid_nearest", _resampled("nearest"), (*_MAPS, "1x4x4x2")),
            ("mul_inplace", function(lambda model, x: (x + 1).mul_(x)), _MAPS),
            ("add_small_first", function(lambda model, a, b: a + b), ("16", "1x8x16x16")),
            ("1-x", function(lambda model, x: 1 - 2 * x), _MAPS),
        )
    ),
)
