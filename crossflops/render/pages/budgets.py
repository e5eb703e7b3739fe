"""The page of budgets: a line for each rule, and the modules that grew under those that fail."""

from crossflops.render.page import Block, Column, Page, Row, Table, Text, right
from crossflops.render.quantity import exact, number, signed
from crossflops.report.budgets import Check, Checks

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
}


def budgets_page(noun: Checks) -> Page:
    """Every rule with its value, failing ones first; what grew, and what a smaller model saves."""
    ordered = sorted(noun.checks, key=lambda check: check.holds)
    columns = (
        Column(head="model", flows=True),
        Column(head="rule"),
        *right("value", "limit", "against the baseline"),
        Column(head="verdict"),
    )
    blocks: list[Block] = [Table(columns=columns, rows=tuple(map(_row, ordered)))]
    blocks += [Text(text, tone="bad") for text in failures(noun)]
    blocks += [Text(text, tone="warn") for text in doubts(noun)]
    blocks += [Text(text, tone="good") for text in savings(noun)]
    blocks += [Text(f"{target} has no budget.") for target in noun.unbudgeted]
    return Page(tuple(blocks))


def _row(check: Check) -> Row:
    return Row.of(
        check.target,
        check.rule,
        "-" if check.value is None else exact(check.value),
        "-" if check.limit is None else exact(check.limit),
        "-" if check.change is None else signed(check.change),
        "ERROR" if check.error else "holds" if check.holds else "FAILS",
        tone="good" if check.holds else "bad",
    )


def failures(noun: Checks) -> list[str]:
    """Return a sentence for each rule that does not hold; one error of a model is said once."""
    return list(dict.fromkeys(failure(check) for check in noun.checks if not check.holds))


def failure(check: Check) -> str:
    """Return why a rule does not hold, and what to do."""
    if check.error or check.value is None:
        return f"{check.target}: {check.error} ({check.hint})"
    head = f"{check.target}: {check.rule} does not hold, with {exact(check.value)}"
    if check.uncounted:
        return f"{head} and {_unseen(check.uncounted)}."
    return f"{head}. {_grown(check)}"


def _unseen(nodes: tuple[str, ...]) -> str:
    named = ", ".join(nodes[:_NAMED])
    left = f" and {len(nodes) - _NAMED} more" if len(nodes) > _NAMED else ""
    which = number(len(nodes), "node")
    return (
        f"{which} that nobody counted: {named}{left}; "
        f'a rule "uncounted <= {len(nodes)}" allows that'
    )


def doubts(noun: Checks) -> list[str]:
    """Return a sentence for each checked figure that is no exact count."""
    kinds = {"bound": "an upper bound", "estimate": "an estimate"}
    return [
        f"{check.target}, {check.rule}: the value is {kinds.get(check.doubt, check.doubt)}, "
        "and no exact count."
        for check in noun.checks
        if check.doubt
    ]


def savings(noun: Checks) -> list[str]:
    """Return a sentence for each number that is smaller than in the baseline."""
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
    unit = _UNITS.get(check.grew_in, check.grew_in)
    return f"Grew in {unit}: {', '.join(named)}{f' and {left} more' if left else ''}."
