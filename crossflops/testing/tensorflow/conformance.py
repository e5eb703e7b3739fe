"""The conformance kit for tools that count TensorFlow graphs: does a convention predict its tool?

A plugin's tests hold one class::

    class TestConformance(TensorFlowConformance):
        adapter = TensorFlowProfiler()
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crossflops.ir.trace import Setting, Trace
from crossflops.testing.conformance import Evidence, ProgramConformance
from crossflops.testing.tensorflow import probes
from crossflops.testing.tensorflow.probes import TfProbe

PROBES: dict[str, TfProbe] = {probe.name: probe for probe in probes.PROBES}
EXAMPLES = 12
SETTING = Setting()


@functools.cache
def _seen(name: str) -> Evidence:
    return Evidence(_trace(*PROBES[name].build()))


def _trace(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Trace:
    from crossflops.frontends.tensorflow.graph import record

    return record(model, args, kwargs, SETTING).trace


# Small Keras models, drawn at random.

_SIDE, _CHANNELS = 12, 4
Block = Callable[[Any, Any], Any]


def _conv(filters: int, kernel: int, stride: int, bias: bool, groups: int) -> Block:
    return lambda layers, x: layers.Conv2D(
        filters, kernel, strides=stride, padding="same", use_bias=bias, groups=groups
    )(x)


def _dilated(rate: int) -> Block:
    return lambda layers, x: layers.Conv2D(4, 3, dilation_rate=rate, padding="same")(x)


def _depthwise(kernel: int, stride: int) -> Block:
    return lambda layers, x: layers.DepthwiseConv2D(kernel, strides=stride, padding="same")(x)


def _transposed(kernel: int, padding: str) -> Block:
    return lambda layers, x: layers.Conv2DTranspose(4, kernel, strides=2, padding=padding)(x)


def _plain(name: str, *args: Any, **kwargs: Any) -> Block:
    return lambda layers, x: getattr(layers, name)(*args, **kwargs)(x)


def _residual(inner: Block) -> Block:
    def block(layers: Any, x: Any) -> Any:
        y = layers.Conv2D(x.shape[-1], 1)(layers.ReLU()(x))
        return inner(layers, layers.Add()([x, y]))

    return block


def _dense(units: int, activation: str) -> Block:
    return lambda layers, x: layers.Dense(units, activation=activation)(x)


_BLOCKS: st.SearchStrategy[Block] = st.one_of(
    st.builds(
        _conv,
        st.sampled_from((4, 8)),
        st.sampled_from((1, 3)),
        st.sampled_from((1, 2)),
        st.booleans(),
        st.sampled_from((1, 2)),
    ),
    st.builds(_dilated, st.sampled_from((2, 3))),
    st.builds(_depthwise, st.sampled_from((3, 5)), st.sampled_from((1, 2))),
    st.builds(_transposed, st.sampled_from((2, 3)), st.sampled_from(("same", "valid"))),
    st.builds(_dense, st.sampled_from((4, 8)), st.sampled_from(("relu", "gelu", "softmax"))),
    st.sampled_from(
        (
            _plain("BatchNormalization"),
            _plain("LayerNormalization"),
            _plain("MaxPool2D", 2, padding="same"),
            _plain("AveragePooling2D", 2, padding="same"),
            _plain("UpSampling2D", 2),
            _plain("Activation", "silu"),
        )
    ),
)


@st.composite
def architectures(draw: st.DrawFn) -> Callable[[], tuple[Any, Any]]:
    """What builds a model and the spec of its input: one to five blocks, perhaps a classifier."""
    blocks = draw(st.lists(st.one_of(_BLOCKS, st.builds(_residual, _BLOCKS)), max_size=5))
    batch = draw(st.integers(1, 3))
    head = draw(st.booleans())

    def build() -> tuple[Any, Any]:
        import keras
        import tensorflow as tf

        x = first = keras.layers.Input((_SIDE, _SIDE, _CHANNELS))
        for block in blocks:
            x = block(keras.layers, x)
        if head or not blocks:
            x = keras.layers.Dense(10)(keras.layers.GlobalAveragePooling2D()(x))
        return keras.Model(first, x), tf.TensorSpec((batch, _SIDE, _SIDE, _CHANNELS))

    return build


class TensorFlowConformance(ProgramConformance):
    """Holds a convention against its tool, on every probe and on random architectures."""

    @pytest.mark.parametrize("name", PROBES)
    def test_probe_is_predicted(self, name: str) -> None:
        """The convention gives the tool's number of a small model that shows one thing."""
        self.holds(_seen(name), PROBES[name].build())

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow],
    )
    @given(architecture=architectures())
    def test_random_architecture_is_predicted(
        self, architecture: Callable[[], tuple[Any, Any]]
    ) -> None:
        """The convention gives the tool's number on a model that no author wrote down."""
        model, spec = architecture()
        self.holds(Evidence(_trace(model, (spec,), {})), (model, (spec,), {}))

    def evidence(self) -> Iterator[Evidence]:
        """What is known of every probe."""
        yield from map(_seen, PROBES)
