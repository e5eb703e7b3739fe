"""The blocks of a roofline: what a step asks for, what the device allows, and where it is lost."""

from collections.abc import Iterator, Sequence

from crossflops.core.roofline import Roofline, StepBound
from crossflops.render.efficiency_parts import percent
from crossflops.render.page import Block, Column, Heading, Row, Table, Text
from crossflops.render.quantity import duration, exact, number, share, short
from crossflops.render.roofline_tables import alternatives, kernels, kinds, nodes, pace, ratio

_VALUES = (Column(head=""), Column(head="value"), Column(head="from", flows=True))


def roofline_blocks(roofs: Sequence[Roofline]) -> tuple[Block, ...]:
    """Everything of a roofline; of several, one line for each."""
    if not roofs:
        return ()
    first = roofs[0]
    if len(roofs) > 1:
        return (_heading(first, "Rooflines"), _devices(roofs))
    blocks: list[Block] = [
        _heading(first, f"Roofline of {first.device}"),
        Table(columns=_VALUES, rows=tuple(_lines(first)), bare=True),
        Text(verdict(first), " ", "warn" if first.step.bound == "memory" else ""),
    ]
    if first.what_if:
        blocks.append(alternatives(first))
    if first.kinds:
        blocks.append(kinds(first))
    if first.kernels:
        blocks.append(kernels(first))
    if first.nodes:
        blocks.append(nodes(first))
    return tuple(blocks)


def _heading(roof: Roofline, what: str) -> Heading:
    return Heading(f"{what}, bytes {roof.byte_model}: {roof.formula}")


def _devices(roofs: Sequence[Roofline]) -> Table:
    """The step on each device."""
    heads = ("device", "intensity", "ridge", "attainable", "examples/s", "reached", "bound")
    return Table(
        columns=tuple(Column(head=head, right=0 < i < 6) for i, head in enumerate(heads)),
        rows=tuple(
            Row(
                (
                    one.device,
                    ratio(one.step.intensity),
                    ratio(one.step.ridge),
                    short(one.step.attainable, "FLOP/s"),
                    pace(one.step.examples / one.step.shortest),
                    percent(one.achieved.roofline_efficiency) if one.achieved else "-",
                    one.step.bound,
                )
            )
            for one in roofs
        ),
    )


def verdict(roof: Roofline) -> str:
    """Which limit it is, by how much, and whether a larger batch changes it."""
    step = roof.step
    if step.intensity is None:
        return "No byte is moved: compute-bound"
    if step.bound == "compute":
        how = f"{step.intensity / step.ridge:.3g} x right of the ridge"
        return f"COMPUTE-BOUND: {intensity(step.intensity)} is {how}"
    if not step.work:
        return "MEMORY-BOUND: nothing but movement"
    how = f"{step.ridge / step.intensity:.3g} x left of the ridge"
    return f"MEMORY-BOUND: {intensity(step.intensity)} is {how}{_any_batch(roof)}"


def _any_batch(roof: Roofline) -> str:
    limit, batch = roof.intensity_limit, roof.compute_from
    if limit is None and batch is None:
        return ""
    if batch is not None:
        return f". Compute-bound from a batch of {exact(batch)} on"
    if limit is not None and limit < roof.step.ridge:
        return f". No batch is compute-bound: whatever it is, intensity is below {limit:.3g}"
    return ""


def _lines(roof: Roofline) -> Iterator[Row]:
    step, took = roof.step, roof.achieved
    examples = number(step.examples, "example")
    yield Row(("work", short(step.work, "FLOPs"), f"a step of {examples}"))
    yield Row(("bytes", short(step.bytes, "B"), _parts(step)))
    yield Row(("intensity", intensity(step.intensity), "work / bytes"))
    yield Row(("ridge", intensity(step.ridge), _ridge(step)))
    part = share(step.attainable, step.peak)
    yield Row(("attainable", short(step.attainable, "FLOP/s"), f"{part} of the peak"))
    rate = pace(step.examples / step.shortest)
    yield Row(("shortest", duration(step.shortest), f"{rate} examples/s{_both(step)}"))
    if took is not None:
        measured = pace(step.examples / took.seconds)
        yield Row(("measured", duration(took.seconds), f"{measured} examples/s"))
        yield Row(("of the roofline", percent(took.roofline_efficiency), _efficiency(roof)))
    if step.joules is not None:
        of = f"; {took.joules:.3g} J in the measured time" if took and took.joules else ""
        yield Row(("energy", f"{step.joules:.3g} J", f"an example, at the whole TDP{of}, at most"))


def _parts(step: StepBound) -> str:
    """What the bytes are of, where that is known."""
    rest = step.bytes - step.weights - step.cache
    known = [("weights", step.weights), ("cache", step.cache), ("activations", rest)]
    if not step.weights and not step.cache:
        return f"{short(step.bytes / step.examples, 'B')} an example"
    return ", ".join(f"{name} {short(value, 'B')}" for name, value in known if value)


def _ridge(step: StepBound) -> str:
    return f"{short(step.peak, 'FLOP/s')} / {short(step.bandwidth, 'B/s')}"


def _both(step: StepBound) -> str:
    if step.seconds is None:
        return "; the model as a whole"
    return f"; node after node, {duration(step.whole_seconds)} if all overlapped"


def _efficiency(roof: Roofline) -> str:
    """The shares of both limits, with the one that does not bind as an aside."""
    took, step = roof.achieved, roof.step
    if took is None:
        return ""
    achieved = short(step.work / took.seconds, "FLOP/s")
    moved = short(step.bytes / took.seconds, "B/s")
    memory = f"MBU {percent(took.mbu)} ({moved})"
    compute = f"MFU {percent(took.mfu)} ({achieved})"
    whole = "" if step.seconds is None else f"; as a whole {percent(took.whole_efficiency)}"
    order = (compute, memory) if step.bound == "compute" else (memory, compute)
    return f"shortest / measured{whole}; {', '.join(order)}"


def intensity(value: float | None) -> str:
    """FLOP/B in four digits."""
    return "-" if value is None else f"{ratio(value)} FLOP/B"
