"""Build the blocks of a workload: a table of prefill, decode and both, and polynomials."""

from collections.abc import Iterable

from crossflops.ir.polynomial import polynomial_text
from crossflops.ir.workload import (
    GenerationPhase,
    LengthPiece,
    Speculation,
    Workload,
    WorkShare,
)
from crossflops.render.page import Block, Column, Heading, Row, Table, Text, number_columns
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
        f"{requests} of {count_with_noun(workload.prompt, 'prompt token')}"
        f"{image_tokens_text(workload)} and {count_with_noun(workload.generate, 'new token')}"
    )
    blocks: list[Block] = [Heading(heading)]
    if workload.speculation is not None:
        blocks.append(Text(_speculation_round_sentences(workload.speculation), " "))
    blocks += [_phase_table(workload), Text(_cache_sentence(workload), " ")]
    blocks += [Text(_BOUND, " ", "dim")]
    for experts in dict.fromkeys(
        own.experts for own in _model_and_draft_workloads(workload) if own.experts
    ):
        blocks.append(Text(f"{experts[:1].upper()}{experts[1:]}.", " ", "warn"))
    blocks += _polynomial_blocks(workload)
    name = "the prefill" if workload.speculation is None else "the first pass of the model"
    return [*blocks, Heading(f"Totals of {name}")]


def image_tokens_text(workload: Workload) -> str:
    """Return the words for the image tokens of a prompt, "" if it has none."""
    if not workload.images:
        return ""
    tokens = exact_amount(workload.image_tokens)
    return f" ({tokens} of {count_with_noun(workload.images, 'image')})"


def _model_and_draft_workloads(workload: Workload) -> list[Workload]:
    """Return the work of the model and of its draft model, if there is one."""
    speculation = workload.speculation
    return [workload] if speculation is None else [workload, speculation.draft]


def _speculation_round_sentences(speculation: Speculation) -> str:
    """Return sentences on the rounds of speculative decoding, and what is assumed of them."""
    proposed = count_with_noun(speculation.draft_tokens, "token")
    return (
        f"The draft model {speculation.target} proposes {proposed} in a round. Assumed: "
        f"{_fraction_text(speculation.acceptance)} of them are accepted on average, spread "
        "evenly over the rounds. "
        f"So {count_with_noun(speculation.rounds, 'round')} of a request have "
        f"{exact_amount(speculation.proposed_tokens)} proposed and "
        f"{exact_amount(speculation.accepted_tokens)} accepted tokens. The passes are those of "
        "transformers: the model checks a round in one pass, the first one with the prompt, and "
        "the draft begins a later round with two tokens."
    )


def _fraction_text(fraction: str) -> str:
    """Return a fraction with its value: "36/25 (1.44)"; an integer as it is."""
    above, _, below = fraction.partition("/")
    return f"{fraction} ({int(above) / int(below):.4g})" if below else fraction


def _cache_sentence(workload: Workload) -> str:
    """Return a sentence on the bytes and the dtype of the cache at the end."""
    own = workload.model_cache_dtype
    chosen = (
        f"; the model keeps it in {own}. Scales of a quantized cache are not added" if own else ""
    )
    draft = ""
    if workload.speculation is not None:
        draft = f", that of the draft {exact_amount(workload.speculation.draft.cache_bytes)}"
    return (
        f"After the last step the cache has {exact_amount(workload.cache_bytes)} bytes{draft}, in "
        f"{workload.cache_dtype}{chosen}."
    )


def _phases_with_names(workload: Workload) -> list[tuple[str, GenerationPhase]]:
    """Return the phases of the model, and of its draft model, with their names in the table."""
    decode = "decode" if workload.speculation is None else "rounds"
    phases = [("prefill", workload.prefill), (decode, workload.decode)]
    if workload.speculation is not None:
        draft = workload.speculation.draft
        phases += [("draft prefill", draft.prefill), ("draft rounds", draft.decode)]
    return [(name, phase) for name, phase in phases if phase is not None]


