"""What runs on the devices of a mesh: counted on all of them, and explained beside XLA."""

import pytest

import crossflops
from crossflops.ir.profile import Failure

jax = pytest.importorskip("jax")
pytest.importorskip("jax2onnx")
pytest.importorskip("crossflops_jax")

from jax import lax  # noqa: E402
from jax.sharding import AbstractMesh, AxisType, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

pytestmark = pytest.mark.jax
jnp = jax.numpy
AUTO = AxisType.Auto
ONE = jax.make_mesh((1,), ("i",), axis_types=(AUTO,))
FOUR = AbstractMesh((4,), ("i",), axis_types=(AUTO,))
SQUARE = AbstractMesh((2, 2), ("i", "j"), axis_types=(AUTO, AUTO))
ROWS = (P("i", None), P())
PRODUCT = 4 * 8 * 8


def spec(*shape):
    """An input."""
    return jax.ShapeDtypeStruct(shape, "float32")


X, W = spec(4, 8), spec(8, 8)


def mapped(body, specs, result, mesh=ONE, **more):
    """The body on every device of a mesh."""
    return jax.shard_map(body, mesh=mesh, in_specs=specs, out_specs=result, **more)


def total(x, w):
    """A product, and the sum of it over the devices."""
    return lax.psum(x @ w, "i")


ALONE = {
    "psum": mapped(total, ROWS, P()),
    "psum, unchecked": mapped(total, ROWS, P(), check_vma=False),
    "pmean": mapped(lambda x, w: lax.pmean(x @ w, "i"), ROWS, P()),
    "pmax": mapped(lambda x, w: lax.pmax(x @ w, "i"), ROWS, P()),
    "pmin": mapped(lambda x, w: lax.pmin(x @ w, "i"), ROWS, P()),
    "all_gather": mapped(lambda x, w: lax.all_gather(x, "i", tiled=True) @ w, ROWS, P("i", None)),
    "reduce_scatter": mapped(
        lambda x, w: lax.psum_scatter(x @ w, "i", scatter_dimension=1, tiled=True),
        (P(None, "i"), P("i", None)), P(None, "i"),
    ),
    "ppermute": mapped(lambda x, w: lax.ppermute(x @ w, "i", [(0, 0)]), ROWS, P("i", None)),
    "all_to_all": mapped(
        lambda x, w: lax.all_to_all(x @ w, "i", 1, 0, tiled=True), ROWS, P(None, "i")
    ),
    "axis_index": mapped(lambda x, w: x @ w + lax.axis_index("i"), ROWS, P("i", None)),
    "psum under vmap": lambda x, w: jax.vmap(lambda x: lax.psum(x @ w, "b"), axis_name="b")(x),
    "constraint": jax.jit(
        lambda x, w: lax.with_sharding_constraint(x @ w, NamedSharding(ONE, P("i", None)))
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ALONE)
def test_one_device(name):
    """No collective is work of one device, and none is unknown."""
    report = crossflops.compare(
        ALONE[name], (X, W), tools=["xla-lowered", "xla-compiled"], isolate=False
    )
    assert not report.uncounted
    assert report.macs == PRODUCT
    assert report.residuals == {"xla-lowered": 0, "xla-compiled": 0}
    assert {node.exactness for node in report.nodes} == {"exact"}


def test_a_loop_on_one_device():
    """Three products: what is marked as varying has a shape in the body of a loop."""
    body = mapped(
        lambda x, w: lax.scan(lambda c, _: (jnp.tanh(c @ w), None), x, None, length=3)[0],
        ROWS, P("i", None),
    )  # fmt: skip
    assert crossflops.count(body, (X, W)).macs == 3 * PRODUCT


# On each device: its MACs, and the adds of what it receives from the others.
SEVERAL = {
    "cut into rows": (mapped(total, ROWS, P(), FOUR), 1 * 8 * 8, 3 * 8),
    "all rows everywhere": (mapped(total, (P(), P()), P(), FOUR), 4 * 8 * 8, 3 * 32),
    "gathered": (
        mapped(lambda x, w: lax.all_gather(x, "i", tiled=True) @ w, ROWS, P("i", None), FOUR),
        4 * 8 * 8, 0,
    ),
    "summed and scattered": (
        mapped(
            lambda x, w: lax.psum_scatter(x @ w, "i", scatter_dimension=1, tiled=True),
            (P(None, "i"), P("i", None)), P(None, "i"), FOUR,
        ),
        4 * 2 * 8, 3 * 8,
    ),
    "two axes": (
        mapped(
            lambda x, w: lax.psum(x @ w, "j"), (P("i", "j"), P("j", None)), P("i", None), SQUARE,
        ),
        2 * 4 * 8, 1 * 16,
    ),
    "both axes at once": (
        mapped(lambda x, w: lax.psum(x @ w, ("i", "j")), (P(("i", "j"), None), P()), P(), SQUARE),
        1 * 8 * 8, 3 * 8,
    ),
    "one of the axes": (
        mapped(total, ROWS, P(), SQUARE, axis_names={"i"}), 2 * 8 * 8, 1 * 16,
    ),
    "in groups": (
        mapped(
            lambda x, w: lax.psum(x @ w, "i", axis_index_groups=[[0, 1], [2, 3]]),
            ROWS, P("i", None), FOUR, check_vma=False,
        ),
        1 * 8 * 8, 1 * 8,
    ),
    "sent on": (
        mapped(lambda x, w: lax.ppermute(x @ w, "i", [(0, 1), (1, 2)]), ROWS, P("i", None), FOUR),
        1 * 8 * 8, 0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SEVERAL)
def test_several_devices(name):
    """Each of them does its part; XLA's analysis is of one of them.

    Along an axis that is not mapped the arrays are whole: only the two along the other count.
    """
    model, macs, adds = SEVERAL[name]
    devices = 2 if name == "one of the axes" else 4
    report = crossflops.compare(model, (X, W), tools=["xla-lowered"], isolate=False)
    assert not report.uncounted
    assert report.macs == devices * macs
    assert report.totals.adds == devices * adds
    assert report.residuals == {"xla-lowered": 0}
    amounts = {row.cause: row.amount for row in report.reconciliation("xla-lowered").explanations}
    assert amounts["control.one-device"] == (1 - devices) * macs


def test_a_program_that_cannot_be_compiled():
    """There are no four devices here: that ends one tool, and neither the count nor the other."""
    report = crossflops.compare(
        SEVERAL["cut into rows"][0], (X, W), tools=["xla-lowered", "xla-compiled"], isolate=False
    )
    failed = [answer.tool for answer in report.profiles if isinstance(answer, Failure)]
    assert failed == ["xla-compiled"]
    assert report.residuals == {"xla-lowered": 0}
    assert report.macs == PRODUCT
