"""Rewrite a recorded model into its graph by named passes, whose order is checked.

A frontend has one list of passes. Each says which facts it requires and which it ensures, so that
a list in a wrong order fails before anything runs. Where the logger of the frontend is on, as with
CROSSFLOPS_DEBUG=1, it says of every pass which nodes that added, removed or changed.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from crossflops.errors import DEBUG, print_worker_stderr
from crossflops.ir.graph import Graph, Node
from crossflops.ir.trace import Trace

if TYPE_CHECKING:
    from logging import Logger

State = TypeVar("State")
_NOTHING: frozenset[str] = frozenset()
_DEBUG_LEVEL = 10  # of `logging`, which a count of a file need not import
_relayed: set[str] = set()  # the loggers that write to stderr


def fact_set(*names: str) -> frozenset[str]:
    """Return these names of facts as a set."""
    return frozenset(names)


class PassOrderError(RuntimeError):
    """A pass requires a fact that does not hold at that point."""


class Pass(msgspec.Struct, Generic[State], frozen=True):
    """One rewrite of a conversion's state, named by what it does.

    It runs where all facts that it `requires` hold. After it the facts that it `ensures` hold, and
    those that it `ends` no longer do.
    """

    name: str
    apply: Callable[[State], State]
    requires: frozenset[str] = _NOTHING
    ensures: frozenset[str] = _NOTHING
    ends: frozenset[str] = _NOTHING


class PassGroup(msgspec.Struct, Generic[State], frozen=True):
    """Passes that run within another one, for example in its context or several times.

    `apply` gets the state and a function that runs the passes. Within the group the facts that it
    `opens` hold as well. After it all facts hold that its passes ensured.
    """

    name: str
    apply: Callable[[State, Callable[[State], State]], State]
    passes: "Passes[State]"
    requires: frozenset[str] = _NOTHING
    opens: frozenset[str] = _NOTHING


Passes: TypeAlias = Sequence[Pass[State] | PassGroup[State]]


class Snapshot(NamedTuple):
    """The parts of a state that a log compares: nodes by key, and other values by name."""

    nodes: Mapping[str, Any]
    values: Mapping[str, Any]


class Pipeline(msgspec.Struct, Generic[State], frozen=True):
    """The passes of a frontend in their order; the logger named `room` logs them.

    `given` are the facts that hold before them, `wanted` those that hold after them. `look` is
    called only where the logger is enabled.
    """

    room: str
    passes: Passes[State]
    look: Callable[[State], Snapshot]
    given: frozenset[str]
    wanted: frozenset[str]

    def run(self, state: State) -> State:
        """Return the state after all passes. Raises PassOrderError if their order is wrong."""
        self.check_order()
        with _opening_pass_log(self.room) as logger:
            return _run_passes(self.passes, state, _PassLog(logger, self.look) if logger else None)

    def check_order(self) -> None:
        """Raise PassOrderError if a pass, or the end, requires a fact that does not hold."""
        everything = list(_flatten_passes(self.passes))
        holding = _check_pass_order(self.passes, self.given, everything)
        for fact in sorted(self.wanted - holding):
            raise PassOrderError(
                _order_violation_text(f"the end of {self.room}", fact, everything)
            )


def _check_pass_order(
    passes: Passes[State], holding: frozenset[str], all_passes: Sequence[Pass[State]]
) -> frozenset[str]:
    """Return the facts that hold after these passes. Raises PassOrderError if one is missing."""
    for step in passes:
        for fact in sorted(step.requires - holding):
            raise PassOrderError(
                _order_violation_text(f"the pass {step.name!r}", fact, all_passes)
            )
        if isinstance(step, PassGroup):
            holding = _check_pass_order(step.passes, holding | step.opens, all_passes) - step.opens
        else:
            holding = (holding - step.ends) | step.ensures
    return holding


def _order_violation_text(subject: str, fact: str, all_passes: Sequence[Pass[State]]) -> str:
    """Return a text on which pass would establish a missing fact, or which pass ended it."""
    why = [
        *(f"{other.name!r} ensures it" for other in all_passes if fact in other.ensures),
        *(f"{other.name!r} ends it" for other in all_passes if fact in other.ends),
    ]
    return f"{subject} requires {fact!r}: {', '.join(why) or 'no pass ensures it'}"


def _flatten_passes(passes: Passes[State]) -> Iterator[Pass[State]]:
    """Yield all single passes in their order, also those in groups."""
    for step in passes:
        if isinstance(step, PassGroup):
            yield from _flatten_passes(step.passes)
        else:
            yield step


def _run_passes(passes: Passes[State], state: State, log: "_PassLog[State] | None") -> State:
    """Return the state after these passes, run in their order; `log`, if given, notes each."""
    for step in passes:
        if isinstance(step, PassGroup):
            state = step.apply(state, partial(_run_passes, step.passes, log=log))
        elif log is None:
            state = step.apply(state)
        else:
            state = log.apply_and_log(step, state)
    return state


# The log: which pass changed which node.

_ANNOTATIONS = ("training", "conversion")


class _PassLog(Generic[State]):
    """A log of passes, which compares the nodes before and after each pass."""

    def __init__(self, logger: "Logger", look: Callable[[State], Snapshot]) -> None:
        """Write to `logger` what changes between the snapshots that `look` takes of a state."""
        self._logger = logger
        self._look = look

    def apply_and_log(self, step: Pass[State], state: State) -> State:
        """Return the state after one pass, and log what the pass changed."""
        before = self._look(state)  # also the state itself may be changed in place
        state = step.apply(state)
        lines = list(_change_lines(before, self._look(state))) or ["nothing changed"]
        for line in lines:
            self._logger.debug("%s: %s", step.name, line)
        return state


def _change_lines(before: Snapshot, after: Snapshot) -> Iterator[str]:
    """Yield a line of text for each node and each other value that a pass changed."""
    for key, node in before.nodes.items():
        if key not in after.nodes:
            yield f"removed {key} ({node.op})"
    for key, node in after.nodes.items():
        old = before.nodes.get(key)
        if old is None or type(old) is not type(node):
            yield f"added {key} ({node.op})"
        elif fields := _differing_fields(old, node):
            yield f"changed {key} ({node.op}): {', '.join(fields)}"
    for name, value in after.values.items():
        old = before.values.get(name)
        fields = list(value.__struct_fields__) if old is None else _differing_fields(old, value)
        if old is None:
            yield f"made the {name}"
        elif fields:
            yield f"changed the {name}: {', '.join(fields)}"


def _differing_fields(before: Any, after: Any) -> list[str]:
    """Return the names of the fields in which two values of one class differ.

    Nodes within a value are compared separately.
    """
    fields: list[str] = []
    for field in after.__struct_fields__:
        old, new = getattr(before, field), getattr(after, field)
        if field in ("nodes", "bodies") or old is new or old == new:
            continue
        fields += _differing_fields(old, new) if field in _ANNOTATIONS else [field]
    return fields


def take_snapshot(graph: Graph | None, trace: Trace | None) -> Snapshot:
    """Return the nodes and values of a graph and a trace (each may be None) for comparison."""
    nodes = dict(_nodes_by_key(graph.nodes)) if graph is not None else {}
    values = {"graph": graph, "trace": trace}
    return Snapshot(nodes, {name: value for name, value in values.items() if value is not None})


def _nodes_by_key(nodes: Iterable[Node]) -> Iterator[tuple[str, Node]]:
    """Yield (key, node) of all nodes, also those in bodies, which follow their node.

    A body that several nodes share is read once. Levels are kept on a stack, as bodies may be
    deeply nested.
    """
    read: set[int] = set()
    levels = [("", iter(nodes))]
    while levels:
        enclosing, level = levels[-1]
        node = next(level, None)
        if node is None:
            levels.pop()
            continue
        yield f"{enclosing}{node.key}", node
        for body in reversed(node.bodies):
            if id(body) not in read:
                read.add(id(body))
                levels.append((f"{enclosing}{node.key}/{body.name}/", iter(body.nodes)))


@contextmanager
def _opening_pass_log(name: str) -> Iterator["Logger | None"]:
    """Give the logger called `name` for debug messages of passes in this context, or None if such
    messages are off.

    A framework may redirect stderr while passes run, so the stream from before is used.
    """
    if os.environ.get(DEBUG, "0") in ("", "0"):
        logging = sys.modules.get("logging")
        logger = logging.getLogger(name) if logging is not None else None
        yield logger if logger is not None and logger.isEnabledFor(_DEBUG_LEVEL) else None
        return
    import logging as loggers

    logger, stream = loggers.getLogger(name), sys.stderr
    if (
        name in _relayed
    ):  # a model within a model, as where a run decides what another one leaves open
        yield logger
        return

    class Relay(loggers.Handler):
        def emit(self, record: loggers.LogRecord) -> None:
            """Write a log record's text, with its logger's name, to the stream as one line."""
            print_worker_stderr(f"{record.name}: {record.getMessage()}", stream)

    handler, level, propagates = Relay(), logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(_DEBUG_LEVEL)
    logger.propagate = False  # frameworks let all loggers write to stderr, each line once more
    _relayed.add(name)
    try:
        yield logger
    finally:
        _relayed.remove(name)
        logger.propagate = propagates
        logger.setLevel(level)
        logger.removeHandler(handler)
