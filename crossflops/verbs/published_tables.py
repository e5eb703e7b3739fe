"""Read a CSV file of published figures by the names of its columns.

A head names its unit and its prefix: `gmacs`, `GFLOPs`, `FLOPs (G)`, `Params (M)`. The digits are
those of the text in the cell.
"""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from crossflops.errors import InputError
from crossflops.files import read_file_bytes
from crossflops.report.audit import PublishedRow
from crossflops.report.published import parse_figure

_MODEL = ("model", "modelname", "name", "arch", "architecture", "network", "backbone", "target")
_INPUT = (
    "imgsize", "imagesize", "inputsize", "input", "size", "resolution", "cropsize", "inputshape",
    "inferimgsize", "res",
)  # fmt: skip
_POWERS = {"": 0, "k": 3, "m": 6, "g": 9, "b": 9, "t": 12, "p": 15}
_WORDS = {
    "macs": "macs", "mac": "macs", "madds": "macs", "madd": "macs", "multadds": "macs",
    "multiadds": "macs", "multiplyadds": "macs",
    "flops": "flops", "flop": "flops",
    "params": "params", "param": "params", "parameters": "params", "paramcount": "params",
    "parametercount": "params", "numparams": "params",
}  # fmt: skip
_EMPTY = ("", "-", "n/a", "na", "nan", "none")
_SIDES = re.compile(r"(?:(\d+)\s*[x×*,]\s*)?(?:(\d+)\s*[x×*,]\s*)?(\d+)(?:\s*px)?", re.I)
_HINT = (
    "name a column for the model (model, name, arch) and one for figures (gmacs, GFLOPs, "
    "FLOPs (G), params, Params (M))"
)


class FigureColumn(NamedTuple):
    """A column of figures: its heading, and the unit and the power of ten that it states."""

    head: str
    unit: str
    power: int | None


class PublishedTable(msgspec.Struct, frozen=True):
    """The figures of a file, and the columns that have none."""

    rows: tuple[PublishedRow, ...]
    ignored: tuple[str, ...]


def read_published_table(path: Path, library: str = "") -> PublishedTable:
    """Return all figures of a CSV file, and the names of its columns that have none; raise
    InputError for an invalid file.

    Lines that begin with `#` are comments. `library` is put before a model without a colon.
    Raises InputError for a file without columns that are known, or with a cell that is not a
    figure, and names what was found.
    """
    lines = _read_numbered_lines(path)
    numbered = [(number, line) for number, line in lines if not line.startswith("#")]
    reader = csv.reader(io.StringIO("\n".join(line for _, line in numbered)))
    table = [(numbered[min(reader.line_num, len(numbered)) - 1][0], row) for row in reader]
    table = [(number, row) for number, row in table if any(cell.strip() for cell in row)]
    if not table:
        raise InputError(
            f"{path} has no rows",
            "write a first line of column names, such as model,GMACs, and one line for each model",
        )
    heads = [head.strip().lstrip("\ufeff") for head in table[0][1]]
    model, size = _find_column(heads, _MODEL), _find_column(heads, _INPUT)
    figures = {
        index: column
        for index, head in enumerate(heads)
        if index not in (model, size) and (column := parse_figure_heading(head))
    }
    if model is None or not figures:
        what = "no column for the model" if model is None else "no column of figures"
        raise InputError(f"{path} has {what}; its columns are {', '.join(heads)}", _HINT)
    rows: list[PublishedRow] = []
    for number, cells in table[1:]:
        if len(cells) < len(heads):
            raise InputError(
                f"{path}, line {number}, has {len(cells)} cells, but the first line has "
                f"{len(heads)} columns",
                "add the missing cells, or quote cells that contain a comma",
            )
        row_name = f"{path}, line {number}"
        shape = _parse_input_cell(cells[size].strip(), row_name) if size is not None else {}
        rows += _figures_of_row(
            row_name, number, cells, cells[model].strip(), library, figures, shape
        )
    ignored = tuple(
        head for index, head in enumerate(heads) if index not in (model, size, *figures)
    )
    return PublishedTable(tuple(rows), ignored)


