"""Define probes of single layers, alone and as heads of images, and of parameters that tools count
differently.
"""

from collections.abc import Callable
from typing import Any

from crossflops.testing.probes import Probe, function_model, nn, wrap_layer

_IMAGE, _MAPS, _ROWS, _TOKENS = ("1x3x16x16",), ("1x8x16x16",), ("4x64",), ("2x10x64",)
_STEPS = ("5x2x16",)

_CONVOLUTIONS = (
    # outputs x Ci/g x K; transposed: inputs x Co/g x K
    Probe("conv_nobias", wrap_layer(nn("Conv2d", 3, 8, 3, padding=1, bias=False)), _IMAGE, 55296),
    Probe("conv_bias", wrap_layer(nn("Conv2d", 3, 8, 3, padding=1)), _IMAGE, 55296),
    Probe(
        "conv_bias_batch4", wrap_layer(nn("Conv2d", 3, 8, 3, padding=1)), ("4x3x16x16",), 221184
    ),
    Probe("conv_root", nn("Conv2d", 3, 8, 3, padding=1), _IMAGE, 55296),
    Probe(
        "conv_group4",
        wrap_layer(nn("Conv2d", 8, 16, 3, padding=1, groups=4, bias=False)),
        _MAPS,
        73728,
    ),
    Probe(
        "conv_dil2",
        wrap_layer(nn("Conv2d", 3, 8, 3, padding=2, dilation=2, bias=False)),
        _IMAGE,
        55296,
    ),
    Probe(
        "conv_same_even",
        wrap_layer(nn("Conv2d", 3, 8, 4, padding="same", bias=False)),
        _IMAGE,
        98304,
    ),
    Probe("conv_unbatched", wrap_layer(nn("Conv2d", 3, 8, 3, padding=1)), ("3x16x16",), 55296),
    Probe("conv1d_bias", wrap_layer(nn("Conv1d", 4, 8, 3, padding=1)), ("1x4x40",), 3840),
    Probe(
        "conv3d_nobias",
        wrap_layer(nn("Conv3d", 3, 8, 3, padding=1, bias=False)),
        ("1x3x2x6x6",),
        46656,
    ),
    Probe(
        "convT_bias_s2", wrap_layer(nn("ConvTranspose2d", 8, 4, 3, 2, 1, 1)), ("1x8x8x8",), 18432
    ),
    Probe(
        "convT_g2_nobias",
        wrap_layer(nn("ConvTranspose2d", 8, 4, 3, 2, 1, 1, groups=2, bias=False)),
        ("1x8x8x8",),
        9216,
    ),
    Probe("convT1d", wrap_layer(nn("ConvTranspose1d", 8, 4, 4, 2, 1)), ("2x8x9",), 2304),
)
_LINEAR = (
    # rows x in x out
    Probe("linear_bias_2d", wrap_layer(nn("Linear", 64, 32)), _ROWS, 8192),
    Probe("linear_bias_3d", wrap_layer(nn("Linear", 64, 32)), _TOKENS, 40960),
    Probe("linear_nobias_2d", wrap_layer(nn("Linear", 64, 32, bias=False)), _ROWS, 8192),
    Probe("linear_vector", wrap_layer(nn("Linear", 64, 32)), ("64",), 2048),
    Probe("linear_root", nn("Linear", 64, 32), _ROWS, 8192),
)
_NORMS = tuple(
    Probe(name, wrap_layer(layer), inputs, 0)
    for name, layer, inputs in (
        ("bn1d", nn("BatchNorm1d", 64), _ROWS),
        ("bn2d", nn("BatchNorm2d", 8), _MAPS),
        ("bn2d_noaffine", nn("BatchNorm2d", 8, affine=False), _MAPS),
        ("layernorm", nn("LayerNorm", 64), _TOKENS),
        ("layernorm_noaffine", nn("LayerNorm", 64, elementwise_affine=False), _TOKENS),
        ("groupnorm", nn("GroupNorm", 4, 8), _MAPS),
        ("groupnorm_noaffine", nn("GroupNorm", 4, 8, affine=False), _MAPS),
        ("instnorm_affine", nn("InstanceNorm2d", 8, affine=True), _MAPS),
        ("instnorm", nn("InstanceNorm2d", 8), _MAPS),
        ("rmsnorm", nn("RMSNorm", 64), _TOKENS),
    )
)
_ACTIVATIONS = tuple(
    Probe(f"nn.{name}", wrap_layer(nn(name)), _MAPS, 0)
    for name in (
        "ReLU", "ReLU6", "LeakyReLU", "GELU", "SiLU", "Sigmoid", "Tanh", "Hardswish",
        "Hardsigmoid", "PReLU", "ELU", "CELU", "SELU", "Mish", "Softplus",
    )
)  # fmt: skip
_POOLS = tuple(
    Probe(name, wrap_layer(layer), inputs, 0)
    for name, layer, inputs in (
        ("MaxPool2", nn("MaxPool2d", 2), _MAPS),
        ("MaxPool3s2p1", nn("MaxPool2d", 3, 2, 1), _MAPS),
        ("AvgPool2", nn("AvgPool2d", 2), _MAPS),
        ("AvgPool1d", nn("AvgPool1d", 2), ("1x8x10",)),
        ("AdaptAvg1", nn("AdaptiveAvgPool2d", 1), _MAPS),
        ("AdaptAvg5", nn("AdaptiveAvgPool2d", 5), _MAPS),
        ("AdaptAvg1d", nn("AdaptiveAvgPool1d", 3), ("1x8x10",)),
        ("AdaptMax1", nn("AdaptiveMaxPool2d", 1), _MAPS),
        ("Up_nearest2", nn("Upsample", scale_factor=2), _MAPS),
        ("Up_linear2", nn("Upsample", scale_factor=2, mode="linear"), ("1x8x10",)),
        ("Up_bilinear2", nn("Upsample", scale_factor=2, mode="bilinear"), _MAPS),
        ("Up_bicubic2", nn("Upsample", scale_factor=2, mode="bicubic"), _MAPS),
        ("Up_trilinear2", nn("Upsample", scale_factor=2, mode="trilinear"), ("1x2x4x4x4",)),
        ("Up_exact2", nn("Upsample", scale_factor=2, mode="nearest-exact"), _MAPS),
        ("nn.Softmax", nn("Softmax", dim=-1), _TOKENS),
        ("nn.LogSoftmax", nn("LogSoftmax", dim=-1), _TOKENS),
        ("nn.Dropout", nn("Dropout"), _MAPS),
        ("nn.PixelShuffle", nn("PixelShuffle", 2), _MAPS),
        ("nn.ZeroPad2d", nn("ZeroPad2d", 1), _MAPS),
        ("Embedding", nn("Embedding", 100, 16), ("2x10:int64",)),
    )
)
_RECURRENT = (
    # T B x the elements of the weight matrices: g H (I + H) per layer and direction
    Probe("LSTM_1l", wrap_layer(nn("LSTM", 16, 32)), _STEPS, 61440),
    Probe("LSTM_2l_bi", wrap_layer(nn("LSTM", 16, 32, 2, bidirectional=True)), _STEPS, 368640),
    Probe(
        "LSTM_batch_first", wrap_layer(nn("LSTM", 16, 32, batch_first=True)), ("2x5x16",), 61440
    ),
    Probe("LSTM_nobias", wrap_layer(nn("LSTM", 16, 32, bias=False)), _STEPS, 61440),
    Probe("LSTM_root", nn("LSTM", 16, 32), _STEPS, 61440),
    Probe("GRU_1l", wrap_layer(nn("GRU", 16, 32)), _STEPS, 46080),
    Probe("RNN_1l", wrap_layer(nn("RNN", 16, 32)), _STEPS, 15360),
    Probe("RNN_relu", wrap_layer(nn("RNN", 16, 32, nonlinearity="relu")), _STEPS, 15360),
    # B x g H (I + H)
    Probe("LSTMCell", wrap_layer(nn("LSTMCell", 16, 32)), ("5x16",), 30720),
    Probe("GRUCell", wrap_layer(nn("GRUCell", 16, 32)), ("5x16",), 23040),
    Probe("RNNCell", wrap_layer(nn("RNNCell", 16, 32)), ("5x16",), 7680),
    Probe("GRUCell_root", nn("GRUCell", 16, 32), ("5x16", "5x32"), 23040),
)
_LAYERS_PROBES = (*_CONVOLUTIONS, *_LINEAR, *_NORMS, *_ACTIVATIONS, *_POOLS, *_RECURRENT)


