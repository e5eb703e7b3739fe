"""Define probes whose work is done by functions and operators, among them functions that tools
replace.
"""

import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from crossflops.testing.probes import Probe, function_model, nn, wrap_layer

_MAPS, _ROWS = ("1x8x16x16",), ("4x64",)


def _model_with_captured_relu() -> Any:
    """Return a model that calls a reference to `relu` that was taken when the model was built."""
    from torch.nn.functional import relu  # captured before the attribute can be replaced

    return function_model(lambda model, x: relu(x))()


def _functional_model_builder(name: str, *args: Any, **kwargs: Any) -> Callable[[], Any]:
    """Return a builder of a model that calls this function of torch.nn.functional."""

    def call_functional(model: Any, *tensors: Any) -> Any:
        """Return what the function of torch.nn.functional gives for these tensors."""
        import torch.nn.functional

        return getattr(torch.nn.functional, name)(*tensors, *args, **kwargs)

    return function_model(call_functional)


def _torch_function_model_builder(name: str, *args: Any, **kwargs: Any) -> Callable[[], Any]:
    """Return a builder of a model that calls this function of torch; the fixed arguments come
    first.
    """

    def call_torch_function(model: Any, *tensors: Any) -> Any:
        """Return what the function of torch gives for the fixed arguments and these tensors."""
        import torch

        return getattr(torch, name)(*args, *tensors, **kwargs)

    return function_model(call_torch_function)


def _call_functional_linear(model: Any, x: Any) -> Any:
    """Return the functional linear of `x` with the layer's weights."""
    import torch.nn.functional

    return torch.nn.functional.linear(x, model.layer.weight, model.layer.bias)


def _call_functional_conv(model: Any, x: Any) -> Any:
    """Return a functional convolution of `x` with the layer's weights."""
    import torch.nn.functional

    return torch.nn.functional.conv2d(x, model.layer.weight, padding=1)


def _vmap_model_layer(model: Any, x: Any) -> Any:
    """Return what the layer gives for `x` under torch.vmap."""
    import torch

    return torch.vmap(model.layer)(x)


def _matrix_power_of_three(model: Any, x: Any) -> Any:
    """Return the third power of the matrix `x`."""
    import torch

    return torch.linalg.matrix_power(x, 3)


def _product_of_complex_matrices(model: Any, a: Any, b: Any) -> Any:
    """Return the real part of a product of two complex matrices."""
    import torch

    return (torch.complex(a, a) @ torch.complex(b, b)).real


