"""The page of `explain TOOL`: everything that a tool does, kind by kind."""

from inspect import getdoc
from itertools import groupby
from re import fullmatch, sub

from crossflops.ir.convention import Clause, Convention, Match, Parameters
from crossflops.render.page import Block, Column, Heading, Page, Row, Table, Text, Title
from crossflops.tools.addition import batches, sums
from crossflops.tools.formulas import formulas, node_formulas
from crossflops.tools.multiplicity import multiplicities

# What a clause says, in words: whom it is about, under which conditions, and what it books.

_VIA = {"call": "called as module(x)", "forward": "called by .forward()"}
_REACHED = {"attribute": "by its name", "reference": "by a reference captured before"}
_LEAF = {None: "", True: "without modules in it", False: "with modules in it"}
_LAST = {None: "", True: "its last call alone", False: "but the last call"}
_NESTED = {None: "", True: "called by a function", False: "not called by a function"}
_REGISTERED = {None: "", True: "registered in the model", False: "registered nowhere"}
_MOST = 8  # operators that a line leaves out by name
_KNOWN = "a layer that is counted above"


def whom(clause: Clause) -> str:
    """The calls that a clause is about, by their targets."""
    match = clause.match
    if match.isa:
        return f"{', '.join(_together(match.isa))}, or a subclass"
    return targets(match)


def targets(match: Match) -> str:
    """The targets of a match: classes without their modules, operators without "aten".

    >>> targets(Match(targets=("torch.nn.modules.conv.Conv1d", "torch.nn.modules.conv.Conv2d")))
    'Conv1d/2d'
    >>> targets(Match(targets=("aten.linear.default", "aten.conv1d.padding", "aten.mv.*")))
    'linear, conv1d.padding, mv'
    >>> targets(Match(targets=("Conv", "*.Conv"))), targets(Match(but=("Conv", "*.Conv")))
    ('Conv', 'any but Conv')
    """
    left_out = _together(_of_any_domain(match.but))
    but = f"any but {', '.join(left_out)}" if left_out else "any"
    but = "any other" if len(left_out) > _MOST else but
    names = [one for one in _of_any_domain(match.targets) if one != "*"]
    return ", ".join(_together(tuple(names))) or but


def _of_any_domain(names: tuple[str, ...]) -> tuple[str, ...]:
    """Operators that are meant whatever their domain, each once."""
    return tuple(one for one in names if one.removeprefix("*.") == one or one[2:] not in names)


def conditions(match: Match, known: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """What else a match asks for, in words. `known` are classes that need not be listed.

    >>> conditions(Match(targets=("a.B",), settings={"bias": True}, root=False))
    ('bias=True', 'not as the whole model')
    """
    whole = {None: "", True: "as the whole model", False: "not as the whole model"}
    parts = (
        _listed("of a class named", match.named),
        _VIA.get(match.via or "", match.via or ""),
        _listed("in a subclass of", match.bases, known),
        _REACHED.get(match.reached or "", ""),
        _listed("through", match.entry),
        _listed("in", match.within, known),
        "outside of layers with a rule" if match.outside else "",
        _NESTED[match.nested],
        _listed("under", match.under),
        _REGISTERED[match.registered],
        *(f"{name}={value}" for name, value in match.settings.items()),
        _listed("with", match.has),
        _listed("without", match.lacks),
        _listed("run as", match.fused),
        _listed("of", match.dtypes),
        whole[match.root],
        _LEAF[match.leaf],
        _LAST[match.last],
    )
    return tuple(part for part in parts if part)


def booked(clause: Clause) -> str:
    """The amount of one call in words.

    >>> from crossflops.ir.convention import Match
    >>> booked(Clause(id="x", cause="norm.batch", level="module", match=Match(), kind="part",
    ...               formula="numel_in", factor=4))
    '4 x numel_in'
    """
    if not clause.formula and not clause.weights:
        return "always" if clause.kind == "fails" else "nothing"
    sum_ = " + ".join(f"{weight} x {kind}" for kind, weight in clause.weights.items())
    amount = clause.formula or (f"({sum_})" if clause.factor != 1 else sum_)
    return amount if clause.factor == 1 else f"{clause.factor} x {amount}"


def _listed(word: str, names: tuple[str, ...], known: frozenset[str] = frozenset()) -> str:
    if not names:
        return ""
    if known and set(names) == known:
        return f"{word} {_KNOWN}"
    return f"{word} {' or '.join(_together(names))}"


def _together(names: tuple[str, ...]) -> list[str]:
    """Short names, neighbours that differ in their number of dimensions as one."""
    short = [sub(r"^(torch\.nn\.modules\.\w+|aten)\.|\.(default|\*)$", "", one) for one in names]
    short = [sub(r"^torch\.nn\.functional\.", "F.", one) for one in short]
    found = []
    for (start, end), alike in groupby(map(_split, short), lambda parts: (parts[0], parts[2])):
        found.append(f"{start}{'/'.join(middle for _, middle, _ in alike)}{end}")
    return found


def _split(name: str) -> tuple[str, str, str]:
    """The name before its number of dimensions, that number, and what follows."""
    found = fullmatch(r"(.*?)([123]d)(.*)", name)
    return (found[1], found[2], found[3]) if found else (name, "", "")


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
    for own in _by_level(core):
        blocks += _section("Multiply-accumulates: the first line that fits holds", own, known)
    for own in _by_level(parts):
        blocks += _section("Added to them, in the tool's own unit", own, known)
    blocks += _section("Not seen, and why", unseen, known)
    blocks += _section("The tool itself fails", fails, known)
    return Page((*blocks, *_legend(convention)))


def _by_level(clauses: tuple[Clause, ...]) -> list[tuple[Clause, ...]]:
    """Clauses about modules apart from those about functions, in the order of the first."""
    levels = dict.fromkeys(one.level for one in clauses)
    return [tuple(one for one in clauses if one.level == level) for level in levels]


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
            Column(head=_ABOUT.get(clauses[0].level, "nodes"), flows=True),
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