# Heads and oddities behind one image: some tools are asked about nothing else.

_IMAGES_IMAGE, _IMAGES_MAPS = ("1x3x4x4",), ("1x8x8x8",)


def _call_bilinear(model: Any, x: Any) -> Any:
    """Return what the bilinear layer gives for two parts of the flattened input."""
    rows = x.flatten(1)
    return model.layer(rows[:, :6], rows[:, 6:10])


def _class_probabilities(model: Any, x: Any) -> Any:
    """Return the softmax of what the layer gives for the flattened input."""
    return model.softmax(model.layer(x.flatten(1)))


_IMAGES_PROBES = (
    # 48 features to 5 classes
    Probe(
        "image_classifier",
        function_model(_class_probabilities, layer=nn("Linear", 48, 5), softmax=nn("Softmax", -1)),
        _IMAGES_IMAGE,
        240,
    ),
    # x1 W x2 for 3 outputs: 3 x (6 x 4 for the first product, and 4 for the second)
    Probe(
        "image_bilinear",
        function_model(_call_bilinear, layer=nn("Bilinear", 6, 4, 3)),
        _IMAGES_IMAGE,
        3 * 28,
    ),
    # 12 rows of 4 features
    Probe(
        "image_rows",
        function_model(lambda model, x: model.layer(x), layer=nn("Linear", 4, 5)),
        _IMAGES_IMAGE,
        12 * 20,
    ),
    # a class whose base is there as well, before it
    Probe(
        "image_relu6_after_its_base",
        function_model(
            lambda model, x: model.relu6(model.hardtanh(x)),
            hardtanh=nn("Hardtanh"),
            relu6=nn("ReLU6"),
        ),
        _IMAGES_MAPS,
        0,
    ),
    Probe(
        "image_softmax_of_a_vector",
        function_model(lambda model, x: model.softmax(x.flatten()), softmax=nn("Softmax", 0)),
        _IMAGES_IMAGE,
        0,
    ),
    Probe(
        "image_indices",
        function_model(
            lambda model, x: model.pool(x)[0], pool=nn("MaxPool2d", 2, return_indices=True)
        ),
        _IMAGES_MAPS,
        0,
    ),
    # called once as asked, and before with another shape: a tool may keep the last call only
    Probe(
        "image_twice",
        function_model(
            lambda model, x: model.conv(model.conv(x)[:, :, :5]), conv=nn("Conv2d", 8, 8, 3, 1, 1)
        ),
        _IMAGES_MAPS,
        (64 + 40) * 8 * 8 * 9,
    ),
)