_ELEMENTWISE = (
    Probe("F.relu", _functional_model_builder("relu"), _MAPS, 0),
    Probe("F.relu_captured", _model_with_captured_relu, _MAPS, 0),
    Probe("torch.relu", _torch_function_model_builder("relu"), _MAPS, 0),
    Probe("F.gelu", _functional_model_builder("gelu"), _MAPS, 0),
    Probe("F.softmax", _functional_model_builder("softmax", dim=-1), ("2x10x64",), 0),
    Probe("F.max_pool2d", _functional_model_builder("max_pool2d", 2), _MAPS, 0),
    Probe(
        "F.interp_bilin_size",
        _functional_model_builder("interpolate", (32, 32), mode="bilinear"),
        _MAPS,
        0,
    ),
    Probe(
        "F.grid_sample",
        _functional_model_builder("grid_sample", align_corners=False),
        (*_MAPS, "1x4x4x2"),
        0,
    ),
    Probe("x+x", function_model(lambda model, x: x + x), _MAPS, 0),
    Probe("torch.add", _torch_function_model_builder("add"), (*_MAPS, *_MAPS), 0),
    Probe("x*x", function_model(lambda model, x: x * x), _MAPS, 0),
    Probe("x.mean(2,3)", function_model(lambda model, x: x.mean((2, 3))), _MAPS, 0),
    Probe("add_inplace", function_model(lambda model, x: (x * 1).add_(x)), _MAPS, 0),
)
_PRODUCTS = (
    # outputs x K
    Probe(
        "F.linear_bias",
        function_model(_call_functional_linear, layer=nn("Linear", 64, 32)),
        _ROWS,
        8192,
    ),
    Probe(
        "F.conv2d",
        function_model(_call_functional_conv, layer=nn("Conv2d", 3, 8, 3)),
        ("1x3x16x16",),
        55296,
    ),
    Probe("a@b_batched", function_model(lambda model, a, b: a @ b), ("4x10x8", "4x8x20"), 6400),
    Probe("a@vector", function_model(lambda model, a, b: a @ b), ("10x8", "8"), 80),
    Probe("vector@b", function_model(lambda model, a, b: a @ b), ("8", "8x10"), 80),
    Probe("dot", function_model(lambda model, a, b: a @ b), ("8", "8"), 8),
    Probe(
        "torch.matmul_bcast", _torch_function_model_builder("matmul"), ("6x8", "2x4x8x10"), 3840
    ),
    Probe("torch.mm", _torch_function_model_builder("mm"), ("10x8", "8x4"), 320),
    Probe("torch.bmm", _torch_function_model_builder("bmm"), ("2x10x8", "2x8x10"), 1600),
    Probe("torch.addmm", _torch_function_model_builder("addmm"), ("4", "10x8", "8x4"), 320),
    Probe(
        "torch.baddbmm", _torch_function_model_builder("baddbmm"), ("4", "2x10x8", "2x8x4"), 640
    ),
    Probe(
        "torch.tensordot",
        _torch_function_model_builder("tensordot", dims=2),
        ("3x4x5", "4x5x6"),
        360,
    ),
    # 4 times 3 x 64 x 32; 5 times 8 x 14 x 14 outputs x 27
    Probe(
        "vmap_linear",
        function_model(_vmap_model_layer, layer=nn("Linear", 64, 32)),
        ("4x3x64",),
        24576,
    ),
    Probe(
        "vmap_conv",
        function_model(_vmap_model_layer, layer=nn("Conv2d", 3, 8, 3)),
        ("5x3x16x16",),
        211680,
    ),
    # two products of 6 x 6 x 6
    Probe("matrix_power", function_model(_matrix_power_of_three), ("6x6",), 432),
    # a product of complex numbers is four of real ones
    Probe("complex_matmul", function_model(_product_of_complex_matrices), ("4x6", "6x5"), 4 * 120),
    Probe(
        "einsum",
        _torch_function_model_builder("einsum", "bij,bjk->bik"),
        ("2x10x8", "2x8x10"),
        1600,
    ),
    Probe("einsum_product", _torch_function_model_builder("einsum", "ij,j->ij"), ("3x4", "4"), 0),
    Probe(
        "einsum_other",
        _torch_function_model_builder("einsum", "nchw,co->nohw"),
        ("2x13x7x9", "13x11"),
        18018,
    ),
    Probe(
        "einsum_dots",
        _torch_function_model_builder("einsum", "...ij,...jk->...ik"),
        ("2x3x4x5", "2x3x5x6"),
        720,
    ),
    # 3 x 4 x 5, then 3 x 5 x 6
    Probe(
        "einsum_three",
        _torch_function_model_builder("einsum", "ij,jk,kl->il"),
        ("3x4", "4x5", "5x6"),
        150,
    ),
)
_QKV = ("2x4x10x8", "2x4x10x8", "2x4x10x8")
_ATTENTION = (
    # B H Sq Sk (D + Dv)
    Probe("SDPA", _functional_model_builder("scaled_dot_product_attention"), _QKV, 12800),
    # three axes: PyTorch's CPU kernel wants four, and falls back to two products
    Probe(
        "SDPA_math",
        _functional_model_builder("scaled_dot_product_attention"),
        ("8x10x8", "8x10x8", "8x10x8"),
        12800,
    ),
    Probe(
        "SDPA_causal",
        _functional_model_builder("scaled_dot_product_attention", is_causal=True),
        _QKV,
        12800,
    ),
    Probe(
        "SDPA_mask",
        _functional_model_builder("scaled_dot_product_attention"),
        (*_QKV, "10x10:bool"),
        12800,
    ),
    Probe(
        "SDPA_grouped",
        _functional_model_builder("scaled_dot_product_attention", enable_gqa=True),
        ("2x4x10x8", "2x2x10x8", "2x2x10x8"),
        12800,
    ),
)

