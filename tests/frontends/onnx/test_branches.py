"""Which branch of an If is counted: by size, by a constant, or as asked."""

import pytest

from crossflops.errors import InputError
from crossflops.render.terminal import terminal
from crossflops.verbs import api
from tests.frontends.onnx.test_control_flow import HEAD, PRODUCT, loop, named
from tests.onnx_files import graph_of, ledger_of, parsed, saved


def branches(condition):
    """One product or two."""
    return parsed(
        f"{HEAD} <bool yes = {{1}}, bool no = {{0}}> {{ y = If ({condition}) "
        "<then_branch = t () => (p) { p = MatMul(x, w) }, "
        "else_branch = e () => (q) { o = MatMul(x, w) q = MatMul(o, w) }> }"
    )


@pytest.mark.parametrize(
    ("condition", "products", "exactness"),
    [("c", 2, "bound"), ("yes", 1, "exact"), ("no", 2, "exact")],
)
def test_the_branch_that_runs_or_the_larger_one(condition, products, exactness, tmp_path):
    """A constant condition chooses; else the larger branch is a bound."""
    ledger = ledger_of(saved(tmp_path, branches(condition)))
    assert ledger.total.macs == products * PRODUCT
    assert {count.exactness for count in ledger.counted} == {exactness}


def test_a_branch_that_cannot_run_does_not_spoil_the_file(tmp_path):
    """A dead branch with an impossible shape is no reason to refuse: the other one is counted."""
    model = parsed(
        "g (float[8,16] x, float[16,16] w) => (y) <bool no = {0}, int64[2] s = {20, -4}> "
        "{ y = If (no) <then_branch = t () => (p) { p, r = Split (x, s) }, "
        "else_branch = e () => (q) { q = MatMul(x, w) }> }"
    )
    assert ledger_of(saved(tmp_path, model)).total.macs == PRODUCT


@pytest.mark.parametrize(("choice", "products"), [("then", 1), ("else", 2), ("sum", 3)])
def test_a_branch_that_the_caller_chooses(choice, products, tmp_path):
    """--branch counts the branch that it names, or both; it stands above the larger one."""
    path = saved(tmp_path, named(branches("c"), "fork"))
    ledger = ledger_of(path, branches={"fork": choice})
    assert ledger.total.macs == products * PRODUCT
    assert {count.exactness for count in ledger.counted} == {"bound"}


def test_macs_decide_which_branch_is_larger(tmp_path):
    """One product against pointwise work of more FLOPs: the product is the larger branch."""
    model = parsed(
        "g (float[8,16] x, float[16,1] w, float[100000] v, bool c) => (y) { y = If (c) "
        "<then_branch = t () => (p) { p = Exp(v) }, "
        "else_branch = e () => (q) { q = MatMul(x, w) }> }"
    )
    ledger = ledger_of(saved(tmp_path, model))
    assert ledger.total.macs == 8 * 16
    assert ledger.total.specials == 0


def test_flops_decide_between_branches_of_equal_macs(tmp_path):
    """Neither branch has a product: the one with more FLOPs is the larger."""
    model = parsed(
        "g (float[9] x, bool c) => (y) { y = If (c) "
        "<then_branch = t () => (p) { o = Exp(x) p = Exp(o) }, "
        "else_branch = e () => (q) { q = Exp(x) }> }"
    )
    assert ledger_of(saved(tmp_path, model)).total.specials == 2 * 9


def test_a_branch_within_a_loop_is_named_by_its_key(tmp_path):
    """An If in a Loop of ten is asked for by the key that the report shows: ten products."""
    body = (
        "(int64 i, bool ci, float[8,16] a) => (co, e) { co = Identity(ci) e = If (c) "
        "<then_branch = t () => (p) { p = MatMul(a, w) }, "
        "else_branch = s () => (q) { o = MatMul(a, w) q = MatMul(o, w) }> }"
    )
    path = saved(tmp_path, named(loop("ten, yes", body)))
    assert ledger_of(path).total.macs == 20 * PRODUCT
    (key,) = (row.node.key for row in ledger_of(path).counts if row.node.op.type == "If")
    assert key == "loop/If_1"
    assert ledger_of(path, branches={key: "then"}).total.macs == 10 * PRODUCT


@pytest.mark.parametrize("asked", [{"nothing": "then"}, {"fork": "other"}])
def test_a_branch_that_does_not_exist(asked, tmp_path):
    """An If or a branch that is not there is an error that says what there is."""
    with pytest.raises(InputError) as caught:
        graph_of(saved(tmp_path, named(branches("c"), "fork")), branches=asked)
    assert "fork" in caught.value.message + caught.value.hint