# Layers with parameters of their own, and what some tools read instead of the work.

_PARAMETERS_IMAGE, _PARAMETERS_ROWS, _PARAMETERS_TOKENS = ("1x3x16x16",), ("4x64",), ("2x10x64",)


def _custom_layer(
    name: str, forward: Callable[..., Any], **shapes: tuple[int, ...]
) -> Callable[[], Any]:
    """Return a builder of a layer of a new class `name`, with `forward` as its method and a
    parameter for each of `shapes`.

    The layer returns `forward(layer, x)`.
    """

    def build_custom_layer() -> Any:
        """Return a layer of a new class, with `forward` as its method and random parameters."""
        import torch

        made = type(name, (torch.nn.Module,), {"forward": forward})()
        for parameter, shape in shapes.items():
            made.register_parameter(parameter, torch.nn.Parameter(torch.randn(shape)))
        return made

    return build_custom_layer


class _Result:
    """A result that no tool looks into."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _pack_product(layer: Any, x: Any) -> Any:
    """Return `x @ layer.kernel` inside of an object that is not a tensor."""
    return _Result(x @ layer.kernel)


def _unpack_product(model: Any, x: Any) -> Any:
    """Return the tensor that is inside of the layer's result."""
    return model.layer(x).value


def _custom_linear(layer: Any, x: Any) -> Any:
    """Return a functional linear of `x` with the layer's weight and bias."""
    import torch

    return torch.nn.functional.linear(x, layer.weight, layer.bias)


