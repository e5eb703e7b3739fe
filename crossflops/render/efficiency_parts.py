"""Lines and columns of the parts of an efficiency, where they are there."""

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

from msgspec import UNSET

from crossflops.core.efficiency import Attention, Efficiency, Moved, World
from crossflops.render.quantity import duration, exact, short

Cell: TypeAlias = Callable[[Efficiency], str]
_WIDEST = 11  # digits of a speed that nobody computed


class Line(NamedTuple):
    """A value with what it is and where it is from."""

    label: str
    value: Cell
    source: Cell


def before(first: Efficiency, alone: bool) -> list[Line]:
    """What belongs to the work. With several rows shares stand in their table (`more`)."""
    lines = []
    if first.executed is not UNSET:
        lines.append(
            Line("executed", _executed, lambda row: f"for one {row.unit}, with what is done again")
        )
    if first.attention is not UNSET:
        lines.append(Line("attention", _attention, _shares if alone else _sizes))
    return lines


def behind(first: Efficiency, alone: bool) -> list[Line]:
    """What belongs to the share: that of executed work, other peaks, the world, the bytes.

    With several rows shares stand in their table (`more`).
    """
    lines = []
    if alone and isinstance(first.hfu, float):
        lines.append(Line("HFU", _hfu, lambda row: "executed / peak"))
    if alone and first.others is not UNSET:
        lines.append(Line("second peak", _other, _other_source))
    if first.world is not UNSET:
        lines.append(Line("world", _devices, _layout))
        if first.rate is not None:
            lines.append(Line("all devices", _all, _all_source))
    if first.moved is not UNSET:
        lines += _moved_lines(alone)
    return lines


def more(rows: Iterable[Efficiency]) -> list[tuple[str, Cell]]:
    """Columns that stand beside the share, in a table of several rows."""
    rows = tuple(rows)
    columns: list[tuple[str, Cell]] = []
    if any(isinstance(row.hfu, float) for row in rows):
        columns.append(("HFU", _hfu))
    if any(_halved(row) for row in rows):
        columns += [("full square", _full), ("causal", _half)]
    if any(row.others is not UNSET for row in rows):
        columns.append(("of measured", _other_share))
    if any(one.mbu is not None for one in map(_moved, rows) if one):
        columns.append(("MBU", _mbu))
    return columns


def percent(ratio: float | None) -> str:
    """The ratio in percent: one decimal, below one percent two significant digits."""
    if ratio is None:
        return "-"
    value = 100 * ratio
    return f"{value:.1f} %" if value >= 1 else f"{value:.2g} %"


def speed(row: Efficiency) -> str:
    """How fast one device is, in units and, where these are examples of tokens, in tokens."""
    if row.examples_per_second is None:
        return ""
    tokens = row.tokens_per_second
    also = f" ({number(tokens)} tokens/s)" if isinstance(tokens, float) else ""
    return f"{number(row.examples_per_second)} {row.unit}s/s{also}"


def number(value: float) -> str:
    """A measured value: as it was given, or in six digits where it was computed."""
    if float(value).is_integer():
        return exact(int(value))
    kept = value if len(repr(value)) <= _WIDEST else float(f"{value:.6g}")
    return f"{kept:,}".replace(",", " ")


def _executed(row: Efficiency) -> str:
    return short(row.executed, "FLOPs") if isinstance(row.executed, int) else "-"


def _hfu(row: Efficiency) -> str:
    return percent(row.hfu) if isinstance(row.hfu, float) else "-"


def _attention(row: Efficiency) -> str:
    one = row.attention
    if not isinstance(one, Attention):
        return "-"
    return short(one.full_macs if one.counted == "full" else one.half_macs, "MACs")


def _sizes(row: Efficiency) -> str:
    """What is counted of attention, and what else it may be."""
    one = row.attention
    if not isinstance(one, Attention):
        return ""
    said = "score and value products, "
    if not _halved(row):
        return said + "none of it behind a causal mask"
    said += "the full square" if one.counted == "full" else "what a causal mask leaves"
    return f"{said}; full {short(one.full_macs)}, causal {short(one.half_macs)}"