_FUNCTIONS_PROBES = (*_ELEMENTWISE, *_PRODUCTS, *_ATTENTION)


# What tools count otherwise that replace functions, or divide by the batch.


def _vmap_torch_function_model_builder(name: str) -> Callable[[], Any]:
    """Return a builder of a model that calls this function of torch under torch.vmap."""

    def call_under_vmap(model: Any, *tensors: Any) -> Any:
        """Return what the function of torch gives for these tensors under torch.vmap."""
        import torch

        return torch.vmap(getattr(torch, name))(*tensors)

    return function_model(call_under_vmap)


def _vmap_conv_transpose(model: Any, x: Any) -> Any:
    """Return what the transposed convolution gives for `x` under torch.vmap."""
    import torch

    return torch.vmap(model.layer)(x)


def _complex_function_model_builder(name: str) -> Callable[[], Any]:
    """Return a builder of a model that calls this function of torch with complex tensors."""

    def call_with_complex_tensors(model: Any, *tensors: Any) -> Any:
        """Return the real part of what the function gives for the complex tensors."""
        import torch

        return getattr(torch, name)(*(torch.complex(tensor, tensor) for tensor in tensors)).real

    return function_model(call_with_complex_tensors)


def _patchable_functional_model_builder(name: str, *args: Any, **kwargs: Any) -> Callable[[], Any]:
    """Return a builder of a model that looks up this function of torch.nn.functional at each call,
    so that it can be replaced.
    """

    def look_up_and_call_functional(model: Any, x: Any) -> Any:
        """Return what the function of torch.nn.functional gives for `x`."""
        import torch.nn.functional

        return getattr(torch.nn.functional, name)(x, *args, **kwargs)

    return function_model(look_up_and_call_functional)


def _sum_of_pointwise(model: Any, a: Any, b: Any) -> Any:
    """Return `a + b + 2 * a`, computed by functions of torch."""
    import torch

    return torch.add(a, b) + torch.mul(a, 2)


def _add_layer_of_other_weight(model: Any, x: Any) -> Any:
    """Return `x` plus what the layer gives for the weight of another layer."""
    return x + model.layer(model.other.weight)


def _call_tensor_methods(model: Any, a: Any, b: Any) -> Any:
    """Return a combination of matrix products that are computed by methods of tensors."""
    return a.matmul(b).add(a.bmm(b)).mul(a[0].mm(b[0]))


def _model_with_captured_bmm() -> Any:
    """Return a model that calls a reference to `bmm` that was taken when the model was built."""
    from torch import bmm  # before the attribute can be replaced

    return function_model(lambda model, a, b: bmm(a, b))()


def _timm_attention_model() -> Any:
    """Return a model with timm's attention layer of width 16 and 2 heads."""
    import importlib

    from crossflops.frontends import load_with_retry

    made = load_with_retry(
        lambda: importlib.import_module("timm.models.vision_transformer")
    ).Attention
    return function_model(
        lambda model, x: model.layer(x), layer=lambda: made(16, 2, qkv_bias=True)
    )()


