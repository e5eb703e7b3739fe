"""ONNX's own node tests: what onnx-tool prints is what was predicted, where it answers.

In these files the values that decide about shapes are inputs, for which the tool takes zeros.
"""

import functools
import os
import warnings

import pytest
from crossflops_onnx_tool import OnnxTool

from crossflops.frontends.onnx import OnnxFile
from crossflops.frontends.onnx.reading import normalize_onnx_file
from crossflops.ir.profile import Profile
from crossflops.ir.trace import Setting
from crossflops.ledger.count import count_nodes_with_their_bodies
from crossflops.reconcile.walk import reconcile
from crossflops.rules.prediction import PredictionError, predict_nodes
from crossflops.tools.registry import find_convention

pytestmark = pytest.mark.tools

OPERATORS = (
    "Resize", "Squeeze", "Unsqueeze", "Shape", "NonZero", "Reshape", "NonMaxSuppression",
    "ReduceSum", "ReduceMean", "ReduceMin", "ReduceMax", "ReduceProd",
)  # fmt: skip

MOST = 4  # nodes of a file: bodies of functions have more, and of the same
LEAST = {"NonZero": 1, "NonMaxSuppression": 0, "Unsqueeze": 1}


@functools.cache
def cases():
    """The tests with one of these operators, by name; the tool takes tensors alone."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        node_tests = load_model_tests(kind="node")
    return {
        case.name: case.model
        for case in node_tests
        if len(case.model.graph.node) <= MOST
        and any(node.op_type in OPERATORS for node in case.model.graph.node)
        and all(value.type.HasField("tensor_type") for value in case.model.graph.input)
    }


@pytest.fixture(autouse=True)
def here(monkeypatch):
    """Shapes are inferred in this process, as where a system has no fork: it is twice as fast."""
    monkeypatch.delattr(os, "fork", raising=False)


def answer(path) -> Profile | None:
    """What the tool says; None where it raises."""
    try:
        return OnnxTool().profile(path, (), {}, Setting())
    except Exception:  # it raises whatever numpy or Python does
        return None


def normalized(path):
    """The graph of a file, in which nothing is inlined, and its modules."""
    return normalize_onnx_file(OnnxFile(path=str(path), inlined=False), Setting())


def predicted(path):
    """What it should say; None where it should raise."""
    graph, _ = normalized(path)
    try:
        return predict_nodes(
            find_convention("onnx-tool"), graph, count_nodes_with_their_bodies(graph)
        )
    except PredictionError:
        return None


def text(folder, body, opset=17):
    """A file in ONNX's own text form."""
    import onnx

    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]> {body}')
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return folder / "model.onnx"


@pytest.mark.parametrize("operator", OPERATORS)
def test_what_it_prints_is_what_was_predicted(operator, tmp_path):
    """Where it answers, and where of every node somebody can say what it counts."""
    path, checked = tmp_path / "model.onnx", 0
    for name, model in cases().items():
        if not any(node.op_type == operator for node in model.graph.node):
            continue
        path.write_bytes(model.SerializeToString())
        printed = answer(path)
        if printed is not None:
            prediction = predicted(path)
            assert prediction is not None, name
            if not prediction.unknown:
                assert prediction.total == printed.total, name
                checked += 1
    assert checked >= LEAST.get(operator, 2)


BODIES = {
    # the second axis stays, and with it 1x3 for 2x3
    "squeeze without axes": ("float[2,1,3] x", "s = Squeeze (x) y = Relu (s)", 3),
    "squeeze of nothing": ("float[2,3] x", "s = Squeeze (x) y = Relu (s)", 3),
    "squeeze of the first": ("float[1,2,3] x", "s = Squeeze (x) y = Relu (s)", 6),
    "scales given": (
        "float[1,2,4,4] x, float[4] s",
        'r = Resize <mode = "linear"> (x, , s) y = Relu (r)',
        0,
    ),
    "sizes given": (
        "float[1,2,4,4] x, int64[4] s",
        'r = Resize <mode = "linear"> (x, , , s) y = Relu (r)',
        0,
    ),
    # two sizes are added to the first two extents: of zeros, 1x2 is left
    "two sizes given": (
        "float[1,2,4,4] x, int64[2] s",
        'r = Resize <mode = "linear", axes = [2, 3]> (x, , , s) y = Relu (r)',
        4 * 2 + 2,
    ),
    "axes given": ("float[4,5] x, int64[1] s", "r = ReduceSum (x, s) y = Relu (r)", 20 + 5),
    # the tool knows no values, so NonZero finds every element: 2 x 6 places
    "places of what has no values": (
        "float[2,3] x, float[3,4] w, float[2,3] m",
        "p = MatMul (x, w) y = Relu (p) k = Sigmoid (m) n = NonZero (k)",
        24 + 8 + 32 * 6 + 12,
    ),
    # as many boxes as there may be, 5, and of these 2 columns; TopK and Gather follow them
    "boxes that may be there": (
        "float[1,6,4] b, float[1,1,6] c",
        "n = NonMaxSuppression (b, c, m) g = Gather <axis = 1> (n, i) f = Cast <to = 1> (g) "
        "v, p = TopK <axis = 1> (f, k) y = Relu (v)",
        5,
    ),
    # a Not has no value to the tool: none of the rows is taken, 6 for it and none for the Relu
    "rows of a condition": (
        "float[6,4] x, bool[6] b",
        "c = Not (b) s = Compress <axis = 0> (x, c) y = Relu (s)",
        6,
    ),
    # what it compares with numbers of its own is not followed; 2x3 by 3x4 is 24 all the same
    "a part that is not known": (
        "float[2,3] x, float[3,4] w, float[2] m",
        "p = MatMul (x, w) y = Relu (p) v = Constant <value = float[2] {1.0, 2.0}> () "
        "k = Equal (m, v) n = NonZero (k)",
        24 + 8 + 2 + 2,
    ),
}

STORED = {"boxes that may be there": "<int64 m = {5}, int64[2] i = {0, 2}, int64[1] k = {1}>"}


@pytest.mark.parametrize("name", BODIES)
def test_by_hand(name, tmp_path):
    """The tool prints the number, which follows from its source, and it was predicted."""
    inputs, body, total = BODIES[name]
    opset = 18 if "axes =" in body else 17
    results = "y, n" if "n =" in body else "y"
    stored = STORED.get(name, "")
    path = text(tmp_path, f"g ({inputs}) => ({results}) {stored} {{ {body} }}", opset)
    printed, prediction = answer(path), predicted(path)
    assert printed is not None
    assert printed.total == total
    entries = (entry for entry in printed.entries if entry.path not in prediction.unknown)
    amounts = sum(entry.amount for entry in entries)
    assert sum(map(prediction.amount_in_tool_unit, prediction.bookings)) == amounts
    assert bool(prediction.unknown) == ("not known" in name)
    account = reconcile(prediction, normalized(path)[1], prediction.ledger, printed)
    assert (
        account.delta
        == sum(explanation.amount for explanation in account.explanations) + account.residual
    )
    # no contraction is unknown, so what is left over is all that the tool books for such nodes
    assert account.residual == printed.total - amounts
