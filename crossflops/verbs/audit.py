"""Run the verb `audit`: reproduce the figures of a table, each by the conventions that print it.

Every model is counted once for each input. What was counted lies in a folder, if one is given, so
that an audit that was ended goes on where it stood.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from crossflops.errors import CrossflopsError, InputError
from crossflops.files import write_file
from crossflops.report.audit import Audit, PublishedRow, is_reproduced, judge_rows
from crossflops.report.model_numbers import ModelNumbers
from crossflops.report.published import PublishedFigure
from crossflops.targets.request import Request
from crossflops.threads import filter_warnings
from crossflops.verbs.model_numbers import (
    choose_conventions,
    predict_model_numbers,
    with_alternative_arguments,
)
from crossflops.verbs.provenance import framework_versions
from crossflops.verbs.published_tables import PublishedTable, read_published_table
from crossflops.verbs.table import choose_jobs
from crossflops.workers.series import run_series

if TYPE_CHECKING:
    from crossflops.rules.rule import Convention

_LETTERS = 60  # of a name in the name of a file
Build = tuple[str, int | None, str]


class AuditChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The options of an audit.

    `only` are patterns of model names, `limit` is the largest number of models that are counted,
    `as_` are the conventions to try: of none all. `store` is the folder of what was counted,
    `jobs` the number of models that are counted at a time, None for what the machine allows.
    """

    library: str = ""
    as_: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    limit: int | None = None
    store: str = ""
    jobs: int | None = None


class _StoredCount(msgspec.Struct, frozen=True):
    """The stored count of a model, or why there is none; `made_by` is what it depends on."""

    made_by: dict[str, str]
    numbers: ModelNumbers | None = None
    reason: str = ""


_STORE_HINT = "choose another folder with --store"


class _Task(NamedTuple):
    """A model to count, its figures, the conventions to try, and the file for the result."""

    build: Build
    figures: tuple[PublishedFigure, ...]
    as_: tuple[str, ...]
    file: str


def audit_table(
    path: Path, choice: AuditChoice, on_progress: Callable[[str], None] = lambda _: None
) -> Audit:
    """Return the audit of a CSV file: which convention prints each of its figures, and where they
    contradict each other.

    Raises InputError for a file that is not such a table, for a pattern that no model matches and
    for a limit that leaves none, UnknownNameError for a convention that there is not.
    """
    choose_conventions(choice.as_)
    table = read_published_table(path, choice.library)
    rows = _select_rows(table, choice)
    figures_by_build: dict[Build, tuple[PublishedFigure, ...]] = {}
    for row in rows:
        figures_by_build[row.build_key] = (*figures_by_build.get(row.build_key, ()), row.figure)
    counted = _model_numbers_by_build(figures_by_build, choice, on_progress)
    judged, conventions, contradictions = judge_rows(rows, counted)
    made_with = framework_versions(is_file=True)
    for numbers in counted.values():
        made_with |= {} if isinstance(numbers, str) else numbers.made_with
    return Audit(
        table=path.name,
        rows=judged,
        conventions=conventions,
        contradictions=contradictions,
        ignored=table.ignored,
        left_out=len(table.rows) - len(rows),
        made_with=made_with,
    )


def _select_rows(table: PublishedTable, choice: AuditChoice) -> list[PublishedRow]:
    """Return the rows of the table that the request chooses by --only and --limit; raise
    InputError if there is none.
    """
    rows = list(table.rows)
    for pattern in choice.only:
        if not any(fnmatchcase(row.model, pattern) for row in rows):
            raise InputError(
                f"--only {pattern} matches no model of the table",
                "correct the pattern, or leave out --only",
            )
    if choice.only:
        rows = [row for row in rows if any(fnmatchcase(row.model, only) for only in choice.only)]
    if choice.limit is not None:
        first = list(dict.fromkeys(row.build_key for row in rows))[: choice.limit]
        rows = [row for row in rows if row.build_key in first]
    if not rows:
        raise InputError(
            "the table has no row with a published number",
            "give a CSV table in which at least one row has a published number",
        )
    return rows


