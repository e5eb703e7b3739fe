"""The verb `check`: the budgets of a configuration, held against a count and a baseline.

The table is `[budgets]` of `crossflops.toml`, or `[tool.crossflops.budgets]` of `pyproject.toml`,
with a table for each target. `target` names the model where a model has several budgets::

    [budgets."model.onnx"]
    rules = ["macs <= 4.2G", "params <= +1%", "uncounted == 0"]
    inputs = ["1x3x224x224"]

    [budgets.batch-of-8]
    target = "model.onnx"
    rules = ["macs <= 33.6G"]
    inputs = ["8x3x224x224"]

The configuration nearest to a model holds: that of its folder, or of one above, which has a
budget for it.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from crossflops.errors import CrossflopsError, InputError, UnknownNameError, nearest
from crossflops.files import locked, write
from crossflops.plugins.elsewhere import settings, title
from crossflops.report.budgets import (
    NATIVE,
    RESIDUAL,
    Baseline,
    BudgetRule,
    Check,
    Checks,
    RecordedCount,
    failed_checks,
    hold_rules,
    record_count,
)
from crossflops.report.report import SCHEMA, Report
from crossflops.targets.request import Request
from crossflops.targets.target import imports_restored
from crossflops.verbs.count import native_count

BASELINE = "crossflops-baseline.json"  # beside the configuration
_TABLE = "budgets"
_OPTIONS = ("inputs", "inputs_file", "arguments", "dims", "trips", "branches", "sizes")
_CONFLICT = b"<<<<<<< "
_LFS = b"version https://git-lfs"


class Budget(msgspec.Struct, frozen=True):
    """The rules about a model. `name` is the key of its entry in the baseline.

    `options` say how the model is built and run; `model` is there for an object.
    """

    name: str
    target: str
    rules: tuple[BudgetRule, ...]
    options: dict[str, Any]
    model: Any = None
    origin: str = ""

    def request(self, conventions: Sequence[str] = ()) -> Request:
        """Return the request to count."""
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
    """Hold every rule about these targets, or about all; `update` writes the baseline first.

    Each target has the configuration nearest to it; without targets, that of `folder` (the current
    one) or above holds. With `if_budgeted` a target without a budget is named, and else refused.
    Raises InputError where no budget is set, or one that cannot be understood.
    """
    start = (folder or Path.cwd()).resolve()
    if not targets:
        file, table = _configuration(start)
        budgets = _budgets(file, table)
        return _hold_in(file, budgets, update, tell, start, is_whole=True)
    chosen: dict[Path, list[Budget]] = {}
    without = []
    for target in targets:
        file, budgets = _budgets_of(target, start)
        if budgets:
            chosen.setdefault(file, []).extend(budgets)
        elif if_budgeted:
            without.append(target)
        else:
            _refuse_target(target, start)
    parts = [_hold_in(file, rows, update, tell, start) for file, rows in chosen.items()]
    return Checks(
        checks=tuple(row for part in parts for row in part.checks),
        baseline=next((part.baseline for part in parts if part.baseline), ""),
        unbudgeted=tuple(without),
    )


def _hold_in(
    file: Path,
    budgets: Sequence[Budget],
    update: bool,
    tell: Callable[[str], None],
    start: Path,
    is_whole: bool = False,
) -> Checks:
    """Hold budgets in the folder of their configuration; rows bear names as seen from `start`."""
    with contextlib.chdir(file.parent):
        checks = hold_budgets(budgets, file.parent / BASELINE, update, tell, is_whole)
    below = os.path.relpath(file.parent.resolve(), start)
    if below.startswith(os.pardir) or below == os.curdir:
        return checks
    rows = (
        msgspec.structs.replace(row, target=os.path.join(below, row.target))
        for row in checks.checks
    )
    return msgspec.structs.replace(checks, checks=tuple(rows))


def hold_budgets(
    budgets: Sequence[Budget],
    path: Path,
    update: bool,
    tell: Callable[[str], None],
    is_whole: bool = False,
) -> Checks:
    """Hold the rules of these budgets against the baseline of that path; `update` writes it first.

    `is_whole` says that these are all budgets of the configuration: entries of others are dropped
    from the baseline then, but those of tests.
    """
    baseline = _read(path, anew=update and is_whole)
    counts: dict[str, RecordedCount | CrossflopsError] = {}
    for budget in budgets:
        try:
            counts[budget.name] = record_count(
                _report(budget, tell), budget.options, budget.origin
            )
        except CrossflopsError as error:
            counts[budget.name] = error
    if update:
        now = {name: row for name, row in counts.items() if isinstance(row, RecordedCount)}
        baseline = _update(path, now, set(counts) if is_whole else None)
    rows: list[Check] = []
    for budget in budgets:
        counted = counts[budget.name]
        if isinstance(counted, RecordedCount):
            before = baseline.models.get(budget.name)
            rows += hold_rules(budget.name, budget.rules, counted, before)
        else:
            rows += failed_checks(budget.name, budget.rules, counted)
    return Checks(checks=tuple(rows), baseline=path.name if baseline.models else "")


def _update(path: Path, now: Mapping[str, RecordedCount], known: set[str] | None) -> Baseline:
    """Write these counts into the baseline, which may have changed since it was read.

    Of all names that are `known`, entries of others are dropped, but those of tests.
    """
    with locked(path):
        models = dict(_read(path, anew=known is not None).models)
        if known is not None:
            models = {
                name: row
                for name, row in models.items()
                if name in known or row.origin or "::" in name
            }
        baseline = Baseline(models={**models, **now})
        text = msgspec.json.format(msgspec.json.encode(baseline), indent=2) + b"\n"
        write(path, text, "make it writable")
    return baseline


# The configuration of a target.


def _configuration(folder: Path) -> tuple[Path, Mapping[str, Any]]:
    """Return the nearest file from the folder upwards that sets budgets, and its table."""
    for place in (folder, *folder.parents):
        file, table = settings(_TABLE, place)
        if table and file.parent == place:
            return file, table
    file, table = settings(_TABLE, folder)
    if table:
        return file, table
    raise InputError(
        "no file here or above sets a budget",
        f'write {title(_TABLE, file)[:-1]}."model.onnx"] with rules = ["macs <= 4.2G"] into'
        f" {file.name}",
    )


def _budgets_of(target: str, start: Path) -> tuple[Path, list[Budget]]:
    """Return the configuration nearest to a target that has a budget for it, and its budgets."""
    place = Path(os.path.normpath(start / target.partition(":")[0]))
    folder = place.parent if place.exists() else start
    file = start
    for file, table in _configurations(folder):
        inside = _from_folder(target, start, file.parent)
        budgets = [
            budget
            for name, budget in _each_budget(file, table)
            if target == name or inside in (name, budget.target)
        ]
        if budgets:
            return file, budgets
    return file, []


def _configurations(folder: Path) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Return every file from the folder upwards that sets budgets, the nearest first."""
    seen: set[Path] = set()
    for place in (folder, *folder.parents):
        file, table = settings(_TABLE, place)
        if table and file not in seen:
            seen.add(file)
            yield file, table


