"""Define JAX probes and the conformance kit for tools that count JAX programs: does a convention
predict its tool?

Each probe is a function or a module that shows one thing. A plugin's tests hold a class for each
of its tools::

    class TestConformance(JaxConformance):
        adapter = LoweredProgram()
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crossflops.frontends import Source
from crossflops.frontends.inputs import ProvidedInputs, parse_inputs
from crossflops.frontends.jax import FRONTEND
from crossflops.ir.trace import Call, Setting, Trace, View
from crossflops.testing.conformance import Evidence, ProgramConformance, predict_amount
from crossflops.tools.registry import all_conventions, convention_for_version

Built = tuple[Any, tuple[Any, ...], dict[str, Any]]


class JaxProbe(msgspec.Struct, frozen=True):
    """A named function or module with its inputs, which are written as on the command line.

    `flops` is a hand calculation of XLA's analysis of the program that it is given; None where
    that would only repeat the analysis.
    """

    name: str
    model: Callable[[], Any]
    inputs: tuple[str, ...]
    flops: int | None = None

    def build(self) -> Built:
        """Return (model, positional inputs, keyword inputs)."""
        source = FRONTEND.prepare_source(
            self.model(), ProvidedInputs(specs=parse_inputs(self.inputs)), owned=True
        )
        return source.model, source.args, source.kwargs


def jax_function(body: Callable[..., Any]) -> Callable[[], Any]:
    """Return a builder (a function without arguments) of a JAX function that calls `body(jax,
    *inputs)`.
    """

    def build_jax_function() -> Any:
        """Return a JAX function that calls `body` with the jax module and the inputs."""
        import jax

        def call_body_with_jax(*inputs: Any) -> Any:
            """Return what `body` gives for the jax module and these inputs."""
            return body(jax, *inputs)

        return call_body_with_jax

    return build_jax_function


def nnx_module(body: Callable[[Any, Any], Any]) -> Callable[[], Any]:
    """Return a builder (a function without arguments) of the Flax NNX module that `body(nnx,
    rngs)` gives.
    """

    def build_nnx_module() -> Any:
        """Return the Flax NNX module that `body` gives."""
        from flax import nnx

        return body(nnx, nnx.Rngs(0))

    return build_nnx_module


# Functions of JAX, each a kind of instruction or of control flow.

_IMAGE, _SQUARE, _WEIGHTS = "1x16x16x8", "4x16", "16x16"


def _jax_conv_builder(**options: Any) -> Callable[[], Any]:
    """Return a builder of a JAX function that computes a convolution with channels last."""

    def convolve_channels_last(jax: Any, x: Any, w: Any) -> Any:
        """Return the convolution of `x` with the weights `w`, channels last."""
        window = {"window_strides": (1, 1), "padding": "SAME"} | options
        layout = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, w, dimension_numbers=layout, **window)

    return jax_function(convolve_channels_last)


def _jax_pool_builder(kind: str, size: int, stride: int, padding: str) -> Callable[[], Any]:
    """Return a builder of a JAX function that computes one pooling; `kind` is "max" or "add"."""

    def pool_windows(jax: Any, x: Any) -> Any:
        """Return the pooling of `x`."""
        reducer = getattr(jax.lax, kind)
        start = -jax.numpy.inf if kind == "max" else 0.0
        return jax.lax.reduce_window(
            x, start, reducer, (1, size, size, 1), (1, stride, stride, 1), padding
        )

    return jax_function(pool_windows)


def _jax_scan_builder(steps: int) -> Callable[[], Any]:
    """Return a builder of a JAX function that multiplies by a matrix in each step of a scan."""

    def multiply_in_scan(jax: Any, x: Any, w: Any) -> Any:
        """Return `x`, multiplied by `w` in each step of a scan."""
        return jax.lax.scan(lambda c, _: (c @ w, None), x, None, length=steps)[0]

    return jax_function(multiply_in_scan)


def _jax_conv_loop(jax: Any, x: Any, w: Any) -> Any:
    """Return `x` after three convolutions in a loop of JAX."""
    layout = ("NHWC", "HWIO", "NHWC")

    def convolve_once(_: Any, y: Any) -> Any:
        """Return the convolution of `y`, the result of one iteration."""
        return jax.lax.conv_general_dilated(y, w, (1, 1), "SAME", dimension_numbers=layout)

    return jax.lax.fori_loop(0, 3, convolve_once, x)


def _conv_model_gradients(jax: Any, x: Any, w: Any) -> Any:
    """Return the gradients of a model (convolution, ReLU, max pooling) with respect to `x` and to
    the weights `w`.
    """

    def sum_of_pooled_activations(x: Any, w: Any) -> Any:
        """Return the sum of the pooled activations, of which gradients are taken."""
        layout = ("NHWC", "HWIO", "NHWC")
        y = jax.lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=layout)
        y = jax.nn.relu(y)
        window = (1, 2, 2, 1)
        return jax.lax.reduce_window(y, -jax.numpy.inf, jax.lax.max, window, window, "VALID").sum()

    return jax.grad(sum_of_pooled_activations, (0, 1))(x, w)


def _depthwise_gradient(jax: Any, x: Any, w: Any) -> Any:
    """Return the gradient of a depthwise convolution with respect to its weights `w`."""

    def sum_of_squared_results(w: Any) -> Any:
        """Return the sum of the squared results of the convolution."""
        layout = ("NHWC", "HWIO", "NHWC")
        y = jax.lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=layout, feature_group_count=8
        )
        return (y**2).sum()

    return jax.grad(sum_of_squared_results)(w)


def _jax_cond_loop(jax: Any, x: Any, w: Any) -> Any:
    """Return the result of a loop that contains a condition; one branch of it contains another
    loop.
    """

    def maybe_multiply(number: Any, y: Any) -> Any:
        """Return `y`, multiplied in a scan if its sum is larger than `number`."""

        def multiply_in_scan(z: Any) -> Any:
            """Return `z` multiplied by `w` in three steps of a scan."""
            return jax.lax.scan(lambda c, _: (c @ w, None), z, None, length=3)[0]

        return jax.lax.cond(y.sum() > number, multiply_in_scan, lambda z: z, y)

    return jax.lax.fori_loop(0, 5, maybe_multiply, x)


def _jax_branches(jax: Any, number: Any, x: Any, w: Any) -> Any:
    """Return the result of one of three branches on `x`; `number` selects it."""
    choices = [lambda x: x @ w, lambda x: x + 1, lambda x: (x @ w) @ w]
    return jax.lax.switch(number[0], choices, x)


def _jax_conv_branches(jax: Any, x: Any, w: Any) -> Any:
    """Return the sum of a convolution of `x`, with stride 1 if the sum of `x` is positive, else
    with stride 2.
    """
    layout = ("NHWC", "HWIO", "NHWC")

    def conv_sum_function(stride: int) -> Any:
        """Return a function that gives the sum of the convolution of its input with this
        stride.
        """
        return lambda x: jax.lax.conv_general_dilated(
            x, w, (stride, stride), "SAME", dimension_numbers=layout
        ).sum()

    return jax.lax.cond(x.sum() > 0, conv_sum_function(1), conv_sum_function(2), x)


def _jax_product_scan(jax: Any, x: Any, w: Any) -> Any:
    """Return the result of a scan with large products, whose sums XLA rounds in the body and over
    all iterations.
    """

    def scan_step(c: Any, _: Any) -> Any:
        """Return (next carry of the scan, None), computed by matrix products and activations."""
        y = jax.nn.gelu(c @ w) + jax.numpy.tanh(c)
        return jax.nn.silu(y @ w.T @ w) + y.sum(), None

    return jax.lax.scan(scan_step, x, None, length=4)[0] @ w


CONVOLUTIONS = (
    # 16 x 3 - 2 of 16 x 3 taps along each side meet the image
    JaxProbe("conv", _jax_conv_builder(), (_IMAGE, "3x3x8x4"), 2 * 46 * 46 * 32),
    JaxProbe("conv_valid",
             _jax_conv_builder(padding="VALID"), (_IMAGE, "3x3x8x4"), 2 * 42 * 42 * 32),
    JaxProbe("conv_groups",
             _jax_conv_builder(feature_group_count=4), (_IMAGE, "3x3x2x12"), 2 * 46 * 46 * 24),
    JaxProbe("conv_depthwise",
             _jax_conv_builder(feature_group_count=8), (_IMAGE, "3x3x1x8"), 2 * 46 * 46 * 8),
    JaxProbe("conv_strided",
             _jax_conv_builder(window_strides=(2, 2)), (_IMAGE, "3x3x8x4"), 2 * 23 * 23 * 32),
    # two rows and columns of padding on either side
    JaxProbe("conv_dilated",
             _jax_conv_builder(rhs_dilation=(2, 2)), (_IMAGE, "3x3x8x4"), 2 * 44 * 44 * 32),
    JaxProbe("conv_holes",
             _jax_conv_builder(lhs_dilation=(3, 2), window_strides=(2, 2), rhs_dilation=(2, 1),
                              padding=[(5, 2), (4, 1)]), (_IMAGE, "4x5x8x4")),
    JaxProbe("conv_cropped", _jax_conv_builder(padding=[(-2, -1), (-1, 3)]), (_IMAGE, "3x3x8x4")),
    JaxProbe("conv_batch_groups", _jax_conv_builder(batch_group_count=2), ("4x8x8x8", "3x3x8x4"),
          2 * 22 * 22 * 2 * 8 * 4),
    JaxProbe("conv_complex", _jax_conv_builder(), ("1x8x8x2:complex64", "3x3x2x4:complex64")),
    JaxProbe("conv_bfloat16",
             _jax_conv_builder(), ("1x8x8x2:bfloat16", "3x3x2x4:bfloat16"), 2 * 22 * 22 * 8),
    JaxProbe("conv_bias", jax_function(lambda jax, x, w, b: jax.lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")) + b),
          (_IMAGE, "3x3x8x4", "4"), 2 * 46 * 46 * 32 + 1024),
    JaxProbe("conv_transposed", jax_function(lambda jax, x, w: jax.lax.conv_transpose(
        x, w, (2, 2), "SAME")), (_IMAGE, "3x3x8x4"), 2 * 47 * 47 * 32),
    JaxProbe("conv_in_loop", jax_function(_jax_conv_loop), (_IMAGE, "3x3x8x8")),
    JaxProbe("conv_in_branches", jax_function(_jax_conv_branches), (_IMAGE, "3x3x8x8")),
    JaxProbe("gradients", jax_function(_conv_model_gradients), (_IMAGE, "3x3x8x4")),
    JaxProbe("gradients_depthwise", jax_function(_depthwise_gradient), (_IMAGE, "3x3x1x8")),
    JaxProbe("max_pool", _jax_pool_builder("max", 2, 2, "VALID"), (_IMAGE,), 3 * 64 * 8),
    JaxProbe("max_pool_padded", _jax_pool_builder("max", 3, 2, "SAME"), (_IMAGE,), 8 * 64 * 8),
    JaxProbe("average_pool", _jax_pool_builder("add", 3, 2, "SAME"), (_IMAGE,), 8 * 64 * 8),
    JaxProbe("resized",
             jax_function(lambda jax, x: jax.image.resize(x, (1, 32, 32, 8), "bilinear")),
          (_IMAGE,)),
)  # fmt: skip
PRODUCTS = (
    JaxProbe("product",
             jax_function(lambda jax, x, y: x @ y), (_SQUARE, _WEIGHTS), 2 * 4 * 16 * 16),
    JaxProbe("product_bias",
             jax_function(lambda jax, x, y, b: x @ y + b), (_SQUARE, _WEIGHTS, "16"),
          2048 + 64),
    JaxProbe("product_bfloat16", jax_function(lambda jax, x, y: x @ y),
          ("4x8:bfloat16", "8x16:bfloat16"), 2 * 4 * 8 * 16),
    JaxProbe("product_int8", jax_function(lambda jax, x, y: jax.lax.dot(
        x, y, preferred_element_type=jax.numpy.int32)), ("4x8:int8", "8x16:int8"), 1024),
    JaxProbe("product_large", jax_function(lambda jax, x, y: x @ y), ("4097x4099", "4099x4111"),
          138_077_011_968),
    JaxProbe("einsum", jax_function(lambda jax, x, y: jax.numpy.einsum("bij,jkl->bikl", x, y)),
          ("3x4x8", "8x5x6"), 2 * 3 * 4 * 5 * 6 * 8),
    JaxProbe("mapped", jax_function(lambda jax, x, y: jax.vmap(lambda a, b: a @ b)(x, y)),
          ("3x4x8", "3x8x2"), 2 * 3 * 4 * 8 * 2),
    JaxProbe("attention", jax_function(lambda jax, q, k, v: jax.nn.dot_product_attention(
        q, k, v, is_causal=True)), ("2x10x4x8",) * 3),
    # the product, and 2 for the counter: its step and its comparison
    JaxProbe("scan", _jax_scan_builder(3), (_SQUARE, _WEIGHTS), 2048 + 2),
    JaxProbe("scan_longer", _jax_scan_builder(20), (_SQUARE, _WEIGHTS), 2048 + 2),
    JaxProbe("branches", jax_function(_jax_branches), ("1:int32", _SQUARE, _WEIGHTS)),
    JaxProbe("condition", jax_function(lambda jax, x, w: jax.lax.cond(
        x.sum() > 0, lambda x: x @ w, lambda x: x + 1, x)), (_SQUARE, _WEIGHTS), 2048 + 63 + 2),
    JaxProbe("loops", jax_function(_jax_cond_loop), (_SQUARE, _WEIGHTS)),
    JaxProbe("loop_rounded", jax_function(_jax_product_scan), ("4097x1111", "1111x1111")),
)  # fmt: skip
_FUNCTIONS_PROBES = (*CONVOLUTIONS, *PRODUCTS)


# Modules of Flax NNX, each alone; and functions of jax.numpy and jax.nn.

_N_IMAGE, _ROWS, _N_SQUARE = "1x16x16x8", "2x10x64", "4x16"


def _nnx_attention(nnx: Any, rngs: Any) -> Any:
    """Return a Flax attention layer with 4 heads and width 64."""
    return nnx.MultiHeadAttention(4, 64, decode=False, rngs=rngs)


def _nnx_recurrent_layer_builder(cell: str) -> Callable[[], Any]:
    """Return a builder of a Flax recurrent layer with the named cell, from width 16 to 32."""
    return nnx_module(lambda nnx, rngs: nnx.RNN(getattr(nnx, cell)(16, 32, rngs=rngs)))


def _activation_probe(name: str, **options: Any) -> JaxProbe:
    """Return a probe that calls an activation of jax.nn."""
    body = jax_function(lambda jax, x: getattr(jax.nn, name)(x, **options))
    return JaxProbe("_".join(("nn", name, *options)), body, (_N_SQUARE,))


def _jax_numpy_probe(name: str, inputs: tuple[str, ...] = (_N_SQUARE,)) -> JaxProbe:
    """Return a probe that calls a function of jax.numpy."""
    return JaxProbe(
        f"numpy_{name}", jax_function(lambda jax, *x: getattr(jax.numpy, name)(*x)), inputs
    )


def _jax_linalg_probe(name: str, inputs: tuple[str, ...] = ("5x5",)) -> JaxProbe:
    """Return a probe that calls a function of jax.numpy.linalg."""

    def call_linalg(jax: Any, *x: Any) -> Any:
        """Return what the function of jax.numpy.linalg gives for these inputs."""
        return getattr(jax.numpy.linalg, name)(*x)

    return JaxProbe(f"linalg_{name}", jax_function(call_linalg), inputs)


MODULES = (
    JaxProbe("module_conv",
          nnx_module(lambda nnx, rngs: nnx.Conv(8, 4, (3, 3), rngs=rngs)), (_N_IMAGE,),
          2 * 46 * 46 * 32 + 1024),
    JaxProbe("module_conv_transposed",
          nnx_module(lambda nnx, rngs: nnx.ConvTranspose(8, 4, (3, 3), strides=2, rngs=rngs)),
          (_N_IMAGE,), 2 * 47 * 47 * 32 + 4096),
    JaxProbe("module_linear",
             nnx_module(lambda nnx, rngs: nnx.Linear(64, 32, rngs=rngs)), (_ROWS,),
          20 * (2 * 64 * 32 + 32)),
    # x - mean, rsqrt(var + epsilon) x scale, their product, and the bias
    JaxProbe("module_batch_norm",
          nnx_module(lambda nnx, rngs: nnx.BatchNorm(8, rngs=rngs)), (_N_IMAGE,),
          3 * 2048 + 2 * 8),
    JaxProbe("module_layer_norm",
          nnx_module(lambda nnx, rngs: nnx.LayerNorm(64, rngs=rngs)), (_ROWS,)),
    JaxProbe("module_group_norm",
          nnx_module(lambda nnx, rngs: nnx.GroupNorm(8, num_groups=4, rngs=rngs)), (_N_IMAGE,)),
    JaxProbe("module_instance_norm", nnx_module(lambda nnx, rngs: nnx.InstanceNorm(8, rngs=rngs)),
          (_N_IMAGE,)),
    JaxProbe("module_rms_norm",
             nnx_module(lambda nnx, rngs: nnx.RMSNorm(64, rngs=rngs)), (_ROWS,)),
    JaxProbe("module_embed", nnx_module(lambda nnx, rngs: nnx.Embed(100, 16, rngs=rngs)),
          ("2x10:int32",)),
    JaxProbe("module_attention", nnx_module(_nnx_attention), (_ROWS,)),
    JaxProbe("module_dropout",
             nnx_module(lambda nnx, rngs: nnx.Dropout(0.5, rngs=rngs)), (_ROWS,), 0),
    JaxProbe("module_lstm", _nnx_recurrent_layer_builder("LSTMCell"), ("2x5x16",)),
    JaxProbe("module_gru", _nnx_recurrent_layer_builder("GRUCell"), ("2x5x16",)),
    JaxProbe("module_bfloat16",
          nnx_module(lambda nnx, rngs: nnx.Linear(64, 32, dtype="bfloat16", rngs=rngs)), (_ROWS,)),
)  # fmt: skip
ACTIVATIONS = (
    *map(
        _activation_probe, ("relu", "relu6", "leaky_relu", "hard_silu", "sigmoid", "silu", "elu")
    ),
    *map(_activation_probe, ("softplus", "softmax", "log_softmax", "logsumexp", "standardize")),
    _activation_probe("gelu"),
    _activation_probe("gelu", approximate=False),
    JaxProbe("nn_gelu_bfloat16", jax_function(lambda jax, x: jax.nn.gelu(x)), ("4x16:bfloat16",)),
    JaxProbe("nn_one_hot", jax_function(lambda jax, x: jax.nn.one_hot(x, 10)), ("4:int32",)),
)
ARRAYS = (
    *map(_jax_numpy_probe, ("cumsum", "argmax", "sort", "mean", "var", "median")),
    *map(_jax_numpy_probe, ("prod", "any", "flip")),
    _jax_numpy_probe("take", ("100x16", "2:int32")),
    _jax_numpy_probe("searchsorted", ("16", "5")),
    _jax_linalg_probe("cholesky"),
    _jax_linalg_probe("inv"),
    _jax_linalg_probe("solve", ("5x5", "5x3")),
    JaxProbe("fft", jax_function(lambda jax, x: jax.numpy.fft.rfft(x)), (_N_SQUARE,), 8 * 64 * 4),
    JaxProbe("top_k", jax_function(lambda jax, x: jax.lax.top_k(x, 3)), (_N_SQUARE,), 0),
    JaxProbe("near_top_k", jax_function(lambda jax, x: jax.lax.approx_max_k(x, 3)), ("4x160",),
          640 * 10),
    JaxProbe("scatter", jax_function(lambda jax, x, i, y: x.at[i].add(y)),
          ("10x4", "3:int32", "3x4"), 3 + 3 + 3 + 12),
    JaxProbe("rows", jax_function(lambda jax, x, i: x[i]), ("100x16", "2x10:int32"), 60),
    JaxProbe("whole_numbers", jax_function(lambda jax, x: x % 7 // 2), ("16:int32",)),
    JaxProbe("random",
             jax_function(lambda jax, x: jax.random.normal(jax.random.key(0), (3, 5)) + x),
          ("3x5",)),
    JaxProbe("again",
             jax_function(lambda jax, x: jax.numpy.where(x > 1, x * 2, 0) / x.sum() + x * 2),
          (_N_SQUARE,)),
    JaxProbe("once",
             jax_function(lambda jax, x: jax.numpy.tanh(x * 3) + x * 3), (_N_SQUARE,), 3 * 64),
    JaxProbe("nothing", jax_function(lambda jax, x: x), (_N_SQUARE,), 0),
)  # fmt: skip
_MODULES_PROBES = (*MODULES, *ACTIVATIONS, *ARRAYS)


ONE_PRODUCT = JaxProbe(
    "one_product", jax_function(lambda jax, x, w: x @ w), (_N_SQUARE, "16x8"), 1024
)
THREE_PRODUCTS = JaxProbe(
    "three_products",
    jax_function(lambda jax, x, w: (x.T @ x).sum() + x @ w @ w.T),
    (_N_SQUARE, "16x8"),
)


PROBES = {probe.name: probe for probe in (*_FUNCTIONS_PROBES, *_MODULES_PROBES)}


EXAMPLES = 12
SETTING = Setting()


@functools.cache
def _jax_probe_evidence(name: str) -> Evidence:
    """Return the evidence of the probe with this name: its recorded trace."""
    return Evidence(_xla_program_trace(*PROBES[name].build()))


def _xla_program_trace(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Trace:
    """Return the trace of a model that has the calls of its XLA programs and no equations."""
    from crossflops.frontends.jax.observe.xla import xla_view_calls
    from crossflops.frontends.jax.program import record_jax_model

    recorded = record_jax_model(model, args, kwargs, SETTING)
    root = Call(
        key="(model)", parent=None, level="module", target=recorded.name, module=0, via="call"
    )
    trace = Trace(calls=(root,), modules=recorded.modules, setting=SETTING, framework="jax")
    observed = tuple(xla_view_calls(recorded.pure, trace, None, _views_for_jax_tools()))
    return msgspec.structs.replace(trace, observed=observed)


def _views_for_jax_tools() -> list[View]:
    """Return the real runs that the conventions of JAX tools need for a prediction."""
    of_jax = [convention for convention in all_conventions() if convention.framework == "jax"]
    return [view for convention in of_jax if (view := convention.view(SETTING))]


@functools.cache
def _evidence_with_product_outside_graph() -> Evidence:
    """Return the evidence of a program that has a product without a node in the graph."""
    from crossflops.frontends.jax.observe.xla import xla_view_calls
    from crossflops.frontends.jax.program import make_jax_program, record_jax_model

    _, graph, trace = make_jax_program(Source(*ONE_PRODUCT.build()), SETTING)
    recorded = record_jax_model(*THREE_PRODUCTS.build(), SETTING)
    observed = tuple(xla_view_calls(recorded.pure, trace, graph, _views_for_jax_tools()))
    return Evidence(msgspec.structs.replace(trace, observed=observed))


# Small modules of Flax NNX, drawn at random.

_SIDE, _CHANNELS = 12, 4
Layer = Callable[[Any], Any]  # of an image with channels last
Block = Callable[[Any, Any, int], tuple[Layer, int]]  # nnx, rngs, channels -> layer, channels


def _conv_block(filters: int, kernel: int, stride: int, padding: str, dilation: int) -> Block:
    """Return a block (a function that makes a layer) for a Flax convolution."""

    def make_conv(nnx: Any, rngs: Any, channels: int) -> tuple[Layer, int]:
        """Return (Flax convolution for this number of input channels, its output channels)."""
        layer = nnx.Conv(
            channels, filters, (kernel, kernel), strides=stride, padding=padding,
            kernel_dilation=dilation, rngs=rngs,
        )  # fmt: skip
        return layer, filters

    return make_conv


def _nnx_depthwise_block(kernel: int, bias: bool) -> Block:
    """Return a block (a function that makes a layer) for a depthwise Flax convolution."""

    def make_depthwise_conv(nnx: Any, rngs: Any, channels: int) -> tuple[Layer, int]:
        """Return (depthwise Flax convolution for this number of input channels, its output
        channels).
        """
        size = (kernel, kernel)
        layer = nnx.Conv(
            channels, channels, size, feature_group_count=channels, use_bias=bias, rngs=rngs
        )
        return layer, channels

    return make_depthwise_conv


def _nnx_transpose_block(kernel: int, padding: str) -> Block:
    """Return a block (a function that makes a layer) for a transposed Flax convolution with stride
    2.
    """

    def make_conv_transpose(nnx: Any, rngs: Any, channels: int) -> tuple[Layer, int]:
        """Return (transposed Flax convolution for this number of input channels, its 4 output
        channels).
        """
        size = (kernel, kernel)
        return nnx.ConvTranspose(channels, 4, size, strides=2, padding=padding, rngs=rngs), 4

    return make_conv_transpose


def _nnx_norm_block(name: str) -> Block:
    """Return a block (a function that makes a layer) for a Flax normalization."""
    return lambda nnx, rngs, channels: (getattr(nnx, name)(channels, rngs=rngs), channels)


def _nnx_function_block(name: str) -> Block:
    """Return a block for a function of flax.nnx, such as an activation."""
    return lambda nnx, rngs, channels: (getattr(nnx, name), channels)


def _pool_block(name: str, padding: str) -> Block:
    """Return a block for a 2x2 pooling of flax.nnx."""

    def make_pool(nnx: Any, rngs: Any, channels: int) -> tuple[Layer, int]:
        """Return (function that pools its input, number of channels, which is unchanged)."""
        pool = getattr(nnx, name)
        return (lambda x: pool(x, window_shape=(2, 2), strides=(2, 2), padding=padding)), channels

    return make_pool


def _nnx_dense_block(units: int) -> Block:
    """Return a block (a function that makes a layer) for a dense Flax layer."""
    return lambda nnx, rngs, channels: (nnx.Linear(channels, units, rngs=rngs), units)


_BLOCKS: st.SearchStrategy[Block] = st.one_of(
    st.builds(
        _conv_block,
        st.sampled_from((4, 8)),
        st.sampled_from((1, 3)),
        st.sampled_from((1, 2)),
        st.sampled_from(("SAME", "CIRCULAR")),
        st.sampled_from((1, 2)),
    ),
    st.builds(_nnx_depthwise_block, st.sampled_from((3, 5)), st.booleans()),
    st.builds(_nnx_transpose_block, st.sampled_from((2, 3)), st.sampled_from(("SAME", "VALID"))),
    st.builds(_nnx_dense_block, st.sampled_from((4, 8))),
    st.builds(_nnx_norm_block, st.sampled_from(("BatchNorm", "LayerNorm", "RMSNorm"))),
    st.builds(_pool_block, st.sampled_from(("max_pool", "avg_pool")), st.just("SAME")),
    st.builds(
        _nnx_function_block, st.sampled_from(("relu", "gelu", "silu", "softmax", "leaky_relu"))
    ),
)


@st.composite
def flax_architectures(draw: st.DrawFn) -> Callable[[], tuple[Any, Any]]:
    """Draw a random model of one to five blocks; return a builder that gives (model, spec of its
    input).
    """
    blocks = draw(st.lists(_BLOCKS, min_size=1, max_size=5))
    batch, residual, head = draw(st.integers(1, 3)), draw(st.booleans()), draw(st.booleans())

    def build_flax_model() -> tuple[Any, Any]:
        """Return (Flax model of the drawn blocks, spec of its input)."""
        import jax
        from flax import nnx

        rngs, layers, channels = nnx.Rngs(0), [], _CHANNELS
        for block in blocks:
            layer, channels = block(nnx, rngs, channels)
            layers.append(layer)
        if residual:
            layers.append(lambda x: x + nnx.relu(x))
        if head:
            layers += [lambda x: x.mean((1, 2)), nnx.Linear(channels, 10, rngs=rngs)]
        spec = jax.ShapeDtypeStruct((batch, _SIDE, _SIDE, _CHANNELS), "float32")
        return nnx.Sequential(*layers), spec

    return build_flax_model


class JaxConformance(ProgramConformance):
    """A kit that compares a convention with its tool on every probe and on random
    architectures.
    """

    @pytest.mark.parametrize("name", PROBES)
    def test_probe_is_predicted(self, name: str) -> None:
        """Assert that the tool prints the predicted total of a probe."""
        self.assert_total_is_predicted(_jax_probe_evidence(name), PROBES[name].build())

    @pytest.mark.parametrize(
        "name", [name for name, probe in PROBES.items() if probe.flops is not None]
    )
    def test_hand_calculation(self, name: str) -> None:
        """Assert that the prediction for the lowered program of a probe equals the number
        calculated by hand.
        """
        expected = predict_amount(
            convention_for_version("xla-lowered", self.adapter.version()),
            _jax_probe_evidence(name),
            SETTING,
        )
        assert expected == PROBES[name].flops

    def test_a_product_without_a_node(self) -> None:
        """Assert that the tool prints the predicted total of a program that has a product without
        a node in the graph.
        """
        self.assert_total_is_predicted(
            _evidence_with_product_outside_graph(), THREE_PRODUCTS.build()
        )

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow],
    )
    @given(architecture=flax_architectures())
    def test_random_architecture_is_predicted(
        self, architecture: Callable[[], tuple[Any, Any]]
    ) -> None:
        """Assert that the tool prints the predicted total of a random architecture."""
        model, spec = architecture()
        self.assert_total_is_predicted(
            Evidence(_xla_program_trace(model, (spec,), {})), (model, (spec,), {})
        )

    def evidence(self) -> Iterator[Evidence]:
        """Yield the evidence of each probe."""
        yield from map(_jax_probe_evidence, PROBES)
        yield _evidence_with_product_outside_graph()
