"""Passes run in an order that is checked, and a log says which of them changed which node."""

import logging
import sys

import msgspec
import pytest

from crossflops.frontends.passes import (
    Pass,
    PassGroup,
    PassOrderError,
    Pipeline,
    take_snapshot,
)
from crossflops.ir.graph import Graph, Node, Op

ROOM = "crossflops.frontends.trial"


def _node(key, kind, **more):
    return Node(key=key, op=Op("", kind, 1), inputs=(), outputs=(), **more)


def _graph(*nodes):
    return Graph(name="", nodes=nodes, inputs=(), outputs=(), params=0, opset={})


def _pass(name, requires=(), ensures=(), ends=(), apply=lambda graph: graph):
    return Pass(name, apply, frozenset(requires), frozenset(ensures), frozenset(ends))


def _pipeline(*passes, given=(), wanted=(), look=lambda graph: take_snapshot(graph, None)):
    return Pipeline(ROOM, passes, look, frozenset(given), frozenset(wanted))


READ = _pass("read", ensures=["names"])
RENAME = _pass("rename", ["names"], ["new names"], ends=["names"])
MARK = _pass("mark", ["names"], ["marks"])


@pytest.mark.parametrize(
    ("passes", "message"),
    [
        (
            (RENAME, READ),
            "the pass 'rename' requires 'names': 'read' ensures it, 'rename' ends it",
        ),
        ((READ, RENAME, MARK), "the pass 'mark' requires 'names': .*'rename' ends it"),
        ((MARK,), "the pass 'mark' requires 'names': no pass ensures it"),
        ((READ, RENAME), f"the end of {ROOM} requires 'marks': no pass ensures it"),
        (
            (READ, PassGroup("within", None, (RENAME, MARK))),
            "the pass 'mark' requires 'names': .*'rename' ends it",
        ),
        (
            (PassGroup("within", None, (), opens=frozenset({"names"})), MARK),
            "the pass 'mark' requires 'names': no pass ensures it",
        ),
    ],
)
def test_a_wrong_order_names_what_does_not_hold(passes, message):
    """It fails before any pass runs, and says which pass would mend it."""
    ran = []
    passes = tuple(
        msgspec.structs.replace(step, apply=ran.append) if isinstance(step, Pass) else step
        for step in passes
    )
    with pytest.raises(PassOrderError, match=message):
        _pipeline(*passes, wanted=["marks"]).run(_graph())
    assert not ran


def test_a_group_runs_its_passes_as_often_as_it_wants():
    """What a group opens holds for the passes in it."""

    def add(graph):
        nodes = (*graph.nodes, _node(f"n{len(graph.nodes)}", "Add"))
        return msgspec.structs.replace(graph, nodes=nodes)

    inner = _pass("add", ["open"], ["added"], apply=add)
    group = PassGroup(
        "twice", lambda graph, run: run(run(graph)), (inner,), opens=frozenset({"open"})
    )
    made = _pipeline(group, wanted=["added"]).run(_graph())
    assert [node.key for node in made.nodes] == ["n0", "n1"]


def _rewrites():
    """Passes that add, change and remove: nodes, a node in a body, and a field of the graph."""
    inside = _node("inside", "Mul")
    loop = _node("loop", "Loop", bodies=(_graph(inside),))
    marked = _graph(_node("inside", "Mul", sparse=True))
    return (
        _pass("add", apply=lambda graph: _graph(_node("a", "Add"), loop)),
        _pass("mark", apply=lambda graph: _graph(_node("a", "Add", path="m"), loop)),
        _pass("mark inside", apply=lambda _: _graph(_node("loop", "Loop", bodies=(marked,)))),
        _pass("name", apply=lambda graph: msgspec.structs.replace(graph, name="model")),
        _pass("idle"),
    )


LINES = [
    "add: added a (Add)",
    "add: added loop (Loop)",
    "add: added loop//inside (Mul)",
    "mark: changed a (Add): path",
    "mark inside: removed a (Add)",
    "mark inside: changed loop//inside (Mul): sparse",
    "name: changed the graph: name",
    "idle: nothing changed",
]


def test_a_log_names_each_pass_and_the_nodes_that_it_changed(caplog):
    """A line for each node with its operator, in bodies too; one for each field of the graph."""
    with caplog.at_level(logging.DEBUG, ROOM):
        _pipeline(*_rewrites()).run(_graph())
    assert [record.getMessage() for record in caplog.records] == LINES


def test_the_variable_writes_the_log_to_stderr(monkeypatch, capsys):
    """CROSSFLOPS_DEBUG needs no setting of `logging`, and leaves none behind."""
    monkeypatch.setenv("CROSSFLOPS_DEBUG", "1")
    _pipeline(*_rewrites(), _pass("ask\x1b[31m")).run(_graph())
    _, err = capsys.readouterr()
    last = f"{ROOM}: ask\\x1b[31m: nothing changed"
    assert err.splitlines() == [*(f"{ROOM}: {line}" for line in LINES), last]
    assert not logging.getLogger(ROOM).handlers
    assert logging.getLogger(ROOM).level == logging.NOTSET


def test_a_line_is_written_once_whoever_else_listens(monkeypatch, capsys):
    """Also of a model that is converted within another, and where the root logger writes, too."""
    monkeypatch.setenv("CROSSFLOPS_DEBUG", "1")
    root = logging.StreamHandler(sys.stderr)
    logging.getLogger().addHandler(root)
    inner = _pass("inner", apply=lambda graph: _pipeline(_pass("idle")).run(graph))
    try:
        _pipeline(inner).run(_graph())
    finally:
        logging.getLogger().removeHandler(root)
    said = ["idle: nothing changed", "inner: nothing changed"]
    assert capsys.readouterr().err.splitlines() == [f"{ROOM}: {line}" for line in said]
    assert logging.getLogger(ROOM).propagate


@pytest.mark.parametrize("value", [None, "", "0"])
def test_nothing_is_compared_where_no_log_is_on(value, monkeypatch, capsys):
    """A count takes no time for a log that nobody reads."""
    monkeypatch.delenv("CROSSFLOPS_DEBUG", raising=False)
    if value is not None:
        monkeypatch.setenv("CROSSFLOPS_DEBUG", value)
    looked = []
    pipeline = _pipeline(*_rewrites(), look=looked.append)
    assert pipeline.run(_graph()).name == "model"
    assert not looked
    assert capsys.readouterr().err == ""
