"""A ledger as the tables of a report."""

from crossflops.ir.graph import Graph, Node, Op, TensorSpec
from crossflops.ir.ledger import Cost, CountedNode, Ledger, UncountedNode
from crossflops.ir.profile import ConventionCount
from crossflops.ir.trace import Module, Parameter, Setting, Trace
from crossflops.report.report import InputInfo, ModuleRow, OpRow
from crossflops.report.tables import report_from_ledger


def node(key, op, path, constant=False):
    """A node."""
    return Node(key=key, op=Op("", op, 1), inputs=(), outputs=(), path=path, constant=constant)


def counted(key, op, path, precision="float32", constant=False, **cost):
    """A counted node."""
    return CountedNode(
        node=node(key, op, path, constant), cost=Cost(**cost), formula="", precision=precision
    )


def module(number, path, *, cls="my.Block", params=(), children=()):
    """A row of the module table; parameters as (name, elements, storage)."""
    return Module(
        id=number,
        names=(path,) if path is not None else (),
        bases=(cls,),
        params=tuple(Parameter(name, (size,), storage) for name, size, storage in params),
        children=tuple((f"c{child}", child) for child in children),
        training=False,
        settings={},
    )


COUNTS = (
    counted("a", "Conv", "left.conv", macs=100, adds=10, bytes_read=8, bytes_written=4),
    counted("b", "Conv", "right", precision="float16", macs=10**20),
    counted("c", "Relu", "left", compares=7),
    counted("d", "MatMul", "", constant=True, macs=30, specials=2),
    UncountedNode(node("e", "Loop", "left"), "not yet"),
    UncountedNode(node("f", "Conv", "left"), "no shape"),
)
MODULES = (
    module(0, "", cls="my.Net", children=(1, 2), params=(("scale", 3, 0),)),
    module(1, "left", children=(3,)),
    module(2, "right", params=(("weight", 50, 1), ("tied", 20, 2)), children=(3,)),
    module(3, "left.conv", cls="torch.nn.Conv2d", params=(("weight", 20, 2), ("bias", 4, 3))),
    module(4, None, params=(("stray", 1000, 4),)),
)
GRAPH = Graph(
    name="Net",
    nodes=tuple(row.node for row in COUNTS),
    inputs=(TensorSpec("x", "float32", (1, 3)), TensorSpec("n", "int64", ())),
    outputs=(),
    params=77,
    opset={"": 23},
    digest="abc",
)
TRACE = Trace(calls=(), modules=MODULES, setting=Setting(grad=False))
REPORT = report_from_ledger(GRAPH, TRACE, Ledger("abc", COUNTS))


def test_the_totals_are_sums_by_kind():
    """MACs 100 + 10^20 + 30, exactly; FLOPs two for each and one for the rest."""
    totals = REPORT.totals
    assert totals.macs == REPORT.macs == 10**20 + 130
    assert totals.flops == REPORT.flops == 2 * (10**20 + 130) + 10 + 7 + 2
    assert (totals.adds, totals.compares, totals.specials) == (10, 7, 2)
    assert (totals.bytes_read, totals.bytes_written) == (8, 4)
    assert totals.params == REPORT.params == 77


def test_constant_macs_are_shown_apart():
    """What does not depend on the input is in the total, and named."""
    assert REPORT.totals.constant_macs == 30


def test_macs_stand_by_precision():
    """Each in the type that it is computed in; what has no MACs has no row."""
    assert REPORT.macs_by_precision == {"float32": 130, "float16": 10**20}


def test_what_is_not_counted_is_listed():
    """With the reason; it is in the number of nodes of its operator all the same."""
    assert [(row.node, row.op, row.reason) for row in REPORT.uncounted] == [
        ("e", "Loop", "not yet"),
        ("f", "Conv", "no shape"),
    ]


def test_operators_with_the_most_work_come_first():
    """Then by name."""
    assert REPORT.by_op == (
        OpRow("Conv", 3, 10**20 + 100, 2 * (10**20 + 100) + 10),
        OpRow("MatMul", 1, 30, 62),
        OpRow("Relu", 1, 0, 7),
        OpRow("Loop", 1, 0, 0),
    )


def test_a_module_has_all_that_is_beneath():
    """Work of its own and of what it holds, parameters of a storage once; strays have no row."""
    assert REPORT.modules == (
        ModuleRow(
            path="",
            class_="Net",
            macs=10**20 + 130,
            flops=2 * (10**20 + 130) + 19,
            params=3 + 50 + 20 + 4,
        ),
        ModuleRow(path="left", class_="Block", macs=100, flops=217, params=24),
        ModuleRow(path="right", class_="Block", macs=10**20, flops=2 * 10**20, params=74),
        ModuleRow(path="left.conv", class_="Conv2d", macs=100, flops=210, params=24),
    )


def test_nodes_are_in_the_order_of_the_graph():
    """Each with its own cost, path and precision."""
    assert [(row.node, row.path, row.macs, row.precision) for row in REPORT.nodes] == [
        ("a", "left.conv", 100, "float32"),
        ("b", "right", 10**20, "float16"),
        ("c", "left", 0, "float32"),
        ("d", "", 30, "float32"),
    ]
    assert (REPORT.nodes[0].bytes_read, REPORT.nodes[0].bytes_written) == (8, 4)


def test_the_model_is_named():
    """Inputs with shapes and types, the opset, the digest, and the setting of the run."""
    assert REPORT.model.name == "Net"
    assert REPORT.model.digest == "abc"
    assert REPORT.model.inputs == (
        InputInfo("x", "float32", (1, 3)),
        InputInfo("n", "int64", ()),
    )
    assert REPORT.model.opset == {"": 23}
    assert REPORT.setting == Setting(grad=False)


def test_a_fold_is_passed_on():
    """The number by a tool's convention stands beside the native one."""
    folded = ConventionCount(tool="thop", edition="0.0.31", total=5, assumed=False)
    assert report_from_ledger(GRAPH, TRACE, Ledger("abc", COUNTS), (folded,)).as_ == folded
    assert REPORT.as_ is None
