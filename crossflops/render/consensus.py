"""The number to publish, in words, and what each tool makes of it."""

from crossflops.core.consensus import Consensus, Stand
from crossflops.render.page import Block, Column, Heading, Row, Table, Text, Tone

_WORDS: dict[Stand, str] = {
    "agrees": "agrees",
    "agrees after": "agrees, with more on top",
    "differs": "differs",
    "unexplained": "unexplained",
    "failed": "failed",
}
_TONES: dict[Stand, Tone] = {"agrees": "good", "unexplained": "bad", "failed": "warn"}


def consensus_blocks(found: Consensus) -> list[Block]:
    """The sentence, the reason, the caveats, and a row for each tool."""
    head = "To publish" if found.citable else "To publish, with its caveat only"
    blocks: list[Block] = [
        Heading(head),
        Text(found.sentence, "   "),
        Heading("Why this number"),
        Text(f"{found.reason}.", "   "),
    ]
    order = list(_WORDS)
    rows = sorted(found.verdicts, key=lambda one: order.index(one.stand))
    table = Table(
        columns=(Column(head="tool"), Column(head="verdict"), Column(head="why", flows=True)),
        rows=tuple(
            Row((one.tool, _WORDS[one.stand], one.why), _TONES.get(one.stand, "")) for one in rows
        ),
    )
    return [*blocks, Heading("What the tools make of it"), table] if rows else blocks
