"""Judge a table of published figures row by row: which convention prints each figure, and where
the table contradicts itself.

The judgement is a function of the figures and of the numbers that were counted; nothing is
counted here.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from crossflops.report.model_numbers import ModelNumbers
from crossflops.report.published import PublishedFigure
from crossflops.report.readings import PARAMS, FigureReading, find_readings
from crossflops.report.report import SCHEMA

Status = Literal["exact", "contradicted", "open"]
_NAMED = 8  # families in a sentence
_FINE = ("exact", "rounded", "truncated")  # roundings that reproduce every printed digit


class PublishedRow(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of a published table: its line, its model, the input as printed, and the heading
    of its column.

    `target` is the model as crossflops takes it, `image_size` and `input` what the row says of
    its input: neither means the usual one.
    """

    line: int
    model: str
    target: str
    column: str
    figure: PublishedFigure
    image_size: int | None = None
    input: str = ""

    @property
    def build_key(self) -> tuple[str, int | None, str]:
        """The (target, image size, input) of the row; rows with the same value are counted
        once.
        """
        return self.target, self.image_size, self.input


class AuditRow(msgspec.Struct, frozen=True, kw_only=True):
    """A published figure, and the convention that prints it.

    `reproduced_by` is the usual convention of the column if it prints this figure, else the same
    doubled, halved or switched, else that of most rows, "" if none does. `prints` is its exact
    number, a float where it is not whole. `reason` says of an open row why.
    """

    line: int
    model: str
    column: str
    published: str
    input: str = ""
    reproduced_by: str = ""
    prints: int | float | None = None
    rounding: str = ""
    status: Status = "open"
    is_counted: bool = False
    reason: str = ""


