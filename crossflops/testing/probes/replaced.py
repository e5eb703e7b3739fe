"""Functions that tools replace: under other names, with other arguments, and inside each other."""

import warnings
from typing import Any

from crossflops.testing.probes.probe import Probe, function, inside, nn

_MAPS, _ROWS, _QKV = ("1x8x16x16",), ("4x64",), ("2x4x10x8", "2x4x10x8", "2x4x10x8")
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


PROBES = (
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
    Probe("SDPA_by_keyword", function(_attention_by_keyword), _QKV, 12800),
    Probe("add_mul_methods", function(_scaled), (*_NARROW,), 0),
    Probe("F.upsample", function(_upsample), ("1x2x4x4",), 0),
    Probe("Upsample_size", inside(nn("Upsample", size=(9, 7))), ("2x3x4x5",), 0),
    Probe("Upsample_scales", inside(nn("Upsample", scale_factor=(2, 1.5), mode="bilinear")),
          ("2x3x4x4",), 0),
    Probe("Upsample_scales_one", inside(nn("Upsample", scale_factor=(2, 3))), ("1x3x4x4",), 0),
    Probe("adaptive_by_keyword", function(_pool_by_keyword), _MAPS, 0),
    Probe("LPPool2d", inside(nn("LPPool2d", 2, 2)), _MAPS, 0),
    Probe("LocalResponseNorm", inside(nn("LocalResponseNorm", 3)), _MAPS, 0),
    Probe("bn2d_stateless", inside(nn("BatchNorm2d", 8, track_running_stats=False)), _MAPS, 0),
    # 8 x 16 x 16 outputs of 8 x 3 x 3, 8 x 14 x 14
    Probe("conv_same_odd", inside(nn("Conv2d", 8, 8, 3, padding="same", dilation=2)),
          _MAPS, 147456),
    Probe("conv_valid", inside(nn("Conv2d", 8, 8, 3, padding="valid")), _MAPS, 112896),
    # inputs x Co x K: 8 x 64 x 4 x 9, 4 x 8 x 10 x 4, depthwise 8 x 64 x 9
    Probe("convT_output_size", function(_output_size, layer=nn("ConvTranspose2d", 8, 4, 3, 2, 1)),
          ("1x8x8x8",), 18432),
    # 8 x 7 x 7 outputs of 8 x 3 x 3
    Probe("conv_stride_list", function(_stride_as_list, layer=nn("Conv2d", 8, 8, 3)),
          _MAPS, 28224),
    Probe("F.interp_scale_list", function(_scales_as_list), ("2x3x4x4",), 0),
    Probe("convT_g2_bias", inside(nn("ConvTranspose1d", 4, 8, 4, 3, groups=2)), ("1x4x10",), 640),
    Probe("convT_depthwise", inside(nn("ConvTranspose2d", 8, 8, 3, groups=8)),
          ("1x8x8x8",), 4608),
    Probe("convT3d", inside(nn("ConvTranspose3d", 2, 3, 2, dilation=2)), ("1x2x3x4x5",), 2880),
    Probe("unregistered_conv", _unregistered_conv, _MAPS, 147456),
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
