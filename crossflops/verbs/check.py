"""Run the verb `check`: compare the budgets of a configuration with a count and a baseline.

Where the budgets stand, and what they may say, is in `budget_configuration`.
"""

import codecs
import contextlib
import glob
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from crossflops.errors import CrossflopsError, InputError
from crossflops.files import locking_path, write_file
from crossflops.ir.profile import Amount
from crossflops.report.budgets import Check, Checks, Earlier, check_rules, failure_checks
from crossflops.report.recorded import (
    FILE_BYTES,
    LATENCY,
    MODEL_BYTES,
    NATIVE,
    NODES,
    RESIDUAL,
    Baseline,
    RecordedCount,
    record_count,
)
from crossflops.report.report import SCHEMA, Report
from crossflops.targets import is_onnx_target
from crossflops.targets.option_forms import with_config_keys
from crossflops.targets.target import restoring_imports
from crossflops.verbs.budget_configuration import (
    Budget,
    find_budget_configuration,
    find_target_budgets,
    parse_budget_table,
    reject_target_without_budget,
    replace_by_nearer_budgets,
)
from crossflops.verbs.count import native_count

BASELINE = "crossflops-baseline.json"  # beside the configuration
_CONFLICT = b"<<<<<<< "
_LFS = b"version https://git-lfs"


def refuse_contradictions(
    targets: Sequence[str], update: bool, against: str | None, if_budgeted: bool
) -> None:
    """Raise InputError if options of `check` have no effect with other options, or if the git
    repository does not have the revision `against`.
    """
    if against is not None:
        if update:
            raise InputError(
                "--update has no effect here: --against compares with a git revision and does not "
                "use the baseline",
                "leave out --against, or leave out --update",
            )
        _reject_unknown_revision(against)
    if if_budgeted and not targets:
        raise InputError(
            "--if-budgeted has no effect here: all targets of this configuration have a budget",
            "add a TARGET, or leave out --if-budgeted",
        )


def _reject_unknown_revision(revision: str) -> None:
    """Raise InputError if the git repository does not have this revision."""
    from crossflops.verbs.revisions import reject_unknown_git_revision

    try:
        reject_unknown_git_revision(revision)
    except InputError as error:
        raise InputError(f"--against: {error.message}", error.hint) from error


@restoring_imports()
def check_budgets(
    targets: Sequence[str],
    update: bool,
    on_progress: Callable[[str], None],
    folder: Path | None = None,
    if_budgeted: bool = False,
    revision: str = "",
) -> Checks:
    """Return the outcome of each rule about these targets, or about all budgets without targets;
    `update` first writes the baseline.

    Each target has the configuration nearest to it; without targets, that of `folder` (the current
    one) or above holds. With `if_budgeted` a target without a budget is named, and else refused.
    With a `revision` of git growth is that since then, and no baseline is read.
    Raises InputError where no budget is set, or one that cannot be understood.
    """
    start = (folder or Path.cwd()).resolve()
    chosen: dict[Path, dict[str, Budget]] = {}  # by name: two targets may have one budget
    without, full = [], None
    if not targets:
        full, table = find_budget_configuration(start)
        chosen = replace_by_nearer_budgets(full, parse_budget_table(full, table))
    for target in targets:
        file, budgets = find_target_budgets(target, start)
        if budgets:
            chosen.setdefault(file, {}).update({budget.name: budget for budget in budgets})
        elif if_budgeted:
            without.append(target)
        else:
            reject_target_without_budget(target, start)
    parts = [
        _check_budgets_of_file(
            file, list(rows.values()), update, on_progress, start, file == full, revision
        )
        for file, rows in chosen.items()
    ]
    return Checks(
        checks=tuple(row for part in parts for row in part.checks),
        baseline=next((part.baseline for part in parts if part.baseline), ""),
        unbudgeted=tuple(without),
    )


