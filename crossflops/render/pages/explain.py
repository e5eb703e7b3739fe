"""Build the pages of `explain`: a cause, or all that a tool's convention does.

A cause says what it is, how to recognise it, who has it, and what shows it.
"""

from itertools import groupby
from re import fullmatch, sub

from crossflops.ir.architecture import FormulaTraits
from crossflops.ir.reconciliation import Cause, Example
from crossflops.render.page import Block, Code, Column, Heading, Page, Row, Table, Text, Title
from crossflops.report.matches import Matches
from crossflops.report.quantity import amount_with_sign
from crossflops.rules.conditions import Condition
from crossflops.rules.rule import Convention, CostWeights, Parameters, Rule, formula_equation
from crossflops.tools.registry import all_conventions

_SEVERAL = 3  # rules of one tool, behind which the rest is only numbered


def matches_page(matches: Matches) -> Page:
    """Return the page that lists the causes that match a search text."""
    columns = (Column(head="cause"), Column(head="what", flows=True))
    rows = tuple(Row((cause.id, cause.title)) for cause in matches.causes)
    title = Title((f"{len(matches.causes)} causes match {matches.words!r}",))
    hint = Text(f"`crossflops explain {matches.causes[0].id}` shows the page of the first", " ")
    return Page((title, Table(columns=columns, rows=rows), hint))


def cause_page(cause: Cause) -> Page:
    """Return the page that explains a cause of differences between tools."""
    return Page((Title((cause.id, cause.title)), *cause_blocks(cause)))


def cause_blocks(cause: Cause) -> tuple[Block, ...]:
    """Return the blocks that describe a cause: text, how to recognize it, example."""
    paragraphs = [part for part in cause.page.split("\n\n") if part.strip()]
    blocks: list[Block] = [Text(" ".join(part.split()), " ") for part in paragraphs]
    if cause.recognise:
        blocks.append(Text(f"How to recognise it: {cause.recognise}", " "))
    if cause.example is not None:
        blocks += _cause_example_blocks(cause.id, cause.example)
    blocks += _cause_tool_blocks(cause.id)
    if cause.references:
        blocks.append(Heading("References"))
        blocks += [Text(reference, " - ") for reference in cause.references]
    return tuple(blocks)


def _cause_example_blocks(id: str, example: Example) -> tuple[Block, ...]:
    """Return the blocks of an example of a cause: code, tool and amount."""
    options = "".join(f" and {option}" for option in example.options)
    if example.unit:
        sentence = (
            f"from model to other, {id} is {amount_with_sign(example.amount)} {example.unit} here"
        )
        return (Heading("Two models that show it"), Code(example.code), Text(sentence, " ", "dim"))
    sentence = f"with {example.tool}{options}, {id} is {amount_with_sign(example.amount)} here"
    return (Heading("A model that shows it"), Code(example.code), Text(sentence, " ", "dim"))


def _cause_tool_blocks(id: str) -> list[Block]:
    """Return the heading and the table of the tools whose counts this cause changes, with what
    each of them does; [] if there are none.
    """
    rows = [
        Row((f"{convention.tool}@{convention.edition}", words))
        for convention in all_conventions()
        if (words := _behavior_of_tool(convention, id))
    ]
    if not rows:
        return []
    columns = (Column(head="tool"), Column(head="what it does", flows=True))
    return [Heading("Which tools have it"), Table(columns=columns, rows=tuple(rows))]


def _behavior_of_tool(convention: Convention, id: str) -> str:
    """Return a text on what a tool does that leads to a difference with this cause id, from the
    properties and rules of its convention; "" if the tool does nothing like it.
    """
    sentences = [_rule_text(rule) for rule in convention.rules if rule.cause == id]
    if len(sentences) > _SEVERAL:
        sentences = [*sentences[:_SEVERAL], f"and {len(sentences) - _SEVERAL} more"]
    return "; ".join([*_property_text_with_cause(convention, id), *sentences])