def _from_folder(target: str, start: Path, folder: Path) -> str:
    """Return a target that is typed in `start` as it is written in a file of `folder`."""
    path, colon, rest = target.partition(":")
    place = start / path
    if not place.exists():
        return _plain(target)
    return os.path.relpath(os.path.normpath(place), folder) + colon + rest


def _plain(target: str) -> str:
    """Return a target with its path in one spelling: ./a//m.onnx is a/m.onnx."""
    return os.path.normpath(target)


def _refuse_target(target: str, start: Path) -> None:
    file, table = _configuration(start)
    raise UnknownNameError(f"{file} sets no budget for {target}", nearest(target, table))


def _budgets(file: Path, table: Mapping[str, Any]) -> list[Budget]:
    return [budget for _, budget in _each_budget(file, table)]


def _each_budget(file: Path, table: Mapping[str, Any]) -> Iterator[tuple[str, Budget]]:
    for name, row in table.items():
        yield name, _budget(name, row, file)


def _budget(name: str, row: Any, file: Path) -> Budget:
    options = dict(row) if isinstance(row, dict) else {"rules": row}
    rules, target = options.pop("rules", None), options.pop("target", name)
    if not isinstance(rules, list) or not all(isinstance(text, str) for text in rules):
        hint = 'write rules = ["macs <= 1G"]'
        raise InputError(f"{name} in {file} has no list of rules", hint)
    if not rules:
        raise InputError(
            f"{name} in {file} has an empty list of rules", 'write rules = ["macs <= 1G"]'
        )
    if not isinstance(target, str):
        raise InputError(f"target of {name} in {file} is no text", 'write target = "model.onnx"')
    strays = [option for option in options if option not in _OPTIONS]
    if strays:
        raise InputError(
            f"{name} in {file} sets {strays[0]}",
            nearest(strays[0], _OPTIONS, f"it may set rules, target, {', '.join(_OPTIONS)}"),
        )
    parsed = tuple(map(BudgetRule.of, rules))
    for rule in parsed:
        refuse_unknown(rule)
    return Budget(_plain(name), _plain(target), parsed, options)


def refuse_unknown(rule: BudgetRule) -> None:
    """Raise UnknownNameError for a rule about a number that no count has."""
    from crossflops.tools.registry import conventions

    ids = [convention.tool for convention in conventions()]
    if rule.name.partition("@")[0] in (*NATIVE, RESIDUAL, *ids):
        return
    there = f"there are {', '.join((*NATIVE, RESIDUAL))}, and the ids of `crossflops tools`"
    raise UnknownNameError(
        f"the budget {rule.text!r} names {rule.name}, which no count has",
        nearest(rule.name, (*NATIVE, RESIDUAL, *ids), there),
    )


def _report(budget: Budget, tell: Callable[[str], None]) -> Report:
    """Count by the conventions that rules name; a rule about residuals runs the tools."""
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


# The committed file.


def _read(path: Path, anew: bool) -> Baseline:
    """Return the baseline; an empty one where it is not there, or is broken and written `anew`.

    Raises InputError for a broken file, and always for one of a newer schema.
    """
    if not path.is_file():
        return Baseline()
    try:
        data = path.read_bytes()
        schema = _schema(data)
        if schema != SCHEMA:
            raise InputError(
                f"{path} has the schema {schema!r}, and this crossflops reads {SCHEMA}",
                "install the crossflops that wrote it, or a newer one",
            )
        return msgspec.json.decode(data, type=Baseline)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        if anew and not isinstance(error, OSError):
            return Baseline()
        raise InputError(
            f"{path} is no baseline: {_reason(path, error)}",
            "`crossflops check --update` without a target writes it anew",
        ) from error


def _schema(data: bytes) -> Any:
    return msgspec.json.decode(data, type=dict[str, Any]).get("schema", SCHEMA)


def _reason(path: Path, error: Exception) -> str:
    with contextlib.suppress(OSError):
        data = path.read_bytes()
        if _CONFLICT in data:
            return "it has the marks of a conflict of git"
        if data.startswith(_LFS):
            return "it is a pointer of Git LFS; `git lfs pull` brings the file"
    return str(error)
