"""Write the generated pages beside this file: what the code knows, in Markdown.

    python docs/generate.py

`tests/docs/test_generated.py` holds the pages against the code.
"""

import sys
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

from crossflops.causes import package_causes as our_causes
from crossflops.files import read_file_bytes
from crossflops.ir.graph import Op
from crossflops.operators import all_operator_rules, reasons_for_missing_rules
from crossflops.operators.formula_sources import STATE
from crossflops.operators.gradient import Backward, no_gradient
from crossflops.plugins.failures import HINTS, STAGES
from crossflops.render.figures.canvas import TitledCanvas, canvas_to_svg, stack_canvases
from crossflops.render.figures.comparison import waterfall_chart
from crossflops.render.formats import markdown
from crossflops.render.page import Block, Column, Heading, Page, Row, Table, Text, Title
from crossflops.render.pages.explain import cause_blocks
from crossflops.report.quantity import term_with_sign
from crossflops.report.report import Report
from crossflops.tools.registry import own_conventions

FOLDER = Path(__file__).parent
EXPLAINED_TOOL = "ptflops-pytorch"
sys.path += [str(FOLDER), str(FOLDER.parent)]
from claims import Claim, claims, outcome  # noqa: E402
from messages import RaisedError, error_kinds, raised_errors  # noqa: E402

from tests.operators.kernels.held import HELD, WITHOUT_REFERENCE  # noqa: E402


def ops() -> str:
    """Every rule of every operator, and the operators without one."""
    title = Title(("Operators", "what a node of each costs, beside the bytes that it moves"))
    table = Table(
        columns=tuple(
            Column(head=head) for head in ("operator", "since", "work", "backward", "source")
        ),
        rows=tuple(
            Row((str(op), str(op.since), rule.equation, _backward(rule.backward), rule.page))
            for op, rule in sorted(all_operator_rules().items(), key=lambda row: _place(row[0]))
        ),
    )
    pending = Table(
        columns=(Column(head="operator"), Column(head="why")),
        rows=tuple(Row(row) for row in sorted(reasons_for_missing_rules().items())),
    )
    return markdown(Page((title, table, Heading("Not counted yet"), pending)))


def kernels() -> str:
    """Every formula of a well-known kernel, by the name of its operator or class."""
    import crossflops.operators.kernels  # noqa: F401  registers them

    shipped = sorted(STATE.shipped, key=lambda formula: formula.name.lower())
    title = Title(("Kernels", "what operators of other libraries cost, by their names"))
    heads = ("operator", "work", "exactness", "backward", "tested", "source")
    table = Table(
        columns=tuple(Column(head=head) for head in heads),
        rows=tuple(
            Row(
                (
                    formula.module or formula.name,
                    (formula.function.__doc__ or "").strip().splitlines()[0],
                    formula.doubt if isinstance(formula.doubt, str) else _BY_CALL,
                    _BACKWARD.get(str(formula.backward), "yes"),
                    "yes" if formula.name in HELD else f"no: {WITHOUT_REFERENCE[formula.name]}",
                    formula.source,
                )
            )
            for formula in shipped
        ),
    )
    return markdown(Page((title, *map(Text, _KERNELS), table)))


_BACKWARD = {"none": "no gradient", "": "by the function that calls it"}
_BY_CALL = "exact if lengths are recorded, else a bound"
_KERNELS = (
    "These operators are recognized by their names, so they are counted even if their library "
    "is not installed. A class, package.module:Class, is one node. A * stands for the settings "
    "that a library writes into a name. Your own formula for the same operator replaces the "
    "formula of this list.",
    "Each formula is the work of the function that the kernel computes, by its source. Masked "
    "scores of attention are counted, also with a causal mask or a window, as everywhere in "
    "crossflops. A training step includes the values that a kernel recomputes in its backward "
    "pass if these are the same for every size: the scores of attention, and the normalized "
    "values of a norm.",
    "Tested: a test compares the formula of this operator with a reference in plain PyTorch, on "
    "random calls, for the forward pass and, if there is a gradient, for the backward pass. If "
    "the work depends on data, the reference does the largest possible work. A formula that is "
    "not tested was derived from its source, and no reference confirms it; the table gives the "
    "reason.",
)


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
    for _, cause in sorted(our_causes().items()):
        blocks.append(Heading(f"{cause.id}: {cause.title}"))
        blocks += map(_beneath, cause_blocks(cause))
    return markdown(Page(tuple(blocks)))


