"""Build the page of formulas for a language model: one table of all, and their causes."""

from crossflops.ir.formula_account import FormulaAccount, FormulaReport
from crossflops.ir.profile import Amount
from crossflops.render.page import Block, Column, Heading, Page, Row, Table, Text, Tone
from crossflops.render.pages.places import cause_title
from crossflops.render.pages.summary import input_value_notes, model_title, nodes_without_cost
from crossflops.report.quantity import (
    amount_with_sign,
    count_with_noun,
    exact_amount,
    explanation_percent,
    percent_change,
)
from crossflops.report.report import Report

_PASSES = {"training": "training, 6 FLOPs per MAC", "forward": "forward, 2 FLOPs per MAC"}
_PER_TOKEN = ("per token", "per source token")
_NOT_RUN = (
    "No tool was run: each formula is computed from the config, as its source does it. The "
    "native count is the MACs of the graph; training costs three forward passes."
)


def formula_page(report: Report) -> Page:
    """Return the page of formulas for a language model: native count, formulas, causes."""
    answers = report.llm
    assert isinstance(answers, FormulaReport)
    return Page(
        (
            model_title(report),
            *input_value_notes(report),
            *formula_blocks(answers),
            *nodes_without_cost(report),
        )
    )


def formula_blocks(answers: FormulaReport) -> list[Block]:
    """Return a heading, a table and notes on the formulas for a language model."""
    sequences = count_with_noun(answers.sequences, "sequence")
    blocks: list[Block] = [
        Heading(f"FLOPs of {sequences} of {_token_words(answers)}, by formula"),
        _formula_table(answers),
        Text(_NOT_RUN, " ", "dim"),
    ]
    blocks += [
        Text(
            f"{', '.join(names)} {'has' if len(names) == 1 else 'have'} no number: {obstacle}",
            " ",
            "warn",
        )
        for obstacle, names in answers.formulas_by_obstacle.items()
    ]
    return blocks


def _token_words(answers: FormulaReport) -> str:
    """Return the number of tokens of a sequence, in words: of an encoder-decoder those of both."""
    if answers.target_tokens is None:
        return f"{answers.tokens} tokens"
    return f"{answers.tokens} source tokens and {answers.target_tokens} target tokens"


def _formula_table(answers: FormulaReport) -> Table:
    """Return a table of formulas: FLOPs per token and in all, and the causes of differences."""
    rows = []
    for passes, words in _PASSES.items():
        accounts = [account for account in answers.accounts if account.passes == passes]
        if accounts:
            rows.append(_amount_row(answers, f"native, {words}", accounts[0].ours, tone="good"))
        for account in accounts:
            rows += _account_rows(answers, account)
    return Table(
        columns=(
            Column(head="formula, and why it differs"),
            Column(head=_PER_TOKEN[answers.target_tokens is not None], right=True),
            Column(head="of all tokens", right=True, spare=1),
            Column(head="vs native", right=True),
            Column(head="explained", right=True),
            Column(head="what", flows=True, spare=2),
            Column(head="source", flows=True, detail=True),
        ),
        rows=tuple(rows),
    )


def _amount_row(answers: FormulaReport, name: str, amount: int, tone: Tone = "") -> Row:
    """Return a row with an amount for one token and for all tokens."""
    per_token = exact_amount(answers.per_token(amount))
    return Row.from_cells(name, per_token, exact_amount(amount), "", "", "", "", tone=tone)


def _account_rows(answers: FormulaReport, account: FormulaAccount) -> list[Row]:
    """Return the rows of a formula: its amounts and difference to native, then the causes."""
    name = f"{account.tool}@{account.edition}"
    if account.obstacle:
        cells = (name, "-", "-", "-", "-", "no number", account.reference)
        return [Row.from_cells(*cells, tone="warn")]
    rows = [
        Row.from_cells(
            name,
            exact_amount(answers.per_token(account.theirs)),
            exact_amount(account.theirs),
            percent_change(account.theirs, account.ours),
            explanation_percent(account.residual, account.delta),
            f"per {account.per}",
            account.reference,
            tone="bad" if account.residual else "",
        )
    ]
    reasons: list[tuple[str, Amount, str, str]] = [
        (row.cause, row.amount, cause_title(row.cause), row.reference)
        for row in account.explanations
    ]
    if account.residual:
        reasons.append(("residual", account.residual, "", ""))
    for cause, amount, title, reference in reasons:
        rows.append(
            Row.from_cells(
                f"  {cause}",
                amount_with_sign(answers.per_token(int(amount))),
                amount_with_sign(amount),
                "",
                "",
                title,
                reference,
                tone="bad" if cause == "residual" else "dim",
            )
        )
    return rows
