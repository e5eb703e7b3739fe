"""Define probes that combine modules, or have layers in forms that rules seldom expect."""

from collections.abc import Callable
from typing import Any

from crossflops.testing.probes import Probe, function_model, nn, wrap_layer

_MAPS, _TOKENS = ("1x8x16x16",), ("2x10x32",)
_CONV = nn("Conv2d", 8, 8, 3, padding=1, bias=False)  # 147456 on _MAPS


def _layer_with_two_names() -> Any:
    """Return a model that has one convolution under two names and calls it by both."""
    layer = _CONV()
    return function_model(
        lambda model, x: model.second(model.first(x)), first=lambda: layer, second=lambda: layer
    )()


def _layer_with_two_parents() -> Any:
    """Return a model with one convolution inside a module that has two names."""
    layer = _CONV()
    parent = wrap_layer(lambda: layer)
    return function_model(lambda model, x: model.b(model.a(x)), a=parent, b=parent)()


def _tied_model() -> Any:
    """Return a model of two linear layers that share one weight."""
    model = function_model(
        lambda model, x: model.b(model.a(x)),
        a=nn("Linear", 32, 32, bias=False),
        b=nn("Linear", 32, 32, bias=False),
    )()
    model.b.weight = model.a.weight
    return model


def _conv_subclass() -> Any:
    """Return a layer of a subclass of Conv2d."""
    from torch import nn as torch_nn

    class OwnConv(torch_nn.Conv2d):
        pass

    return OwnConv(3, 8, 3, padding=1, bias=False)


def _dead_layers(*layers: Callable[[], Any]) -> Callable[[], Any]:
    """Return a builder of a model that discards the results of all layers except the last one."""

    def run_all_return_last(model: Any, x: Any) -> Any:
        """Run all layers; return the result of the only one that is used."""
        model.dead(x)
        return model.live(x)

    return function_model(run_all_return_last, live=_CONV, dead=_sequential(*layers))


def _sequential(*layers: Callable[[], Any]) -> Callable[[], Any]:
    """Return a builder of an nn.Sequential of the layers that these functions make."""
    return lambda: nn("Sequential", *(layer() for layer in layers))()


def _self_attention_model_builder(**options: Any) -> Callable[[], Any]:
    """Return a builder of a model with one self-attention layer."""

    def self_attention(model: Any, x: Any) -> Any:
        """Return the self-attention of `x`."""
        return model.layer(x, x, x, **options)[0]

    return function_model(self_attention, layer=nn("MultiheadAttention", 32, 4, batch_first=True))


_ENCODER_LAYER = nn("TransformerEncoderLayer", 32, 4, 64, batch_first=True)
_DECODER_LAYER = nn("TransformerDecoderLayer", 32, 4, 64, batch_first=True)

_COMPOSITION = (
    Probe(
        "shared_called_twice",
        function_model(lambda model, x: model.layer(model.layer(x)), layer=_CONV),
        _MAPS,
        294912,
    ),
    Probe("shared_two_names", _layer_with_two_names, _MAPS, 294912),
    Probe("shared_two_parents", _layer_with_two_parents, _MAPS, 294912),
    Probe("tied_weight_two_modules", _tied_model, ("16x32",), 32768),
    Probe(
        "unused_submodule",
        function_model(lambda model, x: model.layer(x), layer=_CONV, unused=_CONV),
        _MAPS,
        147456,
    ),
    Probe(
        "direct_forward",
        function_model(lambda model, x: model.layer.forward(x), layer=_CONV),
        _MAPS,
        147456,
    ),
    Probe("subclassed_conv", wrap_layer(_conv_subclass), ("1x3x16x16",), 55296),
    Probe("dead_conv", _dead_layers(_CONV), _MAPS, 147456),
    Probe("dead_conv_bn", _dead_layers(_CONV, nn("BatchNorm2d", 8)), _MAPS, 147456),
    Probe(
        "py_loop3",
        function_model(lambda model, x: model.l(model.l(model.l(x))), l=nn("Linear", 8, 8)),
        ("4x8",),
        768,
    ),
    Probe(
        "conv_bn_relu",
        _sequential(
            nn("Conv2d", 3, 8, 3, padding=1, bias=False),
            nn("BatchNorm2d", 8),
            nn("ReLU", inplace=True),
        ),
        ("1x3x16x16",),
        55296,
    ),
)
# Tokens 2 x 10, E = 32: projections 4 x 20 x 32 x 32, products 2 x 2 x 10 x 10 x 32
_ATTENTION = 81920 + 12800
_FEED_FORWARD = 2 * 20 * 32 * 64
_ATTENTION_MODULES = (
    Probe("MHA_noweights", _self_attention_model_builder(need_weights=False), _TOKENS, _ATTENTION),
    Probe("MHA_weights", _self_attention_model_builder(), _TOKENS, _ATTENTION),
    Probe("TransformerEncLayer", _ENCODER_LAYER, _TOKENS, _ATTENTION + _FEED_FORWARD),
    Probe(
        "TransformerEncoder4",
        lambda: nn("TransformerEncoder", _ENCODER_LAYER(), 4)(),
        _TOKENS,
        4 * (_ATTENTION + _FEED_FORWARD),
    ),
    # 7 tokens of memory: it projects 20 + 20 queries and outputs, 14 + 14 keys and values
    Probe(
        "TransformerDecLayer",
        _DECODER_LAYER,
        (*_TOKENS, "2x7x32"),
        _ATTENTION + (2 * 20 + 2 * 14) * 32 * 32 + 2 * 2 * 10 * 7 * 32 + _FEED_FORWARD,
    ),
)