def _beneath(block: Block) -> Block:
    """A heading of a page, as a line of one that holds many."""
    return Text(f"{block.text}:") if isinstance(block, Heading) else block


def tools() -> str:
    """Every convention, as `crossflops explain TOOL@EDITION` shows it."""
    return "\n".join(map(markdown, own_conventions()))


def published() -> str:
    """Every published figure beside what `crossflops efficiency` computes, and its command."""
    rows = [(claim, *outcome(claim)) for claim in claims()]
    alike = sum(not claim.why for claim, *_ in rows)
    blocks: list[Block] = [
        Title(("Published figures", "next to the results of crossflops efficiency")),
        Text(
            f"{len(rows)} figures that others published: {alike} are computed as they are "
            f"printed. For the other {len(rows) - alike} the table gives the reason of the "
            "difference. MFU, HFU, MBU and shares of a peak are in %. The rows are those of "
            "published.json."
        ),
    ]
    for source, held in groupby(rows, key=lambda row: row[0].source):
        blocks += [Heading(source), _figures([*held])]
    return markdown(Page(tuple(blocks)))


def _figures(rows: list[tuple[Claim, str, str]]) -> Table:
    heads = (
        "model",
        "figure",
        "printed",
        "computed",
        "result",
        "options of crossflops efficiency",
    )
    return Table(
        columns=tuple(Column(head=head) for head in heads),
        rows=tuple(
            Row.from_cells(claim.model, claim.claim, claim.printed, figure, taken, claim.options)
            for claim, figure, taken in rows
        ),
    )


def error_list() -> str:
    """Every error by its kind: what it says, what it advises, and which function makes it."""
    rows = raised_errors()
    blocks: list[Block] = [
        Title(("Errors", "what each message says, and what to do")),
        Text(
            "An error is two lines: what is wrong, and what to do. The exit status is 2. In "
            "this list {name} means a value. If a cell has several texts with | between them, "
            "one of them is printed. {message of the underlying error} and {hint of the "
            "underlying error} are the two lines of another error on this page. From Python the "
            "lines are `message` and `hint` of the exception, whose class is in "
            "crossflops.errors."
        ),
    ]
    for kind, about in error_kinds().items():
        own = [row for row in rows if row.kind == kind]
        if own:
            blocks += [Heading(kind), Text(about), _error_table(own)]
    failures = Table(
        columns=(
            Column(head="stage"),
            Column(head="message, followed by the exception"),
            Column(head="what to do, if the error says nothing else"),
        ),
        rows=tuple(Row((stage, text, HINTS[stage])) for stage, text in STAGES.items()),
    )
    about = (
        "A tool that fails does not end a comparison: its row contains the stage, the message and "
        "the hint."
    )
    return markdown(Page((*blocks, Heading("Failures of tools"), Text(about), failures)))


def _error_table(rows: list[RaisedError]) -> Table:
    heads = ("message", "what to do", "where")
    cells = (
        (" | ".join(row.message), " | ".join(row.hint), f"{row.path}: {row.function}")
        for row in rows
    )
    return Table(
        columns=tuple(Column(head=head) for head in heads),
        rows=tuple(Row(row) for row in dict.fromkeys(cells)),
    )


def waterfall() -> str:
    """Return the picture of docs/why.md: an account of the committed report of ResNet-50."""
    report = Report.from_json(read_file_bytes(FOLDER.parent / "reports" / "resnet50.json.gz"))
    account = next(row for row in report.reconciliations or () if row.tool == EXPLAINED_TOOL)
    canvas = waterfall_chart(account)
    assert canvas is not None  # its difference is not 0
    head = f"{account.tool} = native{term_with_sign(account.delta)}"
    return canvas_to_svg(stack_canvases([TitledCanvas(head, canvas)], "ResNet-50"), alone=True)


PAGES: dict[str, Callable[[], str]] = {
    "ops.md": ops,
    "kernels.md": kernels,
    "causes.md": reasons,
    "conventions.md": tools,
    "published.md": published,
    "errors.md": error_list,
    "waterfall-resnet50.svg": waterfall,
}


def main() -> None:
    """Write them all."""
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