def _low_rank_linear() -> Any:
    """Return a model with a linear layer whose weight is computed by matrix products."""
    from torch import nn as torch_nn
    from torch.nn.utils import parametrize

    class LowRank(torch_nn.Module):
        def forward(self, weight: Any) -> Any:
            """Return the weight of the layer, computed by matrix products from the stored
            weight.
            """
            return weight.matmul(weight.mT).mm(weight)

    layer = torch_nn.Linear(6, 4)
    parametrize.register_parametrization(layer, "weight", LowRank())
    return function_model(lambda model, x: model.layer(x), layer=lambda: layer)()


def _model_with_hooks() -> Any:
    """Return a model that has forward hooks and forward pre-hooks, as a whole and on one layer.

    A pre-hook multiplies by an 8 x 8 matrix, a hook adds the result to itself.
    """
    import torch
    from torch import nn as torch_nn

    layer, weight = torch_nn.Linear(8, 8, bias=False), torch.ones(8, 8)
    model = torch_nn.Sequential(layer)
    for target in (layer, model):
        target.register_forward_pre_hook(
            lambda module, provided: (torch.matmul(provided[0], weight),)
        )
        target.register_forward_hook(lambda module, provided, y: torch.add(y, y))
    return model


def _lstm_with_hook() -> Any:
    """Return a model with an LSTM that has a forward hook, which doubles the result."""
    import torch
    from torch import nn as torch_nn

    layer = torch_nn.LSTM(16, 32)
    layer.register_forward_hook(lambda module, provided, y: (torch.mul(y[0], 2), y[1]))
    return function_model(lambda model, x: model.layer(x)[0], layer=lambda: layer)()


_ENLARGED = {"scale_factor": 1.5}
_PROBES = (
    # 2 times 3 x 4 x 5
    Probe("vmap_bmm", _vmap_torch_function_model_builder("matmul"), ("2x3x4", "2x4x5"), 120),
    Probe(
        "vmap_addmm", _vmap_torch_function_model_builder("addmm"), ("2x3x5", "2x3x4", "2x4x5"), 120
    ),
    # 5 times 8 x 8 x 8 inputs x 4 x 9
    Probe(
        "vmap_transposed",
        function_model(_vmap_conv_transpose, layer=nn("ConvTranspose2d", 8, 4, 3)),
        ("5x8x8x8",),
        92160,
    ),
    # a product of complex numbers is four of real ones
    Probe("complex_bmm", _complex_function_model_builder("bmm"), ("2x3x4", "2x4x5"), 4 * 120),
    Probe(
        "complex_addmm", _complex_function_model_builder("addmm"), ("3x5", "3x4", "4x5"), 4 * 60
    ),
    Probe("add_misaligned", function_model(_sum_of_pointwise), ("2x3x4", "4"), 0),
    # three products: 2 x 3 x 3 x 4 for two of them, 3 x 3 x 4
    Probe("methods", function_model(_call_tensor_methods), ("2x3x4", "2x4x3"), 72 + 72 + 36),
    Probe("bmm_captured", _model_with_captured_bmm, ("2x3x4", "2x4x5"), 120),
    Probe(
        "F.interpolate_half",
        _patchable_functional_model_builder("interpolate", **_ENLARGED),
        ("1x3x5x5",),
        0,
    ),
    Probe(
        "F.interpolate_int", _patchable_functional_model_builder("interpolate", 7), ("2x3x5x5",), 0
    ),
    Probe(
        "F.interpolate_area",
        _patchable_functional_model_builder("interpolate", 2, mode="area"),
        ("2x3x5x5",),
        0,
    ),
    Probe("F.lp_pool2d", _patchable_functional_model_builder("lp_pool2d", 2, 2), ("2x3x6x6",), 0),
    Probe("Up_pair", wrap_layer(nn("Upsample", scale_factor=(2, 1.5))), ("2x3x4x4",), 0),
    # 4 rows of 3 inputs and 5 outputs, whatever the batch of 3
    Probe(
        "batch_of_three",
        function_model(
            _add_layer_of_other_weight, layer=nn("Linear", 3, 5), other=nn("Linear", 3, 4)
        ),
        ("3x4x5",),
        60,
    ),
    # 3 rows of 6 x 4, and the weight: 4 x 6 x 4 and 4 x 4 x 6
    Probe("parametrized", _low_rank_linear, ("3x6",), 72 + 96 + 96),
    # 3 rows of 8 x 8: two pre-hooks and the layer
    Probe("hooked", _model_with_hooks, ("3x8",), 3 * 192),
    # T B x 4 H (I + H); alone, with a state: T B x 3 H (I + H)
    Probe("LSTM_hooked", _lstm_with_hook, ("5x2x16",), 61440),
    Probe("GRU_alone", nn("GRU", 16, 32), ("5x2x16", "1x2x32"), 46080),
    # E = 32: 2 x 5 x (4 x 32 x 32 + 2 x 5 x 32)
    Probe("MHA_alone", nn("MultiheadAttention", 32, 4), ("5x2x32",) * 3, 44160),
    # E = 32, keys of 16 and values of 24 features, 7 of them and 5 queries, batch 2:
    # 2 (5 x 32 x 32 + 7 x 16 x 32 + 7 x 24 x 32 + 2 x 5 x 7 x 32 + 5 x 32 x 32)
    Probe(
        "MHA_sizes",
        wrap_layer(nn("MultiheadAttention", 32, 4, kdim=16, vdim=24, batch_first=True)),
        ("2x5x32", "2x7x16", "2x7x24"),
        42880,
    ),
)
# 10 tokens x 16 x (48 + 16), 2 x 2 x 2 heads x 5 x 5 x 8
_TIMM = (
    (Probe("timm_attention", _timm_attention_model, ("2x5x16",), 10240 + 1600),)
    if find_spec("timm")
    else ()
)
_PATCHED_PROBES = (*_PROBES, *_TIMM)


