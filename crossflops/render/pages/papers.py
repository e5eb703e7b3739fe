"""Build the table of several models: one unit for each column, the same number of digits."""

from decimal import Context, Decimal

from crossflops.ir.profile import Amount
from crossflops.render.page import Column, Page, Row, Table, Text, number_columns
from crossflops.report.papers import PaperTable
from crossflops.report.quantity import count_with_noun

_PREFIXES = ("", "k", "M", "G", "T", "P", "E")
_TRAFFIC = "memory traffic"  # in bytes; the others are counts


def paper_table_heads(table: PaperTable) -> tuple[str, ...]:
    """Return the column names of a table of models: "target", "params", "macs", "flops", ..."""
    timed = ("latency_seconds",) if table.latency else ()
    return ("target", "params", "macs", "flops", "memory_traffic", *table.tools, *timed)


def paper_table_rows(table: PaperTable) -> list[tuple[str | Amount | None, ...]]:
    """Return the rows of a table of models, with cells in the order of its column names."""
    return [
        (*row.cells(table.tools), *((row.latency_seconds,) if table.latency else ()))
        for row in table.rows
    ]


def paper_page(table: PaperTable) -> Page:
    """Return the page with a table of several models and notes on how they were counted."""
    rows = [row.cells(table.tools) for row in table.rows]
    names = ("parameters", "MACs", "FLOPs", _TRAFFIC, *table.tools)
    columns = list(zip(*rows, strict=True))[1:] or [()] * len(names)
    steps = [_column_prefix_power(column) for column in columns]
    titles = (
        f"{name} ({unit})" if (unit := _PREFIXES[step] + "B" * (name == _TRAFFIC)) else name
        for name, step in zip(names, steps, strict=True)
    )
    times = [_milliseconds_text(row.latency_seconds, table.digits) for row in table.rows]
    shown = (
        Row.from_cells(
            str(target),
            *(
                _number_text_without_power(c, s, table.digits)
                for c, s in zip(counts, steps, strict=True)
            ),
            *([time] if table.latency else ()),
        )
        for (target, *counts), time in zip(rows, times, strict=True)
    )
    timed = number_columns("latency (ms)") if table.latency else ()
    columns_shown = (Column(head="model"), *number_columns(*titles), *timed)
    block = Table(columns=columns_shown, rows=tuple(shown), stub=1)
    return Page((block, *(Text(sentence) for sentence in table_footnotes(table))))


def table_footnotes(table: PaperTable) -> list[str]:
    """Return sentences on how the models of a table were counted, with their caveats."""
    version = table.made_with.get("crossflops", "")
    sentences = [
        f"Counted with crossflops {version}".rstrip()
        + " on the ONNX graph: a MAC is one multiply-accumulate of a contraction; FLOPs are "
        "two for each MAC, plus one for each other addition, multiplication, division, "
        "comparison and special function; memory traffic is the bytes that every operator "
        "reads and writes, without fusion. "
        f"{count_with_noun(table.digits, 'significant digit')}."
    ]
    inputs = {row.target: ", ".join(row.inputs) for row in table.rows}
    if len(set(inputs.values())) == 1:
        sentences.append(f"Input: {next(iter(inputs.values()))}.")
    else:
        sentences.append(
            f"Inputs: {'; '.join(f'{name} {spec}' for name, spec in inputs.items())}."
        )
    if table.tools:
        named = (f"{tool} {table.editions.get(tool, '')}".rstrip() for tool in table.tools)
        sentences.append(f"By the conventions of {', '.join(named)}: predicted, not run.")
    if table.latency:
        sentences.append(f"Latency: {table.latency}.")
    for row in table.rows:
        notes = [*row.notes]
        if row.uncounted:
            notes.append(
                f"{count_with_noun(row.uncounted, 'node')} not counted and not in any total"
            )
        sentences += [f"{row.target}: {note}." for note in notes]
    return sentences


def _column_prefix_power(column: tuple[str | Amount, ...]) -> int:
    """Return the power of 1000 that the numbers of a column are divided by."""
    counts = [abs(count) for count in column if not isinstance(count, str)]
    largest = int(max(counts, default=0))
    return min((len(str(largest)) - 1) // 3, len(_PREFIXES) - 1)


def _number_text_without_power(count: str | Amount, step: int, digits: int) -> str:
    """Return count / 1000**step as text with this number of significant digits.

    >>> cells = (4133742592, 3), (57, 0), (999960, 1), ("", 3)
    >>> tuple(_number_text_without_power(value, power, 4) for value, power in cells)
    ('4.134', '57', '1000', '-')
    """
    if isinstance(count, str):
        return "-"
    if not step:
        return str(count)
    rounded = Context(prec=digits).create_decimal(Decimal(count).scaleb(-3 * step))
    text = f"{rounded:f}"
    integer, _, rest = text.partition(".")
    spare = digits - len(integer.lstrip("-0") or "")
    if rest or spare <= 0 or len(integer) >= digits:
        return text
    return f"{rounded:.{spare}f}"


def _milliseconds_text(seconds: float | None, digits: int) -> str:
    """Return a time, given in seconds, as text in ms with these significant digits, or "-".

    >>> _milliseconds_text(0.0123456, 4), _milliseconds_text(None, 4)
    ('12.35', '-')
    """
    if seconds is None:
        return "-"
    return f"{Context(prec=digits).create_decimal(Decimal(seconds) * 1000):f}"
