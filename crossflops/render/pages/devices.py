"""Build the pages of `devices`, `peak` and `bandwidth`: devices, this machine, a derivation."""

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
from crossflops.report.machine import Cpu, Gpu, Machine, MachinePeak
from crossflops.report.quantity import count_with_noun, exact_amount, percent_change, short_amount

_TOLERATED = 0.02  # of a sheet against its own arithmetic, as sheets round
Cell: TypeAlias = Callable[[DeviceShare], str]
Rates: TypeAlias = tuple[str, int, Cell]  # a head, when it makes way, and what stands under it
_BESIDE = 12  # as many devices are set against each other; more are only listed


def device_page(content: DeviceSheet) -> Page:
    """Return the page of one device: data, peaks with their derivation, sources, doubts."""
    device = content.device
    blocks: list[Block] = [
        Title((device.label, device.name, *_architecture_and_year(device))),
        _device_sheet_table(device),
        _peak_table(content),
    ]
    if device.framework_devices_per_package > 1:
        count = device.framework_devices_per_package
        text = f"a package has {count} framework devices; all figures are for one framework device"
        blocks.append(Text(text, " - "))
    if device.sparse_factor:
        pruned = f"{device.sparse_pattern} pruned weights"
        blocks.append(Text(f"sparse: only for {pruned} in a sparse kernel", " - "))
    if content.emulated:
        rates = [
            f"{name} {short_amount(rate, 'FLOP/s')}" for name, rate in content.emulated.items()
        ]
        blocks.append(Text(f"FP32 emulated by products of BF16 parts: {', '.join(rates)}", " - "))
    blocks += [Text(text, " ! ", "warn") for text in _device_doubt_sentences(content)]
    return Page((*blocks, *_source_blocks(device), *_ambiguous_name_blocks(content)))


def _architecture_and_year(device: Device) -> tuple[str, ...]:
    """Return the architecture and the year of a device as texts, each if it is known."""
    return tuple(filter(None, (device.architecture, str(device.year or ""))))


def _device_sheet_table(device: Device) -> Table:
    """Return a table of a device's data: names, memory, bandwidth, units, clocks, power."""
    clocks = [(device.clock, device.clock_basis), (device.matrix_clock, "matrix units")]
    clocks += [(device.base_clock, "base"), (device.boost_clock, "boost")]
    rows = [
        ("names", ", ".join(device.aliases)),
        ("memory", " or ".join(short_amount(size, "B") for size in device.memory)),
        ("bandwidth", _device_bandwidth_text(device)),
        ("units", f"{device.units} {device.unit_kind}" if device.units else ""),
        ("clock", ", ".join(f"{exact_mhz(hz)} ({basis})" for hz, basis in clocks if hz)),
        ("power", f"{device.tdp:g} W" if device.tdp else ""),
        ("power mode", device.power_mode),
    ]
    return _two_column_table(rows)


def _device_bandwidth_text(device: Device) -> str:
    """Return the bandwidth as text, with the memory bus and the transfer rate if known."""
    if not device.bandwidth:
        return ""
    rate = short_amount(device.bandwidth, "B/s")
    if device.memory_bus is None or device.memory_transfers is None:
        return rate
    return f"{rate} ({device.memory_bus:g} bit x {device.memory_transfers / 1e9:g} GT/s)"


def exact_mhz(hertz: float) -> str:
    """Return a clock of `hertz` Hz as text in MHz, with all of its digits."""
    return f"{hertz / 1e6:g} MHz"


def _peak_table(content: DeviceSheet) -> Table:
    """Return a table of a device's peaks, with one row for each precision."""
    package = content.device.framework_devices_per_package > 1
    columns = (
        Column(head="precision"),
        Column(head="peak", right=True),
        Column(head="of a package", right=True, spare=2),
        Column(head="sparse", right=True, spare=3),
        Column(head="FLOP/B", right=True, spare=4),
        Column(head="clock x units x FMA x 2", spare=1),
        Column(head="off", right=True),
    )
    rows = tuple(Row(_device_peak_cells(content.device, row)) for row in content.peaks)
    table = Table(columns=columns, rows=rows)
    return table if package else table.without_column(columns[2])


