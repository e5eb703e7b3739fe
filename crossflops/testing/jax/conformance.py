"""The conformance kit for tools that count programs of JAX: does a convention predict its tool?

A plugin's tests hold a class for each of its tools::

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
from crossflops.ir.trace import Call, Setting, Trace, View
from crossflops.testing.conformance import Evidence, ProgramConformance, predicted
from crossflops.testing.jax import probes
from crossflops.testing.jax.probes import JaxProbe
from crossflops.tools.registry import conventions, for_version

PROBES: dict[str, JaxProbe] = {probe.name: probe for probe in probes.PROBES}
EXAMPLES = 12
SETTING = Setting()


@functools.cache
def _seen(name: str) -> Evidence:
    return Evidence(_trace(*PROBES[name].build()))


def _trace(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Trace:
    """The programs of a model, without its equations: those tell only what the work is."""
    from crossflops.frontends.jax.graph import record
    from crossflops.frontends.jax.xla import programs

    recorded = record(model, args, kwargs, SETTING)
    root = Call(
        key="(model)", parent=None, level="module", target=recorded.name, module=0, via="call"
    )
    trace = Trace(calls=(root,), modules=recorded.modules, setting=SETTING, framework="jax")
    observed = tuple(programs(recorded.pure, trace, None, _views()))
    return msgspec.structs.replace(trace, observed=observed)


def _views() -> list[View]:
    """What the tools of JAX look at."""
    of_jax = [convention for convention in conventions() if convention.framework == "jax"]
    return [view for convention in of_jax if (view := convention.view(SETTING))]


@functools.cache
def _more_than_the_graph() -> Evidence:
    """A program with products that the graph beside it has no nodes for."""
    from crossflops.frontends.jax.graph import program, record
    from crossflops.frontends.jax.xla import programs

    _, graph, trace = program(Source(*probes.ONE_PRODUCT.build()), SETTING)
    recorded = record(*probes.THREE_PRODUCTS.build(), SETTING)
    observed = tuple(programs(recorded.pure, trace, graph, _views()))
    return Evidence(msgspec.structs.replace(trace, observed=observed))


# Small modules of Flax NNX, drawn at random.

_SIDE, _CHANNELS = 12, 4
Layer = Callable[[Any], Any]  # of an image with channels last
Block = Callable[[Any, Any, int], tuple[Layer, int]]  # nnx, rngs, channels -> layer, channels


def _conv(filters: int, kernel: int, stride: int, padding: str, dilation: int) -> Block:
    def block(nnx: Any, rngs: Any, channels: int) -> tuple[Layer, int]:
        layer = nnx.Conv(
            channels, filters, (kernel, kernel), strides=stride, padding=padding,
            kernel_dilation=dilation, rngs=rngs,
        )  # fmt: skip
        return layer, filters

    return block


def _grouped(kernel: int, bias: bool) -> Block:
    def block(nnx: Any, rngs: Any, channels: int) -> tuple[Layer, int]:
        size = (kernel, kernel)
        layer = nnx.Conv(
            channels, channels, size, feature_group_count=channels, use_bias=bias, rngs=rngs
        )
        return layer, channels

    return block


def _transposed(kernel: int, padding: str) -> Block:
    def block(nnx: Any, rngs: Any, channels: int) -> tuple[Layer, int]:
        size = (kernel, kernel)
        return nnx.ConvTranspose(channels, 4, size, strides=2, padding=padding, rngs=rngs), 4

    return block


def _norm(name: str) -> Block:
    return lambda nnx, rngs, channels: (getattr(nnx, name)(channels, rngs=rngs), channels)


def _plain(name: str) -> Block:
    return lambda nnx, rngs, channels: (getattr(nnx, name), channels)


def _pool(name: str, padding: str) -> Block:
    def block(nnx: Any, rngs: Any, channels: int) -> tuple[Layer, int]:
        pool = getattr(nnx, name)
        return (lambda x: pool(x, window_shape=(2, 2), strides=(2, 2), padding=padding)), channels

    return block


def _dense(units: int) -> Block:
    return lambda nnx, rngs, channels: (nnx.Linear(channels, units, rngs=rngs), units)


_BLOCKS: st.SearchStrategy[Block] = st.one_of(
    st.builds(
        _conv,
        st.sampled_from((4, 8)),
        st.sampled_from((1, 3)),
        st.sampled_from((1, 2)),
        st.sampled_from(("SAME", "CIRCULAR")),
        st.sampled_from((1, 2)),
    ),
    st.builds(_grouped, st.sampled_from((3, 5)), st.booleans()),
    st.builds(_transposed, st.sampled_from((2, 3)), st.sampled_from(("SAME", "VALID"))),
    st.builds(_dense, st.sampled_from((4, 8))),
    st.builds(_norm, st.sampled_from(("BatchNorm", "LayerNorm", "RMSNorm"))),
    st.builds(_pool, st.sampled_from(("max_pool", "avg_pool")), st.just("SAME")),
    st.builds(_plain, st.sampled_from(("relu", "gelu", "silu", "softmax", "leaky_relu"))),
)


@st.composite
def architectures(draw: st.DrawFn) -> Callable[[], tuple[Any, Any]]:
    """What builds a module and the spec of its input: one to five blocks, perhaps a residual."""
    blocks = draw(st.lists(_BLOCKS, min_size=1, max_size=5))
    batch, residual, head = draw(st.integers(1, 3)), draw(st.booleans()), draw(st.booleans())

    def build() -> tuple[Any, Any]:
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

    return build


class JaxConformance(ProgramConformance):
    """Holds a convention against its tool, on every probe and on random architectures."""

    @pytest.mark.parametrize("name", PROBES)
    def test_probe_is_predicted(self, name: str) -> None:
        """The convention gives the tool's number of a small model that shows one thing."""
        self.holds(_seen(name), PROBES[name].build())

    @pytest.mark.parametrize(
        "name", [name for name, probe in PROBES.items() if probe.flops is not None]
    )
    def test_hand_calculation(self, name: str) -> None:
        """What is told of the program that XLA is given is what a hand calculation gives."""
        expected = predicted(
            for_version("xla-lowered", self.adapter.version()), _seen(name), SETTING
        )
        assert expected == PROBES[name].flops

    def test_a_product_without_a_node(self) -> None:
        """What the graph has no node for is predicted, too."""
        self.holds(_more_than_the_graph(), probes.THREE_PRODUCTS.build())

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
        yield _more_than_the_graph()