def _gpt2_linear(layer: Any, x: Any) -> Any:
    """Return the result of a linear layer, computed as in the GPT-2 of transformers."""
    import torch

    rows = torch.addmm(layer.bias, x.view(-1, x.size(-1)), layer.weight)
    return rows.view(*x.shape[:-1], layer.weight.size(1))


def _multiply_by_weight(layer: Any, x: Any) -> Any:
    """Return `x` times the layer's weight, element by element."""
    return x * layer.weight


def _add_layer_bias(layer: Any, x: Any) -> Any:
    """Return `x` plus the layer's bias."""
    return x + layer.bias


def _multiply_by_kernel(layer: Any, x: Any) -> Any:
    """Return the matrix product of `x` and the layer's kernel."""
    return x @ layer.kernel


def _custom_rms_norm(layer: Any, x: Any) -> Any:
    """Return `x` normalized by its root mean square, times the weight."""
    return layer.weight * x * (x * x).mean(-1, keepdim=True).rsqrt()


def _sum_with_weight(layer: Any, x: Any) -> Any:
    """Return the sum of `x` times the layer's weight."""
    return (x * layer.weight).sum()


def _layer_in_new_subclass(
    name: str, class_name: str, *args: Any, **kwargs: Any
) -> Callable[[], Any]:
    """Return a builder of a layer of torch.nn, in a subclass with the name `class_name`."""

    def build_layer_of_new_subclass() -> Any:
        """Return the layer, in a new subclass of its class."""
        import torch

        return type(class_name, (getattr(torch.nn, name),), {})(*args, **kwargs)

    return build_layer_of_new_subclass


def _linear_with_empty_child() -> Any:
    """Return a linear layer that has an empty Sequential as a child."""
    import torch

    layer = torch.nn.Linear(64, 32)
    layer.add_module("after", torch.nn.Sequential())
    return layer


def _linear_with_identity_child() -> Any:
    """Return a linear layer that has an Identity as a child."""
    import torch

    layer = torch.nn.Linear(64, 32)
    layer.add_module("after", torch.nn.Identity())
    return layer


def _conv_with_pruning() -> Any:
    """Return a convolution whose first two filters are pruned."""
    import torch
    from torch.nn.utils import prune

    layer = torch.nn.Conv2d(3, 8, 3)
    mask = torch.ones(8, 3, 3, 3)
    mask[:2] = 0
    return prune.custom_from_mask(layer, "weight", mask)


def _conv_with_spectral_norm() -> Any:
    """Return a convolution with spectral normalization."""
    import torch

    return torch.nn.utils.spectral_norm(torch.nn.Conv2d(3, 8, 3))


def _conv_with_weight_norm() -> Any:
    """Return a convolution with weight normalization."""
    import torch

    return torch.nn.utils.parametrizations.weight_norm(torch.nn.Conv2d(3, 8, 3))


