"""A model of JAX has the MACs of its equations, whatever jax2onnx makes of them.

Held against a count over the equations of the program that JAX itself traces, in which no rule
of jax2onnx has a part, on layers, on functions and on what holds others (loops, branches).
"""

import functools

import pytest

from crossflops.frontends import normalize
from crossflops.frontends.jax.record.function import to_pure_function
from crossflops.ir.trace import Setting
from crossflops.ledger.count import count
from crossflops.targets import source_from_object
from tests.laws.jaxpr_macs import macs

jax = pytest.importorskip("jax")
pytest.importorskip("jax2onnx")
nnx = pytest.importorskip("flax.nnx")
partial_eval = pytest.importorskip("jax.interpreters.partial_eval")

pytestmark = pytest.mark.jax
jnp, lax = jax.numpy, jax.lax


def spec(*shape, dtype="float32"):
    """An input."""
    return jax.ShapeDtypeStruct(shape, dtype)


IMAGE, STEPS = spec(2, 16, 16, 8), spec(2, 7, 4)
WORDS = spec(2, 7, dtype="int32")
ROWS, SQUARE = spec(3, 8), spec(8, 8)
HEADS = (spec(2, 7, 4, 8), spec(2, 5, 2, 8), spec(2, 5, 2, 8))


def layer(kind, *args, **kwargs):
    """Makes a layer of Flax NNX."""
    return lambda: getattr(nnx, kind)(*args, **kwargs, rngs=nnx.Rngs(0))


def recurrent(cell, **kwargs):
    """Makes a layer that runs a cell over steps."""
    return lambda: nnx.RNN(getattr(nnx, cell)(4, 8, rngs=nnx.Rngs(0)), **kwargs)


conv = functools.partial(layer, "Conv", 8)
turned = functools.partial(layer, "ConvTranspose", 8, 6, (3, 3))
MODULES = {
    **{
        f"convolution {padding} {stride}": (conv(6, (3, 3), stride, padding=padding), IMAGE)
        for padding in ("SAME", "VALID", "CIRCULAR", "REFLECT", 1, ((2, 0), (1, 1)))
        for stride in (1, 2)
    },
    "convolution, no bias": (conv(6, (3, 3), use_bias=False), IMAGE),
    "convolution in groups": (conv(12, (3, 3), feature_group_count=4), IMAGE),
    "convolution by depth": (conv(16, (3, 3), feature_group_count=8), IMAGE),
    "dilated convolution": (conv(6, (3, 3), kernel_dilation=2), IMAGE),
    "convolution of one axis": (conv(6, (3,), padding="CAUSAL"), spec(2, 16, 8)),
    "convolution of three axes": (conv(6, (3, 3, 3)), spec(2, 6, 6, 6, 8)),
    "transposed, three axes": (
        layer("ConvTranspose", 4, 6, (3, 3, 3), (2, 2, 2)), spec(1, 4, 4, 4, 4),
    ),
    "convolution, no batch": (conv(6, (3, 3)), spec(16, 16, 8)),
    "convolution, two batches": (conv(6, (3, 3)), spec(2, 3, 16, 16, 8)),
    **{
        f"transposed {padding} {stride}": (turned(stride, padding=padding), IMAGE)
        for padding in ("SAME", "VALID", "CIRCULAR", 1)
        for stride in (1, 2)
    },
    "transposed, dilated": (turned((2, 2), kernel_dilation=2), IMAGE),
    "linear": (layer("Linear", 8, 5), spec(2, 3, 8)),
    "linear of a vector": (layer("Linear", 8, 5, use_bias=False), spec(8)),
    "linear of two axes": (
        layer("LinearGeneral", (3, 8), (4, 5), axis=(-2, -1)),
        spec(2, 7, 3, 8),
    ),
    "linear by batch": (layer("LinearGeneral", 8, 5, batch_axis={0: 2}), spec(2, 7, 8)),
    "einsum": (layer("Einsum", "nta,hab->nthb", (8, 4, 5), (8, 1, 5)), STEPS),
    "embedding": (layer("Embed", 100, 8), WORDS),
    "low rank": (layer("LoRALinear", 8, 6, lora_rank=2), ROWS),
    "attention": (layer("MultiHeadAttention", 4, 8, decode=False), spec(2, 7, 8)),
    "LSTM": (recurrent("LSTMCell"), STEPS),
    "fused LSTM": (recurrent("OptimizedLSTMCell"), STEPS),
    "GRU": (recurrent("GRUCell", reverse=True, keep_order=True), STEPS),
    "LSTM, unrolled": (recurrent("LSTMCell", unroll=7), STEPS),
    "batch norm": (layer("BatchNorm", 8), IMAGE),
    "layer norm": (layer("LayerNorm", 8), IMAGE),
    "group norm": (layer("GroupNorm", 8, num_groups=4), IMAGE),
    "RMS norm": (layer("RMSNorm", 8), IMAGE),
}  # fmt: skip


