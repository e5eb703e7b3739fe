"""The page of `explain CAUSE`: what it is, how to recognise it, who has it, what shows it."""

import msgspec

from crossflops.ir.cause import Cause, Example
from crossflops.render.page import Block, Code, Column, Heading, Page, Row, Table, Text, Title
from crossflops.render.pages.tool import booked, conditions, whom
from crossflops.render.quantity import signed
from crossflops.rules.rule import Convention, Parameters, Rule, equation
from crossflops.tools.registry import conventions

_SEVERAL = 3  # rules of one tool, behind which the rest is only numbered


class Matches(msgspec.Struct, frozen=True):
    """The causes that were found by some words, the nearest first."""

    words: str
    causes: tuple[Cause, ...]


def matches_page(matches: Matches) -> Page:
    """A line for each cause; `explain` with its name shows the page."""
    columns = (Column(head="cause"), Column(head="what", flows=True))
    rows = tuple(Row((cause.id, cause.title)) for cause in matches.causes)
    title = Title((f"{len(matches.causes)} causes have to do with {matches.words!r}",))
    hint = Text(f"`crossflops explain {matches.causes[0].id}` shows the page of the first", " ")
    return Page((title, Table(columns=columns, rows=rows), hint))


def cause_page(cause: Cause) -> Page:
    """The whole page of a cause."""
    return Page((Title((cause.id, cause.title)), *cause_blocks(cause)))


def cause_blocks(cause: Cause) -> tuple[Block, ...]:
    """The page of a cause without its title."""
    paragraphs = [part for part in cause.page.split("\n\n") if part.strip()]
    blocks: list[Block] = [Text(" ".join(part.split()), " ") for part in paragraphs]
    if cause.recognise:
        blocks.append(Text(f"How to recognise it: {cause.recognise}", " "))
    if cause.example is not None:
        blocks += _example(cause.id, cause.example)
    blocks += _tools(cause.id)
    if cause.references:
        blocks.append(Heading("References"))
        blocks += [Text(reference, " - ") for reference in cause.references]
    return tuple(blocks)


def _example(id: str, example: Example) -> tuple[Block, ...]:
    options = "".join(f" and {option}" for option in example.options)
    if example.unit:
        sentence = f"from model to other, {id} is {signed(example.amount)} {example.unit} here"
        return (Heading("Two models that show it"), Code(example.code), Text(sentence, " ", "dim"))
    sentence = f"with {example.tool}{options}, {id} is {signed(example.amount)} here"
    return (Heading("A model that shows it"), Code(example.code), Text(sentence, " ", "dim"))


def _tools(id: str) -> list[Block]:
    rows = [
        Row((f"{convention.tool}@{convention.edition}", words))
        for convention in conventions()
        if (words := _what(convention, id))
    ]
    if not rows:
        return []
    columns = (Column(head="tool"), Column(head="what it does", flows=True))
    return [Heading("Which tools have it"), Table(columns=columns, rows=tuple(rows))]


def _what(convention: Convention, id: str) -> str:
    """What of a convention books the cause; "" if nothing does."""
    sentences = [_rule(rule) for rule in convention.rules if rule.cause == id]
    if len(sentences) > _SEVERAL:
        sentences = [*sentences[:_SEVERAL], f"and {len(sentences) - _SEVERAL} more"]
    return "; ".join([*_whole(convention, id), *sentences])


def _whole(convention: Convention, id: str) -> list[str]:
    """What is a trait of the convention, and no rule."""
    traits = {
        "unit.mac-vs-flop": f"{convention.unit} per MAC" if convention.unit > 1 else "",
        "control.dead-code": "counts work that nothing uses" if convention.counts_dead else "",
        "scope.mode-forced-eval": "always in evaluation mode" if _evaluates(convention) else "",
        "module.shared-parents": _walks(convention),
        convention.unseen: "what no rule is about",
        **_parameters(convention.parameters),
    }
    return [traits[id]] if traits.get(id) else []


def _parameters(rules: Parameters | None) -> dict[str, str]:
    """Which parameters a tool leaves out, or counts again."""
    if rules is None:
        return {}
    by_cause = {"params.unregistered": "counts parameters of registered modules"}
    if rules.modules:
        layers = "counts parameters of layers with a rule"
        by_cause |= dict.fromkeys(("params.no-rule", "params.bare", "params.root"), layers)
        by_cause["params.counted-again"] = "once for each parent"
    if rules.leaves:
        by_cause["params.nonleaf"] = "counts parameters of modules without others in them"
        by_cause["params.counted-again"] = "once for each module"
    if rules.called:
        by_cause["params.uncalled"] = "counts parameters when a layer is called"
    if rules.trainable:
        by_cause["params.frozen"] = "counts parameters that require a gradient"
    if rules.extra:
        by_cause |= dict.fromkeys(("params.counted-again", "params.pruned"), equation(rules.extra))
    return by_cause


def _evaluates(convention: Convention) -> bool:
    return convention.forces.get("training") is False


def _walks(convention: Convention) -> str:
    times = {rule.times.of for rule in convention.rules if rule.times}
    names = sorted(str(getattr(formula, "__name__", formula)) for formula in times)
    return f"times {' or '.join(names)}" if names else ""


def _rule(rule: Rule) -> str:
    """What a rule is about, and what it books.

    >>> from crossflops.rules.conditions import output_elements
    >>> _rule(Rule(id="x", cause="norm.batch", level="operator", kind="part", factor=2,
    ...            targets=("aten.batch_norm.default",), amount=output_elements))
    'batch_norm: 2 x n(y)'
    """
    return f"{', '.join([whom(rule), *conditions(rule)])}: {booked(rule)}"
