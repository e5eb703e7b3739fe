"""Explain the difference between the native count of a language model and the number of a formula
over its config.
"""

from collections.abc import Iterable, Iterator

from crossflops.ir.architecture import LanguageArchitecture, TokenSequence
from crossflops.ir.formula_account import FormulaAccount, FormulaReport
from crossflops.ir.reconciliation import Explanation
from crossflops.rules.rule import Convention, CostWeights, Rule, formula_equation


def reconcile_formulas(
    conventions: Iterable[Convention],
    architecture: LanguageArchitecture,
    tokens: int,
    sequences: int,
    native_macs: int,
    *,
    target_tokens: int | None = None,
) -> FormulaReport:
    """Return a report with the number of each formula and its explanation, for `sequences`
    sequences of `tokens` tokens.

    `native_macs` are the forward MACs of the graph for all of them. Behind an encoder, the decoder
    has `target_tokens`.
    """
    work = TokenSequence(architecture, tokens, target_tokens)
    return FormulaReport(
        model_type=architecture.model_type,
        tokens=tokens,
        target_tokens=target_tokens,
        sequences=sequences,
        native_macs=native_macs,
        closed_form_macs=work.macs * sequences,
        accounts=tuple(
            _formula_account(convention, work, sequences, native_macs)
            for convention in conventions
        ),
    )


def _formula_account(
    convention: Convention, work: TokenSequence, sequences: int, native_macs: int
) -> FormulaAccount:
    """Return the number of one formula, with explanations of its difference from the native count;
    without a number, with the reason.
    """
    formula = convention.formula
    assert formula is not None
    native = convention.unit * native_macs
    obstacle = _reason_without_number(convention, work)
    return FormulaAccount(
        tool=convention.tool,
        edition=convention.edition,
        printed_as=convention.printed_as,
        passes=formula.passes,
        per=formula.per,
        ours=native,
        theirs=native if obstacle else formula.number(work) * sequences,
        explanations=() if obstacle else tuple(_formula_explanations(convention, work, sequences)),
        reference=convention.source,
        obstacle=obstacle,
    )


def _rule_amount(rule: Rule, work: TokenSequence) -> int:
    """Return the FLOPs that a rule of a formula adds for one sequence, negative if it takes some
    away.
    """
    assert rule.amount is not None
    assert not isinstance(rule.amount, CostWeights)
    return rule.factor * int(rule.amount(work))


def _reason_without_number(convention: Convention, work: TokenSequence) -> str:
    """Return the reason, as a text, why a formula has no number for this model; "" if it has
    one.
    """
    failures = (rule for rule in convention.rules if rule.kind == "fails")
    reason = next((rule.amount for rule in failures if _rule_amount(rule, work)), None)
    return formula_equation(reason).removesuffix(".") if reason else ""


def _formula_explanations(
    convention: Convention, work: TokenSequence, sequences: int
) -> Iterator[Explanation]:
    """Yield one explanation for each cause with an amount other than 0, in the order of the
    formula's rules.
    """
    amounts: dict[str, int] = {}
    references: dict[str, list[str]] = {}
    for rule in convention.rules:
        if rule.kind == "part" and (amount := _rule_amount(rule, work) * sequences):
            amounts[rule.cause] = amounts.get(rule.cause, 0) + amount
            references.setdefault(rule.cause, []).append(formula_equation(rule.amount))
    for cause, amount in amounts.items():
        if amount:
            yield Explanation(
                cause=cause, amount=amount, calls=(), reference="; ".join(references[cause])
            )
