"""Build the blocks of a roofline: what a step needs, what the device allows, what limits it."""

from collections.abc import Iterator, Sequence

from crossflops.ir.roofline import KindBound, NodeBound, Roofline, StepBound
from crossflops.render.page import Block, Column, Figure, Heading, Row, Table, Text
from crossflops.report.quantity import (
    count_with_noun,
    exact_amount,
    percent_share,
    percent_text,
    seconds_to_text,
    short_amount,
)

# The tables of a roofline: alternatives, nodes by kind, the kernels that ran, every node.

KINDS = 12  # rows of the table of kinds; the rest in one more
LEAST = 0.0005  # kinds of a smaller share of the time are not worth a row of their own
_MARK = " <- cache"  # a kind that reads a cache


def what_if_table(roof: Roofline) -> Table:
    """Return a table of a step as it is, and with each change of --what-if."""
    heads = ("what if", "a step", "examples/s", "bytes", "intensity", "ridge", "bound")
    return Table(
        columns=tuple(Column(head=head, right=0 < i < 6) for i, head in enumerate(heads)),
        rows=tuple(
            Row.from_cells(
                step.label,
                seconds_to_text(step.shortest_seconds),
                examples_per_second_text(step.examples / step.shortest_seconds),
                short_amount(step.bytes, "B"),
                flops_per_byte_text(step.intensity),
                flops_per_byte_text(step.ridge),
                step.bound,
            )
            for step in (roof.step, *roof.what_if)
        ),
    )


def node_kind_table(roof: Roofline) -> Table:
    """Return a table of nodes by kind, slowest first: shares of work, bytes and time."""
    heads = ("nodes", "n", "FLOP %", "bytes %", "time %", "intensity", "bound")
    timed = tuple(kind for kind in roof.kinds if kind.seconds)
    first = tuple(
        kind for kind in timed[:KINDS] if kind.seconds >= LEAST * roof.step.shortest_seconds
    )
    rest = timed[len(first) :]
    rows = [_node_kind_row(roof, kind.kind, (kind,)) for kind in first]
    if rest:
        rows.append(_node_kind_row(roof, f"{count_with_noun(len(rest), 'kind')} more", rest))
    if idle := tuple(kind for kind in roof.kinds if not kind.seconds):
        rows.append(_node_kind_row(roof, "nodes without time", idle))
    return Table(
        columns=tuple(Column(head=head, right=0 < i < 6) for i, head in enumerate(heads)),
        rows=tuple(rows),
    )


def _node_kind_row(roof: Roofline, name: str, kinds: tuple[KindBound, ...]) -> Row:
    """Return the row of kinds of nodes: number, shares of work, bytes and time, limit."""
    work, moved = sum(kind.work for kind in kinds), sum(kind.bytes for kind in kinds)
    sides = {kind.bound for kind in kinds}
    marked = _MARK if any(kind.cache for kind in kinds) else ""
    return Row.from_cells(
        name,
        exact_amount(sum(kind.nodes for kind in kinds)),
        _roofline_percent(work, roof.step.work),
        _roofline_percent(moved, roof.step.bytes),
        _roofline_percent(sum(kind.seconds for kind in kinds), roof.step.shortest_seconds),
        flops_per_byte_text(work / moved if moved and work else None),
        ("-" if sides == {"none"} else "/".join(sorted(sides - {"none"}))) + marked,
    )


def roofline_kernel_table(roof: Roofline) -> Table:
    """Return a table of the measured kernels that are slowest relative to the roofline."""
    heads = ("kernel", "intensity", "reached", "measured", "shortest", "efficiency")
    worst = sorted(roof.kernels, key=lambda kernel: kernel.seconds - kernel.measured)[:KINDS]
    return Table(
        columns=tuple(Column(head=head, right=i > 0) for i, head in enumerate(heads)),
        rows=tuple(
            Row.from_cells(
                kernel.kernel,
                flops_per_byte_text(kernel.intensity),
                short_amount(kernel.rate, "FLOP/s") if kernel.work else "-",
                seconds_to_text(kernel.measured),
                seconds_to_text(kernel.seconds),
                percent_text(kernel.efficiency),
                tone="bad" if kernel.efficiency > 1 else "",
            )
            for kernel in worst
        ),
    )


