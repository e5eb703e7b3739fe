"""The pages of causes, conventions and installed tools."""

import json

from msgspec.structs import replace

from crossflops.commands import python
from crossflops.ir.convention import Cause, Clause, Convention, Example, Match
from crossflops.ir.reconciliation import PathRow
from crossflops.render import FORMATS
from crossflops.render.pages.comparison import localised
from crossflops.render.pages.inventory import Component, Health, ToolList, ToolRow
from crossflops.render.pages.tool import booked, conditions, targets
from crossflops.render.quantity import release
from crossflops.render.terminal import terminal

CAUSE = Cause(
    id="norm.batch",
    title="batch norm is counted",
    page="In eval mode\nit is folded.\n\nSome tools count it.",
    recognise="It vanishes.",
    example=Example(code="model = f(\n    8)\ninputs = g()", tool="thop", amount=-8),
    references=("a.py:f",),
)
CONVENTION = Convention(
    tool="thop",
    edition="0.1.1",
    verified=("0.1.1.post1",),
    unit=1,
    printed_as="MACs",
    sees="module",
    unseen="functional.invisible",
    counts_dead=True,
    forces={"training": False},
    source="thop/profile.py",
    clauses=(
        Clause(
            id="batch-norm",
            cause="norm.batch",
            level="module",
            match=Match(targets=("BatchNorm1d", "BatchNorm2d"), has=("weight",)),
            kind="part",
            formula="input_elements",
            factor=4,
            reference="basic_hooks.py",
        ),
        Clause(
            id="batch-norm.plain",
            cause="norm.batch",
            level="module",
            match=Match(targets=("BatchNorm1d",), lacks=("weight",)),
            kind="part",
        ),
    ),
)


def test_a_cause_page_says_what_and_where(monkeypatch):
    """A cause shows its title, its paragraphs unbroken, an example, who has it, references."""
    monkeypatch.setattr("crossflops.render.pages.cause.conventions", lambda: (CONVENTION,))
    assert terminal(CAUSE, 80) == (
        "norm.batch · batch norm is counted\n\n"
        " In eval mode it is folded.\n"
        " Some tools count it.\n"
        " How to recognise it: It vanishes.\n\n"
        " A model that shows it\n"
        "   model = f(\n"
        "       8)\n"
        "   inputs = g()\n"
        " with thop, norm.batch is -8 here\n\n"
        " Which tools have it\n"
        " tool         what it does\n"
        " thop@0.1.1   BatchNorm1d/2d, with weight: 4 x input_elements; BatchNorm1d,\n"
        "              without weight: nothing\n\n"
        " References\n"
        " - a.py:f\n"
    )


def test_a_convention_page_is_its_clauses():
    """A convention shows its head, of every clause what it is about, books, and its formulas."""
    text = terminal(CONVENTION, 120)
    assert text == (
        'thop@0.1.1 · prints "MACs" · 1 per MAC · looks at module calls · '
        "checked on 0.1.1.post1\n\n"
        " always runs with: evaluation mode\n"
        " work whose result nobody uses is counted\n"
        " multiply-accumulates that no line below is about are not counted: "
        "functional.invisible\n"
        " source: thop/profile.py\n\n"
        " Added to them, in the tool's own unit\n"
        " modules called                amount               cause\n"
        " BatchNorm1d/2d; with weight   4 x input_elements   norm.batch\n"
        " BatchNorm1d; without weight   nothing              norm.batch\n\n"
        " Formulas\n"
        " formula          what it is\n"
        " input_elements   n(x), x the first input.\n"
    )


def test_files_cite_every_clause():
    """Markdown holds what a line has no room for: the id and the source of a clause."""
    text = FORMATS[".md"](CONVENTION)
    assert "| batch-norm | BatchNorm1d/2d; with weight |" in text
    assert "| norm.batch | basic\\_hooks.py |" in text


def test_what_all_clauses_share_is_told_once():
    """A condition of every clause stands above them, and not beside each."""
    first, second = CONVENTION.clauses
    called = [
        replace(one, match=replace(one.match, via="call"), times="child_paths_squared")
        for one in (first, second)
    ]
    text = terminal(replace(CONVENTION, clauses=tuple(called)), 120)
    assert " each of them called as module(x), times child_paths_squared\n" in text
    assert text.count("module(x)") == 1