def _read_numbered_lines(path: Path) -> list[tuple[int, str]]:
    """Return (line number, text) for each line of a UTF-8 file; raise InputError if it cannot be
    read.
    """
    try:
        text = read_file_bytes(path).decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", "give a CSV file") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not text in UTF-8", "give a CSV file") from error
    return list(enumerate(text.splitlines(), 1))


def _figures_of_row(
    row_name: str,
    number: int,
    cells: Sequence[str],
    model: str,
    library: str,
    figures: Mapping[int, FigureColumn],
    shape: Mapping[str, int | str],
) -> list[PublishedRow]:
    """Return the figures in one row of the table; raise InputError for a row without a model or
    with an invalid figure.
    """
    if not model:
        raise InputError(
            f"{row_name}, does not name a model",
            "write the name of a model into the cell, or remove the line",
        )
    target = f"{library}:{model}" if library and ":" not in model else model
    rows = []
    for index, column in figures.items():
        text = cells[index].strip()
        if text.lower() in _EMPTY:
            continue
        try:
            figure = parse_figure(text, column.power, column.unit)
        except InputError as error:
            raise InputError(
                f"{row_name}, column {column.head}: {error.message}", error.hint
            ) from None
        rows.append(
            msgspec.convert(
                {
                    "line": number, "model": model, "target": target, "column": column.head,
                    "figure": figure, **shape,
                },
                PublishedRow,
            )
        )  # fmt: skip
    return rows


def _find_column(heads: Sequence[str], names: Sequence[str]) -> int | None:
    """Return the index of the column with the first of these names that exists; None if none
    does.
    """
    plain = [re.sub(r"[^a-z]", "", head.lower()) for head in heads]
    return next((plain.index(name) for name in names if name in plain), None)


def parse_figure_heading(head: str) -> FigureColumn | None:
    """Return the unit and the power of ten that the heading of a column states, such as "FLOPs
    (G)"; None if it is not about figures.

    >>> [parse_figure_heading(head)[1:] for head in ("gmacs", "FLOPs (G)", "#Params(M)")]
    [('macs', 9), ('flops', 9), ('params', 6)]
    >>> parse_figure_heading("param_count")[1:]
    ('params', None)
    >>> parse_figure_heading("macts")
    """
    plain = re.sub(r"[^a-z()\[\]]", "", head.lower())
    word, _, inner = re.sub(r"[\[\]()]", " ", plain).strip().partition(" ")
    if word in _WORDS:
        inner = inner.strip()
        if not inner:
            return FigureColumn(head, _WORDS[word], None)
        if inner in _POWERS:
            return FigureColumn(head, _WORDS[word], _POWERS[inner])
        word = f"{inner[:1]}{word}" if inner[1:] in _WORDS else ""
    for prefix, rest in ((word[:1], word[1:]), (word[-1:], word[:-1])):
        if prefix and prefix in _POWERS and rest in _WORDS:
            return FigureColumn(head, _WORDS[rest], _POWERS[prefix])
    return None


def _parse_input_cell(text: str, row_name: str) -> dict[str, int | str]:
    """Return the input that a cell states as fields of a row: {"image_size": side}, {"input":
    shape} of images or clips, or {} for an empty cell.
    """
    if text.lower() in _EMPTY:
        return {}
    shape = re.sub(r"\s", "", text.lower()).strip("()[]").replace("×", "x").replace(",", "x")
    if re.fullmatch(r"\d+(x\d+){3,4}", shape):  # images, or clips of them
        return {"input": shape}
    match = _SIDES.fullmatch(text.strip("()[]"))
    if match is None:
        raise InputError(f"{row_name}: {text!r} is not an input size", "write 224 or 1x3x224x224")
    first, second, last = match.groups()
    sides = [int(side) for side in (first, second, last) if side]
    height, width = sides[-2:] if len(sides) > 1 else (sides[0], sides[0])
    channels = sides[0] if len(sides) == 3 else 3
    if height == width and channels == 3:
        return {"image_size": height}
    return {"input": f"1x{channels}x{height}x{width}"}
