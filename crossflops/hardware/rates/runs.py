"""Tables of measurements: runs, and times of modules.

A column bears the name of a flag (`device`, `precision`, `batch`, `tokens-per-second`) or of one
of the words below; what a row leaves empty is as the command says. Its lines are numbered as an
editor does, so that a row that cannot be answered is found.
"""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from crossflops.errors import CrossflopsError, InputError
from crossflops.hardware.rates.numerators import parse_count
from crossflops.hardware.rates.question import RATES, WAYS, Question, parse_rate
from crossflops.report.efficiency import ModuleTime

_WORDS = {  # as people head such tables -> the field
    **dict.fromkeys(
        (
            *("rate", "speed", "throughput", "examples/s", "images/s", "samples/s", "img/s"),
            *("images_per_second", "samples_per_second", "sequences_per_second"),
            *("images_per_s", "examples_per_s", "samples_per_s", "images/sec", "img/sec"),
        ),
        "examples_per_second",
    ),
    **dict.fromkeys(("tokens/s", "tokens_per_s", "tok/s"), "tokens_per_second"),
    **dict.fromkeys(("latency", "ms", "time_ms", "latency(ms)"), "latency_ms"),
    **dict.fromkeys(("gpu", "card", "accelerator"), "device"),
    **dict.fromkeys(("dtype", "type"), "precision"),
    **dict.fromkeys(("batch_size", "bs", "micro_batch"), "batch"),
    **dict.fromkeys(("gpus", "n", "chips", "world"), "devices"),
    "training": "train",
}
_WHOLE = frozenset(
    ("batch", "tokens", "accumulate", "devices", "dp", "tp", "pp", "seq", "context", "window")
)
_REAL = frozenset(
    (
        *("examples_per_second", "tokens_per_second", "latency_ms", "fwd_ms", "bwd_ms", "step_ms"),
        "bandwidth",
    )
)
_TRUE, _FALSE = ("true", "yes", "1", "x", "train", "training"), ("false", "no", "0", "inference")
_TEXTS = frozenset(
    ("device", "precision", "macs", "pass_macs", "recompute", "causal", "train_multiplier")
)
_LISTS = frozenset(("peak_tflops", "mix", "precision_of"))
_FIELDS = _WHOLE | _REAL | _TEXTS | _LISTS | {"train"}
_SPEEDS = frozenset(WAYS)
_CELLS = "give one cell for each column; put a cell that contains a comma in quotes"


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a table of runs: its line in the file, and its fields or the error that it
    has.
    """

    line: int
    fields: dict[str, Any] = {}
    trouble: CrossflopsError | None = None


class RunTable(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of a file. `unused` are unknown columns."""

    name: str
    rows: tuple[RunRow, ...]
    unused: tuple[str, ...] = ()


def read_csv_lines(path: str, hint: str) -> list[tuple[int, list[str]]]:
    """Return (line number, cells) for each non-empty line of a CSV file. Raises InputError with
    `hint` for fewer than two lines or an invalid file.
    """
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            numbered = [(reader.line_num, cells) for cells in reader]
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror}",
            "give the path of a CSV file that you can read",
        ) from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} is not a valid CSV file: {error}", hint) from error
    filled = [(line, cells) for line, cells in numbered if any(cell.strip() for cell in cells)]
    if len(filled) < 2:
        raise InputError(f"{path} has no rows", hint)
    return filled


def read_run_table(path: str) -> RunTable:
    """Read the CSV table of runs from a file. Raises InputError for wrong columns."""
    hint = "the first line must name the columns: device,precision,batch,rate"
    filled = read_csv_lines(path, hint)
    heads = tuple(map(_field_of_heading, filled[0][1]))
    known = [head for head in heads if head in _FIELDS]
    twice = sorted({head for head in known if known.count(head) > 1})
    if twice:
        raise InputError(f"{path} has more than one column for {twice[0]}", "keep one of them")
    if not _SPEEDS & set(known):
        raise InputError(f"{path} has no column with a speed", hint)
    unused = tuple(
        raw.strip() for raw, head in zip(filled[0][1], heads, strict=True) if head not in _FIELDS
    )
    return RunTable(name=path, rows=tuple(_parse_run_rows(heads, filled[1:])), unused=unused)