def scanned(x, w):
    """Two loops, one in the other."""

    def step(carry, _):
        return lax.scan(lambda x, _: (jnp.tanh(x @ w), None), carry, None, length=4)[0], None

    return lax.scan(step, x, None, length=6)[0]


@jax.custom_jvp
def own(x):
    """A function with a derivative of its own."""
    return x @ x


own.defjvp(lambda given, tangents: (own(*given), tangents[0]))


def image_product(x, w, **kwargs):
    """A convolution of lax."""
    order = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=order, **kwargs)


def contracted(left, right, batch=((), ())):
    """A dot_general over these axes."""
    return lambda x, y: lax.dot_general(x, y, ((left, right), batch))


def any_order(*order, **kwargs):
    """A convolution whose axes stand in this order."""
    return lambda x, w: lax.conv_general_dilated(
        x, w, (1,) * (x.ndim - 2), "SAME", dimension_numbers=order, **kwargs
    )


def trained(x, w):
    """The gradients of a strided convolution."""

    def loss(x, w):
        order = ("NHWC", "HWIO", "NHWC")
        return (lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=order) ** 2).sum()

    return jax.grad(loss, (0, 1))(x, w)


def switched(index, x, w):
    """Three branches, of which the last one has two products."""
    return lax.switch(index, [lambda x: x @ w, lambda x: x, lambda x: (x @ w) @ w], x)