# Functions that tools replace: under other names, with other arguments, and inside each other.

_SUB_MAPS, _SUB_ROWS, _SUB_QKV = ("1x8x16x16",), ("4x64",), ("2x4x10x8", "2x4x10x8", "2x4x10x8")
_NARROW = ("2x3x4", "4")


def _vmap_conv_layer(model: Any, x: Any) -> Any:
    """Return what the convolution gives for `x` under torch.vmap."""
    import torch

    return torch.vmap(model.layer)(x)


def _vmap_product(model: Any, a: Any, b: Any) -> Any:
    """Return the products of the matrices in two batches, computed under torch.vmap."""
    import torch

    return torch.vmap(torch.matmul)(a, b)


def _model_with_captured_matmul() -> Any:
    """Return a model that calls a reference to `matmul` that was taken when the model was
    built.
    """
    from torch import matmul

    return function_model(lambda model, a, b: matmul(a, b))()


def _upsample_bilinear(model: Any, x: Any) -> Any:
    """Return `x`, enlarged by 2 with the deprecated function `upsample` in bilinear mode."""
    import torch.nn.functional

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated
        return torch.nn.functional.upsample(x, scale_factor=2, mode="bilinear")


def _call_pool_by_keyword(model: Any, x: Any) -> Any:
    """Return `x`, pooled to 1x1 positions, with that size passed by keyword."""
    import torch.nn.functional

    return torch.nn.functional.adaptive_avg_pool2d(x, output_size=1)


def _call_attention_by_keyword(model: Any, q: Any, k: Any, v: Any) -> Any:
    """Return scaled_dot_product_attention, with its inputs passed by keyword."""
    import torch.nn.functional

    return torch.nn.functional.scaled_dot_product_attention(query=q, key=k, value=v)


def _call_product_by_keyword(model: Any, a: Any, b: Any) -> Any:
    """Return a matrix product, with its second factor passed by keyword."""
    import torch

    return torch.mm(a, mat2=b)


def _einsum_of_list(model: Any, a: Any, b: Any) -> Any:
    """Return a product computed by einsum, with the operands passed as one list."""
    import torch

    return torch.einsum("ij,jk->ik", [a, b])


