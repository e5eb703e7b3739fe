"""The page of budgets: a line for each rule, and the modules that grew under those that fail."""

from crossflops.render.page import Block, Column, Page, Row, Table, Text, right
from crossflops.render.quantity import exact, signed
from crossflops.report.budgets import Check, Checks

_NAMED = 5  # modules that a failing line names


def budgets_page(noun: Checks) -> Page:
    """Every rule with its value; what grew where one fails, what a smaller model saves."""
    rows = tuple(
        Row.of(
            check.target,
            check.rule,
            exact(check.value),
            exact(check.limit),
            "-" if check.change is None else signed(check.change),
            "holds" if check.holds else "FAILS",
            tone="good" if check.holds else "bad",
        )
        for check in noun.checks
    )
    columns = (
        Column(head="model", flows=True),
        Column(head="rule"),
        *right("value", "limit", "against the baseline"),
        Column(head="verdict"),
    )
    blocks: list[Block] = [Table(columns=columns, rows=rows)]
    blocks += [Text(text, tone="bad") for text in failures(noun)]
    blocks += [Text(text, tone="good") for text in savings(noun)]
    blocks += [Text(f"{target} has no budget.") for target in noun.unbudgeted]
    return Page(tuple(blocks))


def failures(noun: Checks) -> list[str]:
    """A sentence for each rule that does not hold, with the modules that grew."""
    return [failure(check) for check in noun.checks if not check.holds]


def failure(check: Check) -> str:
    """What is to be said of a rule that does not hold."""
    head = f"{check.target}: {check.rule} does not hold, with {exact(check.value)}."
    return f"{head} {_grown(check)}"


def savings(noun: Checks) -> list[str]:
    """A sentence for each number that is smaller than in the baseline."""
    return [
        f"{check.target}, {check.rule}: {exact(-check.change)} saved."
        for check in noun.checks
        if check.change is not None and check.change < 0
    ]


def _grown(check: Check) -> str:
    if check.change is None:
        return "No baseline says what grew: `crossflops check --update` writes one."
    if not check.grew:
        return "No module grew."
    named = [f"{row.path or '(the model)'} {signed(row.by)}" for row in check.grew[:_NAMED]]
    left = len(check.grew) - len(named)
    return f"Grew: {', '.join(named)}{f' and {left} more' if left else ''}."
