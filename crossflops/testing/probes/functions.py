"""Work done by functions and operators, and functions that tools replace."""

import warnings
from importlib.util import find_spec
from typing import Any

from crossflops.testing.probes import Probe, function, inside, nn

_MAPS, _ROWS = ("1x8x16x16",), ("4x64",)


def _captured_relu() -> Any:
    from torch.nn.functional import relu  # captured before the attribute can be replaced

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

_FUNCTIONS_PROBES = (*_ELEMENTWISE, *_PRODUCTS, *_ATTENTION)


# What tools count otherwise that replace functions, or divide by the batch.


def _patched_vmapped(name: str) -> Any:
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

        return getattr(torch, name)(*(torch.complex(tensor, tensor) for tensor in tensors)).real

    return function(body)


def _patched_functional(name: str, *args: Any, **kwargs: Any) -> Any:
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
    from torch import bmm  # before the attribute can be replaced

    return function(lambda model, a, b: bmm(a, b))()


def _timm() -> Any:
    import importlib

    from crossflops.frontends import load_with_retry

    made = load_with_retry(
        lambda: importlib.import_module("timm.models.vision_transformer")
    ).Attention
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
    for target in (layer, model):
        target.register_forward_pre_hook(lambda module, given: (torch.matmul(given[0], weight),))
        target.register_forward_hook(lambda module, given, y: torch.add(y, y))
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
    Probe("vmap_bmm", _patched_vmapped("matmul"), ("2x3x4", "2x4x5"), 120),
    Probe("vmap_addmm", _patched_vmapped("addmm"), ("2x3x5", "2x3x4", "2x4x5"), 120),
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
    Probe("F.interpolate_half", _patched_functional("interpolate", **_ENLARGED), ("1x3x5x5",), 0),
    Probe("F.interpolate_int", _patched_functional("interpolate", 7), ("2x3x5x5",), 0),
    Probe(
        "F.interpolate_area", _patched_functional("interpolate", 2, mode="area"), ("2x3x5x5",), 0
    ),
    Probe("F.lp_pool2d", _patched_functional("lp_pool2d", 2, 2), ("2x3x6x6",), 0),
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
_PATCHED_PROBES = (*_PROBES, *_TIMM)


# Functions that tools replace: under other names, with other arguments, and inside each other.

_SUB_MAPS, _SUB_ROWS, _SUB_QKV = ("1x8x16x16",), ("4x64",), ("2x4x10x8", "2x4x10x8", "2x4x10x8")
_NARROW = ("2x3x4", "4")


def _vmapped_conv(model: Any, x: Any) -> Any:
    import torch

    return torch.vmap(model.layer)(x)


def _vmapped_product(model: Any, a: Any, b: Any) -> Any:
    import torch

    return torch.vmap(torch.matmul)(a, b)


def _captured_product() -> Any:
    from torch import matmul

    return function(lambda model, a, b: matmul(a, b))()


def _upsample(model: Any, x: Any) -> Any:
    import torch.nn.functional

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated
        return torch.nn.functional.upsample(x, scale_factor=2, mode="bilinear")


def _pool_by_keyword(model: Any, x: Any) -> Any:
    import torch.nn.functional

    return torch.nn.functional.adaptive_avg_pool2d(x, output_size=1)


def _attention_by_keyword(model: Any, q: Any, k: Any, v: Any) -> Any:
    import torch.nn.functional

    return torch.nn.functional.scaled_dot_product_attention(query=q, key=k, value=v)


def _product_by_keyword(model: Any, a: Any, b: Any) -> Any:
    import torch

    return torch.mm(a, mat2=b)


def _einsum_of_list(model: Any, a: Any, b: Any) -> Any:
    import torch

    return torch.einsum("ij,jk->ik", [a, b])


def _scaled(model: Any, x: Any, y: Any) -> Any:
    import torch

    return torch.add(2, x.mul(0.5)).add(torch.mul(x, y), alpha=2)


def _reversed_product(model: Any, a: Any, b: Any) -> Any:
    return b.__rmatmul__(a)


def _subclassed_lstm() -> Any:
    from torch import nn as torch_nn

    class OwnLSTM(torch_nn.LSTM):
        pass

    return OwnLSTM(16, 32)


def _unregistered_conv() -> Any:
    # frozen, since torch.jit traces no trained weight that is no parameter of the model
    layer = nn("Conv2d", 8, 8, 3, padding=1, bias=False)().requires_grad_(False)
    return function(lambda model, x: layer(x))()


def _output_size(model: Any, x: Any) -> Any:
    return model.layer(x, output_size=[16, 15])


def _shared_lstm() -> Any:
    layer = nn("LSTM", 16, 16)()
    parent = function(lambda model, x: model.layer(x)[0], layer=lambda: layer)
    return function(lambda model, x: model.b(model.a(x)), a=parent, b=parent)()


def _stride_as_list(model: Any, x: Any) -> Any:
    import torch.nn.functional

    return torch.nn.functional.conv2d(x, model.layer.weight, stride=[2, 2])


def _scales_as_list(model: Any, x: Any) -> Any:
    import torch.nn.functional

    return torch.nn.functional.interpolate(x, scale_factor=[2, 2])