def _scalar_products(model: Any, x: Any, y: Any) -> Any:
    """Return sums and products of tensors and scalars."""
    import torch

    return torch.add(2, x.mul(0.5)).add(torch.mul(x, y), alpha=2)


def _rmatmul_product(model: Any, a: Any, b: Any) -> Any:
    """Return a matrix product that is computed by `__rmatmul__`."""
    return b.__rmatmul__(a)


def _lstm_subclass() -> Any:
    """Return a layer of a subclass of LSTM."""
    from torch import nn as torch_nn

    class OwnLSTM(torch_nn.LSTM):
        pass

    return OwnLSTM(16, 32)


def _conv_without_registration() -> Any:
    """Return a model that calls a convolution which is not one of its submodules."""
    # frozen, since torch.jit traces no trained weight that is no parameter of the model
    layer = nn("Conv2d", 8, 8, 3, padding=1, bias=False)().requires_grad_(False)
    return function_model(lambda model, x: layer(x))()


def _call_with_output_size(model: Any, x: Any) -> Any:
    """Return what the layer gives for `x` with a requested output size."""
    return model.layer(x, output_size=[16, 15])


def _lstm_with_two_parents() -> Any:
    """Return a model with one LSTM inside a module that has two names."""
    layer = nn("LSTM", 16, 16)()
    parent = function_model(lambda model, x: model.layer(x)[0], layer=lambda: layer)
    return function_model(lambda model, x: model.b(model.a(x)), a=parent, b=parent)()


def _call_conv_with_stride_list(model: Any, x: Any) -> Any:
    """Return a functional convolution of `x` whose stride is passed as a list."""
    import torch.nn.functional

    return torch.nn.functional.conv2d(x, model.layer.weight, stride=[2, 2])


def _interpolate_with_scale_list(model: Any, x: Any) -> Any:
    """Return `x`, interpolated with scale factors that are passed as a list."""
    import torch.nn.functional

    return torch.nn.functional.interpolate(x, scale_factor=[2, 2])