def _phase_table(workload: Workload) -> Table:
    """Return a table of the workload's amounts: each phase, and the total."""
    phases = _phases_with_names(workload)
    columns = (Column(head=""), *number_columns(*(name for name, _ in phases), "total"))
    both = [phase for _, phase in phases]
    rows = [
        _exact_amount_row(
            "passes", [phase.passes for phase in both], sum(phase.passes for phase in both)
        ),
        _exact_amount_row("MACs", [phase.amounts.macs for phase in both], workload.macs),
        _exact_amount_row("FLOPs", [phase.amounts.flops for phase in both], workload.flops),
        _flops_share_row("  per request", both, "per_request", workload.per_request),
        _flops_share_row("  per token", both, "per_token", workload.per_new_token),
        _exact_amount_row(
            "weights of a pass, bytes", [phase.weight_bytes for phase in both], None
        ),
        _exact_amount_row(
            "cache read, bytes",
            [phase.amounts.cache_read for phase in both],
            sum(phase.amounts.cache_read for phase in both),
        ),
        _exact_amount_row(
            "cache written, bytes",
            [phase.amounts.cache_written for phase in both],
            sum(phase.amounts.cache_written for phase in both),
        ),
        _exact_amount_row(
            "bytes to move", [phase.moved_bytes for phase in both], workload.moved_bytes
        ),
        Row.from_cells("FLOPs per byte", *(f"{phase.intensity:.4g}" for phase in both), ""),
        _exact_amount_row(
            "peak activations, bytes", [phase.peak_activation_bytes for phase in both], None
        ),
    ]
    return Table(columns=columns, rows=tuple(rows), stub=1)


def _exact_amount_row(name: str, amounts: Iterable[int | None], total: int | None) -> Row:
    """Return a row of exact amounts and their total; None is "unknown", or "" as a total."""
    cells = ["unknown" if amount is None else exact_amount(amount) for amount in amounts]
    return Row.from_cells(name, *cells, "" if total is None else exact_amount(total))


def _flops_share_row(
    name: str, phases: Iterable[GenerationPhase], key: str, total: WorkShare
) -> Row:
    """Return a row of FLOPs for one request or one token (`key`): of each phase, and in all."""
    shares = [getattr(phase, key).flops for phase in phases]
    return Row.from_cells(name, *(short_amount(share) for share in (*shares, total.flops)))


def _polynomial_blocks(workload: Workload) -> list[Block]:
    """Return a table of polynomials: of one prefill, of one step, and of all steps if known."""
    rows = [*_piece_rows("prefill", workload.prefill.pieces)]
    if workload.decode is not None:
        step = "step" if workload.speculation is None else "round"
        rows += _piece_rows(step, workload.decode.pieces)
    if workload.speculation is not None and workload.speculation.draft.decode is not None:
        rows += _piece_rows("draft, a token", workload.speculation.draft.decode.pieces)
    for name, formula in (("MACs", workload.decode_macs), ("FLOPs", workload.decode_flops)):
        if formula is not None:
            rows.append(Row.from_cells("all steps", "", name, polynomial_text(formula)))
    columns = (
        Column(head="pass"), Column(head="length"), Column(head="kind"),
        Column(head="polynomial", flows=True),
    )  # fmt: skip
    counted = sum(own.counted for own in _model_and_draft_workloads(workload))
    notes = [f"Exact for this batch: {counted} passes were counted"]
    if rows:
        notes = [
            f"{notes[0]}, and every polynomial holds at a further length, or has all of its "
            "lengths counted"
        ]
    for own in _model_and_draft_workloads(workload):
        if own.layers:
            notes.append(own.layers if own is workload else f"of the draft {own.layers}")
    is_pieced = workload.speculation is None and workload.decode_macs is None
    if workload.decode is not None and is_pieced:
        notes.append(
            "no polynomial holds for the steps at all prompts and contexts, so their sum adds "
            "up the pieces at this prompt"
        )
    sentence = Text(f"{'; '.join(notes)}.", " ", "dim")
    if not rows:
        return [sentence]
    table = Table(columns=columns, rows=tuple(rows), bare=True)
    return [Heading("As polynomials in the lengths"), table, sentence]


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