class RowJudgements(NamedTuple):
    """The judged rows, by column the figures that each convention reproduces, and sentences."""

    rows: tuple[AuditRow, ...]
    conventions: dict[str, dict[str, int]]
    contradictions: tuple[str, ...]


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of a table, the convention of each column, and the contradictions in words.

    `conventions` has, by column, the rows that each convention reproduces alone or with others.
    `ignored` are columns without figures, `left_out` rows that the request excludes.
    """

    table: str
    rows: tuple[AuditRow, ...]
    conventions: dict[str, dict[str, int]] = {}
    contradictions: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    left_out: int = 0
    made_with: dict[str, str] = {}
    schema: str = SCHEMA

    @property
    def figures_counted(self) -> int:
        """The number of rows of the table whose model could be counted."""
        return sum(row.is_counted for row in self.rows)

    def count_status(self, status: Status) -> int:
        """Return the number of rows with this status: "exact", "contradicted" or "open"."""
        return sum(row.status == status for row in self.rows)

    @classmethod
    def from_json(cls, text: str | bytes) -> "Audit":
        """Return the audit that was written as this JSON; raise msgspec.MsgspecError if it is not
        one.
        """
        return msgspec.json.decode(text, type=cls)


def judge_rows(
    rows: Sequence[PublishedRow],
    numbers_by_build: Mapping[tuple[str, int | None, str], ModelNumbers | str],
) -> RowJudgements:
    """Return for each published figure the convention that reproduces it, and the conventions and
    contradictions of each column.

    Args:
        rows: the figures.
        numbers_by_build: the numbers of a model, or the reason why it has none, by
            `PublishedRow.build_key`.
    """
    readings = [_readings_of_row(row, numbers_by_build[row.build_key]) for row in rows]
    conventions: dict[str, dict[str, int]] = {}
    judged: dict[int, AuditRow] = {}
    contradictions: list[str] = []
    for column in dict.fromkeys(row.column for row in rows):
        indices = [index for index, row in enumerate(rows) if row.column == column]
        tally = _rows_per_convention(readings[index] for index in indices)
        conventions[column] = dict(tally.most_common())
        order = tuple(conventions[column])
        usual = order[0] if order else ""
        for index in indices:
            numbers = numbers_by_build[rows[index].build_key]
            judged[index] = _judge_row(rows[index], readings[index], order, numbers)
        contradictions += _column_contradictions(
            column, usual, [judged[index] for index in indices]
        )
    judged_rows = tuple(judged[index] for index in range(len(rows)))
    return RowJudgements(judged_rows, conventions, tuple(contradictions))


def _readings_of_row(row: PublishedRow, numbers: ModelNumbers | str) -> dict[str, FigureReading]:
    """Return {name of a convention: reading} for all readings that print every digit of the row's
    figure.
    """
    if isinstance(numbers, str):
        return {}
    readings = _readings_of_figure(row.figure, numbers)
    for variant in numbers.variants if not readings else ():
        for reading in _readings_of_figure(row.figure, variant).values():
            words = " ".join(filter(None, (reading.switch, variant.built_with)))
            under = msgspec.structs.replace(reading, switch=words)
            readings.setdefault(under.convention, under)
    return readings


def is_reproduced(figure: PublishedFigure, numbers: ModelNumbers) -> bool:
    """Return True if a number of this build of a model prints every digit of the figure."""
    return bool(_readings_of_figure(figure, numbers))


def _readings_of_figure(
    figure: PublishedFigure, numbers: ModelNumbers
) -> dict[str, FigureReading]:
    """Return {name of a convention: reading} for all readings of one build of a model that print
    every digit of a figure.
    """
    by_name: dict[str, FigureReading] = {}
    for reading in find_readings(figure, numbers):
        if reading.rounding in _FINE:
            by_name.setdefault(reading.convention, reading)
    if figure.unit != PARAMS:
        by_name = {name: reading for name, reading in by_name.items() if name != PARAMS}
    for name, reading in _readings_under_switches(by_name, numbers).items():
        by_name.setdefault(name, reading)
    return by_name


def _readings_under_switches(
    by_name: Mapping[str, FigureReading], numbers: ModelNumbers
) -> dict[str, FigureReading]:
    """Return more readings by name: those of tools under an environment variable of a model
    library, if the variable does not change this model.
    """
    from crossflops.report.readings import SWITCHES

    library = numbers.target.partition(":")[0]
    switched = {}
    for reading in by_name.values():
        for switch in SWITCHES:
            causes = {cause.cause for cause in reading.number.causes}
            fits = switch.tool == reading.number.tool and switch.library == library
            if fits and not reading.switch and switch.cause not in causes:
                under = msgspec.structs.replace(reading, switch=switch.variable)
                switched[under.convention] = under
    return switched


def _rows_per_convention(readings: Iterable[Mapping[str, FigureReading]]) -> "Counter[str]":
    """Return a Counter of how many rows each convention reproduces; among equals the more
    plausible convention is first.
    """
    tally: Counter[str] = Counter()
    for by_name in readings:
        tally.update(by_name.keys())
    return tally


def _judge_row(
    row: PublishedRow,
    by_name: Mapping[str, FigureReading],
    order: Sequence[str],
    numbers: ModelNumbers | str,
) -> AuditRow:
    """Return the judged row; `order` lists the conventions of its column, the one that reproduces
    most rows first.
    """
    name = _closest_convention(by_name, order)
    inputs = () if isinstance(numbers, str) else numbers.inputs
    judged = AuditRow(
        line=row.line, model=row.model, column=row.column, published=row.figure.text,
        input=", ".join(inputs) or row.input or str(row.image_size or ""),
        is_counted=not isinstance(numbers, str),
    )  # fmt: skip
    if not name:
        reason = numbers if isinstance(numbers, str) else _nearest_number_text(row.figure, numbers)
        return msgspec.structs.replace(judged, reason=reason)
    amount = by_name[name].amount
    return msgspec.structs.replace(
        judged,
        reproduced_by=name,
        prints=amount.numerator if amount.denominator == 1 else float(amount),
        rounding=by_name[name].rounding,
        status="exact" if name == order[0] else "contradicted",
    )


def _closest_convention(by_name: Mapping[str, FigureReading], order: Sequence[str]) -> str:
    """Return the name of the convention that prints the figure: the usual one of the column or the
    same tool in another way, else the one of most rows, "" if none does.

    Else that of most rows; "" if none prints it.
    """
    fitting = [known for known in order if known in by_name]
    usual = convention_without_factor_and_switch(order[0]) if order else ""
    same = [known for known in fitting if convention_without_factor_and_switch(known) == usual]
    return (*same, *fitting, "")[0]


def convention_without_factor_and_switch(name: str) -> str:
    """Return the name of a convention without its factor ("2 x") and its switch ("with A=0").

    >>> convention_without_factor_and_switch("1/2 x fvcore@0.1.5 with A=0")
    'fvcore@0.1.5'
    >>> convention_without_factor_and_switch("2 x MACs")
    'MACs'
    """
    return name.rpartition(" x ")[2].partition(" with ")[0]


def _nearest_number_text(figure: PublishedFigure, numbers: ModelNumbers) -> str:
    """Return a text that names the convention with the number nearest to the figure, or says that
    there is none.
    """
    is_params = figure.unit == PARAMS
    fitting = [number for number in numbers.numbers if (number.unit == PARAMS) == is_params]
    if not fitting:
        return "no convention counts this model"
    nearest = min(fitting, key=lambda number: figure.distance(number.total))
    name = nearest.unit if not nearest.edition else f"{nearest.tool}@{nearest.edition}"
    return f"nearest: {name} prints {nearest.total}"


def _column_contradictions(column: str, usual: str, rows: Sequence[AuditRow]) -> list[str]:
    """Return one sentence for each convention of a column other than the usual one: how many rows
    it prints, and of which model families.
    """
    others: dict[str, list[AuditRow]] = {}
    for row in rows:
        if row.status == "contradicted":
            others.setdefault(row.reproduced_by, []).append(row)
    sentences = []
    for name, deviating in others.items():
        families = Counter(model_family(row.model) for row in deviating)
        shown = ", ".join(family for family, _ in families.most_common(_NAMED))
        more = f" and {len(families) - _NAMED} more families" if len(families) > _NAMED else ""
        sentences.append(
            f"{column}: {len(deviating)} of {len(rows)} rows are {name}, most others {usual}: "
            f"{shown}{more}"
        )
    return sentences


def model_family(model: str) -> str:
    """Return the letters at the beginning of a model name, without its library; the whole name if
    it begins with another character.

    >>> model_family("timm:resmlp_12_224"), model_family("resnet50"), model_family("2d")
    ('resmlp', 'resnet', '2d')
    """
    name = model.rpartition(":")[2]
    letters = re.match(r"[A-Za-z]+", name)
    return letters[0] if letters else name