def test_layers_that_are_counted_above_are_not_listed_again():
    """A reason for not seeing them names the layers by what they have in common."""
    layers = ("torch.nn.modules.conv.Conv1d", "torch.nn.modules.linear.Linear")
    assert conditions(Match(bases=layers), frozenset(layers)) == (
        "in a subclass of a layer that is counted above",
    )
    assert conditions(Match(bases=layers), frozenset(layers[:1])) == (
        "in a subclass of Conv1d or Linear",
    )


def test_every_field_of_a_match_is_told():
    """Whatever a clause asks for stands in its description."""
    match = Match(
        targets=("t",),
        via="forward",
        bases=("b",),
        entry=("e",),
        within=("w",),
        settings={"s": 1},
        has=("h",),
        lacks=("l",),
        fused=("f",),
        root=True,
    )
    assert targets(match) == "t"
    assert conditions(match) == (
        "called by .forward()",
        "in a subclass of b",
        "through e",
        "in w",
        "s=1",
        "with h",
        "without l",
        "run as f",
        "as the whole model",
    )
    assert (targets(Match()), conditions(Match())) == ("any", ())


def test_every_way_of_booking_is_told():
    """Weights, a formula, a factor, and nothing at all."""

    def clause(**fields):
        return Clause(id="x", cause="c", level="module", match=Match(), kind="core", **fields)

    assert booked(clause()) == "nothing"
    assert booked(clause(weights={"macs": 1, "adds": 2}, factor=3)) == "3 x (1 x macs + 2 x adds)"
    assert booked(clause(weights={"macs": 1})) == "1 x macs"
    assert booked(clause(formula="f", factor=2)) == "2 x f"


def test_tools_are_listed_with_how_to_get_them():
    """A missing tool shows the command that installs it."""
    noun = ToolList(
        (
            ToolRow(tool="thop", editions=("0.1.1",), verified=("0.1.1",), version="0.1.1",
                    state="ok"),
            ToolRow(tool="fvcore", editions=("0.1.5",), install="pip install that"),
            ToolRow(tool="odd", state="broken", message="no module named odd"),
        )
    )  # fmt: skip
    text = terminal(noun, 100)
    assert " thop     0.1.1      0.1.1        0.1.1       ok\n" in text
    assert " odd      -          -            -           broken: no module named odd\n" in text
    assert text.endswith(f" To install\n fvcore:\n   {python()} -m pip install that\n")
    assert json.loads(FORMATS[".json"](noun))["tools"][1]["install"] == "pip install that"


def test_health_lists_parts_and_tools():
    """The doctor's page has the parts first, then the tools."""
    noun = Health(
        (
            Component(name="Python", version="3.11.7", state="ok"),
            Component(name="torchvision", version=None, state="missing", install="get it"),
        ),
        (),
    )
    assert terminal(noun, 80) == (
        " part          version   state\n"
        " Python        3.11.7    ok\n"
        " torchvision   -         missing\n\n"
        " Tools\n\n"
        " To install\n"
        " torchvision:\n"
        "   get it\n"
    )


def test_commands_and_paths_are_not_broken():
    """What is to be copied stands on one line, however long it is, with all its letters."""
    path = f"/{'folder/' * 60}python"
    noun = Health(
        (
            Component(name="Python", version="3", state="ok", python=path),
            Component(name="x", version=None, state="missing", install=f"{path} -m pip install x"),
        ),
        (ToolRow(tool="far", python=path, state="ok"),),
    )
    lines = terminal(noun, 80).splitlines()
    assert {f" Python: {path}", f" far: {path}", f"   {path} -m pip install x"} <= set(lines)
    assert f"```\n{path} -m pip install x\n```" in FORMATS[".md"](noun)


def test_a_residual_is_located_in_the_innermost_modules():
    """A module whose child is wrong as well is not named; a sibling with a like name is."""

    def row(path, theirs):
        return PathRow(path=path, ours=1, predicted=1, theirs=theirs)

    rows = (row("", 3), row("a", 2), row("a.b", 2), row("ab", 2), row("c", None), row("d", 1))
    assert [one.path for one in localised(rows)] == ["a.b", "ab"]


def test_versions_are_shown_without_their_date():
    """A post release and a local build are the release that they are of."""
    assert release("0.1.5.post20221221") == "0.1.5"
    assert release("2.13.0+cpu") == "2.13"
    assert release("2.10") == "2.10"
    assert release("1.0") == "1.0"
