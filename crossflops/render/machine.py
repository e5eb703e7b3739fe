"""The page of this machine: what its system says, and what was measured."""

from crossflops.core.machine import Cpu, Gpu, Machine, MachinePeak
from crossflops.render.devices import per_second
from crossflops.render.page import Block, Column, Heading, Page, Row, Table, Text, Title
from crossflops.render.quantity import number, short


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
