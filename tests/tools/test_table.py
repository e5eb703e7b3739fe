"""All conventions together: what they name exists, and what is asked for is found."""

import pytest

from crossflops.causes import all_causes
from crossflops.errors import InputError, UnknownNameError
from crossflops.ir.ledger import Cost
from crossflops.operators import all_operator_rules
from crossflops.rules.rule import CostWeights, formula_equation
from crossflops.tools.onnx_tool_shapes import LOST
from crossflops.tools.registry import (
    all_conventions,
    convention_for_version,
    conventions_from_texts,
    find_convention,
    parse_convention,
)

# operators with bodies, which are counted by what is in them
UNRULED = {"If", "Loop", "Scan", "SequenceMap"}
EACH = pytest.mark.parametrize(
    "convention",
    all_conventions(),
    ids=lambda convention: f"{convention.tool}@{convention.edition}",
)


def test_the_tools_of_this_release_are_known():
    """Every module in the folder is discovered; thop has the edition of published figures too."""
    assert {(convention.tool, convention.edition) for convention in all_conventions()} >= {
        ("thop", "0.1.1"),
        ("thop", "0.0.31"),
        ("fvcore", "0.1.5"),
        ("torch-flop-counter", "2.13"),
    }


def test_no_edition_stands_twice():
    """A tool and an edition name one convention."""
    names = [(convention.tool, convention.edition) for convention in all_conventions()]
    assert len(names) == len(set(names))


@EACH
def test_rules_have_names_of_their_own(convention):
    """A booking can be traced to one rule. Those shared between tools are the same by value."""
    ids = [rule.id for rule in convention.rules]
    assert len(ids) == len(set(ids))


@EACH
def test_every_formula_has_words(convention):
    """What a rule books, how often, and what is divided by can be printed."""
    for rule in convention.rules:
        formulas = rule.amount, rule.times and rule.times.of, rule.batch
        assert all(
            formula_equation(formula)
            for formula in formulas
            if formula and not isinstance(formula, CostWeights)
        ), rule
        weights = rule.amount.weights if isinstance(rule.amount, CostWeights) else {}
        assert set(weights) <= set(Cost.__struct_fields__), rule.id
        assert rule.kind != "unseen" or rule.amount is None, rule.id
    assert convention.adds_up is None or formula_equation(convention.adds_up)


@EACH
def test_rules_name_causes_that_exist(convention):
    """Whatever an explanation will be booked under has a page."""
    known = {cause.id for cause in all_causes()}
    assert convention.unseen in known
    assert {rule.cause for rule in convention.rules} <= known
    assert {rule.again for rule in convention.rules} <= {*known, ""}
    assert convention.rounds in known


@EACH
def test_every_rule_has_a_source(convention):
    """Knowledge of a tool is read somewhere: a file of the tool, and mostly a function."""
    assert convention.source
    assert all(rule.reference for rule in convention.rules)
    assert convention.verified or convention.sees in ("node", "architecture")


@EACH
def test_rules_stand_on_the_level_of_their_tool(convention):
    """What is unseen is told by operator, and functions enclose what a tool does not look into.

    A tool that hooks modules may replace functions as well. What an event does not say is read
    from the operator that was called.
    """
    for rule in convention.rules:
        if convention.sees == "node":
            allowed = {"node", "graph"}
        elif convention.sees == "architecture":
            allowed = {"architecture"}
        elif rule.kind == "unseen":
            allowed = {"operator"}
        elif convention.sees in ("module", "function"):
            allowed = {"module", "function"}
        else:
            beside = {"operator"} if convention.sees == "event" else set()
            enclosing = {"function"} if rule.kind == "core" else set()
            allowed = {convention.sees, *beside, *enclosing}
        assert rule.level in allowed


@EACH
def test_conventions_of_nodes_name_operators_that_are_counted(convention):
    """A name that no rule knows would match nothing, ever. Patterns may match what has none."""
    known = {str(op) for op in all_operator_rules()} | {str(LOST), *UNRULED}
    for rule in convention.rules:
        narrowed = (name for condition in rule.where if condition.whom for name in condition.names)
        named = {name for name in (*rule.targets, *narrowed) if "*" not in name}
        assert rule.level != "node" or named <= known, (rule.id, named - known)


@EACH
def test_a_convention_is_found_by_its_name(convention):
    """By `TOOL@EDITION`, by both in two words, and by a version it was held against."""
    name = f"{convention.tool}@{convention.edition}"
    assert (
        parse_convention(name)
        is find_convention(convention.tool, convention.edition)
        is convention
    )
    for version in convention.verified:
        assert convention_for_version(convention.tool, version) is convention


def test_without_an_edition_the_newest_is_meant():
    """The older edition of thop has to be asked for."""
    assert parse_convention("thop").edition == find_convention("thop").edition == "0.1.1"
    assert parse_convention("thop@0.0.31").edition == "0.0.31"


@pytest.mark.parametrize(
    ("version", "edition"),
    [
        ("0.1.1.post2209072238", "0.1.1"),
        ("0.1.1", "0.1.1"),
        ("0.0.31.post2005241907", "0.0.31"),
        ("0.0.31.post1", "0.0.31"),
        ("0.0.3", "0.1.1"),
        ("0.0.310", "0.1.1"),
        ("9.9", "0.1.1"),
    ],
)
def test_an_installed_version_picks_its_edition(version, edition):
    """Verified on it, else of the same release, else the newest: 0.0.310 is not 0.0.31."""
    assert convention_for_version("thop", version).edition == edition


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("nothing", "no convention is known for the tool 'nothing'", "fvcore, "),
        ("thop@9", "thop has no version '9'", "write one of: thop@0.1.1, thop@0.0.31"),
        ("", "no convention is known for the tool ''", "thop"),
    ],
)
def test_what_is_not_known_lists_what_is(text, message, hint):
    """An unknown tool or edition is an error with the names to choose from."""
    with pytest.raises(UnknownNameError) as caught:
        parse_convention(text)
    assert caught.value.message == message
    assert hint in caught.value.hint


def test_a_pattern_names_every_tool_that_it_matches():
    """Newest editions, each once, in the order in which they were asked for."""
    assert [
        convention.tool
        for convention in conventions_from_texts(["elementwise-1", "torchstat*", "torchstat"])
    ] == [
        "elementwise-1",
        "torchstat",
        "torchstat-madd",
        "torchstat-memread",
        "torchstat-memwrite",
        "torchstat-memory",
    ]
    assert [
        convention.edition for convention in conventions_from_texts(["tho*", "thop@0.0.31"])
    ] == [
        "0.1.1",
        "0.0.31",
    ]
    with pytest.raises(UnknownNameError, match=r"no convention matches 'y\*'"):
        conventions_from_texts(["y*"])


def test_two_editions_differ_by_their_clauses():
    """Counted biases of convolutions in 0.0.31, layer norms in 0.1.1: as data."""

    def counted(edition: str) -> set[str]:
        rules = find_convention("thop", edition).rules
        return {rule.cause for rule in rules if rule.kind == "part"}

    assert "bias.conv" in counted("0.0.31") - counted("0.1.1")
    assert {"norm.layer", "softmax", "upsample.nearest"} <= counted("0.1.1") - counted("0.0.31")


@pytest.mark.parametrize("texts", [["palm", "palm"], ["thop", "thop@0.1.1"]])
def test_a_convention_that_is_named_twice_is_an_error(texts):
    """By its newest edition or without one; a pattern may name it again."""
    with pytest.raises(InputError, match=r"--as names .* twice"):
        conventions_from_texts(texts)
    assert len(conventions_from_texts(["thop", "tho*"])) == 1
