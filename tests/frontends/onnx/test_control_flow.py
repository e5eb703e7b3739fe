"""Loops, branches and functions of files."""

import pytest
from onnx import inliner

from crossflops.errors import InputError, TargetError
from tests.onnx_files import graph_of, ledger_of, parsed, saved

PRODUCT = 8 * 16 * 16  # [8,16] x [16,16]
HEAD = "g (float[8,16] x, float[16,16] w, int64 n, bool c) => (y)"
STEP = "(int64 i, bool ci, float[8,16] a) => (co, e) { co = Identity(ci) e = MatMul(a, w) }"


def loop(inputs, body=STEP, before=""):
    """A graph with one Loop."""
    return parsed(
        f"{HEAD} <int64 ten = {{10}}, bool yes = {{1}}, bool no = {{0}}> "
        f"{{ {before} y = Loop ({inputs}, x) <body = b {body}> }}"
    )


def named(model, name="loop"):
    """The same with a name for its last node."""
    model.graph.node[-1].name = name
    return model


@pytest.mark.parametrize(
    ("inputs", "runs"),
    [("ten, yes", 10), ("ten, ", 10), ("ten, no", 0), ("n, no", 0)],
)
def test_a_trip_count_that_the_graph_determines(inputs, runs, tmp_path):
    """A constant count with a condition that stays true; none at all when it begins false."""
    assert ledger_of(saved(tmp_path, loop(inputs))).total.macs == runs * PRODUCT


@pytest.mark.parametrize(
    ("inputs", "body"),
    [
        ("n, yes", STEP),
        ("ten, c", STEP),
        (", yes", STEP),
        ("ten, yes", STEP.replace("co = Identity(ci)", "s = ReduceSum(a) co = Cast<to = 9>(s)")),
    ],
)
def test_a_trip_count_that_depends_on_data_is_unknown(inputs, body, tmp_path):
    """Such a Loop is uncounted, until --trips says how often it runs."""
    path = saved(tmp_path, named(loop(inputs, body)))
    (gap,) = ledger_of(path).uncounted
    assert "--trips loop=N" in gap.reason
    assert ledger_of(path, trips={"loop": 7}).total.macs == 7 * PRODUCT


def test_a_trip_count_from_a_shape(tmp_path):
    """A count that is computed from shapes is as good as a constant."""
    before = "s = Shape(x) k = Constant<value_int = 0>() m = Gather(s, k) t = Add(m, m)"
    assert ledger_of(saved(tmp_path, loop("t, yes", before=before))).total.macs == 16 * PRODUCT


def test_trips_for_what_is_no_loop(tmp_path):
    """A name that no loop has is an error that lists those there are."""
    with pytest.raises(InputError, match="'nothing'") as caught:
        graph_of(saved(tmp_path, named(loop("n, yes"))), trips={"nothing": 1})
    assert "loop" in caught.value.hint


def test_loops_in_loops_multiply_and_shapes_reach_behind_them(tmp_path):
    """A loop of 3 in a loop of 5, and a product with what comes out: 5 x 3 + 1 products."""
    inner = "(int64 j, bool cj, float[8,16] b) => (cp, f) { cp = Identity(cj) f = MatMul(b, w) }"
    outer = (
        "(int64 i, bool ci, a) => (co, e) "
        f"{{ co = Identity(ci) e = Loop (three, yes, a) <body = v {inner}> }}"
    )
    model = parsed(
        f"{HEAD} <int64 three = {{3}}, int64 five = {{5}}, bool yes = {{1}}> "
        f"{{ z = Loop (five, yes, x) <body = b {outer}> y = MatMul(z, w) }}"
    )
    assert ledger_of(saved(tmp_path, model)).total.macs == (5 * 3 + 1) * PRODUCT


def test_what_a_loop_stacks_has_its_trip_count(tmp_path):
    """A scan output of a Loop of ten is ten results, one behind the other."""
    body = (
        "(int64 i, bool ci, float[8,16] a) => (co, a2, e) "
        "{ co = Identity(ci) a2 = Identity(a) e = MatMul(a, w) }"
    )
    model = parsed(
        f"{HEAD} <int64 ten = {{10}}, bool yes = {{1}}> "
        f"{{ z, all = Loop (ten, yes, x) <body = b {body}> y = MatMul(all, w) }}"
    )
    assert ledger_of(saved(tmp_path, model)).total.macs == (10 + 10) * PRODUCT


