"""Count one case of a sweep with all of its tools, and record the rows, in whatever process."""

import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec

from crossflops.errors import CrossflopsError, error_words
from crossflops.ir.profile import Amount, Failure, Profile
from crossflops.ir.reconciliation import Explanation, Reconciliation
from crossflops.reconcile.walk import PER_MAC
from crossflops.report.model_numbers import ConventionNumber, ModelNumbers
from crossflops.report.report import Report
from crossflops.report.sweep import NATIVE, SweepCase, SweepRow
from crossflops.threads import filter_warnings
from crossflops.verbs.compare.compare import Comparison, compare_with_tools
from crossflops.verbs.model_numbers import choose_conventions, predict_model_numbers
from crossflops.verbs.sweep.keys import RowKey
from crossflops.verbs.sweep.store import SweepStore
from crossflops.verbs.sweep.suite import build_request

Rows = dict[tuple[str, str], SweepRow]  # by kind and tool


class SweepTask(msgspec.Struct, frozen=True, kw_only=True):
    """A case with the rows that the store does not have yet.

    `target` is the model for this process, where that of the case is a path that another folder
    does not have. `store` is the folder in which the rows are recorded at once, "" where the
    caller records them. With `is_alone` the process does nothing else: tools may be forked. Each
    tool may use `timeout` seconds and `memory` bytes of address space, None for all there are.
    """

    case: SweepCase
    target: str
    keys: tuple[RowKey, ...]
    store: str = ""
    is_alone: bool = False
    timeout: float
    memory: int | None = None

    def tools_without_row(self, kind: str) -> tuple[str, ...]:
        """Return the tools of this kind that have no row yet."""
        return tuple(key.tool for key in self.keys if key.kind == kind)


class CountedCase(msgspec.Struct, frozen=True):
    """The contents of the rows of a case by their keys, and the seconds that they took."""

    contents: dict[str, dict[str, Any]]
    seconds: float


def count_case(task: SweepTask) -> CountedCase:
    """Count a case with its tools, and record its rows if the task has a store.

    What goes wrong with the model is in the rows. Raises InputError where the store cannot be
    written.
    """
    begun = time.perf_counter()
    with filter_warnings("ignore"):  # each model would warn of its usual input
        rows = _count_rows(task)
    result = CountedCase(row_contents_by_key(task, rows), time.perf_counter() - begun)
    record_case_rows(task.store, result)
    return result


def record_case_rows(store: str, result: CountedCase) -> None:
    """Write the rows of a case into a store, if it is one."""
    if store:
        SweepStore(Path(store)).record_rows(result.contents, result.seconds)


def row_contents_by_key(task: SweepTask, rows: Rows) -> dict[str, dict[str, Any]]:
    """Return what the store keeps of the rows, by their keys; a row that is not there is a
    failure.
    """
    contents = {}
    for key in task.keys:
        row = rows.get((key.kind, key.tool)) or _failure_row(
            task.case, key, "accept", "it does not count models of this kind"
        )
        contents[key.digest] = {"row": msgspec.to_builtins(row), "versions": key.versions}
    return contents


def failure_rows_of_case(task: SweepTask, message: str) -> CountedCase:
    """Return the rows of a case whose process ended: failures with this message."""
    rows = _failure_rows(task, "crash", message)
    return CountedCase(row_contents_by_key(task, rows), 0.0)


def _failure_rows(task: SweepTask, stage: str, message: str) -> Rows:
    """Return a failure for each row of a task."""
    return {
        (key.kind, key.tool): _failure_row(task.case, key, stage, message) for key in task.keys
    }


def _failure_row(case: SweepCase, key: RowKey, stage: str, message: str) -> SweepRow:
    """Return a row without a number."""
    tool, _, edition = key.tool.partition("@")
    return SweepRow(
        case=case, tool=tool, kind=key.kind, version=edition, stage=stage, failure=message
    )


def _count_rows(task: SweepTask) -> Rows:
    """Return the rows of a case by kind and tool; if the model cannot be counted, each is a
    failure.
    """
    rows: Rows = {}
    try:
        request = build_request(msgspec.structs.replace(task.case, target=task.target))
        tools, conventions = task.tools_without_row("run"), task.tools_without_row("predicted")
        if tools or not conventions:
            comparison = Comparison(tools=tools, timeout=task.timeout, memory=task.memory)
            single_threaded = nullcontext if task.is_alone else None
            report = compare_with_tools(request, comparison, lambda _: None, single_threaded)
            rows |= _rows_of_report(task.case, report)
        if conventions:
            numbers = predict_model_numbers(request, choose_conventions(conventions))
            rows = _rows_of_numbers(task.case, numbers) | rows
    except CrossflopsError as error:
        return _failure_rows(task, "count", error.message) | rows
    except (Exception, SystemExit) as error:  # a model may raise whatever it likes, or leave
        return _failure_rows(task, "count", error_words(error)) | rows
    return rows