_NAMES = (
    # rows x in x out; convolutions: outputs x Ci x K
    Probe(
        "conv_renamed",
        wrap_layer(_layer_in_new_subclass("Conv2d", "Patches", 3, 8, 3)),
        _PARAMETERS_IMAGE,
        8 * 196 * 27,
    ),
    Probe(
        "own_Conv1D",
        wrap_layer(_custom_layer("Conv1D", _gpt2_linear, weight=(64, 32), bias=(32,))),
        _PARAMETERS_TOKENS,
        40960,
    ),
    Probe(
        "own_ConvShift",
        wrap_layer(_custom_layer("ConvShift", _add_layer_bias, bias=(64,))),
        _PARAMETERS_TOKENS,
        0,
    ),
    Probe(
        "own_linear",
        wrap_layer(_custom_layer("Dense", _custom_linear, weight=(32, 64), bias=(32,))),
        _PARAMETERS_TOKENS,
        40960,
    ),
    Probe(
        "own_scale",
        wrap_layer(_custom_layer("Scale", _multiply_by_weight, weight=(64,))),
        _PARAMETERS_TOKENS,
        0,
    ),
    Probe(
        "own_shift",
        wrap_layer(_custom_layer("Shift", _add_layer_bias, bias=(64,))),
        _PARAMETERS_TOKENS,
        0,
    ),
    Probe(
        "own_kernel",
        wrap_layer(_custom_layer("Mix", _multiply_by_kernel, kernel=(64, 32))),
        _PARAMETERS_TOKENS,
        40960,
    ),
    Probe(
        "own_RMSNorm",
        wrap_layer(_custom_layer("OwnRMSNorm", _custom_rms_norm, weight=(64,))),
        _PARAMETERS_TOKENS,
        0,
    ),
    Probe(
        "own_total",
        wrap_layer(_custom_layer("Total", _sum_with_weight, weight=(64,))),
        _PARAMETERS_TOKENS,
        0,
    ),
)
_RESULTS = (
    Probe(
        "returns_object",
        function_model(
            _unpack_product, layer=_custom_layer("Packed", _pack_product, kernel=(64, 32))
        ),
        _PARAMETERS_TOKENS,
        40960,
    ),
)
_CHILDREN = (
    Probe("linear_empty_child", wrap_layer(_linear_with_empty_child), _PARAMETERS_ROWS, 8192),
    Probe("linear_child", wrap_layer(_linear_with_identity_child), _PARAMETERS_ROWS, 8192),
)
_COMPUTED = (
    Probe("pruned_conv", wrap_layer(_conv_with_pruning), _PARAMETERS_IMAGE, 8 * 196 * 27),
    # its hook multiplies the weight with a vector, and that with another
    Probe(
        "spectral_conv",
        wrap_layer(_conv_with_spectral_norm),
        _PARAMETERS_IMAGE,
        8 * 196 * 27 + 8 * 27 + 8,
    ),
    Probe("weight_norm_conv", wrap_layer(_conv_with_weight_norm), _PARAMETERS_IMAGE, 8 * 196 * 27),
    Probe("EmbeddingBag", wrap_layer(nn("EmbeddingBag", 100, 16)), ("2x10:int64",), 0),
    Probe("Bilinear", lambda: nn("Bilinear", 6, 7, 5)(), ("4x6", "4x7"), 4 * 5 * 7 * (6 + 1)),
)

_PARAMETERS_PROBES = (*_NAMES, *_RESULTS, *_CHILDREN, *_COMPUTED)


# Parameters that tools count differently: frozen, or in no layer.

_PARAMETER_KINDS_ROWS = ("4x16",)
_PARAMETER_KINDS_LINEAR = nn("Linear", 16, 8, bias=False)  # 4 x 16 x 8 = 512


def _linear_model() -> Any:
    """Return a model with one linear layer."""
    return function_model(lambda model, x: model.layer(x), layer=_PARAMETER_KINDS_LINEAR)()


def _model_with_frozen_weight() -> Any:
    """Return a model with one linear layer whose weight is frozen."""
    model = _linear_model()
    model.layer.weight.requires_grad_(False)
    return model


def _bare_parameter_model() -> Any:
    """Return a model that has a parameter which belongs to no layer and is not used."""
    import torch

    model = _linear_model()
    model.scale = torch.nn.Parameter(torch.ones(5))
    return model


def _model_with_interleaved_layers() -> Any:
    """Return a model with two lists of layers, which it runs in turn: one of each, then the next
    of each.

    So the run leaves each list and enters it again.
    """
    import torch

    def two_layers(make: Any) -> Any:
        """Return a list with two new layers that `make` gives."""
        return torch.nn.ModuleList(make() for _ in range(2))

    def run_in_turn(model: Any, x: Any) -> Any:
        """Return `x` after two pairs of a layer and a normalization."""
        for layer, norm in zip(model.layers, model.norms, strict=True):
            x = norm(layer(x))
        return x

    square, norm = nn("Linear", 16, 16, bias=False), nn("LayerNorm", 16)
    return function_model(
        run_in_turn, layers=lambda: two_layers(square), norms=lambda: two_layers(norm)
    )()


_PARAMETER_KINDS_PROBES = (
    Probe(
        "lists_in_turns", _model_with_interleaved_layers, _PARAMETER_KINDS_ROWS, 2 * 4 * 16 * 16
    ),
    Probe("frozen_weight", _model_with_frozen_weight, _PARAMETER_KINDS_ROWS, 512),
    Probe("bare_parameter", _bare_parameter_model, _PARAMETER_KINDS_ROWS, 512),
)


PROBES = (*_LAYERS_PROBES, *_IMAGES_PROBES, *_PARAMETERS_PROBES, *_PARAMETER_KINDS_PROBES)