_COMPOSITES_PROBES = (*_COMPOSITION, *_ATTENTION_MODULES)


# Layers as rules about them seldom expect them: cut windows, appended keys, subclasses.

_RULES_MAPS, _ROWS, _RULES_TOKENS = ("1x8x16x16",), ("4x64",), ("2x10x32",)
_TARGET = (*_RULES_TOKENS, "2x7x12", "2x7x20")  # queries, keys, values


def _vmap_layer(model: Any, x: Any) -> Any:
    """Return what the layer gives for `x` under torch.vmap."""
    import torch

    return torch.vmap(model.layer)(x)


def _einsum_of_integer_lists(model: Any, a: Any, b: Any) -> Any:
    """Return an einsum of two tensors that is called with lists of integers instead of an
    equation.
    """
    import torch

    return torch.einsum(a, [0, 1, 2], b, [0, 2, 3], [0, 1, 3])


def _call_by_keyword(model: Any, x: Any) -> Any:
    """Return what the layer gives for `x`, passed by keyword."""
    return model.layer(input=x)


def _call_attention(model: Any, *tensors: Any, **options: Any) -> Any:
    """Return the attention layer's result for one tensor, or for query, key and value."""
    query, key, value = tensors if len(tensors) == 3 else tensors * 3
    return model.layer(query, key, value, **options)[0]


def _attention_model_builder(
    *args: Any, call: dict[str, Any] | None = None, **options: Any
) -> Callable[[], Any]:
    """Return a builder of a model with one MultiheadAttention; `call` has the options with which
    it is called.

    The layer has width 32 and 4 heads.
    """
    layer = nn("MultiheadAttention", 32, 4, *args, **options)
    return function_model(
        lambda model, *x: _call_attention(model, *x, **(call or {})), layer=layer
    )


def _call_attention_forward(model: Any, x: Any) -> Any:
    """Return the self-attention of `x`, computed by the layer's `forward`, so that its hooks do
    not run.
    """
    return model.layer.forward(x, x, x, need_weights=False)[0]


def _call_linear_forward(model: Any, x: Any) -> Any:
    """Return what the linear layer's `forward` gives for `x`, so that its hooks do not run."""
    return model.layer.forward(x)


class _LayerSubclasses:
    """Subclasses of layers, defined when a probe is built."""

    @staticmethod
    def linear_with_branch() -> Any:
        """Return a linear layer that also computes a second product."""
        import torch

        class BranchedLinear(torch.nn.Linear):
            def forward(self, x: Any) -> Any:
                """Return what the base class gives for x, plus a functional linear with doubled
                weights.
                """
                return super().forward(x) + torch.nn.functional.linear(x, self.weight * 2)

        return BranchedLinear(64, 32)

    @staticmethod
    def norm_with_children() -> Any:
        """Return a normalization that has an activation and a layer as children."""
        import torch

        class NormAct(torch.nn.BatchNorm2d):
            def __init__(self) -> None:
                super().__init__(8)
                self.act, self.mix = torch.nn.PReLU(), torch.nn.Conv2d(8, 8, 1)

            def forward(self, x: Any) -> Any:
                """Return the base layer's result after a PReLU and a convolution, plus `x @ x`."""
                return self.mix(self.act(super().forward(x))) + x @ x

        return NormAct()

    @staticmethod
    def linear_with_child() -> Any:
        """Return a linear layer that contains two low-rank layers, as adapters do."""
        import torch

        class AdaptedLinear(torch.nn.Linear):
            def __init__(self) -> None:
                super().__init__(64, 32)
                self.down, self.up = torch.nn.Linear(64, 4), torch.nn.Linear(4, 32)

            def forward(self, x: Any) -> Any:
                """Return the linear result plus that of two low-rank layers."""
                return super().forward(x) + self.up(self.down(x))

        return AdaptedLinear()

    @staticmethod
    def activation_with_product() -> Any:
        """Return an activation layer that computes a matrix product."""
        import torch

        class Free(torch.nn.ReLU):
            def forward(self, x: Any) -> Any:
                """Return what the base class gives for `x @ x`."""
                return super().forward(x @ x)

        return Free()