def _device_peak_cells(device: Device, row: PeakRow) -> tuple[str, ...]:
    """Return the cells of a precision: dense and sparse peak, ridge, derivation, deviation."""
    rates = (row.peak, row.package_peak, row.sparse)
    figures = (_peak_rate_cell(row, rate) for rate in rates)
    return (
        row.precision,
        *figures,
        _ridge_cell(row),
        _peak_product_text(device, row),
        _peak_deviation_text(row),
    )


def _peak_rate_cell(row: PeakRow, rate: float | None) -> str:
    """Return a rate as text in FLOP/s (OP/s for integers), or "-" if it is unknown."""
    return "-" if rate is None else short_amount(rate, rate_unit(row.precision))


def rate_unit(precision: str) -> str:
    """Return "OP/s" for an integer precision and "FLOP/s" for others."""
    return "OP/s" if precision.startswith("int") else "FLOP/s"


def _ridge_cell(row: PeakRow) -> str:
    """Return the ridge of a precision as text in FLOP/byte, or "-" if it is unknown."""
    return (
        "-"
        if row.ridge is None
        else short_amount(round(row.ridge) if row.ridge >= 100 else row.ridge)
    )


def _peak_product_text(device: Device, row: PeakRow) -> str:
    """Return the product behind a peak as text: clock x units x FMAs per clock x 2."""
    if row.derived is None or row.clock is None or row.fma_per_clock is None:
        return "not all known"
    product = f"{exact_mhz(row.clock)} x {device.units} x {row.fma_per_clock:g} x 2"
    return f"{product} = {short_amount(row.derived)}"


def _peak_deviation_text(row: PeakRow) -> str:
    """Return the percentage by which clock x units differs from the data sheet, or "-"."""
    return "-" if row.deviation is None else percent_change(row.deviation + 1, 1)


def _device_doubt_sentences(content: DeviceSheet) -> list[str]:
    """Return sentences on a device's doubtful figures: differing peaks, shared names."""
    off = [row for row in content.peaks if abs(row.deviation or 0) > _TOLERATED]
    texts = [
        f"{row.precision}: the data sheet's peak and clock x units differ by "
        f"{_peak_deviation_text(row)}"
        for row in off
    ]
    low = content.device.low_confidence
    if content.also:
        shares = ", ".join(
            f"{row.device.label} ({_device_peak_ratio(row)} of this peak)" for row in content.also
        )
        texts.append(f"drivers print this name also for other devices: {shares}")
    return [*texts, *([f"less certain than the other figures: {', '.join(low)}"] if low else [])]


def _source_blocks(device: Device) -> list[Block]:
    """Return the blocks on the sources of a device's figures, their confidence, and notes."""
    blocks: list[Block] = [Heading("Source")]
    blocks += [Text(text, " - ") for text in device.source]
    blocks.append(Text(f"confidence: {device.confidence}", " - "))
    blocks += [Text(text, " - ") for text in device.evidence]
    if device.measured_matmul:
        rates = [
            f"{name} {short_amount(rate, 'FLOP/s')}"
            for name, rate in device.measured_matmul.items()
        ]
        best = (
            f"best matrix product measured: {', '.join(rates)} ({device.measured_matmul_source})"
        )
        blocks.append(Text(best, " - "))
    if device.notes:
        blocks.append(Text(device.notes, " - "))
    return blocks


def _ambiguous_name_blocks(content: DeviceSheet) -> list[Block]:
    """Return a list of the names that belong to several devices, with these devices."""
    if not content.families:
        return []
    texts = [
        Text(f"{name}: {', '.join(ids)}", " - ") for name, ids in sorted(content.families.items())
    ]
    return [Heading("Ambiguous names"), *texts]


def devices_page(content: DeviceList) -> Page:
    """Return the page with a table of devices; a short list has shares of the highest peak."""
    few = len(content.devices) <= _BESIDE
    rates = _rate_columns(content) if few else _SEVERAL
    columns = (
        Column(head="device"),
        *(Column(head=head, right=True, spare=spare) for head, spare, _ in rates),
        Column(head="memory", right=True, spare=3),
        Column(head="bandwidth", right=True, spare=2),
        Column(head="confidence", spare=4),
        Column(head="name", spare=5),
    )
    rows = tuple(
        Row(_device_list_cells(row, [cell for _, _, cell in rates])) for row in content.devices
    )
    about = Text(
        "dense peaks of one framework device; `crossflops devices NAME` shows more", " - "
    )
    return Page((Title((content.about,)), Table(columns=columns, rows=rows), about))


