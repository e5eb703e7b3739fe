"""Build the page of budgets: a line for each rule, and the modules that grew if it fails."""

from crossflops.render.page import Block, Column, Page, Row, Table, Text, number_columns
from crossflops.report.budgets import Check, Checks
from crossflops.report.quantity import amount_with_sign, count_with_noun, exact_amount
from crossflops.report.recorded import LATENCY

_NAMED = 5  # modules, or nodes, that a failing line names
_UNITS = {
    "macs": "MACs",
    "flops": "FLOPs",
    "params": "parameters",
    "bytes_read": "bytes read",
    "bytes_written": "bytes written",
    "memory_traffic": "bytes of memory traffic",
    "peak_activation_memory": "bytes of activations",
    "model_bytes": "bytes of parameters",
    "uncounted": "nodes without a count",
    "residual": "residual",
}


def budgets_page(content: Checks) -> Page:
    """Return the page of budgets: rules (failed ones first), then sentences on each change."""
    ordered = sorted(content.checks, key=lambda check: check.holds)
    columns = (
        Column(head="model", flows=True),
        Column(head="rule"),
        *number_columns("value", "limit", "against the baseline"),
        Column(head="verdict"),
    )
    blocks: list[Block] = [Table(columns=columns, rows=tuple(map(_budget_check_row, ordered)))]
    blocks += [Text(text, tone="bad") for text in budget_failure_sentences(content)]
    blocks += [Text(text, tone="warn") for text in inexact_value_sentences(content)]
    blocks += [Text(text) for text in budget_model_move_sentences(content)]
    blocks += [Text(text, tone="good") for text in budget_saving_sentences(content)]
    blocks += [Text(f"{target} has no budget.") for target in content.unbudgeted]
    return Page(tuple(blocks))


def _budget_check_row(check: Check) -> Row:
    """Build the row of a budget check: target, rule, value, limit, change and verdict."""
    return Row.from_cells(
        check.target,
        budget_rule_text(check),
        "-" if check.value is None else exact_amount(check.value),
        "-" if check.limit is None else exact_amount(check.limit),
        "-" if check.change is None else amount_with_sign(check.change),
        _budget_verdict(check),
        tone="good" if check.holds else "bad",
    )


def _budget_verdict(check: Check) -> str:
    """Return the verdict on a budget rule: "holds", "FAILS", "new" or "ERROR"."""
    if check.error:
        return "ERROR"
    if not check.holds:
        return "FAILS"
    return "new" if check.is_new and check.limit is None else "holds"


def budget_rule_text(check: Check) -> str:
    """Return a budget rule as text, with its module or operator if it is about one."""
    return f"{check.part}: {check.rule}" if check.part else check.rule


def budget_failure_sentences(content: Checks) -> list[str]:
    """Return a sentence for each budget rule that fails, without repetitions."""
    return list(
        dict.fromkeys(budget_failure_text(check) for check in content.checks if not check.holds)
    )


def budget_failure_text(check: Check) -> str:
    """Return a sentence on why a budget rule fails, with a hint."""
    if check.error or check.value is None:
        return f"{check.target}: {check.error} ({check.hint})"
    rule = budget_rule_text(check)
    head = f"{check.target}: {rule} does not hold, with {exact_amount(check.value)}"
    if check.uncounted:
        return f"{head} and {_nodes_without_count_text(check.uncounted)}."
    return f"{head}. {_budget_growth_text(check)}"


def _nodes_without_count_text(nodes: tuple[str, ...]) -> str:
    """Return a sentence that names nodes without a count, and the rule to allow them."""
    named = ", ".join(nodes[:_NAMED])
    left = f" and {len(nodes) - _NAMED} more" if len(nodes) > _NAMED else ""
    which = count_with_noun(len(nodes), "node")
    return (
        f'{which} not counted: {named}{left}; add a rule "uncounted <= {len(nodes)}" to allow this'
    )


def inexact_value_sentences(content: Checks) -> list[str]:
    """Return a sentence for each checked value that is not exact: a bound or an estimate."""
    kinds = {"bound": "an upper bound", "estimate": "an estimate"}
    return [
        f"{check.target}, {budget_rule_text(check)}: the value is "
        f"{kinds.get(check.doubt, check.doubt)}, not an exact count."
        for check in content.checks
        if check.doubt
    ]


def budget_model_move_sentences(content: Checks) -> list[str]:
    """Return a sentence for each model that moved to another file, or is not in the baseline."""
    known = {check.target: check for check in content.checks if check.moved_from or check.is_new}
    return [
        f"{target} moved from {check.moved_from}."
        if check.moved_from
        else f"{target} is not in {content.baseline}, so its growth is not checked."
        for target, check in known.items()
    ]


def budget_saving_sentences(content: Checks) -> list[str]:
    """Return a sentence for each value (times excepted) that is lower than in the baseline.

    A time differs from run to run.
    """
    return [
        f"{check.target}, {budget_rule_text(check)}: {exact_amount(-check.change)} saved."
        for check in content.checks
        if check.change is not None and check.change < 0 and not check.rule.startswith(LATENCY)
    ]


def _budget_growth_text(check: Check) -> str:
    """Return a sentence on which modules grew since the baseline, and by how much."""
    if check.change is None:
        return "What grew is unknown without a baseline: `crossflops check --update` writes one."
    if not check.grew_in:
        return "This value is not counted per module, so what grew is unknown."
    if not check.grew:
        return "Nothing grew."
    named = [
        f"{row.path or '(the model)'} {amount_with_sign(row.by)}" for row in check.grew[:_NAMED]
    ]
    left = len(check.grew) - len(named)
    unit = _UNITS.get(check.grew_in, check.grew_in)
    return f"Grew in {unit}: {', '.join(named)}{f' and {left} more' if left else ''}."
