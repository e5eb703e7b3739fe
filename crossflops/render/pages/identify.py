"""Build the page of an identified figure: which conventions print it, and which nearly do."""

from collections.abc import Sequence

from crossflops.ir.profile import Amount
from crossflops.render.page import Block, Column, Command, Heading, Page, Row, Table, Text, Title
from crossflops.report.identification import MFU, RUN_FLOPS, RUN_SPEED, Candidate, Identification
from crossflops.report.model_numbers import NATIVE
from crossflops.report.quantity import count_with_noun, exact_amount, short_count_with_noun

_ROUNDINGS = {
    "exact": "to the last digit", "rounded": "rounded", "truncated": "cut off",
    "coarse": "rounded to fewer digits", "binary": "with a prefix of 1024",
}  # fmt: skip
_COMMANDS, _NEAR = 3, 5  # on a page; a JSON file has all


def identification_page(result: Identification) -> Page:
    """Return the page of an identified figure: candidates, their commands, near numbers."""
    blocks: list[Block] = [
        Title(
            (
                f"{result.figure} of {result.target}",
                f"input {', '.join(result.inputs)}",
                short_count_with_noun(result.params, "parameter"),
            )
        )
    ]
    if result.exact:
        blocks.append(_candidate_table(result.exact))
        blocks.append(Heading("commands that print it"))
        blocks += [Command(candidate.command, " ") for candidate in result.exact[:_COMMANDS]]
        if more := len(result.exact) - _COMMANDS:
            blocks += [Text(f"{more} more: --json has the command of each", " ", "dim")] * (
                more > 0
            )
    else:
        blocks.append(Text("No convention prints this figure.", " ", "warn"))
        if result.nearest is not None:
            blocks.append(Text(_nearest_sentence(result.nearest, result.distance), " "))
    if result.near:
        blocks.append(Heading("near: numbers without some causes"))
        blocks.append(_near_table(result.near[:_NEAR]))
    return Page((*blocks, *_identification_notes(result)))


def candidate_name(candidate: Candidate) -> str:
    """Return the name of a candidate: the tool and its edition, or "native count"."""
    if candidate.tool == NATIVE:
        return "native count"
    return f"{candidate.tool} {candidate.edition}"


def _nearest_sentence(candidate: Candidate, distance: float) -> str:
    """Return a sentence about the number that is nearest to a figure."""
    return (
        f"The nearest number is that of {candidate_name(candidate)}: "
        f"{_amount_text(candidate.prints, candidate)} {_unit_text(candidate)}, "
        f"{100 * distance:+.2f} % from the figure."
    )


def _amount_text(amount: Amount, candidate: Candidate) -> str:
    """Return the number of a candidate as text: all digits, but seven of a training run."""
    if candidate.unit in (MFU, RUN_SPEED) or candidate.unit.startswith(RUN_FLOPS):
        return f"{amount:.6e}" if amount >= 1e6 else f"{amount:.6g}"
    return exact_amount(amount)


def _unit_text(candidate: Candidate) -> str:
    """Return the unit of a candidate's number as text, such as "2 x MACs"."""
    times = "" if candidate.factor == "1" else f"{candidate.factor} x "
    return f"{times}{candidate.unit}"


def _candidate_table(candidates: Sequence[Candidate]) -> Table:
    """Return a table of the candidates: name, unit, number, rounding, input and command."""
    return Table(
        columns=(
            Column(head="what prints it"),
            Column(head="unit"),
            Column(head="prints", right=True),
            Column(head="how"),
            Column(head="input", spare=1),
            Column(head="command", detail=True),
        ),
        rows=tuple(
            Row.from_cells(
                candidate_name(candidate),
                _unit_text(candidate),
                _amount_text(candidate.prints, candidate),
                _ROUNDINGS[candidate.rounding],
                ", ".join(candidate.inputs),
                candidate.command,
                tone="" if candidate.given else "dim",
            )
            for candidate in candidates
        ),
    )


def _near_table(candidates: Sequence[Candidate]) -> Table:
    """Return a table of candidates that print the figure without some causes."""
    return Table(
        columns=(
            Column(head="tool"),
            Column(head="unit"),
            Column(head="prints", right=True),
            Column(head="without", flows=True),
            Column(head="is", right=True),
        ),
        rows=tuple(
            Row.from_cells(
                candidate_name(candidate),
                _unit_text(candidate),
                _amount_text(candidate.prints, candidate),
                ", ".join(candidate.missing),
                _amount_text(candidate.gives, candidate),
            )
            for candidate in candidates
        ),
    )


def _identification_notes(result: Identification) -> list[Block]:
    """Return notes on what was counted, what was not, and which tools gave no number."""
    notes: list[Block] = [Text(f"Counted: {'; '.join(result.tried)}.", " ", "dim")]
    if len(result.tried) == 1 and result.exact:
        sentence = "Other inputs and settings are tried only if no number fits, or with --all."
        notes.append(Text(sentence, " ", "dim"))
    notes += [Text(f"Not counted: {words}.", " ", "dim") for words in result.untried]
    if result.refused:
        names = ", ".join(result.refused)
        notes.append(Text(f"Without a number for this model: {names}.", " ", "dim"))
    if result.uncounted:
        nodes = count_with_noun(result.uncounted, "node")
        notes.append(Text(f"{nodes} not counted: in no native number.", " ", "warn"))
    return notes