def _property_text_with_cause(convention: Convention, id: str) -> list[str]:
    """Return a text (in a list) on the property of a convention with this cause; else []."""
    if convention.formula is not None:
        return []
    traits = {
        "unit.mac-vs-flop": f"{convention.unit} per MAC" if convention.unit > 1 else "",
        "control.dead-code": "counts work with unused results" if convention.counts_dead else "",
        "scope.mode-forced-eval": "always in evaluation mode"
        if _always_runs_in_eval_mode(convention)
        else "",
        "module.shared-parents": _multiplier_words(convention),
        convention.unseen: "work without a rule",
        **_parameter_rule_text_by_cause(convention.parameters),
    }
    return [traits[id]] if traits.get(id) else []


def _parameter_rule_text_by_cause(rules: Parameters | None) -> dict[str, str]:
    """Return a text by cause: which parameters a tool leaves out or counts more than once."""
    if rules is None:
        return {}
    by_cause = {"params.unregistered": "counts parameters of registered modules"}
    if rules.modules:
        layers = "counts parameters of layers with a rule"
        by_cause |= dict.fromkeys(("params.no-rule", "params.bare", "params.root"), layers)
        by_cause["params.counted-again"] = "once for each parent"
    if rules.leaves:
        by_cause["params.nonleaf"] = "counts parameters of modules without submodules"
        by_cause["params.counted-again"] = "once for each module"
    if rules.called:
        by_cause["params.uncalled"] = "counts parameters when a layer is called"
    if rules.trainable:
        by_cause["params.frozen"] = "counts parameters that require a gradient"
    if rules.extra:
        by_cause |= dict.fromkeys(
            ("params.counted-again", "params.pruned"), formula_equation(rules.extra)
        )
    return by_cause


def _always_runs_in_eval_mode(convention: Convention) -> bool:
    """Return whether a tool always runs the model in evaluation mode."""
    return convention.forces.get("training") is False


def _multiplier_words(convention: Convention) -> str:
    """Return "times A or B": the formulas by which a convention multiplies counts; "" if none."""
    times = {rule.times.of for rule in convention.rules if rule.times}
    names = sorted(str(getattr(formula, "__name__", formula)) for formula in times)
    return f"times {' or '.join(names)}" if names else ""


def _rule_text(rule: Rule) -> str:
    """Return a rule as one text: what it applies to, its conditions, and its amount.

    >>> from crossflops.rules.conditions import output_elements
    >>> _rule_text(Rule(id="x", cause="norm.batch", level="operator", kind="part", factor=2,
    ...            targets=("aten.batch_norm.default",), amount=output_elements))
    'batch_norm: 2 x n(y)'
    """
    parts = [rule_subject(rule), *rule_condition_texts(rule)]
    return f"{', '.join(parts)}: {rule_amount_words(rule)}"


# What a rule says, in words: whom it is about, under which conditions, and what it books.

_MOST = 8  # operators that a line leaves out by name
_KNOWN = "a layer counted above"
_ANY_BUT, _OUTSIDE = "any except", "outside layers with a rule"


def rule_subject(rule: Rule) -> str:
    """Return a text on what a rule applies to: layers or functions, with short names.

    >>> rule_subject(Rule(id="x", cause="bias.conv", level="module", kind="part",
    ...           targets=("torch.nn.modules.conv.Conv1d", "torch.nn.modules.conv.Conv2d")))
    'Conv1d/2d'
    >>> rule_subject(Rule(id="x", cause="bias.conv", level="operator", kind="part",
    ...           targets=("aten.linear.default", "aten.conv1d.padding", "aten.mv.*")))
    'linear, conv1d.padding, mv'
    """
    narrower = next((condition for condition in rule.where if condition.whom), None)
    if narrower is not None and narrower.words != _ANY_BUT:
        return f"{', '.join(_short_target_names(narrower.names))}, or {narrower.words}"
    names = rule_target_names(rule.targets)
    if names or narrower is None:
        return names or "any"
    left_out = _short_target_names(_drop_domain_duplicates(narrower.names))
    return "any other" if len(left_out) > _MOST else f"{_ANY_BUT} {', '.join(left_out)}"