def test_a_scan_runs_once_per_slice(tmp_path):
    """A Scan over 5 slices with a carried state."""
    model = parsed(
        "g (float[8,16] x, float[5,16,16] ws) => (y, all) { y, all = Scan "
        "<num_scan_inputs = 1, body = b (float[8,16] a, float[16,16] v) => (e, s) "
        "{ e = MatMul(a, v) s = Identity(e) }> (x, ws) }"
    )
    assert ledger_of(saved(tmp_path, model)).total.macs == 5 * PRODUCT


FUNCTIONS = (
    "g (float[8,16] x, float[16,16] w) => (y) { y = local.Outer <deep = 2> (x, w) } "
    '<domain: "local", opset_import: ["": 17, "local": 1]> Outer <deep> (a, b) => (c) '
    "{ h = local.Inner (a, b) c = local.Inner (h, b) } "
    '<domain: "local", opset_import: ["": 17]> Inner (p, q) => (r) '
    "{ s = MatMul (p, q) r = Relu (s) }"
)


def test_a_function_inlined_counts_the_same(tmp_path):
    """Our expansion, ONNX's own inliner, and the product by hand agree."""
    model = parsed(FUNCTIONS)
    ours = ledger_of(saved(tmp_path, model))
    theirs = ledger_of(saved(tmp_path, inliner.inline_local_functions(model)))
    assert ours.total == theirs.total
    assert ours.total.macs == 2 * PRODUCT
    assert len({row.node.key for row in ours.counts}) == 4


def test_attributes_of_a_call_reach_its_nodes(tmp_path):
    """An attribute of a node in a function may be the function's own, given or by default."""
    model = parsed(
        "g (float[16,8] x, float[16,16] w) => (y, z) "
        "{ y = local.F <t = 1> (x, w) z = local.F <t = 1> (x, w) } "
        '<domain: "local", opset_import: ["": 17]> F <t: int = 0> (a, b) => (c) '
        "{ c = Gemm <transA: int = @t> (a, b) }"
    )
    assert ledger_of(saved(tmp_path, model)).total.macs == 2 * PRODUCT


def doubling(levels):
    """Functions that call the next one twice: 2^levels leaves."""
    imports = '<domain: "local", opset_import: ["": 17, "local": 1]>'
    text = "g (float[4] x) => (y) { y = local.F0 (x) }"
    for number in range(levels):
        text += (
            f" {imports} F{number} (a) => (c) "
            f"{{ b = local.F{number + 1} (a) c = local.F{number + 1} (b) }}"
        )
    return parsed(f"{text} {imports} F{levels} (a) => (c) {{ c = Relu (a) }}")


def test_functions_expand_exactly(tmp_path):
    """Ten doublings are 1024 leaves of 4 comparisons."""
    assert ledger_of(saved(tmp_path, doubling(10))).total.compares == 1024 * 4


def test_a_function_that_calls_itself_is_refused(tmp_path):
    """Recursion has no end, so it is an error that names the function."""
    text = (
        "g (float[4] x) => (y) { y = local.F (x) } "
        '<domain: "local", opset_import: ["": 17, "local": 1]> F (a) => (b) { b = local.F (a) }'
    )
    with pytest.raises(TargetError, match="'F' calls itself"):
        graph_of(saved(tmp_path, parsed(text)))


def test_a_function_in_a_branch_sees_the_values_around_it(tmp_path):
    """A call within a subgraph, and a subgraph in a function that reads the function's input."""
    model = parsed(
        f"{HEAD} {{ y = If (c) <then_branch = t () => (p) {{ p = local.F (c, x, w) }}, "
        "else_branch = e () => (q) { q = Identity(x) }> } "
        '<domain: "local", opset_import: ["": 17]> F (k, a, b) => (r) { r = If (k) '
        "<then_branch = u () => (s) { s = MatMul(a, b) }, "
        "else_branch = v () => (o) { o = Identity(a) }> }"
    )
    assert ledger_of(saved(tmp_path, model)).total.macs == PRODUCT