def fields_of_every_row(table: RunTable) -> frozenset[str]:
    """Return the names of the fields that every valid row of a table of runs sets, and of all
    speeds if each row sets one of them.
    """
    rows = [row.fields for row in table.rows if row.trouble is None]
    if not rows:
        return frozenset()
    speeds = (*_SPEEDS, "bwd_ms", "step_ms") if all(_SPEEDS & row.keys() for row in rows) else ()
    return frozenset.intersection(*(frozenset(row) for row in rows)).union(speeds)


def _field_of_heading(head: str) -> str:
    """Return the name of the field that the heading of a column means; an unknown heading in lower
    case with underscores.
    """
    name = head.strip().casefold().replace("-", "_").replace(" ", "_")
    return _WORDS.get(name, name)


def _parse_run_rows(
    heads: tuple[str, ...], lines: Iterable[tuple[int, list[str]]]
) -> Iterator[RunRow]:
    """Yield for each line of a table of runs a row with its fields or with its error; `heads` are
    the fields of the columns.
    """
    for line, cells in lines:
        if len(cells) != len(heads):
            mismatch = f"the row has {len(cells)} cells, but the table has {len(heads)} columns"
            yield RunRow(
                line=line,
                trouble=InputError(mismatch, _CELLS),
            )
            continue
        try:
            pairs = zip(heads, (cell.strip() for cell in cells), strict=True)
            fields = {
                name: _parse_cell_value(name, text)
                for name, text in pairs
                if text and name in _FIELDS
            }
            yield RunRow(line=line, fields=fields)
        except CrossflopsError as error:
            yield RunRow(line=line, trouble=error)


def _parse_cell_value(name: str, text: str) -> Any:
    """Return the value of a cell for the field `name`: a bool, a tuple of texts, a text or a
    positive number.
    """
    if name == "train":
        if text.casefold() not in (*_TRUE, *_FALSE):
            raise InputError(f"train must be true or false, got {text!r}", "write true or false")
        return text.casefold() in _TRUE
    if name in _LISTS:
        return tuple(text.split())
    if name in _TEXTS:
        return text
    try:
        number = (
            int(text) if name in _WHOLE else parse_rate(text) if name in RATES else float(text)
        )
    except ValueError:
        number = 0
    if not 1e-30 <= number <= 1e30:
        kind = "whole number of at least 1" if name in _WHOLE else "positive number"
        raise InputError(
            f"{name.replace('_', ' ')} must be a {kind}, got {text!r}", f"give a {kind}"
        )
    return number


def question_of_row(question: Question, fields: Mapping[str, Any]) -> Question:
    """Return the question of one row of a table: the options of the command, replaced by the row's
    fields.

    A speed of the row replaces that of the command, in whatever form.
    """
    base = {name: value for name, value in question.option_values.items() if name != "runs"}
    if _SPEEDS & fields.keys():
        base |= dict.fromkeys((*_SPEEDS, "bwd_ms", "step_ms"))
    if "device" in fields:
        base["peak_tflops"] = tuple(peak for peak in base["peak_tflops"] if "=" in peak)
    return Question.from_fields(**(base | dict(fields)))


# Forward times of modules, from a table: what each one reached, and what cannot be true.
#
# Columns are `module` (its path; empty for the whole model) and `ms`; `macs` of a forward pass
# over the batch, with all that is in the module, where no model tells them.


class TimedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A module or a node with its FLOPs and its seconds; those of a module include its
    children.
    """

    path: str
    flops: int
    seconds: float

    @property
    def rate(self) -> float:
        """FLOP/s of the module: its FLOPs / its seconds; infinite for 0 seconds."""
        return self.flops / self.seconds if self.seconds > 0 else float("inf")


_PATHS = ("module", "path", "name", "layer")
_TIMES = {"ms": 1e-3, "latency_ms": 1e-3, "time_ms": 1e-3, "us": 1e-6, "s": 1.0, "seconds": 1.0}
_HINT = "the first line must name the columns: module,ms or module,ms,macs"


def read_times(path: str, macs: Mapping[str, int], batches: float) -> tuple[TimedRow, ...]:
    """Return the modules of a CSV file of forward times, each with its FLOPs and seconds; `macs`
    has the counted MACs by module path.

    `batches` is how many such passes one timed pass is, on its device. Raises InputError for a row
    that is none, named by its line.
    """
    (_, first), *rest = read_csv_lines(path, _HINT)
    heads = [head.strip().casefold().replace(" ", "_") for head in first]
    module = next((index for index, head in enumerate(heads) if head in _PATHS), None)
    clock = next((index for index, head in enumerate(heads) if head in _TIMES), None)
    if module is None or clock is None:
        raise InputError(f"{path} needs a column of modules and a column of times", _HINT)
    count = heads.index("macs") if "macs" in heads else None
    timed = []
    for line, cells in rest:
        where = f"{path}, line {line}"
        if len(cells) != len(heads):
            raise InputError(
                f"{where}: {len(cells)} cells for {len(heads)} columns",
                _CELLS,
            )
        seconds = _parse_seconds(cells[clock], _TIMES[heads[clock]], where)
        name = cells[module].strip()
        if count is not None and cells[count].strip():
            work = 2 * parse_count(cells[count])
        elif name in macs:
            work = round(2 * macs[name] * batches)
        else:
            raise InputError(
                f"{where}: the MACs of {name!r} are unknown",
                "give the model (`count --by module` lists its modules), or add a column macs",
            )
        timed.append(TimedRow(path=name, flops=work, seconds=seconds))
    return tuple(timed)


def _parse_seconds(text: str, unit: float, where: str) -> float:
    """Return the seconds of a time that is given in units of `unit` seconds; `where` names its
    line in the error.
    """
    try:
        seconds = float(text) * unit
    except ValueError:
        seconds = 0.0
    if not 1e-15 <= seconds <= 1e15:
        raise InputError(
            f"{where}: a time must be positive, got {text.strip()!r}", "give a positive number"
        )
    return seconds


def module_times(rows: Sequence[TimedRow], peak: float | None) -> tuple[ModuleTime, ...]:
    """Return for each row of a table its module, seconds, FLOP/s and share of the peak (None
    without a peak).
    """
    return tuple(
        ModuleTime(
            path=row.path,
            seconds=row.seconds,
            flops=row.flops,
            rate=row.rate,
            ratio=None if peak is None else row.rate / peak,
        )
        for row in rows
    )


COVERED = 0.9  # of a parent's time that its children should account for


def modules_above_device_peak(rows: Iterable[TimedRow], peak: float) -> tuple[TimedRow, ...]:
    """Return the rows of modules that are faster than the peak, in FLOP/s."""
    return tuple(row for row in rows if row.flops and row.rate > peak)


class TimeGap(msgspec.Struct, frozen=True, kw_only=True):
    """A module whose children together take much less, or more, than its own time."""

    path: str
    seconds: float
    children: tuple[float, ...]


def parents_with_time_gaps(
    rows: Iterable[TimedRow], least: float = COVERED
) -> tuple[TimeGap, ...]:
    """Return the modules whose submodules take together less than `least` of their time, or more
    than 1 / `least` of it.

    The children of a path are the rows one level below it, or the next level that has any.
    """
    times = {row.path: row.seconds for row in rows}
    parents = (
        TimeGap(
            path=path,
            seconds=seconds,
            children=tuple(times[p] for p in _direct_child_paths(path, times)),
        )
        for path, seconds in times.items()
        if seconds > 0
    )
    return tuple(
        parent
        for parent in parents
        if parent.children and not least <= sum(parent.children) / parent.seconds <= 1 / least
    )


def _direct_child_paths(path: str, times: Mapping[str, float]) -> tuple[str, ...]:
    """Return the paths in `times` that are inside `path` and not inside another one of these."""
    inside = [row for row in times if row != path and (not path or row.startswith(f"{path}."))]
    return tuple(
        row
        for row in inside
        if not any(row != other and row.startswith(f"{other}.") for other in inside)
    )