def _rate_columns(content: DeviceList) -> tuple[Rates, ...]:
    """Return the columns of rates in a short list of devices: peak, share of the highest, FP32."""
    chosen: tuple[Rates, ...] = (
        (content.precision, 0, lambda row: "-" if row.peak is None else short_amount(row.peak)),
        ("of the highest", 0, _device_peak_ratio),
    )
    return (
        chosen if content.precision == "fp32" else (*chosen, ("fp32", 1, _first_peak_cell("fp32")))
    )


def _device_peak_ratio(row: DeviceShare) -> str:
    """Return a device's peak in percent of the peak that it is compared with, or "-"."""
    return "-" if row.ratio is None else f"{100 * row.ratio:.0f} %"


def _first_peak_cell(*precisions: str) -> Cell:
    """Return a function that gives a device's peak in the first of these precisions it has."""

    def peak_cell_of_device(row: DeviceShare) -> str:
        """Return the device's peak, as text, in the first of the precisions it has, or "-"."""
        peaks = row.device.peaks
        return next(
            (short_amount(peaks[precision]) for precision in precisions if precision in peaks), "-"
        )

    return peak_cell_of_device


_SEVERAL: tuple[Rates, ...] = (
    ("fp32", 0, _first_peak_cell("fp32")),
    ("bf16 or fp16", 0, _first_peak_cell("bf16", "fp16")),
    ("int8", 1, _first_peak_cell("int8")),
)


def _device_list_cells(row: DeviceShare, rates: list[Cell]) -> tuple[str, ...]:
    """Return the cells of a device in a list: name, rates, memory, bandwidth, confidence."""
    device = row.device
    return (
        device.label,
        *(cell(row) for cell in rates),
        "/".join(f"{size / 1e9:g}" for size in device.memory) + " GB" if device.memory else "-",
        short_amount(device.bandwidth, "B/s") if device.bandwidth else "-",
        device.confidence,
        device.name,
    )


def derivation_page(content: Derivation) -> Page:
    """Return the page that derives a peak or a bandwidth: the product and its factors."""
    product = " x ".join(_factor_text(factor) for factor in content.factors)
    rows = tuple(Row.from_cells(factor.what, _factor_text(factor)) for factor in content.factors)
    table = Table(columns=(Column(head="factor"), Column(head="value", right=True)), rows=rows)
    rate = short_amount(content.rate, content.unit)
    digits = f"{exact_amount(round(content.rate))} {content.unit}"
    return Page((Title((f"{content.what} {rate}", digits)), table, Text(f"{product} = {rate}")))


def _factor_text(factor: Factor) -> str:
    """Return a factor of a peak as text: in MHz if its unit is Hz, else without a unit."""
    return exact_mhz(factor.value) if factor.unit == "Hz" else f"{factor.value:g}"


# The page of this machine: what its system says, and what was measured.


def machine_page(content: Machine) -> Page:
    """Return the page of this machine: CPU, GPUs, computed peaks and measured peaks."""
    blocks: list[Block] = [Title(("This machine", *([content.cpu.model] if content.cpu else [])))]
    if content.cpu is not None:
        blocks += [
            _two_column_table(_cpu_facts(content.cpu, content.known)),
            Heading("Peak by the rule"),
            _cpu_peak_rule_table(content.cpu),
        ]
    for gpu in content.gpus:
        blocks += [Heading(gpu.name), _two_column_table(_gpu_facts(gpu, content))]
    if content.measured is not None:
        blocks += _machine_peak_blocks(content.measured, content.cpu)
    return Page((*blocks, *(Text(text, " - ") for text in content.notes)))


def _two_column_table(rows: list[tuple[str, str]]) -> Table:
    """Return a table of names and values, without heads and without empty values."""
    return Table(
        columns=(Column(head="what"), Column(head="value", flows=True)),
        rows=tuple(Row(row) for row in rows if row[1]),
        bare=True,
    )


def _cpu_facts(cpu: Cpu, known: dict[str, str]) -> list[tuple[str, str]]:
    """Return (name, value) pairs on a CPU: cores, threads, clock, vector units, device name."""
    quota = "" if cpu.quota is None else f", limited to the time of {cpu.quota:g} CPUs"
    clock = "unknown" if cpu.clock is None else f"{cpu.clock / 1e9:.3f} GHz"
    return [
        (
            "cores",
            f"{cpu.cores} for this process, on {count_with_noun(cpu.sockets, 'socket')}{quota}",
        ),
        ("threads", f"{cpu.logical}"),
        ("clock", f"{clock}, by {cpu.clock_source}"),
        ("units", f"{cpu.isa}"),
        ("catalogue", known.get(cpu.model, "")),
    ]


