"""Tables of an efficiency: the phases of a step, and the precisions of its work."""

from msgspec import UNSET

from crossflops.core.efficiency import Efficiency, ModuleTime, Step
from crossflops.render.efficiency_parts import number, percent
from crossflops.render.page import Block, Column, Heading, Row, Table
from crossflops.render.quantity import duration, short


def tables(rows: tuple[Efficiency, ...]) -> list[Block]:
    """The parts of a step, and the precisions of the work, each with its peak."""
    blocks: list[Block] = []
    for row in rows:
        name = f" on {row.device}" if len(rows) > 1 and row.device else ""
        if isinstance(row.step, Step):
            blocks += [Heading(_summary(row.step) + name), _step(row.step)]
        if row.modules:
            blocks += [Heading(f"Forward times of modules{name}"), _modules(row.modules)]
        if row.precisions is not UNSET:
            blocks += [Heading(f"Work by precision{name}"), _precisions(row)]
    return blocks


def _summary(step: Step) -> str:
    params = "" if step.params is None else f", {short(step.params)} parameters"
    return f"One device: batch {step.batch}, {short(step.macs, 'MACs')} forward{params}"


def _step(step: Step) -> Table:
    rows = [
        Row(
            (
                one.name,
                f"{1e3 * one.seconds:.5g} ms",
                short(one.flops, "FLOPs"),
                short(one.rate, "FLOP/s"),
                percent(one.ratio),
            )
        )
        for one in step.phases
    ]
    speed = f"{number(step.examples_per_second)} examples/s"
    whole = ("whole step", f"{1e3 * step.seconds:.5g} ms", "", speed, "")
    right = [Column(head=head, right=True) for head in ("latency", "work", "rate", "share")]
    return Table(columns=(Column(head=""), *right), rows=(*rows, Row(whole)))


def _modules(modules: tuple[ModuleTime, ...]) -> Table:
    right = [Column(head=head, right=True) for head in ("time", "work", "rate", "share")]
    return Table(
        columns=(Column(head="module", flows=True), *right),
        rows=tuple(
            Row(
                (
                    one.path or "(the model)",
                    duration(one.seconds),
                    short(one.flops, "FLOPs"),
                    short(one.rate, "FLOP/s"),
                    percent(one.ratio),
                ),
                "bad" if (one.ratio or 0) > 1 else "",
            )
            for one in modules
        ),
    )


def _precisions(row: Efficiency) -> Table:
    parts = row.precisions or ()
    total = sum(one.flops for one in parts)
    right = [Column(head=head, right=True) for head in ("work", "of it", "peak")]
    return Table(
        columns=(Column(head="precision"), *right),
        rows=tuple(
            Row(
                (
                    one.precision,
                    short(one.flops, "FLOPs"),
                    percent(one.flops / total if total else None),
                    "-" if one.peak is None else short(one.peak, "FLOP/s"),
                )
            )
            for one in parts
        ),
    )
