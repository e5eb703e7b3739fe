"""Work done by functions and operators: what hooks do not see."""

from typing import Any

from crossflops.testing.probes.probe import Probe, function, nn

_MAPS, _ROWS = ("1x8x16x16",), ("4x64",)


def _captured_relu() -> Any:
    from torch.nn.functional import relu  # captured before anybody can replace the attribute

    return function(lambda model, x: relu(x))()


def _functional(name: str, *args: Any, **kwargs: Any) -> Any:
    def body(model: Any, *tensors: Any) -> Any:
        import torch.nn.functional

        return getattr(torch.nn.functional, name)(*tensors, *args, **kwargs)

    return function(body)


def _torch(name: str, *args: Any, **kwargs: Any) -> Any:
    def body(model: Any, *tensors: Any) -> Any:
        import torch

        return getattr(torch, name)(*args, *tensors, **kwargs)

    return function(body)


def _linear(model: Any, x: Any) -> Any:
    import torch.nn.functional

    return torch.nn.functional.linear(x, model.layer.weight, model.layer.bias)


def _convolution(model: Any, x: Any) -> Any:
    import torch.nn.functional

    return torch.nn.functional.conv2d(x, model.layer.weight, padding=1)


def _vmapped(model: Any, x: Any) -> Any:
    import torch

    return torch.vmap(model.layer)(x)


def _cube(model: Any, x: Any) -> Any:
    import torch

    return torch.linalg.matrix_power(x, 3)


def _complex_product(model: Any, a: Any, b: Any) -> Any:
    import torch

    return (torch.complex(a, a) @ torch.complex(b, b)).real


_ELEMENTWISE = (
    Probe("F.relu", _functional("relu"), _MAPS, 0),
    Probe("F.relu_captured", _captured_relu, _MAPS, 0),
    Probe("torch.relu", _torch("relu"), _MAPS, 0),
    Probe("F.gelu", _functional("gelu"), _MAPS, 0),
    Probe("F.softmax", _functional("softmax", dim=-1), ("2x10x64",), 0),
    Probe("F.max_pool2d", _functional("max_pool2d", 2), _MAPS, 0),
    Probe("F.interp_bilin_size", _functional("interpolate", (32, 32), mode="bilinear"), _MAPS, 0),
    Probe(
        "F.grid_sample", _functional("grid_sample", align_corners=False), (*_MAPS, "1x4x4x2"), 0
    ),
    Probe("x+x", function(lambda model, x: x + x), _MAPS, 0),
    Probe("torch.add", _torch("add"), (*_MAPS, *_MAPS), 0),
    Probe("x*x", function(lambda model, x: x * x), _MAPS, 0),
    Probe("x.mean(2,3)", function(lambda model, x: x.mean((2, 3))), _MAPS, 0),
    Probe("add_inplace", function(lambda model, x: (x * 1).add_(x)), _MAPS, 0),
)
_PRODUCTS = (
    # outputs x K
    Probe("F.linear_bias", function(_linear, layer=nn("Linear", 64, 32)), _ROWS, 8192),
    Probe("F.conv2d", function(_convolution, layer=nn("Conv2d", 3, 8, 3)), ("1x3x16x16",), 55296),
    Probe("a@b_batched", function(lambda model, a, b: a @ b), ("4x10x8", "4x8x20"), 6400),
    Probe("a@vector", function(lambda model, a, b: a @ b), ("10x8", "8"), 80),
    Probe("vector@b", function(lambda model, a, b: a @ b), ("8", "8x10"), 80),
    Probe("dot", function(lambda model, a, b: a @ b), ("8", "8"), 8),
    Probe("torch.matmul_bcast", _torch("matmul"), ("6x8", "2x4x8x10"), 3840),
    Probe("torch.mm", _torch("mm"), ("10x8", "8x4"), 320),
    Probe("torch.bmm", _torch("bmm"), ("2x10x8", "2x8x10"), 1600),
    Probe("torch.addmm", _torch("addmm"), ("4", "10x8", "8x4"), 320),
    Probe("torch.baddbmm", _torch("baddbmm"), ("4", "2x10x8", "2x8x4"), 640),
    Probe("torch.tensordot", _torch("tensordot", dims=2), ("3x4x5", "4x5x6"), 360),
    # 4 times 3 x 64 x 32; 5 times 8 x 14 x 14 outputs x 27
    Probe("vmap_linear", function(_vmapped, layer=nn("Linear", 64, 32)), ("4x3x64",), 24576),
    Probe("vmap_conv", function(_vmapped, layer=nn("Conv2d", 3, 8, 3)), ("5x3x16x16",), 211680),
    # two products of 6 x 6 x 6
    Probe("matrix_power", function(_cube), ("6x6",), 432),
    # a product of complex numbers is four of real ones
    Probe("complex_matmul", function(_complex_product), ("4x6", "6x5"), 4 * 120),
    Probe("einsum", _torch("einsum", "bij,bjk->bik"), ("2x10x8", "2x8x10"), 1600),
    Probe("einsum_product", _torch("einsum", "ij,j->ij"), ("3x4", "4"), 0),
    Probe("einsum_other", _torch("einsum", "nchw,co->nohw"), ("2x13x7x9", "13x11"), 18018),
    Probe("einsum_dots", _torch("einsum", "...ij,...jk->...ik"), ("2x3x4x5", "2x3x5x6"), 720),
    # 3 x 4 x 5, then 3 x 5 x 6
    Probe("einsum_three", _torch("einsum", "ij,jk,kl->il"), ("3x4", "4x5", "5x6"), 150),
)
_QKV = ("2x4x10x8", "2x4x10x8", "2x4x10x8")
_ATTENTION = (
    # B H Sq Sk (D + Dv)
    Probe("SDPA", _functional("scaled_dot_product_attention"), _QKV, 12800),
    # three axes: PyTorch's CPU kernel wants four, and falls back to two products
    Probe(
        "SDPA_math",
        _functional("scaled_dot_product_attention"),
        ("8x10x8", "8x10x8", "8x10x8"),
        12800,
    ),
    Probe("SDPA_causal", _functional("scaled_dot_product_attention", is_causal=True), _QKV, 12800),
    Probe("SDPA_mask", _functional("scaled_dot_product_attention"), (*_QKV, "10x10:bool"), 12800),
    Probe(
        "SDPA_grouped",
        _functional("scaled_dot_product_attention", enable_gqa=True),
        ("2x4x10x8", "2x2x10x8", "2x2x10x8"),
        12800,
    ),
)

PROBES = (*_ELEMENTWISE, *_PRODUCTS, *_ATTENTION)
