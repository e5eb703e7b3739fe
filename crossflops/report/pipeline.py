"""Add the reports of the parts of a pipeline up to one report.

Work and bytes that are moved are those of all runs of a part. Parameters are stored once, however
often a part runs. The parts run one after the other, so that the most memory is that of one part.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from crossflops.ir.ledger import Exactness, Intensity, Memory, ModelInfo, Totals
from crossflops.report.report import (
    CustomOperatorRow,
    ModuleRow,
    NodeRow,
    OpRow,
    PipelinePart,
    Report,
)

_ONCE = frozenset(("params", "active_params", "exactness", "dead_macs", "unchosen_macs"))
_GRADES: tuple[Exactness, ...] = ("exact", "bound", "estimate")
_CLASS = "pipeline"


class CountedPart(NamedTuple):
    """A part of a pipeline with the report of one run."""

    part: PipelinePart
    report: Report

    @property
    def run_count(self) -> int:
        """How often the part runs."""
        return self.part.times


def pipeline_report(name: str, parts: Sequence[CountedPart]) -> Report:
    """Return the report of a pipeline of this name.

    Its rows have all runs of their part, and begin with the name of that.
    """
    totals = _add_totals(parts)
    custom = tuple(row for entry in parts for row in _part_custom_operator_rows(entry))
    return Report(
        model=_pipeline_model_info(name, parts),
        totals=totals,
        macs_by_precision=_sum_amounts_by_key(
            (entry.report.macs_by_precision, entry.run_count) for entry in parts
        ),
        uncounted=tuple(
            replace(row, node=f"{part.name}/{row.node}", path=_module_path(part.name, row.path))
            for part, report in parts
            for row in report.uncounted
        ),
        by_op=_pipeline_operator_rows(parts),
        modules=_pipeline_module_rows(totals, parts),
        nodes=tuple(row for entry in parts for row in _part_node_rows(entry)),
        branches=tuple(
            replace(row, node=f"{part.name}/{row.node}")
            for part, report in parts
            for row in report.branches
        ),
        memory=_add_memory(totals, parts),
        custom_operators=custom or UNSET,
        parts=tuple(part for part, _ in parts),
    )


def _pipeline_model_info(name: str, parts: Sequence[CountedPart]) -> ModelInfo:
    """Return the name, the digest and the opsets of a pipeline, which has no inputs of its own."""
    text = "\n".join(f"{part.times} {report.model.digest}" for part, report in parts)
    opsets: dict[str, int] = {}
    for _, report in parts:
        for domain, number in report.model.opset.items():
            opsets[domain] = max(number, opsets.get(domain, 0))
    digest = hashlib.sha256(text.encode()).hexdigest()
    return ModelInfo(name=name, digest=digest, inputs=(), opset=opsets)


def _module_path(part: str, inner: str) -> str:
    """Return the path of a module of a part."""
    return f"{part}.{inner}" if inner else part


def _parts_with_new_model(parts: Sequence[CountedPart]) -> list[CountedPart]:
    """Return the parts whose model is not that of an earlier part."""
    return [entry for entry in parts if not entry.part.weights_of]


def _add_totals(parts: Sequence[CountedPart]) -> Totals:
    """Return the sums over all runs, with the parameters of each model once."""
    every = [(entry.report.totals, entry.run_count) for entry in parts]
    sums = {
        key: sum(getattr(totals, key) * times for totals, times in every)
        for key in Totals.__struct_fields__
        if key not in _ONCE
    }
    own = [entry.report.totals for entry in _parts_with_new_model(parts)]
    are_active = any(totals.active_params is not UNSET for totals in own)
    return Totals(
        **sums,
        params=sum(totals.params for totals in own),
        active_params=sum(totals.active_params or totals.params for totals in own)
        if are_active
        else UNSET,
        dead_macs=_sum_optional_numbers(every, "dead_macs", all),
        unchosen_macs=_sum_optional_numbers(every, "unchosen_macs", any),
        exactness=_weakest_grades(totals.exactness for totals, _ in every),
    )


def _sum_optional_numbers(
    totals_and_runs: Sequence[tuple[Totals, int]],
    key: str,
    enough: Callable[[Iterable[bool]], bool],
) -> int | UnsetType:
    """Return the sum of a number that totals may lack; UNSET unless `enough` of them have it."""
    known = [getattr(totals, key) is not UNSET for totals, _ in totals_and_runs]
    if not enough(known):
        return UNSET
    return sum((getattr(totals, key) or 0) * times for totals, times in totals_and_runs)


def _weakest_grades(
    grades: Iterable[dict[str, Exactness] | UnsetType],
) -> dict[str, Exactness] | UnsetType:
    """Return the weakest grade of each kind of amount; UNSET where all are exact."""
    by_kind: dict[str, Exactness] = {}
    for grade in grades:
        for kind, exactness in (grade or {}).items():
            by_kind[kind] = max(by_kind.get(kind, "exact"), exactness, key=_GRADES.index)
    return by_kind or UNSET


def _sum_amounts_by_key(
    amounts: Iterable[tuple[Mapping[str, int] | UnsetType, int]],
) -> dict[str, int]:
    """Return {key: sum of the amounts times the runs}."""
    sums: dict[str, int] = {}
    for named, times in amounts:
        for key, amount in (named or {}).items():
            sums[key] = sums.get(key, 0) + amount * times
    return sums


def _pipeline_operator_rows(parts: Sequence[CountedPart]) -> tuple[OpRow, ...]:
    """Return a row for each operator: the nodes of all parts, and the work of all their runs."""
    rows: dict[str, OpRow] = {}
    for _, report, times in ((*entry, entry.run_count) for entry in parts):
        for row in report.by_op:
            old = rows.get(row.op, OpRow(row.op, 0, 0, 0))
            rows[row.op] = OpRow(
                row.op,
                old.count + row.count,
                old.macs + row.macs * times,
                old.flops + row.flops * times,
            )
    return tuple(sorted(rows.values(), key=lambda row: (-row.flops, row.op)))


def _pipeline_module_rows(totals: Totals, parts: Sequence[CountedPart]) -> tuple[ModuleRow, ...]:
    """Return the pipeline, and beneath it each part with its modules."""
    root = ModuleRow(
        path="", class_=_CLASS, macs=totals.macs, flops=totals.flops, params=totals.params
    )
    rows = [root]
    for (part, report), times in ((entry, entry.run_count) for entry in parts):
        modules = report.modules or (
            ModuleRow(
                path="", class_="", macs=report.macs, flops=report.flops, params=report.params
            ),
        )
        rows += [
            replace(
                row,
                path=_module_path(part.name, row.path),
                macs=row.macs * times,
                flops=row.flops * times,
            )
            for row in modules
        ]
    return tuple(rows)


def _part_node_rows(entry: CountedPart) -> Iterable[NodeRow]:
    """Yield the nodes of a part, each with the work of all runs."""
    part, times = entry.part, entry.run_count
    for row in entry.report.nodes:
        yield replace(
            row,
            node=f"{part.name}/{row.node}",
            path=_module_path(part.name, row.path),
            macs=row.macs * times,
            flops=row.flops * times,
            bytes_read=row.bytes_read * times,
            bytes_written=row.bytes_written * times,
        )


def _part_custom_operator_rows(entry: CountedPart) -> Iterable[CustomOperatorRow]:
    """Yield the custom operators of a part, with all runs."""
    times = entry.run_count
    for row in entry.report.custom_operators or ():
        yield replace(row, calls=row.calls * times, macs=row.macs * times, flops=row.flops * times)


def _add_memory(totals: Totals, parts: Sequence[CountedPart]) -> Memory | UnsetType:
    """Return the bytes that all runs move, and those that the parts hold; UNSET if they are not
    known of a part.
    """
    memories = [
        (entry, entry.report.memory) for entry in parts if isinstance(entry.report.memory, Memory)
    ]
    if len(memories) < len(parts):
        return UNSET
    every = [(memory, entry.run_count) for entry, memory in memories]
    stored = [memory for entry, memory in memories if not entry.part.weights_of]
    highest, peak = max(memories, key=lambda pair: pair[1].peak_activation_bytes)
    moved: dict[str, Any] = {
        key: sum(getattr(memory, key) * times for memory, times in every)
        for key in ("access_bytes", "access_elements", "elements_read", "elements_written")
    }
    are_typed = all(memory.param_bytes_by_type is not UNSET for memory in stored)
    by_type = _sum_amounts_by_key((memory.access_bytes_by_type, times) for memory, times in every)
    return Memory(
        **moved,
        intensity=Intensity(totals.flops, moved["access_bytes"]),
        peak_activation_bytes=peak.peak_activation_bytes,
        peak_node=f"{highest.part.name}/{peak.peak_node}" if peak.peak_node else "",
        unsized=sum(memory.unsized for memory, _ in every),
        param_bytes=sum(memory.param_bytes for memory in stored),
        access_bytes_by_type=by_type or UNSET,
        param_bytes_by_type=_sum_amounts_by_key(
            (memory.param_bytes_by_type, 1) for memory in stored
        )
        if are_typed
        else UNSET,
    )