def _check_budgets_of_file(
    file: Path,
    budgets: Sequence[Budget],
    update: bool,
    on_progress: Callable[[str], None],
    start: Path,
    is_whole: bool = False,
    revision: str = "",
) -> Checks:
    """Return the outcomes of the budgets of one configuration file; its folder is the current
    folder meanwhile. Paths are relative to `start`.
    """
    with contextlib.chdir(file.parent):
        if revision:
            checks = check_against_revision(budgets, revision, on_progress)
        else:
            checks = check_against_baseline(
                budgets, file.parent / BASELINE, update, on_progress, is_whole
            )
    below = os.path.relpath(file.parent.resolve(), start)
    is_below = not below.startswith(os.pardir) and below != os.curdir

    def path_from_start(name: str) -> str:
        """Return a path that is relative to the configuration's folder as one that is relative to
        `start`.
        """
        return os.path.normpath(os.path.join(below, name)) if is_below and name else name

    rows = (
        msgspec.structs.replace(
            row,
            target=path_from_start(row.target),
            moved_from=path_from_start(row.moved_from),
            file=os.path.relpath(file, start),
        )
        for row in checks.checks
    )
    return msgspec.structs.replace(checks, checks=tuple(rows))


def check_against_baseline(
    budgets: Sequence[Budget],
    path: Path,
    update: bool,
    on_progress: Callable[[str], None],
    is_whole: bool = False,
) -> Checks:
    """Return the outcomes of budgets compared with the baseline file; `update` first writes the
    baseline.

    `is_whole` says that these are all budgets of the configuration: entries of others are dropped
    from the baseline then, but those of tests.
    """
    baseline = _read_baseline(path, tolerate_invalid=update and is_whole)
    counts = _count_all_budgets(budgets, on_progress)
    if update:
        now = {
            name: msgspec.structs.replace(row, missing=msgspec.UNSET)
            for name, row in counts.items()
            if isinstance(row, RecordedCount)
        }
        baseline = _write_baseline(path, now, set(counts) if is_whole else None)
    rows = [
        row
        for budget in budgets
        for row in _budget_checks(
            budget, counts[budget.name], _earlier_count_in_baseline(budget, counts, baseline)
        )
    ]
    return Checks(checks=tuple(rows), baseline=path.name if baseline.models else "")


def check_against_revision(
    budgets: Sequence[Budget], revision: str, on_progress: Callable[[str], None]
) -> Checks:
    """Return the outcomes of budgets compared with the counts of the same models at a git
    revision.

    Raises InputError for a revision that is not here.
    """
    from crossflops.verbs.revisions import (
        checking_out_revision,
        paths_before_renames,
        reject_unknown_git_revision,
    )

    reject_unknown_git_revision(revision)
    counts = _count_all_budgets(budgets, on_progress)
    names = paths_before_renames(revision, (budget.target.partition(":")[0] for budget in budgets))
    rows: list[Check] = []
    with checking_out_revision(revision) as folder:
        for budget in budgets:
            old = _replace_target_path(budget.target, names)
            earlier = Earlier()
            if isinstance(counts[budget.name], RecordedCount):
                on_progress(f"counting {old} at {revision}")
                earlier = _earlier_count_at_revision(budget, old, revision, folder)
            rows += _budget_checks(budget, counts[budget.name], earlier)
    return Checks(checks=tuple(rows), baseline=revision)


def _replace_target_path(target: str, names: Mapping[str, str]) -> str:
    """Return the target with its file path replaced as `names` says ({path: other path})."""
    path, colon, rest = target.partition(":")
    return names.get(path, path) + colon + rest