_REPLACED_PROBES = (
    # 2 times 1 x 8 x 6 x 6 x 27; 5 times 3 x 4 x 6
    Probe("vmap_conv_batched", function(_vmapped_conv, layer=nn("Conv2d", 3, 8, 3)),
          ("2x1x3x8x8",), 15552),
    Probe("vmap_matmul", function(_vmapped_product), ("5x3x4", "5x4x6"), 360),
    Probe("matmul_captured", _captured_product, ("3x4", "4x6"), 72),
    Probe("Tensor.__rmatmul__", function(_reversed_product), ("3x4", "4x6"), 72),
    Probe("Tensor.matmul", function(lambda model, a, b: a.matmul(b)), ("3x4", "4x6"), 72),
    Probe("Tensor.mm", function(lambda model, a, b: a.mm(b)), ("3x4", "4x6"), 72),
    Probe("Tensor.bmm", function(lambda model, a, b: a.bmm(b)), ("2x3x4", "2x4x6"), 144),
    Probe("Tensor.addmm", function(lambda model, x, a, b: x.addmm(a, b)),
          ("6", "3x4", "4x6"), 72),
    Probe("mm_by_keyword", function(_product_by_keyword), ("3x4", "4x6"), 72),
    Probe("einsum_of_list", function(_einsum_of_list), ("3x4", "4x6"), 72),
    Probe("SDPA_by_keyword", function(_attention_by_keyword), _SUB_QKV, 12800),
    Probe("add_mul_methods", function(_scaled), (*_NARROW,), 0),
    Probe("F.upsample", function(_upsample), ("1x2x4x4",), 0),
    Probe("Upsample_size", inside(nn("Upsample", size=(9, 7))), ("2x3x4x5",), 0),
    Probe("Upsample_scales", inside(nn("Upsample", scale_factor=(2, 1.5), mode="bilinear")),
          ("2x3x4x4",), 0),
    Probe("Upsample_scales_one", inside(nn("Upsample", scale_factor=(2, 3))), ("1x3x4x4",), 0),
    Probe("adaptive_by_keyword", function(_pool_by_keyword), _SUB_MAPS, 0),
    Probe("LPPool2d", inside(nn("LPPool2d", 2, 2)), _SUB_MAPS, 0),
    Probe("LocalResponseNorm", inside(nn("LocalResponseNorm", 3)), _SUB_MAPS, 0),
    Probe("bn2d_stateless", inside(nn("BatchNorm2d", 8, track_running_stats=False)), _SUB_MAPS, 0),
    # 8 x 16 x 16 outputs of 8 x 3 x 3, 8 x 14 x 14
    Probe("conv_same_odd", inside(nn("Conv2d", 8, 8, 3, padding="same", dilation=2)),
          _SUB_MAPS, 147456),
    Probe("conv_valid", inside(nn("Conv2d", 8, 8, 3, padding="valid")), _SUB_MAPS, 112896),
    # inputs x Co x K: 8 x 64 x 4 x 9, 4 x 8 x 10 x 4, depthwise 8 x 64 x 9
    Probe("convT_output_size", function(_output_size, layer=nn("ConvTranspose2d", 8, 4, 3, 2, 1)),
          ("1x8x8x8",), 18432),
    # 8 x 7 x 7 outputs of 8 x 3 x 3
    Probe("conv_stride_list", function(_stride_as_list, layer=nn("Conv2d", 8, 8, 3)),
          _SUB_MAPS, 28224),
    Probe("F.interp_scale_list", function(_scales_as_list), ("2x3x4x4",), 0),
    Probe("convT_g2_bias", inside(nn("ConvTranspose1d", 4, 8, 4, 3, groups=2)), ("1x4x10",), 640),
    Probe("convT_depthwise", inside(nn("ConvTranspose2d", 8, 8, 3, groups=8)),
          ("1x8x8x8",), 4608),
    Probe("convT3d", inside(nn("ConvTranspose3d", 2, 3, 2, dilation=2)), ("1x2x3x4x5",), 2880),
    Probe("unregistered_conv", _unregistered_conv, _SUB_MAPS, 147456),
    # T B x g H (I + H)
    Probe("LSTM_subclass", inside(_subclassed_lstm), ("5x2x16",), 61440),
    Probe("LSTM_forward", function(lambda model, x: model.layer.forward(x),
                                   layer=nn("LSTM", 16, 32)), ("5x2x16",), 61440),
    Probe("LSTM_shared_parents", _shared_lstm, ("5x2x16",), 40960),
    # T x g H (I + H), B x that with a projection to 8: 5 2 (4 32 (16 + 8) + 8 32)
    Probe("GRU_unbatched", inside(nn("GRU", 16, 32)), ("5x16",), 23040),
    Probe("LSTM_projected", inside(nn("LSTM", 16, 32, proj_size=8)), ("5x2x16",), 33280),
    Probe("GRU_2l_bi", inside(nn("GRU", 16, 32, 2, bidirectional=True)), ("5x2x16",), 276480),
    Probe("LSTMCell_nobias", inside(nn("LSTMCell", 16, 32, bias=False)), ("5x16",), 30720),
)  # fmt: skip


PROBES = (*_FUNCTIONS_PROBES, *_PATCHED_PROBES, *_REPLACED_PROBES)