def roofline_node_table(roof: Roofline) -> Table:
    """Return a table of nodes: FLOPs, bytes, intensity, shortest time, limit."""
    heads = ("node", "operator", "precision", "FLOPs", "bytes", "intensity", "seconds", "bound")
    return Table(
        columns=tuple(Column(head=head, right=2 < i < 7) for i, head in enumerate(heads)),
        rows=tuple(_roofline_node_row(node) for node in roof.nodes),
        detail=True,
    )


def _roofline_node_row(node: NodeBound) -> Row:
    """Return the row of a node: operator, FLOPs, bytes, intensity, shortest time, limit."""
    figures = (
        exact_amount(node.work),
        exact_amount(node.bytes),
        flops_per_byte_text(node.intensity),
        f"{node.seconds:.4g}",
    )
    return Row.from_cells(node.node, node.op, node.precision, *figures, node.bound)


def examples_per_second_text(value: float) -> str:
    """Return a number of examples per second as text, with four digits below 1000."""
    if value >= 1e6:
        return short_amount(value)
    return f"{value:,.0f}".replace(",", " ") if value >= 1000 else f"{value:.4g}"


def flops_per_byte_text(value: float | None) -> str:
    """Return an intensity (FLOPs per byte) as text in four digits without a unit, or "-"."""
    return "-" if value is None else f"{value:.4g}" if value < 10_000 else short_amount(value)


def _roofline_percent(part: float, full: float) -> str:
    """Return part / full in percent as text with one decimal, or "-" if `full` is 0."""
    return f"{100 * part / full:.1f}" if full else "-"


_VALUES = (Column(head=""), Column(head="value"), Column(head="from", flows=True))


def roofline_blocks(roofs: Sequence[Roofline]) -> tuple[Block, ...]:
    """Return the blocks of one roofline, or a table with a row for each of several."""
    if not roofs:
        return ()
    first = roofs[0]
    if len(roofs) > 1:
        return (_roofline_heading(first, "Rooflines"), _roofline_device_table(roofs))
    blocks: list[Block] = [
        _roofline_heading(first, f"Roofline of {first.device}"),
        Figure("roofline", first),
        Table(columns=_VALUES, rows=tuple(_roofline_summary_rows(first)), bare=True),
        Text(roofline_verdict(first), " ", "warn" if first.step.bound == "memory" else ""),
    ]
    if first.what_if:
        blocks.append(what_if_table(first))
    if first.kinds:
        blocks.append(node_kind_table(first))
    if first.kernels:
        blocks.append(roofline_kernel_table(first))
    if first.nodes:
        blocks.append(roofline_node_table(first))
    return tuple(blocks)


def _roofline_heading(roof: Roofline, name: str) -> Heading:
    """Return the heading of a roofline: `name`, its byte model and its formula."""
    return Heading(f"{name}, bytes {roof.byte_model}: {roof.formula}")


def _roofline_device_table(roofs: Sequence[Roofline]) -> Table:
    """Return a table of one step on several devices: intensity, ridge, rate, limit."""
    heads = ("device", "intensity", "ridge", "attainable", "examples/s", "reached", "bound")
    return Table(
        columns=tuple(Column(head=head, right=0 < i < 6) for i, head in enumerate(heads)),
        rows=tuple(
            Row.from_cells(
                roof.device,
                flops_per_byte_text(roof.step.intensity),
                flops_per_byte_text(roof.step.ridge),
                short_amount(roof.step.attainable, "FLOP/s"),
                examples_per_second_text(roof.step.examples / roof.step.shortest_seconds),
                percent_text(roof.achieved.roofline_efficiency) if roof.achieved else "-",
                roof.step.bound,
            )
            for roof in roofs
        ),
    )


def roofline_verdict(roof: Roofline) -> str:
    """Return a sentence on whether a step is compute-bound or memory-bound, and how far."""
    step = roof.step
    if step.intensity is None:
        return "No bytes are moved: compute-bound"
    if step.bound == "compute":
        config = f"{step.intensity / step.ridge:.3g} x above the ridge"
        return f"COMPUTE-BOUND: {intensity_text(step.intensity)} is {config}"
    if not step.work:
        return "MEMORY-BOUND: no FLOPs, only data movement"
    config = f"{step.ridge / step.intensity:.3g} x below the ridge"
    batch = _compute_bound_batch_text(roof)
    return f"MEMORY-BOUND: {intensity_text(step.intensity)} is {config}{batch}"