def _product_by_autograd_function(model: Any, x: Any) -> Any:
    """Return `x @ x`, computed by a custom autograd function."""
    import torch

    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            """Return the product `x @ x`."""
            return x @ x

    return Square.apply(x)


_POOLS = tuple(
    Probe(name, wrap_layer(nn(layer, *args, **options)), inputs, 0)
    for name, layer, args, options, inputs in (
        ("AvgPool_padded", "AvgPool2d", (3, 2, 1), {}, _RULES_MAPS),
        ("AvgPool_cut", "AvgPool2d", (3, 2, 1), {"count_include_pad": False}, _RULES_MAPS),
        ("AvgPool_ceil", "AvgPool2d", ((3, 2), (2, 3)), {"ceil_mode": True}, _RULES_MAPS),
        ("AvgPool1d_padded", "AvgPool1d", (3, 2, 1), {}, ("2x8x11",)),
        ("AvgPool3d", "AvgPool3d", (2,), {}, ("1x2x4x5x6",)),
        ("AdaptAvg_uneven", "AdaptiveAvgPool2d", ((3, None),), {}, _RULES_MAPS),
        ("nn.Softmin", "Softmin", (-1,), {}, _RULES_TOKENS),
        ("rmsnorm_plain", "RMSNorm", (32,), {"elementwise_affine": False}, _RULES_TOKENS),
        ("nn.Softmax2d", "Softmax2d", (), {}, _RULES_MAPS),
    )
)
_SEQUENCES = (
    # 5 steps of 2 samples: 4 x 32 x (16 + 8) + 32 x 8, once more for 8 inputs
    Probe(
        "LSTM_2l_projected",
        wrap_layer(nn("LSTM", 16, 32, 2, proj_size=8)),
        ("5x2x16",),
        10 * (128 * (16 + 8) + 256 + 128 * (8 + 8) + 256),
    ),
    Probe("GRU_bare_steps", wrap_layer(nn("GRU", 16, 32)), ("5x16",), 5 * 96 * 48),
    Probe("LSTMCell_vector", wrap_layer(nn("LSTMCell", 16, 32)), ("16",), 128 * 48),
)
# rows x E x E for each projection, and 2 x B x L x S x E for the products
_KEYS = (
    Probe(
        "MHA_appended",
        _attention_model_builder(add_bias_kv=True, add_zero_attn=True, batch_first=True),
        _RULES_TOKENS,
        4 * 20 * 1024 + 2 * 2 * 10 * 12 * 32,
    ),
    Probe(
        "MHA_appended_quietly",
        _attention_model_builder(add_zero_attn=True, call={"need_weights": False}),
        _RULES_TOKENS,
        4 * 20 * 1024 + 2 * 10 * 2 * 3 * 32,
    ),
    Probe(
        "MHA_cross",
        _attention_model_builder(kdim=12, vdim=20, batch_first=True),
        _TARGET,
        2 * 20 * 1024 + 14 * 32 * 32 + 2 * 2 * 10 * 7 * 32,
    ),
    Probe(
        "MHA_unbatched", _attention_model_builder(), ("10x32",), 4 * 10 * 1024 + 2 * 10 * 10 * 32
    ),
    Probe(
        "MHA_forward",
        function_model(_call_attention_forward, layer=nn("MultiheadAttention", 32, 4)),
        _RULES_TOKENS,
        4 * 20 * 1024 + 2 * 10 * 2 * 2 * 32,
    ),
)
_FUNCTIONS = (
    Probe(
        "vmap_convT",
        function_model(_vmap_layer, layer=nn("ConvTranspose2d", 3, 8, 3)),
        ("5x3x6x6",),
        38880,
    ),
    Probe(
        "einsum_subscripts", function_model(_einsum_of_integer_lists), ("2x10x8", "2x8x10"), 1600
    ),
    Probe("einsum_summed", function_model(_einsum_of_integer_lists), ("2x10x8", "1x8x10"), 1600),
    Probe("own_function", function_model(_product_by_autograd_function), ("6x6",), 216),
    Probe(
        "linear_by_keyword",
        function_model(_call_by_keyword, layer=nn("Linear", 64, 32)),
        _ROWS,
        8192,
    ),
    Probe(
        "linear_forward",
        function_model(_call_linear_forward, layer=nn("Linear", 64, 32)),
        _ROWS,
        8192,
    ),
)
_SUBCLASSES = (
    Probe("linear_with_branch", wrap_layer(_LayerSubclasses.linear_with_branch), _ROWS, 2 * 8192),
    Probe(
        "norm_with_children",
        wrap_layer(_LayerSubclasses.norm_with_children),
        _RULES_MAPS,
        64 * 256 + 8 * 16 * 16 * 16,
    ),
    Probe(
        "linear_with_child",
        wrap_layer(_LayerSubclasses.linear_with_child),
        _ROWS,
        8192 + 4 * 4 * (64 + 32),
    ),
    Probe(
        "activation_with_product",
        wrap_layer(_LayerSubclasses.activation_with_product),
        ("6x6",),
        216,
    ),
)

