"""The pages of `devices`, `peak` and `bandwidth`: one device, several, this machine, a product."""

from collections.abc import Callable
from typing import TypeAlias

from crossflops.core.device import (
    Derivation,
    Device,
    DeviceList,
    DeviceShare,
    DeviceSheet,
    Factor,
    PeakRow,
)
from crossflops.render.page import Block, Column, Heading, Page, Row, Table, Text, Title
from crossflops.render.quantity import change, exact, short

_TOLERATED = 0.02  # of a sheet against its own arithmetic, as sheets round
Cell: TypeAlias = Callable[[DeviceShare], str]
Rates: TypeAlias = tuple[str, int, Cell]  # a head, when it makes way, and what stands under it
_BESIDE = 12  # as many devices are set against each other; more are only listed


def device_page(noun: DeviceSheet) -> Page:
    """What is known of a device: its names, its peaks with their derivation, and how surely."""
    one = noun.device
    blocks: list[Block] = [Title((one.label, one.name, *_what(one))), _facts(one), _peaks(noun)]
    if one.framework_devices_per_package > 1:
        count = one.framework_devices_per_package
        text = f"a package has {count} framework devices: all figures are those of one of them"
        blocks.append(Text(text, " - "))
    if one.sparse_factor:
        blocks.append(Text("sparse: only for 2:4 pruned weights in a sparse kernel", " - "))
    if noun.emulated:
        rates = [f"{name} {short(rate, 'FLOP/s')}" for name, rate in noun.emulated.items()]
        blocks.append(Text(f"FP32 by products of BF16 parts: {', '.join(rates)}", " - "))
    blocks += [Text(text, " ! ", "warn") for text in _doubts(noun)]
    return Page((*blocks, *_provenance(one), *_ambiguous(noun)))


def _what(one: Device) -> tuple[str, ...]:
    return tuple(filter(None, (one.architecture, str(one.year or ""))))


def _facts(one: Device) -> Table:
    clocks = [(one.clock, one.clock_basis), (one.matrix_clock, "matrix units")]
    clocks += [(one.base_clock, "base"), (one.boost_clock, "boost")]
    rows = [
        ("drivers print", ", ".join(one.aliases)),
        ("memory", " or ".join(short(size, "B") for size in one.memory)),
        ("bandwidth", short(one.bandwidth, "B/s") if one.bandwidth else ""),
        ("units", f"{one.units} {one.unit_kind}" if one.units else ""),
        ("clock", ", ".join(f"{exact_mhz(hz)} ({what})" for hz, what in clocks if hz)),
        ("power", f"{one.tdp:g} W" if one.tdp else ""),
    ]
    return Table(
        columns=(Column(head="what"), Column(head="value", flows=True)),
        rows=tuple(Row(row) for row in rows if row[1]),
        bare=True,
    )


def exact_mhz(hertz: float) -> str:
    """A clock in MHz, with every digit that it has."""
    return f"{hertz / 1e6:g} MHz"


def _peaks(noun: DeviceSheet) -> Table:
    package = noun.device.framework_devices_per_package > 1
    columns = (
        Column(head="precision"),
        Column(head="peak", right=True),
        Column(head="of a package", right=True, spare=2),
        Column(head="sparse", right=True, spare=3),
        Column(head="FLOP/B", right=True, spare=4),
        Column(head="clock x units x FMA x 2", spare=1),
        Column(head="off", right=True),
    )
    rows = tuple(Row(_figures(noun.device, row)) for row in noun.peaks)
    table = Table(columns=columns, rows=rows)
    return table if package else table.without(columns[2])


def _figures(one: Device, row: PeakRow) -> tuple[str, ...]:
    rates = (row.peak, row.package_peak, row.sparse)
    said = (_rate(row, rate) for rate in rates)
    return (row.precision, *said, _ridge(row), _derived(one, row), _off(row))


def _rate(row: PeakRow, rate: float | None) -> str:
    return "-" if rate is None else short(rate, per_second(row.precision))


def per_second(precision: str) -> str:
    """The unit of a rate: what integers do is no FLOP."""
    return "OP/s" if precision.startswith("int") else "FLOP/s"


def _ridge(row: PeakRow) -> str:
    return "-" if row.ridge is None else short(round(row.ridge) if row.ridge >= 100 else row.ridge)


def _derived(one: Device, row: PeakRow) -> str:
    if row.derived is None or row.clock is None or row.fma_per_clock is None:
        return "not all known"
    product = f"{exact_mhz(row.clock)} x {one.units} x {row.fma_per_clock:g} x 2"
    return f"{product} = {short(row.derived)}"


