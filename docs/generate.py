"""Write the generated pages beside this file: what the code knows, in Markdown.

    python docs/generate.py

`tests/docs/test_generated.py` holds the pages against the code.
"""

from collections.abc import Callable
from pathlib import Path

from crossflops.causes import causes
from crossflops.ir.graph import Op
from crossflops.operators import not_counted, rules
from crossflops.operators.gradient import Backward, no_gradient
from crossflops.render.formats import markdown
from crossflops.render.page import Block, Column, Heading, Page, Row, Table, Text, Title
from crossflops.render.pages.explain import cause_blocks
from crossflops.tools.registry import ours

FOLDER = Path(__file__).parent


def ops() -> str:
    """Every rule of every operator, and the operators without one."""
    title = Title(("Operators", "what a node of each costs, beside the bytes that it moves"))
    table = Table(
        columns=tuple(
            Column(head=head) for head in ("operator", "since", "work", "backward", "source")
        ),
        rows=tuple(
            Row((str(op), str(op.since), rule.equation, _backward(rule.backward), rule.page))
            for op, rule in sorted(rules().items(), key=lambda row: _place(row[0]))
        ),
    )
    pending = Table(
        columns=(Column(head="operator"), Column(head="why")),
        rows=tuple(Row(row) for row in sorted(not_counted().items())),
    )
    return markdown(Page((title, table, Heading("Not counted yet"), pending)))


def _backward(known: Backward | str) -> str:
    """What is known of a backward pass: a formula, none, or why there is none yet."""
    if isinstance(known, str):
        return f"not yet: {known}"
    return "no gradient" if known is no_gradient else "yes"


def _place(op: Op) -> tuple[str, str, int]:
    return op.type, op.domain, op.since


def reasons() -> str:
    """Every cause, as `crossflops explain CAUSE` shows it."""
    blocks: list[Block] = [Title(("Causes", "why the counts of two tools differ"))]
    for cause in causes():
        blocks.append(Heading(f"{cause.id}: {cause.title}"))
        blocks += map(_beneath, cause_blocks(cause))
    return markdown(Page(tuple(blocks)))


def _beneath(block: Block) -> Block:
    """A heading of a page, as a line of one that holds many."""
    return Text(f"{block.text}:") if isinstance(block, Heading) else block


def tools() -> str:
    """Every convention, as `crossflops explain TOOL@EDITION` shows it."""
    return "\n".join(map(markdown, ours()))


PAGES: dict[str, Callable[[], str]] = {
    "ops.md": ops,
    "causes.md": reasons,
    "conventions.md": tools,
}


def main() -> None:
    """Write them all."""
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