# The rows of a report.


def _rows_of_report(case: SweepCase, report: Report) -> Rows:
    """Return the native row and those of the tools of a comparison."""
    native = SweepRow(
        case=case,
        tool=NATIVE,
        kind="native",
        version=(report.made_with or {}).get("crossflops", ""),
        unit="MACs",
        total=report.compared,
        macs=report.compared,
        flops=report.totals.flops,
        params=report.params,
        uncounted=len(report.uncounted),
        shapes=tuple("x".join(map(str, spec.shape)) or "scalar" for spec in report.model.inputs),
        residual=0,
    )
    rows: Rows = {("native", NATIVE): native}
    for answer in report.profiles or ():
        rows["run", answer.tool] = _row_of_tool_answer(native, answer, report)
    return rows


def _row_of_tool_answer(native: SweepRow, answer: Profile | Failure, report: Report) -> SweepRow:
    """Return the row of a tool that ran, with the causes of its difference."""
    row = msgspec.structs.replace(
        native,
        tool=answer.tool,
        kind="run",
        version="",
        unit="",
        total=None,
        uncounted=0,
        residual=None,
    )
    if isinstance(answer, Failure):
        return msgspec.structs.replace(row, stage=answer.stage, failure=answer.message)
    row = msgspec.structs.replace(
        row, version=answer.version, unit=answer.printed_as, total=answer.total
    )
    account = report.reconciliation(answer.tool)
    per_mac = account.unit if isinstance(account.unit, int) else 1
    if isinstance(account.obstacle, str):
        return msgspec.structs.replace(row, per_mac=per_mac, stage="account")
    return msgspec.structs.replace(
        row,
        per_mac=per_mac,
        causes=_causes_of_account(account, per_mac),
        residual=account.residual,
    )


def _causes_of_account(account: Reconciliation, per_mac: int) -> dict[str, Amount]:
    """Return the amounts of a difference by cause, each in the unit of the tool.

    An explanation in MACs is scaled by the step of the unit, which is booked last. Here each has
    its own part of that step, and the unit what the native count would have.
    """
    return _with_unit_cause(
        [
            (step.cause, step.amount + (per_mac - 1) * _explanation_macs(step))
            for step in account.explanations
            if step.cause != PER_MAC
        ],
        account.delta - account.residual,
    )


def _explanation_macs(step: Explanation) -> int:
    """Return by how many MACs an explanation changes a count; 0 if not in MACs."""
    return step.macs if isinstance(step.macs, int) else 0


def _with_unit_cause(amounts: list[tuple[str, Amount]], difference: Amount) -> dict[str, Amount]:
    """Return the sum of the amounts of each cause; what they leave of `difference` is that of the
    cause "unit" (what a tool counts for one MAC). Causes of 0 are left out.
    """
    causes: dict[str, Amount] = {}
    for cause, amount in amounts:
        causes[cause] = causes.get(cause, 0) + amount
    causes[PER_MAC] = difference - sum(causes.values())
    return {cause: amount for cause, amount in causes.items() if amount}


# The rows of conventions, which are predicted.


def _rows_of_numbers(case: SweepCase, numbers: ModelNumbers) -> Rows:
    """Return the native row and those of the conventions of a model."""
    native = SweepRow(
        case=case,
        tool=NATIVE,
        kind="native",
        version=numbers.made_with.get("crossflops", ""),
        unit="MACs",
        total=numbers.macs,
        macs=numbers.macs,
        flops=numbers.flops,
        params=numbers.params,
        uncounted=numbers.uncounted,
        shapes=numbers.inputs,
        residual=0,
    )
    rows: Rows = {("native", NATIVE): native}
    for number in numbers.numbers:
        rows["predicted", f"{number.tool}@{number.edition}"] = _row_of_convention_number(
            native, number
        )
    for name, message in numbers.refused.items():
        tool, _, edition = name.partition("@")
        rows["predicted", name] = msgspec.structs.replace(
            native, tool=tool, kind="predicted", version=edition, unit="", total=None,
            uncounted=0, residual=None, stage="predict", failure=message,
        )  # fmt: skip
    return rows


def _row_of_convention_number(native: SweepRow, number: ConventionNumber) -> SweepRow:
    """Return the row of a convention, with the causes of its difference where they are known."""
    amounts = [(row.cause, row.amount) for row in number.causes if row.cause != PER_MAC]
    is_explained = bool(number.causes) or number.total == native.macs
    return msgspec.structs.replace(
        native,
        tool=number.tool,
        kind="predicted",
        version=number.edition,
        unit=number.unit,
        per_mac=number.per_mac,
        total=number.total,
        uncounted=0,
        causes=_with_unit_cause(amounts, number.total - (native.macs or 0))
        if is_explained
        else {},
        residual=0 if is_explained else None,
    )
