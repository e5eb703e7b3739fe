"""Loops and branches of JAX: what depends on data is named, and can be told."""

import pytest

import crossflops
from crossflops.errors import InputError
from crossflops.frontends import normalize
from crossflops.frontends.inputs import parse_inputs
from crossflops.ir.graph import Control
from crossflops.ir.trace import Setting
from crossflops.ledger.count import count
from crossflops.targets import load_target_source, source_from_object

jax = pytest.importorskip("jax")
pytest.importorskip("jax2onnx")

pytestmark = pytest.mark.jax

LOOP = """
import jax

def model(x, w):
    return jax.lax.while_loop(lambda x: x.sum() < 5, lambda x: x @ w, x)
"""


def spec(*shape):
    """An input."""
    return jax.ShapeDtypeStruct(shape, "float32")


def test_a_loop_of_unknown_trips():
    """It is named, and is not zero."""

    def model(x):
        return jax.lax.while_loop(lambda x: x.sum() < 5, lambda x: x @ x, x)

    ledger = count(normalize(source_from_object(model, (spec(8, 8),)), Setting())[0])
    (gap,) = ledger.uncounted
    assert gap.node.op.type == "Loop"
    assert "--trips Loop_1=N" in gap.reason


@pytest.mark.parametrize("trips", [0, 1, 9])
def test_trips_of_a_loop_can_be_told(tmp_path, trips):
    """By the name that the uncounted node has: 3 x 8 x 8 for each run of the body."""
    path = tmp_path / "loop.py"
    path.write_text(LOOP)
    source = load_target_source(
        f"{path}:model", {}, parse_inputs(["3x8", "8x8"]), control=Control({"Loop_1": trips})
    )
    ledger = count(normalize(source, Setting())[0])
    assert not ledger.uncounted
    assert ledger.total.macs == trips * 3 * 8 * 8


def test_the_branch_that_counts_can_be_told():
    """Of one product and two, the larger one counts unless the other is asked for."""

    def model(x):
        return jax.lax.cond(x[0, 0] > 0, lambda x: (x @ x) @ x, lambda x: x @ x, x)

    def told(**options):
        return crossflops.count(model, spec(8, 8), **options).macs

    graph, _ = normalize(source_from_object(model, (spec(8, 8),)), Setting())
    assert count(graph).total.macs == 2 * 8**3
    assert told(branches={"If_1": "else"}) == 8**3
    assert told(branches={"If_1": "sum"}) == 3 * 8**3
    with pytest.raises(InputError, match="no If node 'If_2'"):
        told(branches={"If_2": "else"})


@pytest.mark.parametrize(("start", "trips"), [(1.0, 2), (4.0, 4), (0.1, 0)])
def test_a_run_says_how_often_a_loop_runs(start, trips):
    """Halved until the four of them add up to at most 1: 1 x 4 x 4 in every iteration."""
    half = jax.numpy.eye(4) / 2

    def model(x):
        return jax.lax.while_loop(lambda x: x.sum() > 1, lambda x: x @ half, x)

    report = crossflops.count(model, jax.numpy.full((1, 4), start))
    assert not report.uncounted
    assert report.macs == trips * 16
    assert report.observed.inputs == "the inputs that were given"
    assert any(node.depends_on_inputs is True for node in report.nodes)


@pytest.mark.parametrize(("sign", "products"), [(1, 1), (-1, 2)])
def test_a_run_says_which_branch_of_a_cond(sign, products):
    """One product for positive sums, two for others."""

    def model(x):
        return jax.lax.cond(x.sum() > 0, lambda x: x @ x, lambda x: (x @ x) @ x, x)

    report = crossflops.count(model, sign * jax.numpy.ones((4, 4)))
    assert report.macs == products * 64
    assert crossflops.count(model, spec(4, 4), branches={"If_1": "sum"}).macs == 3 * 64


@pytest.mark.parametrize(("place", "products"), [(0, 1), (1, 0), (2, 2)])
def test_a_run_says_which_branch_of_a_switch(place, products):
    """Three branches: one product, none, two."""

    def model(place, x):
        branches = [lambda x: x @ x, lambda x: x + 1, lambda x: (x @ x) @ x]
        return jax.lax.switch(place, branches, x)

    report = crossflops.count(model, (jax.numpy.int32(place), jax.numpy.ones((4, 4))))
    assert report.macs == products * 64


def test_weights_of_a_module_decide():
    """A module that doubles its input with its own weight until the sum is above 20: 4, 8, 16."""
    nnx = pytest.importorskip("flax.nnx")

    class Doubling(nnx.Module):
        def __init__(self):
            self.weight = nnx.Param(2 * jax.numpy.eye(4))

        def __call__(self, x):
            return jax.lax.while_loop(lambda x: x.sum() < 20, lambda x: x @ self.weight[...], x)

    report = crossflops.count(Doubling(), jax.numpy.ones((1, 4)))
    assert report.macs == 3 * 16
    bare = crossflops.count(nnx.eval_shape(Doubling), jax.numpy.ones((1, 4)))
    assert bare.uncounted
    assert "the weights have only shapes, no values" in str(bare.observed.notes)