def _model_numbers_by_build(
    figures_by_build: Mapping[Build, tuple[PublishedFigure, ...]],
    choice: AuditChoice,
    on_progress: Callable[[str], None],
) -> dict[Build, ModelNumbers | str]:
    """Return {(target, image size, input): numbers of its conventions, or a text why there are
    none}; stored results are not counted again.
    """
    tasks = [
        _Task(build, figures, choice.as_, _count_store_path(choice.store, build))
        for build, figures in figures_by_build.items()
    ]
    numbers_by_build: dict[Build, ModelNumbers | str] = {}
    for task in tasks:
        stored = _read_stored_count(task)
        if stored is not None:
            numbers_by_build[task.build] = stored.numbers or stored.reason
    left = [task for task in tasks if task.build not in numbers_by_build]
    names = [task.build[0] for task in left]
    done = len(numbers_by_build)
    jobs = min(choice.jobs or choose_jobs(len(left)), len(left))
    if jobs < 2:
        for task in left:
            on_progress(f"{done + 1} of {len(tasks)}: {task.build[0]}")
            numbers_by_build[task.build] = count_and_store_model(task)
            done += 1
        return numbers_by_build
    with closing(
        run_series(count_and_store_model, [(task,) for task in left], names, jobs)
    ) as series:
        for task, numbers in zip(left, series, strict=True):
            done += 1
            on_progress(f"{done} of {len(tasks)}: {task.build[0]}")
            numbers_by_build[task.build] = numbers
    return numbers_by_build


def count_and_store_model(task: _Task) -> ModelNumbers | str:
    """Count a model, store the result if there is a store; return its numbers, or a text why there
    are none.
    """
    target, image_size, shape = task.build
    numbers: ModelNumbers | None = None
    reason = ""
    try:
        request = Request.from_arguments(
            target,
            [shape] if shape else (),
            sizes={"image_size": image_size} if image_size else {},
        )
        with filter_warnings("ignore"):  # each model would warn of its usual input
            numbers = predict_with_variants(request, choose_conventions(task.as_), task.figures)
    except CrossflopsError as error:
        reason = error.message
    if task.file:
        stored = _StoredCount(_count_store_key(task), numbers, reason)
        _make_store_folder(Path(task.file).parent)
        write_file(Path(task.file), msgspec.json.encode(stored), _STORE_HINT)
    return numbers or reason


def predict_with_variants(
    request: Request,
    conventions: Sequence["Convention"],
    figures: Sequence[PublishedFigure],
) -> ModelNumbers:
    """Return the numbers of a model; where they do not print every figure, also those of the model
    as its library builds it for weights.
    """
    numbers = predict_model_numbers(request, conventions)
    if all(is_reproduced(figure, numbers) for figure in figures):
        return numbers
    variants = tuple(
        msgspec.structs.replace(predict_model_numbers(other, conventions), built_with=words)
        for other, words in with_alternative_arguments(request)
    )
    return msgspec.structs.replace(numbers, variants=variants)


def _make_store_folder(folder: Path) -> None:
    """Make the folder of --store; raise CrossflopsError if that is not possible."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CrossflopsError(
            f"cannot use {folder} as the folder of --store: {error.strerror}", _STORE_HINT
        ) from error


def _count_store_key(task: _Task) -> dict[str, str]:
    """Return the versions, the request and the figures on which a stored result depends, as
    {name: text}.
    """
    versions = framework_versions(is_file=True)
    target, image_size, shape = task.build
    return {
        **versions,
        "target": target,
        "input": shape or str(image_size or ""),
        "as": " ".join(task.as_),
        "figures": " ".join(f"{figure.text} {figure.unit}" for figure in task.figures),
    }


def _count_store_path(store: str, build: Build) -> str:
    """Return the path of the file in which the result of this model is stored, "" without a
    store.
    """
    if not store:
        return ""
    plain = re.sub(r"[^\w.-]+", "-", build[0])[:_LETTERS]
    digest = hashlib.sha256(repr(build).encode()).hexdigest()[:8]
    return str(Path(store, f"{plain}-{digest}.json"))


def _read_stored_count(task: _Task) -> _StoredCount | None:
    """Return the stored result of this model; None if there is none, or if it is from other
    versions or another request.
    """
    file = Path(task.file) if task.file else None
    if file is None or not file.is_file():
        return None
    try:
        stored = msgspec.json.decode(file.read_bytes(), type=_StoredCount)
    except (OSError, msgspec.MsgspecError):  # half-written by another program: counted again
        return None
    return stored if stored.made_by == _count_store_key(task) else None
