"""Build the blocks of a workload: a table of prefill, decode and both, and polynomials."""

from collections.abc import Iterable

from crossflops.ir.polynomial import polynomial_text
from crossflops.ir.workload import GenerationPhase, LengthPiece, Workload, WorkShare
from crossflops.render.page import Block, Column, Heading, Row, Table, Text, right
from crossflops.report.quantity import count_with_noun, exact_amount, short_amount

_KINDS = (("MACs", "macs"), ("FLOPs", "flops"), ("cache read", "cache_read"))
_BOUND = (
    "Bytes to move are the weights once for each pass, and the reads and writes of the cache; "
    "activations stay on the chip. Decoding is memory-bound on a device whose ridge (FLOPs per "
    "byte) is above its intensity."
)


def workload_blocks(workload: Workload) -> list[Block]:
    """Return the blocks of a workload: a table of its phases, polynomials, and notes."""
    requests = count_with_noun(workload.batch, "request")
    heading = (
        f"{requests} of {count_with_noun(workload.prompt, 'prompt token')} and "
        f"{count_with_noun(workload.generate, 'new token')}"
    )
    blocks: list[Block] = [Heading(heading), _phase_table(workload), Text(_cache(workload), " ")]
    blocks += [Text(_BOUND, " ", "dim")]
    if workload.experts:
        blocks.append(Text(f"{workload.experts[:1].upper()}{workload.experts[1:]}.", " ", "warn"))
    return [*blocks, *_polynomial_blocks(workload), Heading("Totals of the prefill")]


def _cache(workload: Workload) -> str:
    """Return a sentence on the bytes and the dtype of the cache at the end."""
    return (
        f"After the last step the cache has {exact_amount(workload.cache_bytes)} bytes, in "
        f"{workload.cache_dtype}."
    )


def _phase_table(workload: Workload) -> Table:
    """Return a table of the workload's amounts: prefill, decode (if any) and total."""
    prefill, decode = workload.prefill, workload.decode
    phases = [("prefill", prefill), *([("decode", decode)] if decode is not None else [])]
    columns = (Column(head=""), *right(*(name for name, _ in phases), "total"))
    both = [phase for _, phase in phases]
    rows = [
        _row("passes", [phase.passes for phase in both], sum(phase.passes for phase in both)),
        _row("MACs", [phase.amounts.macs for phase in both], workload.macs),
        _row("FLOPs", [phase.amounts.flops for phase in both], workload.flops),
        _shares("  per request", both, "per_request", workload.per_request),
        _shares("  per token", both, "per_token", workload.per_new_token),
        _row("weights of a pass, bytes", [phase.weight_bytes for phase in both], None),
        _row(
            "cache read, bytes",
            [phase.amounts.cache_read for phase in both],
            sum(phase.amounts.cache_read for phase in both),
        ),
        _row(
            "cache written, bytes",
            [phase.amounts.cache_written for phase in both],
            sum(phase.amounts.cache_written for phase in both),
        ),
        _row("bytes to move", [phase.moved_bytes for phase in both], workload.moved_bytes),
        Row.from_cells("FLOPs per byte", *(f"{phase.intensity:.4g}" for phase in both), ""),
        _row("peak activations, bytes", [phase.peak_activation_bytes for phase in both], None),
    ]
    return Table(columns=columns, rows=tuple(rows), stub=1)


def _row(name: str, amounts: Iterable[int | None], total: int | None) -> Row:
    """Return a row of exact amounts and their total; None is "unknown", or "" as a total."""
    cells = ["unknown" if amount is None else exact_amount(amount) for amount in amounts]
    return Row.from_cells(name, *cells, "" if total is None else exact_amount(total))


def _shares(name: str, phases: Iterable[GenerationPhase], key: str, total: WorkShare) -> Row:
    """Return a row of FLOPs for one request or one token (`key`): of each phase, and in all."""
    shares = [getattr(phase, key).flops for phase in phases]
    return Row.from_cells(name, *(short_amount(share) for share in (*shares, total.flops)))


def _polynomial_blocks(workload: Workload) -> list[Block]:
    """Return a table of polynomials: of one prefill, of one step, and of all steps if known."""
    rows = [*_piece_rows("prefill", workload.prefill.pieces)]
    if workload.decode is not None:
        rows += _piece_rows("step", workload.decode.pieces)
    for name, formula in (("MACs", workload.decode_macs), ("FLOPs", workload.decode_flops)):
        if formula is not None:
            rows.append(Row.from_cells("all steps", "", name, polynomial_text(formula)))
    columns = (
        Column(head="pass"), Column(head="length"), Column(head="kind"),
        Column(head="polynomial", flows=True),
    )  # fmt: skip
    notes = [
        f"Exact for this batch: {workload.counted} passes were counted, and "
        "every polynomial holds at a further length, or has all of its lengths counted"
    ]
    if workload.layers:
        notes.append(workload.layers)
    if workload.decode is not None and workload.decode_macs is None:
        notes.append(
            "no polynomial holds for the steps at all prompts and contexts, so their sum adds "
            "up the pieces at this prompt"
        )
    return [
        Heading("As polynomials in the lengths"),
        Table(columns=columns, rows=tuple(rows), bare=True),
        Text(f"{'; '.join(notes)}.", " ", "dim"),
    ]


def _piece_rows(name: str, pieces: Iterable[LengthPiece]) -> Iterable[Row]:
    """Yield a row for each polynomial, with the range of lengths for which it holds."""
    for piece in pieces:
        lengths = f"{piece.along} {piece.first} to {piece.last}"
        for kind, key in _KINDS:
            formula = getattr(piece, key)
            if formula is None:
                yield Row.from_cells(
                    name, lengths, kind, "no polynomial holds at the checked lengths"
                )
            elif formula:
                yield Row.from_cells(name, lengths, kind, polynomial_text(formula))