def _cpu_peak_rule_table(cpu: Cpu) -> Table:
    """Return a table of CPU peaks by precision: cores x clock x FLOPs per clock."""
    clock = "?" if cpu.clock is None else f"{cpu.clock / 1e9:.3f} GHz"
    rows = []
    for precision, rate in cpu.flops_per_clock.items():
        peak = cpu.peak(precision)
        product = f"{cpu.usable_cores:g} x {clock} x {rate}"
        rows.append(
            Row.from_cells(
                precision,
                "-" if peak is None else short_amount(peak, rate_unit(precision)),
                product,
            )
        )
    return Table(
        columns=(
            Column(head="precision"),
            Column(head="peak", right=True),
            Column(head="cores x clock x FLOPs per clock"),
        ),
        rows=tuple(rows) or (Row.from_cells("-", "-", "FLOPs per clock and core are unknown"),),
    )


def _gpu_facts(gpu: Gpu, content: Machine) -> list[tuple[str, str]]:
    """Return (name, value) pairs on a GPU: device name, peaks, memory, clocks, power."""
    peaks = content.peaks.get(gpu.name, {})
    rates = (
        f"{name} {short_amount(rate, rate_unit(name))}" for name, rate in peaks.items() if rate
    )
    return [
        ("catalogue", content.known.get(gpu.name, "")),
        ("dense peaks", ", ".join(rates)),
        ("memory", "" if gpu.memory is None else short_amount(gpu.memory, "B")),
        ("highest clock", "" if gpu.clock is None else f"{gpu.clock / 1e6:g} MHz"),
        ("memory clock", "" if gpu.memory_clock is None else f"{gpu.memory_clock / 1e6:g} MHz"),
        ("bus", "" if gpu.bus is None else f"{gpu.bus} bit"),
        ("power limit", "" if gpu.power is None else f"{gpu.power:g} W"),
        ("FP32 units", "" if gpu.lanes is None else f"{gpu.lanes}"),
        ("SMs of the slice", "" if gpu.units is None else f"{gpu.units}"),
        ("source", gpu.driver),
    ]


def _machine_peak_blocks(peak: MachinePeak, system_cpu: Cpu | None) -> list[Block]:
    """Return the blocks on the peaks and the bandwidth measured on this machine's CPU."""
    head = "Measured" if peak.is_peak else "Measured by a matrix product (not the peak)"
    rows = [
        (
            f"{name}, {count_with_noun(peak.threads, 'thread')}",
            short_amount(rate, rate_unit(name)) + _share_of_computed_peak(rate, system_cpu, name),
        )
        for name, rate in peak.peaks.items()
    ]
    rows += [
        (
            "fp32, one thread",
            "" if peak.one_thread is None else short_amount(peak.one_thread, "FLOP/s"),
        ),
        ("core clock", "" if peak.clock is None else f"{peak.clock / 1e9:.3f} GHz"),
        ("per clock", _flops_per_clock_text(peak)),
        ("bandwidth", short_amount(peak.bandwidth, "B/s")),
        ("ridge", f"{peak.peaks['fp32'] / peak.bandwidth:.1f} FLOPs per byte in fp32"),
        ("how", peak.how),
    ]
    texts = [Text(text, " ! ", "warn") for text in peak.contradictions]
    kept = Text("use --device measured to compare a count with it", " - ")
    return [Heading(head), _two_column_table(rows), *texts, kept]


def _share_of_computed_peak(rate: float, system_cpu: Cpu | None, precision: str) -> str:
    """Return a measured rate in percent of the computed peak (clock x units), or ""."""
    peak = system_cpu.peak(precision) if system_cpu else None
    return f", {100 * rate / peak:.0f} % of the rule" if peak else ""


def _flops_per_clock_text(peak: MachinePeak) -> str:
    """Return the measured FP32 FLOPs per clock of one core as text, or ""."""
    if peak.clock is None or peak.one_thread is None:
        return ""
    return f"{peak.one_thread / peak.clock:.1f} FP32 FLOPs of one core"
