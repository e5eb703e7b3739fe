"""The pages of causes, conventions and installed tools."""

import json

from msgspec.structs import replace

from crossflops.commands import python_command
from crossflops.ir.reconciliation import Cause, Example, PathRow
from crossflops.ir.trace import ALONG_CHAINS_SQUARED
from crossflops.render.formats import FORMATS
from crossflops.render.pages import explain
from crossflops.render.pages.comparison import innermost_mismatches
from crossflops.render.pages.explain import rule_amount_words, rule_condition_texts, rule_subject
from crossflops.render.pages.inventory import Component, Health, ToolList, ToolRow
from crossflops.render.terminal import terminal
from crossflops.report.quantity import version_without_suffix
from crossflops.rules.conditions import (
    as_root,
    by_forward,
    called,
    has,
    input_elements,
    inside,
    lacks,
    output_elements,
    run_as,
    setting,
    subclass_of,
    through,
)
from crossflops.rules.rule import Convention, CostWeights, Rule

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
    rules=(
        Rule(
            id="batch-norm",
            cause="norm.batch",
            level="module",
            targets=("BatchNorm1d", "BatchNorm2d"),
            where=(has("weight"),),
            kind="part",
            amount=input_elements,
            factor=4,
            reference="basic_hooks.py",
        ),
        Rule(
            id="batch-norm.plain",
            cause="norm.batch",
            level="module",
            targets=("BatchNorm1d",),
            where=(lacks("weight"),),
            kind="part",
        ),
    ),
)


def test_a_cause_page_says_what_and_where(monkeypatch):
    """A cause shows its title, its paragraphs unbroken, an example, who has it, references."""
    monkeypatch.setattr(explain, "all_conventions", lambda: (CONVENTION,))
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
        " thop@0.1.1   BatchNorm1d/2d, with weight: 4 x n(x); BatchNorm1d, without\n"
        "              weight: nothing\n\n"
        " References\n"
        " - a.py:f\n"
    )


def test_a_convention_page_is_its_rules():
    """A convention shows its head, of every rule what it is about, and what it books."""
    text = terminal(CONVENTION, 120)
    assert text == (
        'thop@0.1.1 · prints "MACs" · 1 per MAC · looks at module calls · '
        "checked with 0.1.1.post1\n\n"
        " always runs with: evaluation mode\n"
        " work with unused results is counted\n"
        " multiply-accumulates that match no line below are not counted: "
        "functional.invisible\n"
        " source: thop/profile.py\n\n"
        " Other amounts, added in the tool's own unit\n"
        " modules called                amount     cause\n"
        " BatchNorm1d/2d; with weight   4 x n(x)   norm.batch\n"
        " BatchNorm1d; without weight   nothing    norm.batch\n"
    )


def test_files_cite_every_clause():
    """Markdown holds what a line has no room for: the id and the source of a clause."""
    text = FORMATS[".md"](CONVENTION)
    assert "| batch-norm | BatchNorm1d/2d; with weight |" in text
    assert "| norm.batch | basic\\_hooks.py |" in text


def test_what_all_clauses_share_is_told_once():
    """A condition of every clause stands above them, and not beside each."""
    hooked = tuple(
        replace(rule, where=(called(), *rule.where), times=ALONG_CHAINS_SQUARED)
        for rule in CONVENTION.rules
    )
    text = terminal(replace(CONVENTION, rules=hooked), 120)
    assert " each of them called as module(x), times child_paths_squared\n" in text
    assert text.count("module(x)") == 1


def test_layers_that_are_counted_above_are_not_listed_again():
    """A reason for not seeing them names the layers by what they have in common."""
    layers = ("torch.nn.modules.conv.Conv1d", "torch.nn.modules.linear.Linear")
    derived = made(where=(subclass_of(*layers),))
    assert rule_condition_texts(derived, frozenset(layers)) == (
        "in a subclass of a layer counted above",
    )
    assert rule_condition_texts(derived, frozenset(layers[:1])) == (
        "in a subclass of Conv1d or Linear",
    )


def test_every_condition_is_told():
    """Whatever a rule asks for stands in its description."""
    where = (
        by_forward(), subclass_of("b"), through("e"), inside("w"), setting(s=1), has("h"),
        lacks("l"), run_as("f"), as_root(),
    )  # fmt: skip
    rule = made(targets=("t",), where=where)
    assert rule_subject(rule) == "t"
    assert rule_condition_texts(rule) == (
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
    assert (rule_subject(made()), rule_condition_texts(made())) == ("any", ())


def made(**fields):
    """A rule that has these fields."""
    return Rule(id="x", cause="c", level="module", kind="core", **fields)


def test_every_way_of_booking_is_told():
    """Weights, a formula, a factor, and nothing at all."""
    weighed = CostWeights({"macs": 1, "adds": 2})
    assert rule_amount_words(made()) == "nothing"
    assert rule_amount_words(made(amount=weighed, factor=3)) == "3 x (1 x macs + 2 x adds)"
    assert rule_amount_words(made(amount=CostWeights({"macs": 1}))) == "1 x macs"
    assert rule_amount_words(made(amount=output_elements, factor=2)) == "2 x n(y)"


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
    assert " thop     0.1.1      0.1.1          0.1.1       ok\n" in text
    assert " odd      -          -              -           broken: no module named odd\n" in text
    assert text.endswith(f" To install\n fvcore:\n   {python_command()} -m pip install that\n")
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
    assert [path_row.path for path_row in innermost_mismatches(rows)] == ["a.b", "ab"]


def test_versions_are_shown_without_their_date():
    """A post release and a local build are the release that they are of."""
    assert version_without_suffix("0.1.5.post20221221") == "0.1.5"
    assert version_without_suffix("2.13.0+cpu") == "2.13"
    assert version_without_suffix("2.10") == "2.10"
    assert version_without_suffix("1.0") == "1.0"