def _earlier_count_at_revision(budget: Budget, old: str, revision: str, folder: Path) -> Earlier:
    """Return the count of a budget's model at a git revision, whose files are in `folder`, or why
    it is unknown.
    """
    from crossflops.verbs.revisions import count_in_worktree, path_at_revision, reject_lfs_pointer

    then = msgspec.structs.replace(budget, target=old)
    moved_from = old if old != budget.target else ""
    path, colon, rest = old.partition(":")
    conventions = _budget_conventions(budget)
    remedy = f"give inputs that the model accepts at {revision}, too"
    try:
        if Path(budget.target.partition(":")[0]).exists():
            index = path_at_revision(revision, path)
            if index is None:
                return Earlier(is_new=True)
            then = msgspec.structs.replace(then, target=index + colon + rest)
        elif not folder.exists():
            return Earlier(is_new=True)
        if then.request().is_file:
            reject_lfs_pointer(then.request(), folder, revision)
            file = str(Path(os.path.normpath(folder / then.target)))
            record = _measure_budget_numbers(
                msgspec.structs.replace(then, target=file), _ignore_check_progress
            )
        else:
            report = count_in_worktree(then.request(conventions), folder, revision)
            record = record_count(report, budget.options)
    except CrossflopsError as error:
        reason = error.message.replace(f"{folder}{os.sep}", "")
        message = f"needs the count at {revision}, which failed: {reason}"
        return Earlier(message=message, hint=error.hint)
    return Earlier(
        record=record,
        moved_from=moved_from,
        message=f"is unknown at {revision}",
        hint="compare with a baseline instead: `crossflops check --update` writes one",
        name=f"model at {revision}",
        remedy=remedy,
    )


def _ignore_check_progress(_: str) -> None:
    """Ignore a progress message; used for counts that are not shown."""


def _count_all_budgets(
    budgets: Sequence[Budget], on_progress: Callable[[str], None]
) -> dict[str, RecordedCount | CrossflopsError]:
    """Return {budget name: numbers of its model, or the error that prevented the count}."""
    counts: dict[str, RecordedCount | CrossflopsError] = {}
    for budget in budgets:
        try:
            counts[budget.name] = _measure_budget_numbers(budget, on_progress)
        except CrossflopsError as error:
            counts[budget.name] = _with_moved_file_hint(budget, error)
    return counts


def _with_moved_file_hint(budget: Budget, error: CrossflopsError) -> CrossflopsError:
    """Return the error of a missing model file, with a hint where a file of that name is; other
    errors unchanged.
    """
    from crossflops.verbs.revisions import find_files_by_name

    if glob.has_magic(budget.target) and is_onnx_target(budget.target):
        return InputError(
            f"no file matches {budget.target}",
            "correct `target` of the budget, a pattern of files",
        )
    name = Path(budget.target).name
    if ":" in name or not Path(name).suffix or Path(budget.target).exists():
        return error
    if indices := find_files_by_name(name):
        hint = (
            f"a file of that name exists at {' and '.join(indices)}: write this path as the "
            "target of the budget"
        )
        return InputError(error.message, hint)
    return error


def _earlier_count_in_baseline(
    budget: Budget,
    counts: Mapping[str, RecordedCount | CrossflopsError],
    baseline: Baseline,
) -> Earlier:
    """Return the count that the baseline has for a budget; for a new name, that of a missing file
    with the same numbers.
    """
    models, now = baseline.models, counts[budget.name]
    if budget.name in models or not isinstance(now, RecordedCount) or budget.origin:
        return Earlier(record=models.get(budget.name))
    for name, entry in models.items():
        is_other = name not in counts and not entry.origin
        if is_other and _is_missing_model_file(name) and _is_same_count(entry, now):
            return Earlier(record=entry, moved_from=name)
    return Earlier()


def _is_missing_model_file(name: str) -> bool:
    """Return whether the name of a baseline entry is a path to a model file that no longer
    exists.
    """
    path = name.partition(":")[0]
    return (is_onnx_target(path) or path.endswith(".py")) and not Path(path).exists()


def _is_same_count(entry: RecordedCount, now: RecordedCount) -> bool:
    """Return whether two counts have equal requests and modules, and no number that differs."""
    known = (
        entry.values.items() <= now.values.items() or entry.values.items() >= now.values.items()
    )
    return known and entry.modules == now.modules and entry.request == now.request