def _shares(row: Efficiency) -> str:
    """The same with the shares of the peak, where there is one."""
    one = row.attention
    if not isinstance(one, Attention) or one.full_ratio is None or not _halved(row):
        return _sizes(row)
    return f"{_sizes(row)}; share full {_full(row)}, causal {_half(row)}"


def _halved(row: Efficiency) -> bool:
    one = row.attention
    return isinstance(one, Attention) and one.full_macs != one.half_macs


def _full(row: Efficiency) -> str:
    return percent(row.attention.full_ratio) if isinstance(row.attention, Attention) else "-"


def _half(row: Efficiency) -> str:
    return percent(row.attention.half_ratio) if isinstance(row.attention, Attention) else "-"


def _other(row: Efficiency) -> str:
    return "-" if not row.others else short(row.others[0].peak, "FLOP/s")


def _other_share(row: Efficiency) -> str:
    return percent(row.others[0].ratio) if row.others else "-"


def _other_source(row: Efficiency) -> str:
    if not row.others:
        return ""
    one = row.others[0]
    return f"{one.name}: {percent(one.ratio)} of it; {one.source}"


def _devices(row: Efficiency) -> str:
    return f"{exact(row.world.devices)} devices" if isinstance(row.world, World) else "-"


def _layout(row: Efficiency) -> str:
    one = row.world
    if not isinstance(one, World):
        return ""
    said = (
        f"data {one.data_parallel} x tensor {one.tensor_parallel} x "
        f"pipeline {one.pipeline_parallel} parallel"
    )
    if isinstance(one.bubble, float):
        said += f"; the pipeline waits {percent(one.bubble)} of a step"
    return said


def _all(row: Efficiency) -> str:
    one = row.world
    return short(one.rate, "FLOP/s") if isinstance(one, World) and one.rate is not None else "-"


def _all_source(row: Efficiency) -> str:
    one = row.world
    if not isinstance(one, World) or one.examples_per_second is None:
        return ""
    return f"at {number(one.examples_per_second)} {row.unit}s/s"


def _moved(row: Efficiency) -> Moved | None:
    return row.moved if isinstance(row.moved, Moved) else None


def _moved_lines(alone: bool) -> list[Line]:
    lines = [
        Line("bytes", _bytes, lambda row: f"a pass: {_of(row).model}"),
        Line("intensity", _intensity, _limit),
    ]
    bound = Line("bound", _bound, _bound_source)
    mbu = Line("MBU", _mbu, lambda row: "bytes / (time x bandwidth)")
    return [*lines, bound, mbu] if alone else [*lines, bound]


def _of(row: Efficiency) -> Moved:
    assert isinstance(row.moved, Moved)
    return row.moved


def _bytes(row: Efficiency) -> str:
    return short(_of(row).bytes, "B")


def _intensity(row: Efficiency) -> str:
    found = _of(row).intensity
    return "-" if found is None else f"{found:.3g} FLOP/byte"


def _limit(row: Efficiency) -> str:
    one = _of(row)
    said = f"{short(one.flops, 'FLOPs')} a pass"
    if one.intensity_limit is not None:
        said += f"; below {short(one.intensity_limit)} for any batch"
    return said


def _bound(row: Efficiency) -> str:
    one = _of(row)
    return "-" if one.bound is None else f"{one.bound}, {duration(one.bound_seconds or 0)}"


def _bound_source(row: Efficiency) -> str:
    one = _of(row)
    if one.ridge is None or one.bandwidth is None:
        return "needs a peak and a bandwidth"
    return f"ridge {one.ridge:.4g} FLOP/byte at {one.bandwidth / 1e9:g} GB/s"


def _mbu(row: Efficiency) -> str:
    one = _moved(row)
    return percent(one.mbu) if one else "-"