def test_the_report_says_which_branch_was_counted(tmp_path):
    """Which branch is in the totals, and what the other one comes to, in JSON and in text."""
    path = saved(tmp_path, named(branches("c"), "fork"))
    report = api.count(path)
    (row,) = report.branches
    assert row.node == "fork"
    assert row.counted.startswith("else_branch: the larger of then_branch 2048 MACs")
    assert "fork" in terminal(report, 100)
    assert report.totals.exactness == {"macs": "bound", "flops": "bound"}
    assert api.count(path, branches={"fork": "then"}).macs == PRODUCT


@pytest.mark.parametrize(
    ("condition", "asked", "rows"),
    [("yes", {}, 8), ("no", {}, 2), ("c", {"fork": "then"}, 8), ("c", {"fork": "else"}, 2)],
)
def test_what_comes_out_has_the_shape_of_the_branch_that_runs(condition, asked, rows, tmp_path):
    """All eight rows or the first two: a product behind the If is counted with these."""
    model = parsed(
        f"{HEAD} <bool yes = {{1}}, bool no = {{0}}, int64[1] o = {{0}}, int64[1] e = {{2}}> "
        f"{{ r = If ({condition}) <then_branch = t () => (p) {{ p = Relu(x) }}, "
        "else_branch = s () => (q) { q = Slice(x, o, e) }> y = MatMul(r, w) }"
    )
    model.graph.node[0].name = "fork"
    path = saved(tmp_path, model)
    assert ledger_of(path, branches=asked).total.macs == rows * 16 * 16


def test_what_comes_out_of_either_branch_is_unknown(tmp_path):
    """Eight rows or two, and nobody says which: what depends on it is uncounted."""
    model = parsed(
        f"{HEAD} <int64[1] o = {{0}}, int64[1] e = {{2}}> "
        "{ r = If (c) <then_branch = t () => (p) { p = Relu(x) }, "
        "else_branch = s () => (q) { q = Slice(x, o, e) }> y = MatMul(r, w) }"
    )
    ledger = ledger_of(saved(tmp_path, model))
    assert [gap.node.op.type for gap in ledger.uncounted] == ["MatMul"]


@pytest.mark.filterwarnings("ignore::crossflops.errors.CrossflopsWarning")
def test_a_branch_that_is_missing_is_no_crash(tmp_path):
    """Of a damaged If nobody knows what would run: it is uncounted, and says so."""
    model = branches("c")
    del model.graph.node[0].attribute[0]
    ledger = ledger_of(saved(tmp_path, model))
    assert [gap.reason for gap in ledger.uncounted] == ["If: a branch is missing in the file"]
    assert ledger.total.macs == 0


BY_NUMBER = (
    "(int64 i, bool ci, float[8,16] a) => (co, e) <int64 first = {{{number}}}> "
    "{{ co = Identity (ci) here = {asks} (i, first) e = If (here) "
    "<then_branch = t () => (p) {{ p = MatMul (a, w) }}, "
    "else_branch = f () => (q) {{ q = Identity (a) }}> }}"
)


@pytest.mark.parametrize(
    ("asks", "number", "products"),
    [("Equal", 0, 1), ("Equal", 3, 1), ("Less", 4, 4), ("Greater", 7, 2), ("Equal", 10, 0)],
)
def test_a_branch_that_the_number_of_the_run_decides(asks, number, products, tmp_path):
    """Of ten runs those that take it count, and the others move a tensor."""
    body = BY_NUMBER.format(asks=asks, number=number)
    ledger = ledger_of(saved(tmp_path, loop("ten, yes", body)))
    assert ledger.total.macs == products * PRODUCT
    assert {count.exactness for count in ledger.counted} == {"exact"}


def test_a_branch_of_every_run_that_the_caller_chooses(tmp_path):
    """--branch stands above the number of the run: ten products, as asked."""
    model = loop("ten, yes", BY_NUMBER.format(asks="Equal", number=0))
    body = model.graph.node[-1].attribute[0].g
    body.node[-1].name = "fork"
    ledger = ledger_of(saved(tmp_path, model), branches={"fork": "then"})
    assert ledger.total.macs == 10 * PRODUCT


def test_more_runs_than_are_written_out_are_a_bound(tmp_path):
    """20 000 runs, of which one has the product: at most one in each."""
    before = "many = Constant <value = int64 {20000}> ()"
    body = BY_NUMBER.format(asks="Equal", number=0)
    ledger = ledger_of(saved(tmp_path, loop("many, yes", body, before)))
    assert ledger.total.macs == 20_000 * PRODUCT
    assert "bound" in {count.exactness for count in ledger.counted}
