"""The verb `check`: the budgets of a configuration, held against a count and a baseline.

The table is `[budgets]` of `crossflops.toml`, or `[tool.crossflops.budgets]` of `pyproject.toml`,
with a table for each target::

    [budgets."model.onnx"]
    rules = ["macs <= 4.2G", "params <= +1%", "uncounted == 0"]
    inputs = ["1x3x224x224"]
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from crossflops.errors import InputError, UnknownNameError, nearest
from crossflops.files import write
from crossflops.plugins.elsewhere import settings, title
from crossflops.report.budgets import (
    NATIVE,
    RESIDUAL,
    Baseline,
    BudgetRule,
    Check,
    Checks,
    RecordedCount,
    checked,
    recorded,
    values,
)
from crossflops.report.report import Report
from crossflops.targets.request import Request
from crossflops.targets.target import imports_restored
from crossflops.verbs.count import native_count

BASELINE = "crossflops-baseline.json"  # beside the configuration
_TABLE = "budgets"
_OPTIONS = ("inputs", "inputs_file", "arguments", "dims", "trips", "branches", "sizes")


class Budget(msgspec.Struct, frozen=True):
    """The rules about a model, which bears the name of its target; `model` is there for an object.

    `options` say how it is built and run.
    """

    target: str
    rules: tuple[BudgetRule, ...]
    options: dict[str, Any]
    model: Any = None

    def request(self, conventions: Sequence[str] = ()) -> Request:
        """What is to be counted."""
        model = self.target if self.model is None else self.model
        return Request.of(model, **self.options, as_=tuple(conventions))


@imports_restored()
def check(
    targets: Sequence[str],
    update: bool,
    tell: Callable[[str], None],
    folder: Path | None = None,
    if_budgeted: bool = False,
) -> Checks:
    """Every rule about these targets, or about all; with `update` the baseline is written first.

    The configuration is that of `folder` (the current one) or above, and targets are found from
    where it lies. With `if_budgeted` a target without a budget is named, and else refused. Raises
    InputError where no budget is set, or one that cannot be understood.
    """
    file, table = settings(_TABLE, folder)
    without = [target for target in targets if target not in table] if if_budgeted else []
    if table and without and len(without) == len(targets):
        return Checks(checks=(), unbudgeted=tuple(without))
    budgets = _chosen(file, table, [target for target in targets if target not in without])
    with contextlib.chdir(file.parent):
        checks = held(budgets, file.parent / BASELINE, update, tell)
    return msgspec.structs.replace(checks, unbudgeted=tuple(without))


def held(
    budgets: Sequence[Budget], path: Path, update: bool, tell: Callable[[str], None]
) -> Checks:
    """Every rule of these budgets against the baseline of that path; `update` writes it first."""
    baseline = _read(path)
    rows: list[Check] = []
    reports = {budget.target: _report(budget, tell) for budget in budgets}
    now = {target: recorded(report, values(report)) for target, report in reports.items()}
    if update:
        baseline = msgspec.structs.replace(baseline, models={**baseline.models, **now})
        _write(path, baseline)
    for budget in budgets:
        before: RecordedCount | None = baseline.models.get(budget.target)
        rows += [checked(budget.target, rule, now[budget.target], before) for rule in budget.rules]
    return Checks(checks=tuple(rows), baseline=path.name if baseline.models else "")


def _chosen(file: Path, table: Mapping[str, Any], targets: Sequence[str]) -> list[Budget]:
    if not table:
        raise InputError(
            "no file here or above sets a budget",
            f'write {title(_TABLE, file)[:-1]}."model.onnx"] with rules = ["macs <= 4.2G"] into'
            f" {file.name}",
        )
    strange = next((target for target in targets if target not in table), None)
    if strange is not None:
        raise UnknownNameError(f"{file} sets no budget for {strange}", nearest(strange, table))
    return [_budget(target, table[target], file) for target in targets or table]


def _budget(target: str, row: Any, file: Path) -> Budget:
    options = dict(row) if isinstance(row, dict) else {"rules": row}
    rules = options.pop("rules", None)
    if not isinstance(rules, list) or not all(isinstance(text, str) for text in rules):
        hint = 'write rules = ["macs <= 1G"]'
        raise InputError(f"{target} in {file} has no list of rules", hint)
    strays = [name for name in options if name not in _OPTIONS]
    if strays:
        raise InputError(
            f"{target} in {file} sets {strays[0]}", f"it may set rules, {', '.join(_OPTIONS)}"
        )
    return Budget(target, tuple(map(BudgetRule.of, rules)), options)


def _report(budget: Budget, tell: Callable[[str], None]) -> Report:
    """The count, by the conventions that rules name; a rule about residuals runs the tools."""
    tell(f"counting {budget.target}")
    names = {rule.name for rule in budget.rules}
    conventions = tuple(sorted(names - {*NATIVE, RESIDUAL}))
    report, _ = native_count(budget.request(conventions))
    if RESIDUAL not in names:
        return report
    from crossflops.verbs.compare.compare import Comparison, compare

    compared = compare(budget.request(), Comparison(), tell)
    if not compared.reconciliations:
        raise InputError(
            f"no tool counted {budget.target}, so it has no residual", "see `crossflops tools`"
        )
    return msgspec.structs.replace(
        report, profiles=compared.profiles, reconciliations=compared.reconciliations
    )


def _read(path: Path) -> Baseline:
    if not path.is_file():
        return Baseline()
    try:
        return msgspec.json.decode(path.read_bytes(), type=Baseline)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path} is no baseline: {error}", "`crossflops check --update` writes one"
        ) from error


def _write(path: Path, baseline: Baseline) -> None:
    text = msgspec.json.format(msgspec.json.encode(baseline), indent=2) + b"\n"
    write(path, text, "make it writable")
