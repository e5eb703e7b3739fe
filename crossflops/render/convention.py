"""The page of `explain TOOL`: everything that a tool does, kind by kind."""

from inspect import getdoc

from crossflops.conventions.addition import batches, sums
from crossflops.conventions.formulas import formulas, node_formulas
from crossflops.conventions.multiplicity import multiplicities
from crossflops.core.convention import Clause, Convention, Match, Parameters
from crossflops.render.clauses import booked, conditions, targets, whom
from crossflops.render.page import Block, Column, Heading, Page, Row, Table, Text, Title

_FORCED: dict[str, dict[bool | str, str]] = {
    "training": {False: "evaluation mode", True: "training mode"},
    "grad": {False: "no gradients", True: "gradients"},
    "hooked": {
        False: "no hooks",
        True: "hooks on the modules",
        "children": "hooks on the children of the model",
    },
}
_ABOUT = {one: f"{one}s called" for one in ("module", "function", "operator")} | {
    "jit": "nodes traced by torch.jit",
    "traced": "nodes traced by torch.jit",
    "event": "operators as they begin",
    "dispatch": "operators dispatched",
    "lowered": "instructions given to XLA",
    "compiled": "instructions compiled by XLA",
}
_UNCHECKED = {True: "no tool", False: "checked on no version"}


def convention_page(convention: Convention) -> Page:
    """The convention's head, its clauses in the order in which they hold, and its formulas."""
    core, parts, unseen, fails = (
        tuple(one for one in convention.clauses if one.kind == kind)
        for kind in ("core", "part", "unseen", "fails")
    )
    known = frozenset(target for one in core for target in one.match.targets)
    blocks: list[Block] = [_title(convention), *_head(convention)]
    for own in _by_storey(core):
        blocks += _section("Multiply-accumulates: the first line that fits holds", own, known)
    for own in _by_storey(parts):
        blocks += _section("Added to them, in the tool's own unit", own, known)
    blocks += _section("Not seen, and why", unseen, known)
    blocks += _section("The tool itself fails", fails, known)
    return Page((*blocks, *_legend(convention)))


def _by_storey(clauses: tuple[Clause, ...]) -> list[tuple[Clause, ...]]:
    """Clauses about modules apart from those about functions, in the order of the first."""
    storeys = dict.fromkeys(one.storey for one in clauses)
    return [tuple(one for one in clauses if one.storey == storey) for storey in storeys]


def _title(convention: Convention) -> Title:
    nodes, checked = convention.sees == "node", ", ".join(convention.verified)
    return Title(
        (
            f"{convention.tool}@{convention.edition}",
            f'prints "{convention.printed_as}"',
            f"{convention.unit} per MAC" if convention.unit else "counts no MACs",
            "looks at graph nodes" if nodes else f"looks at {convention.sees} calls",
            f"checked on {checked}" if checked else _UNCHECKED[nodes],
        )
    )


def _head(convention: Convention) -> list[Block]:
    forced = ", ".join(_FORCED[name][value] for name, value in convention.forces.items())
    dead = "counted" if convention.counts_dead else "not counted"
    ruled = dict.fromkeys(cls for one in convention.clauses for cls in one.match.outside)
    texts = [
        f"always runs with: {forced}" if forced else "",
        f"work whose result nobody uses is {dead}",
        f"multiply-accumulates that no line below is about are not counted: {convention.unseen}",
        f"its number is {convention.adds_up} of all that follows" if convention.adds_up else "",
        f"layers with a rule: {targets(Match(targets=tuple(ruled)))}" if ruled else "",
        "a rule about a module is added to those inside of it" if convention.rules_add else "",
        _parameters(convention.parameters),
        f"source: {convention.source}" if convention.source else "",
    ]
    return [Text(text, " ") for text in texts if text]


def _parameters(rules: Parameters | None) -> str:
    """Which parameters the tool counts.

    >>> _parameters(Parameters(trainable=True, reference="count.py"))
    'parameters: each once, those that are trainable (count.py)'
    """
    if rules is None:
        return ""
    which = "each once"
    if rules.stored:
        which = "all initializers" if rules.stored == "all" else "initializers that a node takes"
        which += ", one without axes as 0" if not rules.scalar else ""
    if rules.modules:
        which = "those beneath layers that it has a rule for, once for each chain of parents"
    if rules.leaves:
        which = "those of modules without others in them"
    words = [which, "those that are trainable" if rules.trainable else ""]
    words += ["where the layer was called"] if rules.called else []
    words += [f"and more: {rules.extra}"] if rules.extra else []
    return f"parameters: {', '.join(filter(None, words))} ({rules.reference})"


def _section(head: str, clauses: tuple[Clause, ...], known: frozenset[str]) -> list[Block]:
    """The clauses as a table; what holds for each of them stands once, above it."""
    if not clauses:
        return []
    told = [(*conditions(one.match, known), *_repeated(one)) for one in clauses]
    shared = [text for text in told[0] if len(told) > 1 and all(text in one for one in told)]
    rows = tuple(
        Row(
            (
                clause.id,
                _about(clause, texts, shared),
                booked(clause),
                clause.cause,
                clause.reference,
            )
        )
        for clause, texts in zip(clauses, told, strict=True)
    )
    table = Table(
        columns=(
            Column(head="clause", detail=True),
            Column(head=_ABOUT.get(clauses[0].storey, "nodes"), flows=True),
            Column(head="if not 0" if clauses[0].kind == "fails" else "amount"),
            Column(head="cause, if it differs" if clauses[0].kind == "core" else "cause"),
            Column(head="source", flows=True, detail=True),
        ),
        rows=rows,
    )
    if all(row.cells[2] == "nothing" for row in rows):
        table = table.without(table.columns[2])
    above = [Text(f"each of them {', '.join(shared)}", " ", "dim")] if shared else []
    return [Heading(head), *above, table]


def _about(clause: Clause, texts: tuple[str, ...], shared: list[str]) -> str:
    own = [text for text in texts if text not in shared]
    return "; ".join([whom(clause), *own])


def _repeated(clause: Clause) -> tuple[str, ...]:
    parts = (
        f"times {clause.times}" if clause.times else "",
        f"divided by {clause.batch}" if clause.batch else "",
        "in the total alone" if clause.in_total_only else "",
        f"beside the rule of its module too: {clause.again}" if clause.again else "",
    )
    return tuple(part for part in parts if part)


def _legend(convention: Convention) -> list[Block]:
    """The formulas that the clauses name, each by the first sentence of its docstring."""
    named: dict[str, object] = {**formulas(), **node_formulas(), **multiplicities()}
    named |= {**batches(), **sums()}
    used = dict.fromkeys(
        name
        for one in convention.clauses
        for name in (one.formula, one.times, one.batch, convention.adds_up)
        if name in named
    )
    rows = tuple(Row((str(name), _equation(named[str(name)]))) for name in used)
    columns = (Column(head="formula"), Column(head="what it is", flows=True))
    return [Heading("Formulas"), Table(columns=columns, rows=rows)] if rows else []


def _equation(formula: object) -> str:
    return (getdoc(formula) or "").partition("\n\n")[0].replace("\n", " ")