_REPLACED_PROBES = (
    # 2 times 1 x 8 x 6 x 6 x 27; 5 times 3 x 4 x 6
    Probe("vmap_conv_batched", function_model(_vmap_conv_layer, layer=nn("Conv2d", 3, 8, 3)),
          ("2x1x3x8x8",), 15552),
    Probe("vmap_matmul", function_model(_vmap_product), ("5x3x4", "5x4x6"), 360),
    Probe("matmul_captured", _model_with_captured_matmul, ("3x4", "4x6"), 72),
    Probe("Tensor.__rmatmul__", function_model(_rmatmul_product), ("3x4", "4x6"), 72),
    Probe("Tensor.matmul", function_model(lambda model, a, b: a.matmul(b)), ("3x4", "4x6"), 72),
    Probe("Tensor.mm", function_model(lambda model, a, b: a.mm(b)), ("3x4", "4x6"), 72),
    Probe("Tensor.bmm", function_model(lambda model, a, b: a.bmm(b)), ("2x3x4", "2x4x6"), 144),
    Probe("Tensor.addmm", function_model(lambda model, x, a, b: x.addmm(a, b)),
          ("6", "3x4", "4x6"), 72),
    Probe("mm_by_keyword", function_model(_call_product_by_keyword), ("3x4", "4x6"), 72),
    Probe("einsum_of_list", function_model(_einsum_of_list), ("3x4", "4x6"), 72),
    Probe("SDPA_by_keyword", function_model(_call_attention_by_keyword), _SUB_QKV, 12800),
    Probe("add_mul_methods", function_model(_scalar_products), (*_NARROW,), 0),
    Probe("F.upsample", function_model(_upsample_bilinear), ("1x2x4x4",), 0),
    Probe("Upsample_size", wrap_layer(nn("Upsample", size=(9, 7))), ("2x3x4x5",), 0),
    Probe("Upsample_scales", wrap_layer(nn("Upsample", scale_factor=(2, 1.5), mode="bilinear")),
          ("2x3x4x4",), 0),
    Probe("Upsample_scales_one", wrap_layer(nn("Upsample", scale_factor=(2, 3))), ("1x3x4x4",), 0),
    Probe("adaptive_by_keyword", function_model(_call_pool_by_keyword), _SUB_MAPS, 0),
    Probe("LPPool2d", wrap_layer(nn("LPPool2d", 2, 2)), _SUB_MAPS, 0),
    Probe("LocalResponseNorm", wrap_layer(nn("LocalResponseNorm", 3)), _SUB_MAPS, 0),
    Probe("bn2d_stateless",
             wrap_layer(nn("BatchNorm2d", 8, track_running_stats=False)), _SUB_MAPS, 0),
    # 8 x 16 x 16 outputs of 8 x 3 x 3, 8 x 14 x 14
    Probe("conv_same_odd", wrap_layer(nn("Conv2d", 8, 8, 3, padding="same", dilation=2)),
          _SUB_MAPS, 147456),
    Probe("conv_valid", wrap_layer(nn("Conv2d", 8, 8, 3, padding="valid")), _SUB_MAPS, 112896),
    # inputs x Co x K: 8 x 64 x 4 x 9, 4 x 8 x 10 x 4, depthwise 8 x 64 x 9
    Probe("convT_output_size",
             function_model(_call_with_output_size, layer=nn("ConvTranspose2d", 8, 4, 3, 2, 1)),
          ("1x8x8x8",), 18432),
    # 8 x 7 x 7 outputs of 8 x 3 x 3
    Probe("conv_stride_list",
          function_model(_call_conv_with_stride_list, layer=nn("Conv2d", 8, 8, 3)),
          _SUB_MAPS, 28224),
    Probe("F.interp_scale_list", function_model(_interpolate_with_scale_list), ("2x3x4x4",), 0),
    Probe("convT_g2_bias",
             wrap_layer(nn("ConvTranspose1d", 4, 8, 4, 3, groups=2)), ("1x4x10",), 640),
    Probe("convT_depthwise", wrap_layer(nn("ConvTranspose2d", 8, 8, 3, groups=8)),
          ("1x8x8x8",), 4608),
    Probe("convT3d", wrap_layer(nn("ConvTranspose3d", 2, 3, 2, dilation=2)), ("1x2x3x4x5",), 2880),
    Probe("unregistered_conv", _conv_without_registration, _SUB_MAPS, 147456),
    # T B x g H (I + H)
    Probe("LSTM_subclass", wrap_layer(_lstm_subclass), ("5x2x16",), 61440),
    Probe("LSTM_forward", function_model(lambda model, x: model.layer.forward(x),
                                   layer=nn("LSTM", 16, 32)), ("5x2x16",), 61440),
    Probe("LSTM_shared_parents", _lstm_with_two_parents, ("5x2x16",), 40960),
    # T x g H (I + H), B x that with a projection to 8: 5 2 (4 32 (16 + 8) + 8 32)
    Probe("GRU_unbatched", wrap_layer(nn("GRU", 16, 32)), ("5x16",), 23040),
    Probe("LSTM_projected", wrap_layer(nn("LSTM", 16, 32, proj_size=8)), ("5x2x16",), 33280),
    Probe("GRU_2l_bi", wrap_layer(nn("GRU", 16, 32, 2, bidirectional=True)), ("5x2x16",), 276480),
    Probe("LSTMCell_nobias", wrap_layer(nn("LSTMCell", 16, 32, bias=False)), ("5x16",), 30720),
)  # fmt: skip


PROBES = (*_FUNCTIONS_PROBES, *_PATCHED_PROBES, *_REPLACED_PROBES)
