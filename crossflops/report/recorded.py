"""Hold the numbers of a count that budgets are compared with, for a model and its parts.

They are small enough to be committed: totals, the own numbers of modules, and those of operators.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from crossflops.ir.ledger import Memory
from crossflops.ir.profile import Amount
from crossflops.report.difference import KINDS, work_without_submodules
from crossflops.report.report import SCHEMA, NodeRow, Report, UncountedRow

PEAK, RESIDUAL, UNCOUNTED = "peak_activation_memory", "residual", "uncounted"
MODEL_BYTES, FILE_BYTES, LATENCY, NODES = "model_bytes", "file_bytes", "latency_ms", "nodes"
_MOVED = ("bytes_read", "bytes_written", "memory_traffic")
NATIVE = (*KINDS, *_MOVED, PEAK, MODEL_BYTES, UNCOUNTED, FILE_BYTES, LATENCY)
OF_MODULES = (*KINDS, *_MOVED, MODEL_BYTES, UNCOUNTED)
OF_OPERATORS = ("macs", "flops", *_MOVED, NODES, UNCOUNTED)
_GRADES = ("exact", "bound", "estimate")  # each is less certain than the one before
_WILD = re.compile(r"(\*\*|\*|\?)")
_PATTERNS = {"**": ".*", "*": r"[^.]*", "?": r"[^.]"}


class CountedRequest(msgspec.Struct, frozen=True):
    """The request of a recorded count: inputs as counted, and all options."""

    inputs: tuple[str, ...] = ()
    options: dict[str, str] = {}

    def __str__(self) -> str:
        """Return the inputs and the options in one line, "no input" without any."""
        asked = (f"{name} {text}" for name, text in self.options.items())
        return ", ".join((*self.inputs, *asked)) or "no input"


class UncountedPlace(msgspec.Struct, frozen=True):
    """The module and the operator of a node without a count."""

    path: str
    op: str


class RecordedCount(msgspec.Struct, frozen=True):
    """The part of a count that a baseline keeps.

    `values` are numbers of the whole, `modules` the own numbers of each module, or of each node
    where no module is known, `operators` those of all nodes of an operator. `shares` split a
    number that no module has, by the names of its parts. `uncounted` names nodes, whose `places`
    stand in the same order. `doubts` are the grades of values that are no exact counts,
    `module_doubts` and `operator_doubts` the weakest of each part.

    `request` is None, and what came later is empty, in files that were written without them.
    `origin` is "pytest" for what a test wrote. `missing` says of numbers why they could not be
    measured, and what to do; a baseline never keeps it.
    """

    values: dict[str, Amount]
    modules: dict[str, dict[str, int]]
    request: CountedRequest | None = None
    uncounted: tuple[str, ...] = ()
    doubts: dict[str, str] = {}
    origin: str = ""
    operators: dict[str, dict[str, int]] = {}
    shares: dict[str, dict[str, Amount]] = {}
    places: tuple[UncountedPlace, ...] = ()
    module_doubts: dict[str, str] = {}
    operator_doubts: dict[str, str] = {}
    missing: dict[str, tuple[str, str]] | msgspec.UnsetType = msgspec.UNSET


class Baseline(msgspec.Struct, frozen=True):
    """The committed file: the counts of every model when it was written."""

    models: dict[str, RecordedCount] = {}
    schema: str = SCHEMA


def record_count(
    report: Report,
    options: Mapping[str, Any],
    origin: str = "",
    measured: Mapping[str, Amount] | None = None,
) -> RecordedCount:
    """Return the numbers of a report that a baseline stores, with the inputs and options of its
    request.

    `measured` are numbers of the model that no count has.
    """
    modules = _numbers_without_submodules(report)
    return RecordedCount(
        values={**_numbers_for_budget_rules(report), **(measured or {})},
        modules=modules,
        request=_request_of_count(report, options),
        uncounted=tuple(f"{row.node} ({row.op})" for row in report.uncounted),
        doubts=_doubts_of_recorded_numbers(report),
        origin=origin,
        operators=_numbers_by_operator(report),
        shares=_number_components(report),
        places=tuple(
            UncountedPlace(_node_record_path(row, modules), row.op) for row in report.uncounted
        ),
        module_doubts=_least_exact_by_name(
            (_node_record_path(row, modules), row.exactness) for row in report.nodes
        ),
        operator_doubts=_least_exact_by_name((row.op, row.exactness) for row in report.nodes),
    )


def _numbers_for_budget_rules(report: Report) -> dict[str, Amount]:
    """Return {name: number} for all numbers that budget rules can name, such as "macs",
    "thop@0.1.1" or "residual".
    """
    totals = report.totals
    native: dict[str, Any] = {
        name: getattr(totals, name) for name in (*KINDS, "bytes_read", "bytes_written")
    }
    numbers = {
        **native,
        "memory_traffic": totals.bytes_read + totals.bytes_written,
        UNCOUNTED: len(report.uncounted),
        **{fold.tool: fold.total for fold in report.folds},
        **{f"{fold.tool}@{fold.edition}": fold.total for fold in report.folds},
    }
    if isinstance(report.memory, Memory):
        numbers[PEAK] = report.memory.peak_activation_bytes
        numbers[MODEL_BYTES] = report.memory.param_bytes
    if report.residuals:
        numbers[RESIDUAL] = sum(abs(residual) for residual in report.residuals.values())
    return numbers


def _numbers_without_submodules(report: Report) -> dict[str, dict[str, int]]:
    """Return {module path: {name: number}} without submodules, or {node: {name: number}} if the
    model has no modules.

    A module that has none is there with no numbers.
    """
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    modules = work_without_submodules(report)
    has_modules = any(modules)
    size = _bytes_of_parameter(report)
    for path, (_, work) in modules.items() if has_modules else ():
        rows[path].update({kind: getattr(work, kind) for kind in KINDS})
        if size is not None:
            rows[path][MODEL_BYTES] = work.params * size
    for node in report.nodes:
        row = rows[node.path if has_modules else node.node]
        if not has_modules:
            row.update({"macs": node.macs, "flops": node.flops})
        _add_traffic(row, node)
    for uncounted in report.uncounted:
        rows.setdefault(uncounted.path if has_modules else uncounted.node, Counter())
    for fold in report.folds if has_modules else ():
        for booked in fold.rows:
            for name in (fold.tool, f"{fold.tool}@{fold.edition}"):
                rows[booked.path][name] += booked.amount
    return {path: dict(row) if any(row.values()) else {} for path, row in rows.items()}


def _bytes_of_parameter(report: Report) -> int | None:
    """Return the size of one parameter in bytes; None if it is unknown or not the same for all
    parameters.
    """
    memory = report.memory
    if not isinstance(memory, Memory) or not isinstance(memory.param_bytes_by_type, dict):
        return None
    size, rest = divmod(memory.param_bytes, report.params or 1)
    return size if len(memory.param_bytes_by_type) == 1 and not rest else None


def _add_traffic(row: Counter[str], node: NodeRow) -> None:
    """Add the bytes that a node reads, writes, and both together, to the row."""
    row["bytes_read"] += node.bytes_read
    row["bytes_written"] += node.bytes_written
    row["memory_traffic"] += node.bytes_read + node.bytes_written


def _numbers_by_operator(report: Report) -> dict[str, dict[str, int]]:
    """Return {operator: {name: number}}: MACs, FLOPs, number of nodes, and bytes read and
    written.
    """
    rows: dict[str, Counter[str]] = {
        row.op: Counter({"macs": row.macs, "flops": row.flops, NODES: row.count})
        for row in report.by_op
    }
    for node in report.nodes:
        _add_traffic(rows.setdefault(node.op, Counter()), node)
    return {op: dict(row) for op, row in rows.items()}


def _number_components(report: Report) -> dict[str, dict[str, Amount]]:
    """Return {"residual": {tool: amount}, "peak_activation_memory": {node: bytes}}, each key only
    if its parts are known.
    """
    shares: dict[str, dict[str, Amount]] = {}
    if report.residuals:
        shares[RESIDUAL] = {tool: abs(left) for tool, left in report.residuals.items()}
    if isinstance(report.memory, Memory) and report.memory.peak_node:
        shares[PEAK] = {report.memory.peak_node: report.memory.peak_activation_bytes}
    return shares


def _node_record_path(node: NodeRow | UncountedRow, modules: Mapping[str, Any]) -> str:
    """Return the path under which a node's numbers are recorded: its module, or the node itself if
    the module has no row.
    """
    return node.path if node.path in modules else node.node


def _least_exact_by_name(grades: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return {name: least exact grade}, without names whose grades are all "exact"."""
    weakest: dict[str, str] = {}
    for name, grade in grades:
        if _GRADES.index(grade) > _GRADES.index(weakest.get(name, "exact")):
            weakest[name] = grade
    return weakest


