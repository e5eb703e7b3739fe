"""A table of measured runs, each set against its own device: the model is counted once."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from crossflops.core.efficiency import EfficiencyReport
from crossflops.errors import CrossflopsError, InputError
from crossflops.hardware.rates import runs
from crossflops.hardware.rates.question import Question
from crossflops.pipeline.rating.rate import Rated, rated, told
from crossflops.pipeline.rating.work import Progress, Studied


def rated_runs(
    question: Question,
    target: Any = None,
    inputs: Any = (),
    *,
    how: Mapping[str, Any] = {},
    on_progress: Progress | None = None,
) -> Rated:
    """An efficiency for every run, and for every device that one may mean.

    A row that cannot be answered is named by its line in `left_out`, and the trouble is that
    there are such. Raises InputError where there is no table, and the error of the rows where
    none has an answer and all have the same.
    """
    assert question.speed.runs is not None
    table = runs.read(question.speed.runs)
    memory: dict[bool, Studied] = {}
    rows, said, errors, report = [], _unused(table), [], None
    for row in table.rows:
        try:
            if row.trouble is not None:
                raise row.trouble
            asked = runs.asked(question, row.fields)
            found = rated(asked, target, inputs, how=how, on_progress=on_progress, memory=memory)
        except CrossflopsError as error:
            errors.append((row.line, error))
            continue
        rows += [replace(one, line=row.line) for one in found.noun.efficiency]
        said += [f"{table.name}, line {row.line}: {text}" for text in found.left_out]
        report = found.noun.report
        if found.trouble is not None:
            errors.append((row.line, found.trouble))
    if not rows and len({error.message for _, error in errors}) == 1:
        raise errors[0][1]
    said += [f"{table.name}, line {line}: {one.message}; {one.hint}" for line, one in errors]
    trouble = _trouble(table, len(errors)) if errors else None
    if not rows:
        raise InputError("; ".join(said), "correct these rows")
    noun = told(EfficiencyReport(efficiency=tuple(rows), report=report), question)
    return Rated(noun=noun, trouble=trouble, left_out=tuple(said))


def _unused(table: runs.Table) -> list[str]:
    if not table.unused:
        return []
    return [f"{table.name}: columns that are not used: {', '.join(table.unused)}"]


def _trouble(table: runs.Table, number: int) -> InputError:
    rows = "row" if len(table.rows) == 1 else "rows"
    return InputError(
        f"{number} of {len(table.rows)} {rows} of {table.name} cannot be answered as it is",
        "correct the lines that are named above",
    )