def rule_target_names(names: tuple[str, ...]) -> str:
    """Return names of classes, functions or operators, shortened and joined; "" if any fits.

    >>> rule_target_names(("Conv", "*.Conv"))
    'Conv'
    """
    return ", ".join(
        _short_target_names(tuple(name for name in _drop_domain_duplicates(names) if name != "*"))
    )


def _drop_domain_duplicates(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the operator names without "*.NAME" if NAME itself is among them."""
    return tuple(
        name for name in names if name.removeprefix("*.") == name or name[2:] not in names
    )


def rule_condition_texts(rule: Rule, known: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Return the conditions of a rule as texts, without those on what it applies to.

    >>> from crossflops.rules.conditions import as_root, setting
    >>> rule_condition_texts(Rule(id="x", cause="bias.conv", level="module", kind="part",
    ...                 where=(setting(bias=True), as_root(False))))
    ('bias=True', 'not as the whole model')
    """
    return tuple(
        _condition_words(condition, known) for condition in rule.where if not condition.whom
    )


def _condition_words(condition: Condition, known: frozenset[str]) -> str:
    """Return a condition of a rule as text; `known` are names that need not be listed again."""
    if not condition.names or condition.words == _OUTSIDE:
        return condition.words
    return _condition_with_names(condition.words, condition.names, known)


def rule_amount_words(rule: Rule) -> str:
    """Return as text the amount that a rule counts for one call, such as "4 x n(x)".

    >>> from crossflops.rules.conditions import input_elements
    >>> rule_amount_words(Rule(id="x", cause="norm.batch", level="module", kind="part",
    ...             amount=input_elements, factor=4))
    '4 x n(x)'
    """
    if rule.amount is None:
        return "always" if rule.kind == "fails" else "nothing"
    if isinstance(rule.amount, CostWeights):
        weighed = [f"{weight} x {kind}" for kind, weight in rule.amount.weights.items()]
        amount, several = " + ".join(weighed), len(weighed) > 1
    else:
        amount = formula_equation(rule.amount).removesuffix(".")
        several = " + " in amount or " - " in amount
    if rule.factor == 1:
        return amount
    return f"{rule.factor} x ({amount})" if several else f"{rule.factor} x {amount}"


def _condition_with_names(
    word: str, names: tuple[str, ...], known: frozenset[str] = frozenset()
) -> str:
    """Return a word and names, such as "in A or B", or a short form if the names are `known`."""
    if not names:
        return ""
    if known and set(names) == known:
        return f"{word} {_KNOWN}"
    return f"{word} {' or '.join(_short_target_names(names))}"


def _short_target_names(names: tuple[str, ...]) -> list[str]:
    """Return short names; those that differ only in 1d, 2d, 3d are one, such as "Conv1d/2d"."""
    short = [sub(r"^(torch\.nn\.modules\.\w+|aten)\.|\.(default|\*)$", "", name) for name in names]
    short = [sub(r"^torch\.nn\.functional\.", "F.", name) for name in short]
    groups = []
    for (start, end), similar in groupby(
        map(_split_dimension_name, short), lambda parts: (parts[0], parts[2])
    ):
        groups.append(f"{start}{'/'.join(middle for _, middle, _ in similar)}{end}")
    return groups


def _split_dimension_name(name: str) -> tuple[str, str, str]:
    """Return a name in three parts: before "1d", "2d" or "3d", this part, and the rest."""
    match = fullmatch(r"(.*?)([123]d)(.*)", name)
    return (match[1], match[2], match[3]) if match else (name, "", "")


_FORCED: dict[str, dict[bool | str, str]] = {
    "training": {False: "evaluation mode", True: "training mode"},
    "grad": {False: "no gradients", True: "gradients"},
    "hooked": {
        False: "no hooks",
        True: "hooks on the modules",
        "children": "hooks on the children of the model",
    },
}
_ABOUT = {level: f"{level}s called" for level in ("module", "function", "operator")} | {
    "jit": "nodes traced by torch.jit",
    "traced": "nodes traced by torch.jit",
    "event": "operators when they begin",
    "dispatch": "operators dispatched",
    "lowered": "instructions given to XLA",
    "compiled": "instructions compiled by XLA",
}
_UNCHECKED = {True: "no tool", False: "not checked with any version"}


def convention_page(convention: Convention) -> Page:
    """Return the page of a tool's convention: its properties and all of its rules."""
    if convention.formula is not None:
        return _formula_convention_page(convention, convention.formula)
    core, parts, unseen, fails = (
        tuple(rule for rule in convention.rules if rule.kind == kind)
        for kind in ("core", "part", "unseen", "fails")
    )
    known = frozenset(target for rule in core for target in rule.targets)
    blocks: list[Block] = [_convention_title(convention), *_convention_head(convention)]
    for rules in _rules_by_level(core):
        blocks += _rule_section(
            "Multiply-accumulates: the first matching line applies", rules, known
        )
    for rules in _rules_by_level(parts):
        blocks += _rule_section("Other amounts, added in the tool's own unit", rules, known)
    blocks += _rule_section("Work that the tool does not see, and why", unseen, known)
    blocks += _rule_section("When the tool fails", fails, known)
    return Page((*blocks, *_formula_legend(convention)))


def _formula_convention_page(convention: Convention, formula: FormulaTraits) -> Page:
    """Return the page of a convention that is one formula: the formula and its causes."""
    title = Title(
        (
            f"{convention.tool}@{convention.edition}",
            f'prints "{convention.printed_as}"',
            f"{convention.unit} per MAC, {formula.passes}",
            "reads the config and the parameter table of a language model",
            "computed, not run",
        )
    )
    fails = tuple(rule for rule in convention.rules if rule.kind == "fails")
    rows = tuple(
        Row((rule.id, rule_amount_words(rule), rule.cause))
        for rule in convention.rules
        if rule.kind == "part"
    )
    columns = (
        Column(head="rule", detail=True),
        Column(head="amount of a sequence of T tokens", flows=True),
        Column(head="cause"),
    )
    blocks: list[Block] = [
        title,
        Text(f"its number is {formula_equation(formula.number)}", " "),
        Text(f"written per {formula.per}", " "),
        *(Text(f"no number for: {formula_equation(rule.amount)}", " ") for rule in fails),
        Text(f"source: {convention.source}", " "),
        Heading("Added to the native FLOPs of the same step"),
        Table(columns=columns, rows=rows),
    ]
    return Page(tuple(blocks))


def _rules_by_level(rules: tuple[Rule, ...]) -> list[tuple[Rule, ...]]:
    """Return the rules in one group for each level (module, function, ...) in their order."""
    levels = dict.fromkeys(rule.level for rule in rules)
    return [tuple(rule for rule in rules if rule.level == level) for level in levels]


def _convention_title(convention: Convention) -> Title:
    """Return the title of a convention's page: edition, printed label, unit, checked versions."""
    nodes, checked = convention.sees == "node", ", ".join(convention.verified)
    return Title(
        (
            f"{convention.tool}@{convention.edition}",
            f'prints "{convention.printed_as}"',
            f"{convention.unit} per MAC" if convention.unit else "counts no MACs",
            "looks at graph nodes" if nodes else f"looks at {convention.sees} calls",
            f"checked with {checked}" if checked else _UNCHECKED[nodes],
        )
    )


_OF_STEPS = {
    "": "",
    "runs": "in a training step it counts the forward and the backward pass as they run",
    "thrice": "in a training step it counts the forward pass three times",
}


def _convention_head(convention: Convention) -> list[Block]:
    """Return texts that hold for all rules of a convention: mode, unused results, source."""
    forced = ", ".join(_FORCED[name][value] for name, value in convention.forces.items())
    dead = "counted" if convention.counts_dead else "not counted"
    outside = (part for rule in convention.rules for part in rule.where if part.words == _OUTSIDE)
    ruled = tuple(dict.fromkeys(name for condition in outside for name in condition.names))
    texts = [
        f"always runs with: {forced}" if forced else "",
        f"work with unused results is {dead}",
        f"multiply-accumulates that match no line below are not counted: {convention.unseen}",
        f"its total is {formula_equation(convention.adds_up)}" if convention.adds_up else "",
        f"layers with a rule: {rule_target_names(ruled)}" if ruled else "",
        "the amount of a module is added to the amounts of its submodules"
        if convention.rules_add
        else "",
        _OF_STEPS[convention.step],
        _parameter_rules_text(convention.parameters),
        f"source: {convention.source}" if convention.source else "",
    ]
    return [Text(text, " ") for text in texts if text]


def _parameter_rules_text(rules: Parameters | None) -> str:
    """Return a text on which parameters a tool counts, such as "parameters: each once".

    >>> _parameter_rules_text(Parameters(trainable=True, reference="count.py"))
    'parameters: each once, only trainable ones (count.py)'
    """
    if rules is None:
        return ""
    which = "each once"
    if rules.stored:
        which = "all initializers" if rules.stored == "all" else "initializers that a node takes"
        which += ", one without axes as 0" if not rules.scalar else ""
    if rules.modules:
        which = "those in layers that have a rule, once for each chain of parents"
    if rules.leaves:
        which = "those of modules without submodules"
    words = [which, "only trainable ones" if rules.trainable else ""]
    words += ["only if the layer was called"] if rules.called else []
    words += [f"and also: {formula_equation(rules.extra)}"] if rules.extra else []
    return f"parameters: {', '.join(filter(None, words))} ({rules.reference})"


def _rule_section(head: str, rules: tuple[Rule, ...], known: frozenset[str]) -> list[Block]:
    """Return a heading and a table of rules, with the conditions of all rules above it."""
    if not rules:
        return []
    requested = [(*rule_condition_texts(rule, known), *_rule_modifiers(rule)) for rule in rules]
    shared = [
        text
        for text in requested[0]
        if len(requested) > 1 and all(text in own for own in requested)
    ]
    rows = tuple(
        Row(
            (
                rule.id,
                _rule_summary(rule, texts, shared),
                rule_amount_words(rule),
                rule.cause,
                rule.reference,
            )
        )
        for rule, texts in zip(rules, requested, strict=True)
    )
    table = Table(
        columns=(
            Column(head="rule", detail=True),
            Column(head=_ABOUT.get(rules[0].level, "nodes"), flows=True),
            Column(head="if not 0" if rules[0].kind == "fails" else "amount", flows=True),
            Column(head="cause, if it differs" if rules[0].kind == "core" else "cause"),
            Column(head="source", flows=True, detail=True),
        ),
        rows=rows,
    )
    if all(row.cells[2] == "nothing" for row in rows):
        table = table.without_column(table.columns[2])
    above = [Text(f"each of them {', '.join(shared)}", " ", "dim")] if shared else []
    return [Heading(head), *above, table]


def _rule_summary(rule: Rule, texts: tuple[str, ...], shared: list[str]) -> str:
    """Return what a rule applies to, and those of its texts that not all rules share."""
    alone = [text for text in texts if text not in shared]
    return "; ".join([rule_subject(rule), *alone])


def _rule_modifiers(rule: Rule) -> tuple[str, ...]:
    """Return texts on what changes a rule's amount: a factor, a divisor, or its scope."""
    parts = (
        f"times {_formula_name(rule.times.of)}" if rule.times else "",
        f"divided by {_formula_name(rule.batch)}" if rule.batch else "",
        "only in the total" if rule.in_total_only else "",
        f"in addition to the rule of its module: {rule.again}" if rule.again else "",
    )
    return tuple(part for part in parts if part)


def _formula_name(formula: object) -> str:
    """Return the name of a formula that is a function, or the formula itself as text."""
    return str(getattr(formula, "__name__", formula))


def _formula_legend(convention: Convention) -> list[Block]:
    """Return a table that explains the formulas in the rules of a convention; [] if none."""
    used = dict.fromkeys(
        formula
        for rule in convention.rules
        for formula in (rule.times and rule.times.of, rule.batch)
        if formula
    )
    rows = tuple(Row((_formula_name(formula), formula_equation(formula))) for formula in used)
    columns = (Column(head="formula"), Column(head="what it is", flows=True))
    return [Heading("Formulas"), Table(columns=columns, rows=rows)] if rows else []