def _budget_checks(
    budget: Budget, now: RecordedCount | CrossflopsError, earlier: Earlier
) -> Iterator[Check]:
    """Yield the outcome of each rule of a budget; failed checks if the model could not be
    counted.
    """
    if isinstance(now, RecordedCount):
        rows = check_rules(budget.name, budget.rules, budget.parts, now, earlier)
    else:
        rows = failure_checks(budget.name, budget.rules, budget.parts, now)
    yield from (_with_configuration_keys(row, budget) for row in rows)


def _with_configuration_keys(row: Check, budget: Budget) -> Check:
    """Return the check; in its error, options of the command line are replaced by the keys of the
    configuration file.
    """
    if not budget.file:
        return row
    return msgspec.structs.replace(
        row, error=with_config_keys(row.error), hint=with_config_keys(row.hint)
    )


def _write_baseline(
    path: Path, now: Mapping[str, RecordedCount], known: set[str] | None
) -> Baseline:
    """Write the counts `now` into the baseline file, under a lock; return the new baseline.

    Of all names that are `known`, entries of others are dropped, but those of tests.
    """
    with locking_path(path):
        models = dict(_read_baseline(path, tolerate_invalid=known is not None).models)
        if known is not None:
            models = {
                name: row
                for name, row in models.items()
                if name in known or row.origin or "::" in name
            }
        baseline = Baseline(models={**models, **now})
        text = msgspec.json.format(msgspec.json.encode(baseline), indent=2) + b"\n"
        write_file(path, text, "make the file writable")
    return baseline


def _measure_budget_numbers(budget: Budget, on_progress: Callable[[str], None]) -> RecordedCount:
    """Return all numbers of a budget's model; file size, latency and residual are measured only if
    a rule is about them.

    A number that cannot be measured is `missing` with the reason, and the others are there.
    """
    on_progress(f"counting {budget.target}")
    numbers: dict[str, Amount] = {}
    missing: dict[str, tuple[str, str]] = {}
    report = _count_for_budget(budget, missing)
    if FILE_BYTES in budget.number_names:
        with _storing_error_as_reason(missing, FILE_BYTES):
            numbers[FILE_BYTES] = _model_file_bytes(budget)
    if LATENCY in budget.number_names:
        with _storing_error_as_reason(missing, LATENCY):
            numbers[LATENCY] = _measure_latency_ms(budget, on_progress)
    if RESIDUAL in budget.number_names:
        with _storing_error_as_reason(missing, RESIDUAL):
            report = _with_residuals(budget, report, on_progress)
    record = record_count(report, budget.options, budget.origin, numbers)
    return msgspec.structs.replace(record, missing=missing) if missing else record


@contextlib.contextmanager
def _storing_error_as_reason(missing: dict[str, tuple[str, str]], name: str) -> Iterator[None]:
    """Catch an error of the block and store it in `missing` as the reason why the number `name` is
    unknown.
    """
    try:
        yield
    except CrossflopsError as error:
        missing[name] = f"{name} cannot be measured: {error.message}", error.hint


def _count_for_budget(budget: Budget, missing: dict[str, tuple[str, str]]) -> Report:
    """Return the report of a budget's model, with the tool conventions of its rules; store in
    `missing` why one has no number.

    Each of these is asked for by itself then, since that alone says why there is none.
    """
    asked = _budget_conventions(budget)
    try:
        report, _ = native_count(budget.request(asked))
    except CrossflopsError:
        if not asked:
            raise
        report, _ = native_count(budget.request())  # raises where the model is the reason
    folds = {name for fold in report.folds for name in (fold.tool, f"{fold.tool}@{fold.edition}")}
    for name in asked:
        if name not in folds:
            with _storing_error_as_reason(missing, name):
                native_count(budget.request((name,)))
    return report