def _off(row: PeakRow) -> str:
    return "-" if row.deviation is None else change(row.deviation + 1, 1)


def _doubts(noun: DeviceSheet) -> list[str]:
    off = [row for row in noun.peaks if abs(row.deviation or 0) > _TOLERATED]
    texts = [
        f"{row.precision}: the sheet and its own arithmetic differ by {_off(row)}" for row in off
    ]
    low = noun.device.low_confidence
    if noun.also:
        shares = ", ".join(f"{one.device.label} ({_ratio(one)} of this peak)" for one in noun.also)
        texts.append(f"drivers print this name for other devices, too: {shares}")
    return [*texts, *([f"less sure than the rest: {', '.join(low)}"] if low else [])]


def _provenance(one: Device) -> list[Block]:
    blocks: list[Block] = [Heading("Source")]
    blocks += [Text(text, " - ") for text in one.source]
    blocks.append(Text(f"confidence: {one.confidence}", " - "))
    blocks += [Text(text, " - ") for text in one.evidence]
    if one.measured_matmul:
        rates = [f"{name} {short(rate, 'FLOP/s')}" for name, rate in one.measured_matmul.items()]
        best = f"best matrix product measured: {', '.join(rates)} ({one.measured_matmul_source})"
        blocks.append(Text(best, " - "))
    if one.notes:
        blocks.append(Text(one.notes, " - "))
    return blocks


def _ambiguous(noun: DeviceSheet) -> list[Block]:
    if not noun.families:
        return []
    texts = [
        Text(f"{name}: {', '.join(ids)}", " - ") for name, ids in sorted(noun.families.items())
    ]
    return [Heading("Names that say less"), *texts]


def devices_page(noun: DeviceList) -> Page:
    """Devices under each other; few of them with their share of the highest peak."""
    few = len(noun.devices) <= _BESIDE
    rates = _ratios(noun) if few else _SEVERAL
    columns = (
        Column(head="device"),
        *(Column(head=head, right=True, spare=spare) for head, spare, _ in rates),
        Column(head="memory", right=True, spare=3),
        Column(head="bandwidth", right=True, spare=2),
        Column(head="confidence", spare=4),
        Column(head="name", spare=5),
    )
    rows = tuple(Row(_cells(one, [cell for _, _, cell in rates])) for one in noun.devices)
    about = Text("dense peaks of one framework device; `crossflops devices NAME` says more", " - ")
    return Page((Title((noun.about,)), Table(columns=columns, rows=rows), about))


def _ratios(noun: DeviceList) -> tuple[Rates, ...]:
    """The precision by which few devices are compared, and FP32 beside it."""
    chosen: tuple[Rates, ...] = (
        (noun.precision, 0, lambda row: "-" if row.peak is None else short(row.peak)),
        ("of the highest", 0, _ratio),
    )
    return chosen if noun.precision == "fp32" else (*chosen, ("fp32", 1, _first("fp32")))


def _ratio(row: DeviceShare) -> str:
    return "-" if row.ratio is None else f"{100 * row.ratio:.0f} %"


def _first(*precisions: str) -> Cell:
    """The peak of the first of these precisions that the device has."""

    def cell(row: DeviceShare) -> str:
        peaks = row.device.peaks
        return next((short(peaks[one]) for one in precisions if one in peaks), "-")

    return cell


_SEVERAL: tuple[Rates, ...] = (
    ("fp32", 0, _first("fp32")),
    ("bf16 or fp16", 0, _first("bf16", "fp16")),
    ("int8", 1, _first("int8")),
)


def _cells(row: DeviceShare, rates: list[Cell]) -> tuple[str, ...]:
    one = row.device
    return (
        one.label,
        *(cell(row) for cell in rates),
        "/".join(f"{size / 1e9:g}" for size in one.memory) + " GB" if one.memory else "-",
        short(one.bandwidth, "B/s") if one.bandwidth else "-",
        one.confidence,
        one.name,
    )


def derivation_page(noun: Derivation) -> Page:
    """A product, and its factors."""
    product = " x ".join(_spelled(one) for one in noun.factors)
    rows = tuple(Row((one.what, _spelled(one))) for one in noun.factors)
    table = Table(columns=(Column(head="factor"), Column(head="value", right=True)), rows=rows)
    rate = short(noun.rate, noun.unit)
    digits = f"{exact(round(noun.rate))} {noun.unit}"
    return Page((Title((f"{noun.what} {rate}", digits)), table, Text(f"{product} = {rate}")))


def _spelled(one: Factor) -> str:
    return exact_mhz(one.value) if one.unit == "Hz" else f"{one.value:g}"
