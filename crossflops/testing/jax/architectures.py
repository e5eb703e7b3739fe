"""Random small modules of Flax NNX, drawn at random."""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

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
