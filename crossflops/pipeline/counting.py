"""A model normalized and counted in the modes that conventions need."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from crossflops import tabulate
from crossflops.core.convention import Convention
from crossflops.core.folded import Folded, FoldedRow
from crossflops.core.graph import Graph
from crossflops.core.ledger import Ledger
from crossflops.core.observation import Run
from crossflops.core.report import Report
from crossflops.core.trace import Setting, Trace, View
from crossflops.count import count, count_whole
from crossflops.errors import InputError
from crossflops.footprint import footprint
from crossflops.normalize import Source, program
from crossflops.pipeline.running import run_of_bytes
from crossflops.reconcile import fold_nodes, predict

_NAMES = {
    "torch": "PyTorch",
    "tensorflow": "TensorFlow",
    "jax": "JAX",
    "sklearn": "scikit-learn",
}


class Counted(msgspec.Struct, frozen=True):
    """A model that was normalized and counted in one mode.

    `program` is the ONNX model (of onnx_ir) that the graph was read from; None of a file. `run`
    is there where the values of its inputs decided about it, or a run was found to differ.
    """

    graph: Graph
    trace: Trace
    ledger: Ledger
    program: Any = None
    run: Run | None = None


def counted(source: Source, setting: Setting, observed: Sequence[Setting]) -> Counted:
    """Normalize and count in this setting, and see what the observed ones fuse."""
    model, graph, trace = program(source, setting, observed, run_of_bytes)
    run = None
    if trace.runtime or trace.notes:
        run = Run(trace.runtime, source.values, trace.notes)
    return Counted(graph, trace, count(graph), model, run)


def observed(conventions: Iterable[Convention], asked: Setting) -> list[View]:
    """The real runs that some convention needs."""
    return sorted(
        {view for one in conventions if (view := one.view(asked))},
        key=lambda view: (view.id, view.storey),
    )


def report(own: Counted, folds: Iterable[Folded] = ()) -> Report:
    """The report of a count."""
    memory = footprint(own.graph, own.ledger)
    report = tabulate.report(own.graph, own.trace, own.ledger, tuple(folds), memory)
    return msgspec.structs.replace(report, observed=own.run or UNSET)


def folded(convention: Convention, counted: Counted, asked: Setting) -> Folded:
    """The count as the convention folds it. Raises InputError where no call was recorded."""
    if convention.sees == "node":
        return _folded_nodes(convention, counted)
    recorded = counted.trace.calls or counted.trace.framework == "sklearn"
    if recorded and convention.framework != counted.trace.framework:
        raise InputError(
            f"{convention.tool} counts models of {_NAMES[convention.framework]}, and this is one"
            f" of {_NAMES[counted.trace.framework]}",
            "name a convention for such models, or one of graph nodes such as exact-2k-1",
        )
    if not counted.trace.calls:
        raise InputError(
            f"{convention.tool} looks at calls of modules and functions, which no file records",
            "give the model as file.py:callable to count it as a tool does",
        )
    prediction = predict(convention, counted.trace, asked, counted.ledger)
    left = prediction.divided()
    rows = [
        FoldedRow(booking.call, booking.path, amount)
        for booking, amount in zip(prediction.bookings, left, strict=True)
        if amount
    ]
    if rounded := int(prediction.total) - sum(left):
        rows.append(FoldedRow("", "", rounded))
    return Folded(
        tool=convention.tool,
        edition=convention.edition,
        total=prediction.total,
        assumed=any(call.assumed for call in counted.trace.calls),
        sees=convention.sees,
        rows=tuple(rows),
    )


def seen_by(convention: Convention, counted: Counted) -> Ledger:
    """One count for each node that a convention of graph nodes sees."""
    return counted.ledger if convention.opens else count_whole(counted.graph)


def _folded_nodes(convention: Convention, counted: Counted) -> Folded:
    rows, unknown = fold_nodes(convention, counted.graph, seen_by(convention, counted))
    return Folded(
        tool=convention.tool,
        edition=convention.edition,
        total=sum(row.amount for row in rows),
        assumed=False,
        sees="node",
        rows=rows,
        uncounted=unknown,
    )
