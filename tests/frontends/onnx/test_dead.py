"""Work of a file on which no output depends: in no total, named, a cause where a tool has it."""

import random

import onnx
import pytest

from crossflops.errors import CrossflopsWarning
from crossflops.frontends.onnx import OnnxFile
from crossflops.frontends.onnx.reading import normalize_onnx_file
from crossflops.ir.trace import Setting
from crossflops.ledger.count import count, count_dead
from crossflops.reconcile.walk import reconcile
from crossflops.tools.registry import find_convention
from crossflops.verbs import api
from crossflops.verbs.count import CountedModel, predict_from_graph_nodes
from tests.onnx_files import graph_of, ledger_of, parsed, saved, with_weights

A, B, C = 2 * 4 * 3, 2 * 4 * 5, 2 * 4 * 4  # products of [2,4] with [4,3], [4,5] and [4,4]
HEAD = "g (float[2,4] x, float[4,3] a, float[4,5] b, float[4,4] c, bool p) => "
FUNCTION = (
    '<domain: "local", opset_import: ["" : 17]> F (X, A, B) => (P, Q) '
    "{ P = MatMul(X, A) Q = MatMul(X, B) }"
)
LOOP = (
    "n = Constant<value = int64 {3}>() t = Constant<value = bool {1}>() x0 = MatMul(x, c) "
    "y, d, s = Loop (n, t, x, x0) <body = l (int64 i, bool k, float[2,4] u, float[2,4] v) => "
    "(k2, u2, v2, w) { k2 = Identity(k) u2 = MatMul(u, c) v2 = MatMul(v, c) w = MatMul(u, b) "
    "z = MatMul(u, a) }>"
)
GROWING = (  # is unrolled; what the last run makes of u is read by no other one
    "n = Constant<value = int64 {3}>() t = Constant<value = bool {1}>() "
    "y, d = Loop (n, t, x, x) <body = l (int64 i, bool k, float[2,4] u, float[m,4] v) => "
    "(k2, u2, v2) { k2 = Identity(k) u2 = MatMul(u, c) v2 = Concat<axis = 0>(v, u) "
    "z = MatMul(u, a) }>"
)
SCAN = (
    "y, z = Scan <num_scan_inputs = 1, body = l (float[2,4] u, float[2,4] r) => (u2, o) "
    "{ u2 = MatMul(u, c) o = MatMul(r, a) }> (x, xs)"
)
BRANCHES = (
    "y, z = If (p) <then_branch = t () => (y1, z1) { y1 = MatMul(x, a) z1 = MatMul(x, b) }, "
    "else_branch = e () => (y2, z2) { y2 = MatMul(x, a) z2 = MatMul(x, b) }>"
)
CALL = "y, z = local.F (x, a, b) u, v = local.F (x, a, b)"

CASES = [  # what the graph does, its results, and the MACs that are used and that are not
    ("y = MatMul(x, a) z = MatMul(x, b)", "y", A, B),
    ("y = MatMul(x, a) z = MatMul(x, b)", "y, z", A + B, 0),
    ("y = MatMul(x, a) z = MatMul(x, c) q = MatMul(z, b) r = Relu(q)", "y", A, C + B),
    ("y = MatMul(x, a) q = MatMul(c, b)", "y", A, 4 * 4 * 5),  # of constants alone
    ("y = MatMul(x, a) r = RandomNormalLike(b) q = MatMul(x, r)", "y", A, B),
    ("q = MatMul(x, c) s = Shape(q) y = ConstantOfShape(s)", "y", C, 0),  # its shape is read
    ("y, z = Split <axis = 1> (x) u = MatMul(x, a)", "y", 0, A),
    (LOOP, "y", 3 * C, 3 * (C + B + A) + C),
    (LOOP, "s", 3 * (C + B), 3 * (C + A) + C),  # what is stacked reads the state
    (LOOP, "d", 3 * C + C, 3 * (C + B + A)),
    (LOOP, "y, d, s", 3 * (2 * C + B) + C, 3 * A),
    (GROWING, "d", 3 * C, 3 * A),
    (GROWING, "y", 3 * C, 3 * A),
    (SCAN, "y", 5 * C, 5 * A),
    (SCAN, "z", 5 * A, 5 * C),
    (BRANCHES, "y", A, B),
    (BRANCHES, "z", B, A),
    (CALL, "y", A, B + A + B),
    (CALL, "y, v", A + B, A + B),
    (CALL, "z, u, v", A + 2 * B, A),
]


