"""Equations that jax2onnx cannot lower: what stands for them computes the same, or says so."""

import numpy as np
import pytest

import crossflops
from crossflops.errors import NormalizeError
from crossflops.frontends import build_model_program
from crossflops.ir.trace import Setting
from crossflops.ledger.count import count
from crossflops.targets import source_from_object

jax = pytest.importorskip("jax")
pytest.importorskip("jax2onnx")
onnxruntime = pytest.importorskip("onnxruntime")

pytestmark = pytest.mark.jax
jnp, lax = jax.numpy, jax.lax


def spec(*shape, dtype="float32"):
    """An input."""
    return jax.ShapeDtypeStruct(shape, dtype)


def conv(order, **kwargs):
    """A convolution with axes in this order."""

    def run(x, w):
        options = {"window_strides": (1,) * (x.ndim - 2), "padding": "SAME", **kwargs}
        return lax.conv_general_dilated(x, w, dimension_numbers=order, **options)

    return run


LAST, CUBES = ("NHWC", "HWIO", "NHWC"), ("NDHWC", "DHWIO", "NDHWC")
IMAGE, KERNEL = spec(2, 8, 8, 4), spec(3, 3, 4, 6)
CUBE, CUBIC = spec(1, 4, 4, 4, 4), spec(3, 3, 3, 4, 6)
SQUARE = spec(4, 4)
EQUAL = {
    "axes in an odd order": (
        conv(("HWNC", "OHWI", "CWHN")), spec(7, 8, 2, 4), spec(6, 3, 3, 4),
    ),
    "three axes": (conv(CUBES), CUBE, CUBIC),
    "three axes, turned": (
        lambda x, w: lax.conv_transpose(x, w, (2, 1, 3), "SAME"), CUBE, spec(3, 2, 3, 4, 6),
    ),
    "three axes, turned in groups": (
        conv(CUBES, lhs_dilation=(2, 1, 2), feature_group_count=2, padding=((1, 2),) * 3),
        CUBE, spec(3, 2, 3, 2, 6),
    ),
    "holes and strides": (
        conv(LAST, lhs_dilation=(2, 2), window_strides=(3, 2), padding=((2, 2), (1, 3))),
        IMAGE, KERNEL,
    ),
    "cropped": (conv(LAST, padding=((-1, -1), (0, -1))), IMAGE, KERNEL),
    "phases": (
        conv(LAST, lhs_dilation=(3, 4), window_strides=(2, 6), rhs_dilation=(2, 1),
             padding=((2, 1), (0, 3))),
        IMAGE, KERNEL,
    ),
    "block of a loop": (
        lambda x, w: lax.scan(
            lambda c, i: (c + lax.dynamic_slice(x, (2 * i, 0), (2, 4)) @ w, None),
            jnp.zeros((2, 4)), jnp.arange(2),
        )[0], SQUARE, SQUARE,
    ),
    "update in a loop": (
        lambda x, w: lax.scan(
            lambda c, i: (lax.dynamic_update_slice(c, (c[0] @ w)[None], (3 * i, 0)), None),
            x, jnp.arange(3),
        )[0], SQUARE, SQUARE,
    ),
    "groups of a batch": (conv(LAST, batch_group_count=2), IMAGE, KERNEL),
    "padding between": (
        lambda x, y: lax.pad(x, y, ((1, 2, 3), (0, -1, 1))), spec(3, 4), spec(),
    ),
    "backwards": (
        lambda x, w: lax.scan(lambda c, w: (jnp.tanh(c @ w), c.sum(0)), x, w, reverse=True),
        SQUARE, spec(3, 4, 4),
    ),
    "associative": (lambda x: lax.associative_scan(jnp.add, x), spec(7)),
    "linear equations": (
        lambda a, b: jnp.linalg.solve(a + 4 * jnp.eye(4), b), SQUARE, spec(4, 2),
    ),
    "determinant": (jnp.linalg.det, SQUARE),
    "places": (lambda x, y: jnp.searchsorted(jnp.cumsum(x), y), spec(9), spec(4)),
    "no contraction": (
        lambda *x: jnp.einsum("te,td,edf->tef", *x), spec(6, 4), spec(6, 8), spec(4, 8, 3),
    ),
}  # fmt: skip


def read(model, *specs):
    """The bytes of the ONNX model, its graph and its trace."""
    return build_model_program(source_from_object(model, specs), Setting())


def computed(data, arrays):
    """What onnxruntime computes."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(data, options)
    names = [value.name for value in session.get_inputs()]
    return session.run(None, dict(zip(names, arrays, strict=True)))


@pytest.mark.parametrize("name", EQUAL)
def test_what_stands_for_it_computes_the_same(name):
    """The model that is counted gives what JAX gives, and every node has a count."""
    model, *specs = EQUAL[name]
    data, graph, trace = read(model, *specs)
    assert not count(graph).uncounted
    random = np.random.default_rng(0)
    arrays = [random.uniform(0.1, 1, argument.shape).astype(argument.dtype) for argument in specs]
    expected = jax.tree.leaves(model(*map(jnp.asarray, arrays)))
    for output, wanted in zip(computed(data, arrays), expected, strict=True):
        np.testing.assert_allclose(output, wanted, rtol=2e-4, atol=1e-5)
    keys = {call.key for call in trace.calls}
    assert {node.call for node in graph.nodes} <= keys


@pytest.mark.parametrize("index", [-1, 0, 1, 2, 3, 9])
def test_branches_of_a_switch(index):
    """Every index runs its own branch; those beyond the ends run the first and the last one."""

    def model(index, x):
        return lax.switch(index, [lambda x: x, lambda x: x + 1, jnp.negative, jnp.sin], x)

    data, _, _ = read(model, spec(dtype="int32"), spec(3))
    x = np.arange(3, dtype=np.float32)
    (output,) = computed(data, [np.array(index, np.int32), x])
    np.testing.assert_allclose(output, model(index, x), rtol=1e-6)


def test_what_moves_values_is_the_converters():
    """One convolution in JAX is one call; transpositions around its node are jax2onnx's."""
    _, graph, trace = read(conv(CUBES), CUBE, CUBIC)
    targets = [call.target for call in trace.calls if call.level == "operator"]
    assert targets.count("conv_general_dilated") == 1
    assert "transpose" not in targets
    owners = {call.key: call.target for call in trace.calls}
    by_type = {node.op.type: owners[node.call] for node in graph.nodes}
    assert by_type["Conv"] == "conv_general_dilated"
    assert by_type["Transpose"] == "jax2onnx.Transpose"