def _model_file_bytes(budget: Budget) -> int:
    """Return the size of an ONNX file and its external data in bytes; raise InputError if the
    target is not such a file.
    """
    from crossflops.export.onnx_file import data_locations
    from crossflops.load import read_onnx_model

    if budget.model is not None or not budget.request().is_file:
        raise InputError(
            f"a rule about {FILE_BYTES} needs an ONNX file, but {budget.target} is not one",
            f"use {MODEL_BYTES}, the bytes of its parameters",
        )
    folder = Path(budget.target).parent
    try:
        parts = [
            Path(budget.target),
            *(folder / name for name in data_locations(read_onnx_model(budget.target))),
        ]
        return sum(part.stat().st_size for part in parts)
    except OSError as error:
        raise InputError(
            f"cannot read {error.filename}: {error.strerror}",
            "put the external data file into the folder of the model",
        ) from error


def _measure_latency_ms(budget: Budget, on_progress: Callable[[str], None]) -> float:
    """Return the median time of a run in onnxruntime in milliseconds, measured as `bench` does."""
    from crossflops.bench.timing import Ran
    from crossflops.verbs.bench import Conditions, measure_on_given_inputs

    on_progress(f"running {budget.target}")
    timed = measure_on_given_inputs(budget.request(), Conditions())
    if not isinstance(timed, Ran) or timed.measurement is None:
        reason = getattr(timed, "message", "the model could not be timed")
        raise InputError(
            f"the rule latency_ms cannot be checked: {reason}",
            "run `crossflops bench` for details, or remove the rule latency_ms if the model "
            "cannot run",
        )
    return float(f"{timed.measurement.p50 * 1e3:.4g}")


def _budget_conventions(budget: Budget) -> tuple[str, ...]:
    """Return the names of the tool conventions that the rules of a budget are about, sorted."""
    return tuple(sorted(budget.number_names - {*NATIVE, RESIDUAL, NODES}))


def _with_residuals(budget: Budget, report: Report, on_progress: Callable[[str], None]) -> Report:
    """Return a copy of the report with the results and the residuals of the installed tools, which
    are run.
    """
    from crossflops.verbs.compare.compare import Comparison, compare_with_tools

    compared = compare_with_tools(budget.request(), Comparison(), on_progress)
    if not compared.reconciliations:
        raise InputError(
            f"no tool could count {budget.target}",
            "install a tool that can count this model; `crossflops tools` lists all tools",
        )
    return msgspec.structs.replace(
        report, profiles=compared.profiles, reconciliations=compared.reconciliations
    )


# The committed file.


def _read_baseline(path: Path, tolerate_invalid: bool) -> Baseline:
    """Return the baseline in the file; an empty one if the file is missing, or if it is invalid
    and `tolerate_invalid` is true.

    Raises InputError for a broken file, and always for one of a newer schema.
    """
    if not path.is_file():
        return Baseline()
    try:
        data = path.read_bytes().removeprefix(codecs.BOM_UTF8)
        schema = _baseline_schema_name(data)
        if schema != SCHEMA:
            raise InputError(
                f"{path} has schema {schema!r}, but this release reads schema {SCHEMA}",
                "install the release of crossflops that wrote it, or a newer one",
            )
        return msgspec.json.decode(data, type=Baseline)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        if tolerate_invalid and not isinstance(error, OSError):
            return Baseline()
        raise InputError(
            f"{path} is not a valid baseline: {_unreadable_baseline_reason(path, error)}",
            "restore the file (`git lfs pull` for a pointer), or run `crossflops check --update` "
            "with no target to write it again",
        ) from error


def _baseline_schema_name(data: bytes) -> Any:
    """Return the name of the schema that the JSON of a baseline states; the current schema if it
    states none.
    """
    return msgspec.json.decode(data, type=dict[str, Any]).get("schema", SCHEMA)


def _unreadable_baseline_reason(path: Path, error: Exception) -> str:
    """Return a text that says why a baseline file cannot be read: git conflict, Git LFS pointer,
    or the error.
    """
    with contextlib.suppress(OSError):
        data = path.read_bytes()
        if _CONFLICT in data:
            return "it contains git conflict markers"
        if data.startswith(_LFS):
            return "it is a Git LFS pointer"
    return str(error)