def file_of(tmp_path, text, results, inputs=""):
    """A file whose inputs a, b and c are stored."""
    outputs = ", ".join(f"float {name}" for name in results.split(", ") if name)
    head = HEAD.replace(", bool p", f", bool p{inputs}")
    model = parsed(f"{head} ({outputs}) {{ {text} }} {FUNCTION}")
    for value in model.graph.output:
        value.type.ClearField("value")
    sizes = {"a": 3, "b": 5, "c": 4}
    for name, width in sizes.items():
        model.graph.initializer.append(
            onnx.helper.make_tensor(name, onnx.TensorProto.FLOAT, [4, width], [1.0] * 4 * width)
        )
        model.graph.input.remove(next(v for v in model.graph.input if v.name == name))
    return saved(tmp_path, model)


@pytest.mark.parametrize("inlined", [True, False])
@pytest.mark.parametrize(("text", "results", "used", "dead"), CASES)
def test_what_no_output_depends_on_is_in_no_total(text, results, used, dead, inlined, tmp_path):
    """By hand: products of 24, 40 and 32 MACs, three runs of the Loop, five of the Scan."""
    inputs = ", float[5,2,4] xs" if text == SCAN else ""
    path = file_of(tmp_path, text, results, inputs)
    graph = graph_of(path, inlined=inlined)
    assert ledger_of(path, inlined=inlined).total.macs == used
    assert sum(counted.cost.macs for counted in count_dead(graph)) == dead
    assert not any(node.dead for node in graph.nodes)


def test_a_count_names_it(tmp_path):
    """In the JSON, and in one warning; memory traffic is that of the nodes that count."""
    path = file_of(tmp_path, "y = MatMul(x, a) z = MatMul(x, b)", "y")
    with pytest.warns(CrossflopsWarning, match="40 MACs; .* in node 'MatMul_1'"):
        report = api.count(path)
    totals = report.totals
    assert (totals.macs, totals.dead_macs, totals.params) == (A, B, 4 * 3 + 4 * 5)
    assert (totals.bytes_read, totals.bytes_written) == (4 * (8 + 12), 4 * 6)
    assert [row.node for row in report.nodes] == ["MatMul_0"]


def test_other_work_is_named_too(tmp_path):
    """ReLU of 8 elements is 8 FLOPs and no MAC."""
    path = file_of(tmp_path, "y = MatMul(x, a) z = Relu(x)", "y")
    with pytest.warns(CrossflopsWarning, match="8 FLOPs; .* in node 'Relu_1'"):
        report = api.count(path)
    assert (report.flops, report.totals.dead_macs) == (2 * A, 0)


def test_a_file_without_outputs_has_no_work(tmp_path):
    """It says so: nothing that it computes is used."""
    with pytest.warns(CrossflopsWarning, match="returns no tensor"):
        report = api.count(file_of(tmp_path, "y = MatMul(x, a)", ""))
    assert (report.macs, report.totals.dead_macs) == (0, A)


@pytest.mark.parametrize(
    ("tool", "amount"),
    [
        ("onnx-tool", B + 31 * 10),  # the product, and 31 for each result of the norm
        ("onnx-opcounter", B + 2 * 10),
    ],
)
def test_tools_that_read_files_count_it(tool, amount, tmp_path):
    """All that they book for such nodes has one cause, in whatever unit."""
    text = (
        "g (float[2,4] x, float[4,3] a, float[4,5] b, float[5] r) => (y) "
        "{ y = MatMul(x, a) z = MatMul(x, b) q = BatchNormalization(z, r, r, r, r) }"
    )
    path = saved(tmp_path, with_weights(text, "a", "b", "r"))
    graph, trace = normalize_onnx_file(OnnxFile(path=path, inlined=False), Setting())
    counted = CountedModel(graph, trace, count(graph))
    account = reconcile(
        predict_from_graph_nodes(find_convention(tool), counted), trace, counted.ledger
    )
    booked = {step.cause: step.amount for step in account.explanations}
    assert booked.pop("control.dead-code") == amount
    assert not booked
    assert account.residual == 0


@pytest.mark.parametrize("seed", range(20))
def test_it_is_what_can_be_deleted(seed, tmp_path):
    """Random graphs: a node counts where a path of reads leads from it to an output."""
    rng = random.Random(seed)
    reads, lines = {}, []
    for number in range(12):
        given = rng.choice(["x", *(f"v{earlier}" for earlier in range(number))])
        other = rng.choice(["x", *(f"v{earlier}" for earlier in range(number))])
        reads[f"v{number}"] = (given, other)
        lines.append(f"m{number} = MatMul({given}, c) v{number} = Add(m{number}, {other})")
    outputs = rng.sample(sorted(reads), 2)
    reached, todo = set(), list(outputs)
    while todo:
        name = todo.pop()
        if name in reads and name not in reached:
            reached.add(name)
            todo += reads[name]
    path = file_of(tmp_path, " ".join(lines), ", ".join(outputs))
    assert ledger_of(path).total.macs == len(reached) * C
    dead = sum(counted.cost.macs for counted in count_dead(graph_of(path)))
    assert dead == (12 - len(reached)) * C