def _compute_bound_batch_text(roof: Roofline) -> str:
    """Return a text on the batch size that makes the model compute-bound, if known; else ""."""
    limit, batch = roof.intensity_limit, roof.compute_from
    if limit is None and batch is None:
        return ""
    if batch is not None:
        return f". Compute-bound from a batch of {exact_amount(batch)} on"
    if limit is not None and limit < roof.step.ridge:
        return f". No batch size is compute-bound: intensity stays below {limit:.3g}"
    return ""


def _roofline_summary_rows(roof: Roofline) -> Iterator[Row]:
    """Yield the rows of a roofline summary: work, bytes, intensity, ridge, shortest time."""
    step, took = roof.step, roof.achieved
    examples = count_with_noun(step.examples, "example")
    yield Row.from_cells("work", short_amount(step.work, "FLOPs"), f"a step of {examples}")
    yield Row.from_cells("bytes", short_amount(step.bytes, "B"), _byte_parts_note(step))
    yield Row.from_cells("intensity", intensity_text(step.intensity), "work / bytes")
    yield Row.from_cells("ridge", intensity_text(step.ridge), _ridge_quotient_text(step))
    part = percent_share(step.attainable, step.peak)
    yield Row.from_cells(
        "attainable", short_amount(step.attainable, "FLOP/s"), f"{part} of the peak"
    )
    rate = (
        f"{examples_per_second_text(step.examples / step.shortest_seconds)} examples/s"
        if step.shortest_seconds
        else "no work"
    )
    yield Row.from_cells(
        "shortest", seconds_to_text(step.shortest_seconds), f"{rate}{_overlap_time_note(step)}"
    )
    if took is not None:
        measured = (
            f"{examples_per_second_text(step.examples / took.seconds)} examples/s"
            if took.seconds
            else ""
        )
        yield Row.from_cells("measured", seconds_to_text(took.seconds), measured)
        yield Row.from_cells(
            "of the roofline", percent_text(took.roofline_efficiency), _mfu_and_mbu_text(roof)
        )
    if step.joules is not None:
        of = f"; {took.joules:.3g} J in the measured time" if took and took.joules else ""
        yield Row.from_cells(
            "energy", f"{step.joules:.3g} J", f"per example at most, at the full TDP{of}"
        )


def _byte_parts_note(step: StepBound) -> str:
    """Return the bytes of a step as text: of weights, cache and activations."""
    rest = step.bytes - step.weights - step.cache
    known = [("weights", step.weights), ("cache", step.cache), ("activations", rest)]
    if not step.weights and not step.cache:
        return f"{short_amount(step.bytes / step.examples, 'B')} an example"
    return ", ".join(f"{name} {short_amount(value, 'B')}" for name, value in known if value)


def _ridge_quotient_text(step: StepBound) -> str:
    """Return the ridge as text, as a quotient of peak (FLOP/s) and bandwidth (B/s)."""
    return f"{short_amount(step.peak, 'FLOP/s')} / {short_amount(step.bandwidth, 'B/s')}"


def _overlap_time_note(step: StepBound) -> str:
    """Return a note on how the shortest time adds up, and the time if all nodes overlap."""
    if step.seconds is None:
        return "; the model as a whole"
    return (
        f"; nodes run one after the other, {seconds_to_text(step.whole_seconds)} if all overlapped"
    )


def _mfu_and_mbu_text(roof: Roofline) -> str:
    """Return the measured run in percent of the limits as text: MFU and MBU; "" if not run."""
    took, step = roof.achieved, roof.step
    if took is None:
        return ""
    achieved = short_amount(step.work / took.seconds, "FLOP/s")
    moved = short_amount(step.bytes / took.seconds, "B/s")
    memory = f"MBU {percent_text(took.mbu)} ({moved})"
    compute = f"MFU {percent_text(took.mfu)} ({achieved})"
    together = (
        "" if step.seconds is None else f"; as a whole {percent_text(took.whole_efficiency)}"
    )
    order = (compute, memory) if step.bound == "compute" else (memory, compute)
    return f"shortest / measured{together}; {', '.join(order)}"


def intensity_text(value: float | None) -> str:
    """Return an intensity as text with its unit, FLOP/B, or "-"."""
    return "-" if value is None else f"{flops_per_byte_text(value)} FLOP/B"