def pairs(size, taps, hole, stride, step, sides):
    """Places of a result and taps that meet an element or padding of the image, and no hole."""
    low, high = sides
    places = ((size - 1) * hole + 1 + low + high - (taps - 1) * step - 1) // stride + 1
    return sum(
        (place * stride + tap * step - low) % hole == 0
        for place in range(places)
        for tap in range(taps)
    )


@pytest.mark.parametrize(
    ("hole", "stride", "step", "sides"),
    [(2, 3, 1, (0, 0)), (2, 2, 1, (1, 1)), (3, 2, 2, (2, 1)), (4, 6, 1, (0, 3))],
)
def test_holes_are_not_multiplied(hole, stride, step, sides):
    """Of 7 elements with holes between them, by 3 taps, 4 x 5 channels and a batch of 2."""
    model = conv(
        ("NWC", "WIO", "NWC"), lhs_dilation=(hole,), window_strides=(stride,),
        rhs_dilation=(step,), padding=(sides,),
    )  # fmt: skip
    ledger = count(read(model, spec(2, 7, 4), spec(3, 4, 5))[1])
    assert not ledger.uncounted
    assert ledger.total.macs == 2 * 4 * 5 * pairs(7, 3, hole, stride, step, sides)


def test_what_has_no_equal_is_named():
    """This decomposition has no count; the products beside it do: 12 x 12 x 12."""
    _, graph, trace = read(lambda x: lax.linalg.hessenberg(x @ x), spec(12, 12))
    ledger = count(graph)
    assert [gap.node.op.type for gap in ledger.uncounted] == ["hessenberg"]
    assert "jax.hessenberg" in ledger.uncounted[0].reason
    assert ledger.total.macs == 12 * 12 * 12
    assert [output.shape for output in graph.outputs] == [(12, 12), (11,)]
    assert "hessenberg" in {call.target for call in trace.calls}


def test_operators_that_are_newer_than_the_file_says():
    """jax2onnx 0.17 writes CumProd, which ONNX has since version 26: a product for each of 12."""
    ledger = count(read(lambda x: jnp.cumprod(x, 1), spec(3, 4))[1])
    assert not ledger.uncounted
    assert ledger.total.muls == 12


def test_a_model_that_computes_nothing():
    """The message is about the model, not about a file."""
    with pytest.raises(NormalizeError, match="has no operation"):
        read(lambda x: x, SQUARE)


WHOLE = {  # an update of all of 2 x 4 elements: what is computed, and its FLOPs
    "add": (lambda x: jnp.zeros((2, 4)).at[...].add(x), 8),
    "subtract": (lambda x: x.at[...].subtract(1.0), 8),
    "multiply": (lambda x: jnp.ones((2, 4)).at[:].multiply(x), 8),
    "max": (lambda x: x.at[...].max(0.5), 8),
    "set": (lambda x: jnp.zeros((2, 4)).at[...].set(x) + 1.0, 8),
    "set of each row": (lambda x: jax.vmap(lambda r: jnp.zeros(4).at[...].set(r))(x) + 1.0, 8),
    "number": (lambda x: jnp.zeros(()).at[...].set(x.sum()), 7),
}


@pytest.mark.parametrize("name", WHOLE)
def test_an_update_of_a_whole_array(name):
    """No numbers of places say where: the file computes what JAX does, and costs the update."""
    model, flops = WHOLE[name]
    given = jax.ShapeDtypeStruct((2, 4), "float32")
    report = crossflops.count(model, given)
    assert not report.uncounted
    assert report.flops == flops
    data, _, _ = build_model_program(source_from_object(model, (given,)), Setting())
    array = np.random.default_rng(0).uniform(0, 1, (2, 4)).astype("float32")
    session = onnxruntime.InferenceSession(data)
    (output,) = session.run(None, {session.get_inputs()[0].name: array})
    np.testing.assert_allclose(output, model(jnp.asarray(array)), rtol=1e-6)


def test_the_gradient_of_a_branch_in_a_loop():
    """Three of four runs have a product of 2 x 4 x 4, forward, by inputs and by weights.

    JAX fills what the other branch does not give with arrays that nothing was written to.
    """

    def run(w, x, i):
        return lax.cond(i < 3, lambda x: jnp.tanh(x @ w), lambda x: x, x)

    def loss(w, x):
        return lax.scan(lambda x, i: (run(w, x, i), None), x, jnp.arange(4))[0].sum()

    specs = (jax.ShapeDtypeStruct((4, 4), "float32"), jax.ShapeDtypeStruct((2, 4), "float32"))
    report = crossflops.count(jax.value_and_grad(loss), specs)
    assert not report.uncounted
    assert report.macs == 3 * 3 * 2 * 4 * 4
    assert {node.exactness for node in report.nodes} == {"exact"}
