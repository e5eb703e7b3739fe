"""The pages of `devices`, `peak` and `bandwidth`: one device, several, this machine, a product."""

from collections.abc import Callable
from typing import TypeAlias

from crossflops.ir.device import (
    Derivation,
    Device,
    DeviceList,
    DeviceShare,
    DeviceSheet,
    Factor,
    PeakRow,
)
from crossflops.render.page import Block, Column, Heading, Page, Row, Table, Text, Title
from crossflops.render.quantity import change, exact, number, short
from crossflops.report.machine import Cpu, Gpu, Machine, MachinePeak

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


# The page of this machine: what its system says, and what was measured.


def machine_page(noun: Machine) -> Page:
    """The processor, the GPUs, the measured peak beside the one of the system."""
    blocks: list[Block] = [Title(("This machine", *([noun.cpu.model] if noun.cpu else [])))]
    if noun.cpu is not None:
        blocks += [_table(_cpu(noun.cpu, noun.known)), Heading("By the rule"), _rule(noun.cpu)]
    for one in noun.gpus:
        blocks += [Heading(one.name), _table(_gpu(one, noun))]
    if noun.measured is not None:
        blocks += _measured(noun.measured, noun.cpu)
    return Page((*blocks, *(Text(text, " - ") for text in noun.notes)))


def _table(rows: list[tuple[str, str]]) -> Table:
    return Table(
        columns=(Column(head="what"), Column(head="value", flows=True)),
        rows=tuple(Row(row) for row in rows if row[1]),
        bare=True,
    )


def _cpu(one: Cpu, known: dict[str, str]) -> list[tuple[str, str]]:
    quota = "" if one.quota is None else f", of which {one.quota:g} CPUs' time is granted"
    clock = "unknown" if one.clock is None else f"{one.clock / 1e9:.3f} GHz"
    return [
        ("cores", f"{one.cores} for this process, on {number(one.sockets, 'socket')}{quota}"),
        ("threads", f"{one.logical}"),
        ("clock", f"{clock}, by {one.clock_source}"),
        ("units", f"{one.isa}"),
        ("catalogue", known.get(one.model, "")),
    ]


def _rule(one: Cpu) -> Table:
    """Cores x clock x FLOPs per clock and core."""
    clock = "?" if one.clock is None else f"{one.clock / 1e9:.3f} GHz"
    rows = []
    for precision, rate in one.flops_per_clock.items():
        peak = one.peak(precision)
        product = f"{one.usable:g} x {clock} x {rate}"
        rows.append(
            Row((precision, "-" if peak is None else short(peak, per_second(precision)), product))
        )
    return Table(
        columns=(
            Column(head="precision"),
            Column(head="peak", right=True),
            Column(head="cores x clock x FLOPs per clock"),
        ),
        rows=tuple(rows) or (Row(("-", "-", "FLOPs per clock and core are not known")),),
    )


def _gpu(one: Gpu, noun: Machine) -> list[tuple[str, str]]:
    peaks = noun.peaks.get(one.name, {})
    rates = (f"{name} {short(rate, per_second(name))}" for name, rate in peaks.items() if rate)
    return [
        ("catalogue", noun.known.get(one.name, "")),
        ("dense peaks", ", ".join(rates)),
        ("memory", "" if one.memory is None else short(one.memory, "B")),
        ("highest clock", "" if one.clock is None else f"{one.clock / 1e6:g} MHz"),
        ("memory clock", "" if one.memory_clock is None else f"{one.memory_clock / 1e6:g} MHz"),
        ("bus", "" if one.bus is None else f"{one.bus} bit"),
        ("power limit", "" if one.power is None else f"{one.power:g} W"),
        ("FP32 units", "" if one.lanes is None else f"{one.lanes}"),
        ("SMs of the slice", "" if one.units is None else f"{one.units}"),
        ("said by", one.driver),
    ]


def _measured(one: MachinePeak, claimed: Cpu | None) -> list[Block]:
    head = "Measured" if one.is_peak else "Measured by a matrix product, which is no peak"
    rows = [
        (
            f"{name}, {number(one.threads, 'thread')}",
            f"{short(rate, per_second(name))}{_of(rate, claimed, name)}",
        )
        for name, rate in one.peaks.items()
    ]
    rows += [
        ("fp32, one thread", "" if one.one_thread is None else short(one.one_thread, "FLOP/s")),
        ("core clock", "" if one.clock is None else f"{one.clock / 1e9:.3f} GHz"),
        ("per clock", _per_clock(one)),
        ("bandwidth", short(one.bandwidth, "B/s")),
        ("ridge", f"{one.peaks['fp32'] / one.bandwidth:.1f} FLOPs per byte in fp32"),
        ("how", one.how),
    ]
    texts = [Text(text, " ! ", "warn") for text in one.contradictions]
    kept = Text("`--device measured` sets a count against it", " - ")
    return [Heading(head), _table(rows), *texts, kept]


def _of(rate: float, claimed: Cpu | None, precision: str) -> str:
    peak = claimed.peak(precision) if claimed else None
    return f", {100 * rate / peak:.0f} % of the rule" if peak else ""


def _per_clock(one: MachinePeak) -> str:
    if one.clock is None or one.one_thread is None:
        return ""
    return f"{one.one_thread / one.clock:.1f} FP32 FLOPs of one core"