def test_a_run_that_is_not_to_be_had_is_said(monkeypatch):
    """The loop stays named, and the command that installs the runtime is there."""
    from crossflops.bench import processes
    from crossflops.bench.session import INSTALL
    from crossflops.errors import MissingExtraError

    def missing(*_given, **_named):
        raise MissingExtraError("onnxruntime is not installed", INSTALL)

    monkeypatch.setattr(processes, "observe_file_run", missing)

    def model(x):
        return jax.lax.while_loop(lambda x: x.sum() < 5, lambda x: x @ x, x)

    report = crossflops.count(model, spec(8, 8))
    assert [gap.op for gap in report.uncounted] == ["Loop"]
    (note,) = report.observed.notes
    assert INSTALL in note


W = jax.numpy.ones((4, 4))
PRODUCT = 2 * 4 * 4  # MACs of x @ W
DEAD = {
    # three runs of one product; the other state of two feeds itself alone
    "while": (lambda s: (s[0] + 1, s[1] @ W, s[2] @ W @ W), 2, 3),
    # the second state feeds the first one through the third: three products a run, not four
    "while_chain": (lambda s: (s[0] + 1, s[1] @ W + s[3], s[2] @ W, s[2] @ W, s[4] @ W), 4, 9),
    # a constant that only a dead state reads
    "while_constant": (lambda s: (s[0] + 1, s[1] @ W, s[2] @ (W @ W)), 2, 3),
}


@pytest.mark.parametrize("name", DEAD)
def test_a_state_of_a_loop_that_nothing_reads_is_no_work(name):
    """XLA takes it out of the loop. Products by hand: those of the live states, in three runs."""
    body, states, products = DEAD[name]

    def model(x):
        return jax.lax.while_loop(lambda s: s[0] < 3, body, (0, *[x] * states))[1]

    assert crossflops.count(model, spec(2, 4)).macs == products * PRODUCT


def test_a_state_that_the_condition_reads_is_work():
    """Two products in each of three runs."""

    def model(x):
        start = (0, x, x)
        return jax.lax.while_loop(
            lambda s: (s[0] < 3) & (s[2].shape[0] < 3) & (s[2][0, 0] < jax.numpy.inf),
            lambda s: (s[0] + 1, s[1] @ W, s[2] @ W),
            start,
        )[1]

    assert crossflops.count(model, jax.numpy.ones((2, 4))).macs == 3 * 2 * PRODUCT


# Branches that the number of the run decides.

BY_RUN = {  # what a run does, and how many products four runs have
    "one run": (lambda i: i == 1, 1),
    "some": (lambda i: i < 3, 3),
    "every other": (lambda i: i % 2 == 0, 2),
    "never": (lambda i: i > 7, 0),
}


@pytest.mark.parametrize("loop", ["scan", "fori_loop"])
@pytest.mark.parametrize("name", BY_RUN)
def test_a_branch_that_the_number_of_the_run_decides(name, loop):
    """It counts as often as it is taken."""
    decide, products = BY_RUN[name]

    def run(i, x):
        return jax.lax.cond(decide(i), lambda x: x @ W, lambda x: x, x)

    def model(x):
        if loop == "scan":
            return jax.lax.scan(lambda x, i: (run(i, x), None), x, jax.numpy.arange(4))[0]
        return jax.lax.fori_loop(0, 4, run, x)

    report = crossflops.count(model, (spec(2, 4),))
    assert report.macs == products * PRODUCT
    assert {node.exactness for node in report.nodes} == {"exact"}


def test_a_choice_of_three_by_the_number_of_the_run():
    """Runs 0, 1 and 2 have one, two and no product; run 3 takes the last branch, as run 2."""

    def run(i, x):
        return jax.lax.switch(i, [lambda x: x @ W, lambda x: (x @ W) @ W, lambda x: x], x)

    report = crossflops.count(lambda x: jax.lax.fori_loop(0, 4, run, x), (spec(2, 4),))
    assert report.macs == 3 * PRODUCT


def test_a_branch_within_loops_of_two_depths():
    """Three times one of four runs."""

    def inner(i, x):
        return jax.lax.cond(i == 2, lambda x: x @ W, lambda x: x, x)

    def model(x):
        return jax.lax.fori_loop(0, 3, lambda _, x: jax.lax.fori_loop(0, 4, inner, x), x)

    report = crossflops.count(model, (spec(2, 4),))
    assert report.macs == 3 * PRODUCT
    assert {node.exactness for node in report.nodes} == {"exact"}