KERNEL = spec(3, 3, 8, 6)
FUNCTIONS = {
    "product": (jnp.matmul, spec(3, 4), spec(4, 5)),
    "product of vectors": (jnp.dot, spec(4), spec(4)),
    "matrix and vector": (jnp.matmul, spec(2, 3, 4), spec(4)),
    "vector and matrix": (jnp.matmul, spec(4), spec(4, 5)),
    "products of a batch": (jnp.matmul, spec(2, 6, 3, 4), spec(2, 6, 4, 5)),
    "both transposed": (lambda x, y: x.T @ y.T, spec(4, 3), spec(5, 4)),
    "first axes": (contracted((0,), (0,)), spec(4, 3), spec(4, 5)),
    "first and last": (contracted((0,), (1,)), spec(4, 3), spec(5, 4)),
    "two axes": (contracted((0, 2), (2, 1)), spec(4, 3, 5), spec(6, 5, 4)),
    "batch": (contracted((2,), (1,), ((0,), (0,))), spec(5, 3, 4), spec(5, 4, 6)),
    "three factors": (
        lambda *x: jnp.einsum("ab,bc,cd->ad", *x), spec(2, 3), spec(3, 4), spec(4, 5),
    ),
    "heads": (lambda q, k: jnp.einsum("btnh,bsnh->bnts", q, k), HEADS[0], HEADS[0]),
    "tensordot": (jnp.tensordot, spec(2, 3, 4, 5), spec(4, 5, 6)),
    "attention": (lambda q: jax.nn.dot_product_attention(q, q, q, is_causal=True), HEADS[0]),
    "grouped queries": (jax.nn.dot_product_attention, *HEADS),
    "loops": (scanned, ROWS, SQUARE),
    "stacked": (lambda x, w: lax.scan(lambda c, w: (c @ w, c), x, w), ROWS, spec(6, 8, 8)),
    "counted loop": (lambda x, w: lax.fori_loop(0, 5, lambda _, x: x @ w, x), ROWS, SQUARE),
    "map": (lambda x, w: lax.map(lambda x: x @ w, x), spec(6, 8), SQUARE),
    "branches": (
        lambda x, w: lax.cond(x[0, 0] > 0, lambda x: x @ w, lambda x: x * 2, x), ROWS, SQUARE,
    ),
    "checkpoint": (lambda x, w: jax.checkpoint(lambda x: jnp.sin(x @ w))(x), ROWS, SQUARE),
    "jit": (lambda x, w: jax.jit(jnp.matmul)(jax.jit(jnp.matmul)(x, w), w), ROWS, SQUARE),
    "vmap": (jax.vmap(jnp.matmul), spec(5, 3, 8), spec(5, 8, 8)),
    "vmap of images": (jax.vmap(image_product), spec(5, *IMAGE.shape), spec(5, *KERNEL.shape)),
    "derivative": (jax.grad(lambda w, x: (jnp.tanh(x @ w) ** 2).sum()), spec(8, 5), spec(6, 8)),
    "own derivative": (own, SQUARE),
    "convolution": (image_product, IMAGE, KERNEL),
    "channels first": (
        lambda x, w: lax.conv(x, w, (1, 1), "SAME"), spec(2, 4, 8, 8), spec(6, 4, 3, 3),
    ),
    "transposed": (lambda x, w: lax.conv_transpose(x, w, (2, 2), "SAME"), IMAGE, KERNEL),
    "convolve": (jnp.convolve, spec(9), spec(3)),
    "of weights alone": (lambda x: x @ (jnp.ones((8, 8)) @ jnp.ones((8, 8))), ROWS),
    "twice the same": (lambda x, w: x @ w + x @ w, ROWS, SQUARE),
    "resize": (lambda x: jax.image.resize(x, (6, 16), "bilinear"), ROWS),
    "resize, downwards": (lambda x: jax.image.resize(x, (2, 5), "cubic") @ x.T[:5], ROWS),
    "half precision": (jnp.matmul, spec(8, 8, dtype="bfloat16"), spec(8, 8, dtype="bfloat16")),
    "batch, nothing contracted": (
        lambda *x: jnp.einsum("te,td,edf->tef", *x), spec(6, 4), spec(6, 8), spec(4, 8, 16),
    ),
    "axes in an odd order": (
        any_order("HWNC", "OHWI", "NCHW"), spec(16, 16, 2, 8), spec(6, 3, 3, 8),
    ),
    "three axes": (
        any_order("NDHWC", "DHWIO", "NDHWC"), spec(2, 6, 6, 6, 4), spec(3, 3, 3, 4, 6),
    ),
    "four axes": (
        lambda x, w: lax.conv(x, w, (1,) * 4, "SAME"), spec(1, 2, 4, 4, 4, 4),
        spec(3, 2, 3, 3, 3, 3),
    ),
    "no axes": (any_order("NC", "IO", "NC"), spec(3, 8), spec(8, 6)),
    "groups of a batch": (
        any_order("NHWC", "HWIO", "NHWC", batch_group_count=2), IMAGE, KERNEL,
    ),
    "gradients of a convolution": (trained, IMAGE, KERNEL),
    "branches of a switch": (switched, spec(dtype="int32"), ROWS, SQUARE),
    "backwards": (
        lambda x, w: lax.scan(lambda c, w: (jnp.tanh(c @ w), c), x, w, reverse=True),
        ROWS, spec(6, 8, 8),
    ),
    "associative scan": (lambda x: lax.associative_scan(jnp.matmul, x), spec(8, 4, 4)),
    "linear equations": (lambda a, b: jnp.linalg.solve(a, b) @ b, SQUARE, SQUARE),
    "one sample": (jax.grad(lambda w, x: (x @ w).sum() ** 2), spec(8, 3), spec(1, 8)),
    "one term": (contracted((0,), (0,)), spec(1, 8), spec(1, 5)),
    "one term of a vector": (contracted((0,), (0,)), spec(1), spec(1, 5)),
    "one term in a batch": (
        contracted((1, 2), (0, 2), ((0,), (1,))), spec(2, 1, 1, 8), spec(1, 2, 1, 5),
    ),
    "bits of many keys": (
        lambda keys, w: jax.vmap(lambda key: jax.random.uniform(key, (3, 8)) @ w)(
            jax.random.split(jax.random.wrap_key_data(keys), 5)
        ), spec(2, dtype="uint32"), SQUARE,
    ),
    "a key": (
        lambda key, w: jax.random.normal(key, (3, 8)) @ w,
        jax.eval_shape(lambda: jax.random.key(0)), SQUARE,
    ),
    "turned by complex numbers": (
        lambda x, w: ((x[:, ::2] + 1j * x[:, 1::2]) * jnp.exp(1j * jnp.arange(4.0))).real @ w[:4],
        ROWS, SQUARE,
    ),
    "none": (lambda x: jnp.cumsum(jnp.sort(x), 1), ROWS),
}  # fmt: skip


def hold(model, inputs):
    """The MACs of the graph are those of the equations, and no node is left out."""
    seen = to_pure_function(model, inputs, {}, training=False)
    jaxpr = jax.make_jaxpr(seen.function)(*seen.specs).jaxpr
    alive, *_ = partial_eval.dce_jaxpr_consts(jaxpr, [True] * len(jaxpr.outvars), instantiate=True)
    expected = macs(alive)
    graph, _ = normalize(source_from_object(model, (inputs, {})), Setting())
    ledger = count(graph)
    assert not ledger.uncounted
    assert ledger.total.macs == expected


@pytest.mark.parametrize("name", MODULES)
def test_layers(name):
    """Layers of Flax NNX."""
    make, *inputs = MODULES[name]
    hold(make(), tuple(inputs))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    """Functions of JAX, also those that hold others."""
    model, *inputs = FUNCTIONS[name]
    hold(model, tuple(inputs))