_RULES_PROBES = (*_POOLS, *_SEQUENCES, *_KEYS, *_FUNCTIONS, *_SUBCLASSES)


# What tools that look at traced or dispatched operators tell apart.

_TRACED_MAPS = ("1x8x16x16",)


def _model_builder_with_torch_function_options(name: str, **options: Any) -> Callable[[], Any]:
    """Return a builder of a model that calls this function of torch with fixed options."""

    def call_torch_function(model: Any, *tensors: Any) -> Any:
        """Return what the function of torch gives for these tensors."""
        import torch

        return getattr(torch, name)(*tensors, **options)

    return function_model(call_torch_function)


def _einsum_product(model: Any, a: Any, b: Any) -> Any:
    """Return the product of `a` and the transposed `b`, computed by einsum."""
    import torch

    return torch.einsum("ij, kj -> ik", a, b)


def _grid_sample_model_builder(mode: str) -> Callable[[], Any]:
    """Return a builder of a model that samples an image at the points of a grid, in this mode."""

    def sample_grid(model: Any, x: Any, grid: Any) -> Any:
        """Return `x` sampled at the points of `grid`."""
        import torch.nn.functional

        return torch.nn.functional.grid_sample(x, grid, mode=mode, align_corners=False)

    return function_model(sample_grid)


def _reshape_to_heads(model: Any, x: Any) -> Any:
    """Return the layer's result, reshaped to sizes that the model computes by a multiplication."""
    # sizes that are multiplied are shape arithmetic, which a tracer keeps
    batch, length, width = x.shape
    return model.layer(x.reshape(batch * length, width)).view(batch, length * 2, width // 2)


def _discard_layer_output(model: Any, x: Any) -> Any:
    """Run the layer, discard its result, and return a value that does not depend on it."""
    model.layer(x * 3)
    return x * 2


def _return_nested_outputs(model: Any, x: Any) -> Any:
    """Return a dict with a list that has the layer's result, and with a mean."""
    return {"maps": [model.layer(x)], "mean": (x.mean(), None)}


_TRACED_PROBES = (
    # outputs x K
    Probe(
        "torch.addmv", _model_builder_with_torch_function_options("addmv"), ("10", "10x8", "8"), 80
    ),
    Probe(
        "baddbmm_whole",
        _model_builder_with_torch_function_options("baddbmm"),
        ("2x10x4", "2x10x8", "2x8x4"),
        640,
    ),
    Probe("einsum_labels", function_model(_einsum_product), ("10x8", "4x8"), 320),
    Probe(
        "shape_arithmetic",
        function_model(_reshape_to_heads, layer=nn("Linear", 32, 32)),
        ("2x10x32",),
        20480,
    ),
    # inputs x Co/g x K; as many channels out as in
    Probe(
        "convT_square",
        wrap_layer(nn("ConvTranspose2d", 8, 8, 2, 2, groups=2)),
        ("1x8x4x4",),
        8 * 16 * 4 * 4,
    ),
    Probe(
        "dead_product",
        function_model(_discard_layer_output, layer=nn("Linear", 16, 4)),
        _TRACED_MAPS,
        0,
    ),
    Probe(
        "outputs_in_a_dict",
        function_model(_return_nested_outputs, layer=nn("Conv2d", 8, 4, 1)),
        _TRACED_MAPS,
        8192,
    ),
    *(
        Probe(name, model, inputs, 0)
        for name, model, inputs in (
            ("grid_bicubic", _grid_sample_model_builder("bicubic"), (*_TRACED_MAPS, "1x4x4x2")),
            ("grid_nearest", _grid_sample_model_builder("nearest"), (*_TRACED_MAPS, "1x4x4x2")),
            ("mul_inplace", function_model(lambda model, x: (x + 1).mul_(x)), _TRACED_MAPS),
            ("add_small_first", function_model(lambda model, a, b: a + b), ("16", "1x8x16x16")),
            ("1-x", function_model(lambda model, x: 1 - 2 * x), _TRACED_MAPS),
        )
    ),
)


PROBES = (*_COMPOSITES_PROBES, *_RULES_PROBES, *_TRACED_PROBES)