def _request_of_count(report: Report, options: Mapping[str, Any]) -> CountedRequest:
    """Return the inputs and options of a count as texts, to compare them with those of another
    count.
    """
    inputs = (
        f"{spec.name} {'x'.join(map(str, spec.shape)) or 'scalar'} {spec.dtype}"
        for spec in report.model.inputs
    )
    asked = {
        name: _option_text(value) for name, value in sorted(options.items()) if name != "inputs"
    }
    return CountedRequest(tuple(inputs), {name: text for name, text in asked.items() if text})


def _option_text(value: Any) -> str:
    """Return the value of an option as text, "" for None."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={value[name]}" for name in sorted(value))
    return "" if value is None else str(value)


def _doubts_of_recorded_numbers(report: Report) -> dict[str, str]:
    """Return {name: "estimate" or "bound"} for the recorded numbers that are not exact."""
    known = report.totals.exactness or {}
    grades = {name: grade for name, grade in known.items() if grade != "exact"}
    weakest = grades.get("flops", "")
    folded = {fold.tool: weakest for fold in report.folds if weakest}
    return {**folded, **grades}


# Parts of a model, each with numbers as a model has them.


def names_matching(pattern: str, names: Iterable[str]) -> list[str]:
    """Return the names that match the pattern; `*` does not match a dot, `**` does.

    >>> names_matching("layer.*", ["layer", "layer.0", "layer.0.norm"])
    ['layer.0']
    >>> names_matching("layer.**", ["layer", "layer.0", "layer.0.norm"])
    ['layer.0', 'layer.0.norm']
    """
    parts = (_PATTERNS.get(part) or re.escape(part) for part in _WILD.split(pattern))
    matcher = re.compile("".join(parts))
    return [name for name in names if matcher.fullmatch(name)]


def module_paths(record: RecordedCount) -> list[str]:
    """Return the paths of all modules and of their ancestors, an ancestor first, without the model
    itself.
    """
    paths: dict[str, None] = {}
    for path in record.modules:
        enclosing = [path]
        while "." in enclosing[-1]:
            enclosing.append(enclosing[-1].rpartition(".")[0])
        paths.update(dict.fromkeys(reversed(enclosing)))
    return [path for path in paths if path]


def module_numbers(record: RecordedCount, path: str) -> RecordedCount:
    """Return the recorded numbers of one module with its submodules; zeros if it has none."""

    def is_in_this_module(name: str) -> bool:
        """Return whether the name is this module or one of its submodules."""
        return name == path or name.startswith(f"{path}.")

    modules = {name: row for name, row in record.modules.items() if is_in_this_module(name)}
    kinds = {kind for row in record.modules.values() for kind in row} or {*KINDS, *_MOVED}
    values: dict[str, Amount] = {
        kind: sum(row.get(kind, 0) for row in modules.values()) for kind in kinds
    }
    inside = [is_in_this_module(location.path) for location in record.places]
    doubts = _least_exact_by_name(
        ("", grade) for name, grade in record.module_doubts.items() if name in modules
    )
    return _part_record(record, values, modules, inside, doubts.get("", ""))


def operator_numbers(record: RecordedCount, op: str) -> RecordedCount:
    """Return the recorded numbers of all nodes of one operator; zeros if there are none."""
    values: dict[str, Amount] = dict.fromkeys(OF_OPERATORS, 0)
    values.update(record.operators.get(op, {}))
    inside = [location.op == op for location in record.places]
    return _part_record(record, values, {}, inside, record.operator_doubts.get(op, ""))


def _part_record(
    record: RecordedCount,
    values: dict[str, Amount],
    modules: dict[str, dict[str, int]],
    uncounted_in_part: list[bool],
    doubt: str,
) -> RecordedCount:
    """Return the record of a part of a model: its numbers, and the uncounted nodes for which
    `uncounted_in_part` is true.
    """
    nodes = zip(record.uncounted, record.places, uncounted_in_part, strict=False)
    kept = [(node, location) for node, location, is_kept in nodes if is_kept]
    return replace(
        record,
        values={**values, UNCOUNTED: len(kept)},
        modules=modules,
        uncounted=tuple(node for node, _ in kept),
        places=tuple(location for _, location in kept),
        shares={},
        operators={},
        doubts=dict.fromkeys(("macs", "flops"), doubt) if doubt else {},
    )
