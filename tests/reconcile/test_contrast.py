"""Two tools set against each other."""

import itertools

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from crossflops.reconcile.walk import reconcile
from crossflops.report.comparison import contrast_accounts
from crossflops.rules.prediction import predict
from crossflops.rules.rule import CostWeights
from tests.reconcile.synthetic import (
    SETTING,
    convention,
    conventions,
    ledger,
    operator,
    printed,
    rule,
    trace,
    traces,
)

PER_MAC = "unit.mac-vs-flop"


def account(rules, case, off=0):
    """The account of a made-up tool, which prints so much more than was predicted."""
    calls, costs = case
    prediction = predict(rules, calls, SETTING, costs)
    return reconcile(prediction, calls, costs, printed(prediction.total + off))


@given(traces(), conventions(), conventions(), st.integers(-9, 9), st.integers(-9, 9))
def test_the_way_from_one_to_the_other_adds_up(case, first, second, one, other):
    """Differences and residual are the whole difference; only what differs is shown."""
    compared = contrast_accounts(account(first, case, one), account(second, case, other))
    assert compared.residual == other - one
    assert sum(row.amount for row in compared.differences) + compared.residual == compared.delta
    assert all(row.amount for row in compared.differences)


@given(traces(), conventions(), conventions())
def test_the_way_back_is_the_way_there(case, first, second):
    """Every amount changes its sign, and no cause comes or goes."""
    there = contrast_accounts(account(first, case), account(second, case))
    back = contrast_accounts(account(second, case), account(first, case))
    assert {row.cause: row.amount for row in there.differences} == {
        row.cause: -row.amount for row in back.differences
    }


@given(traces(), conventions(), conventions())
def test_the_unit_differs_only_where_the_units_do(case, first, second):
    """Two tools that count alike for a MAC differ by no unit, whatever they overlook."""
    second = replace(second, unit=first.unit)
    compared = contrast_accounts(account(first, case), account(second, case))
    assert PER_MAC not in {row.cause for row in compared.differences}


def two_products(first, second):
    """Tools with so much per MAC; the first sees both products, the second one of them."""
    calls = trace(operator("o"), replace(operator("p"), target="aten.bmm"))
    case = calls, ledger({"o": 100, "p": 30})
    o, p = (
        rule(name, "core", target, amount=CostWeights({"macs": 1})) for name, target in PRODUCTS
    )
    return contrast_accounts(
        account(convention(o, p, unit=first), case), account(convention(o, unit=second), case)
    )


PRODUCTS = (("sees.o", "aten.mm"), ("sees.p", "aten.bmm"))


def test_what_one_overlooks_costs_what_both_count_for_it():
    """By hand: 100 and 30 MACs, the second sees the 100 alone, at 0, 1 or 2 for each."""
    expected = {
        (1, 1): {"unseen.by-default": -30},
        (2, 2): {"unseen.by-default": -60},
        (1, 2): {"unseen.by-default": -30, PER_MAC: 100},
        (2, 1): {"unseen.by-default": -30, PER_MAC: -130},
        (0, 2): {PER_MAC: 200},
        (0, 0): {},
    }
    for units, amounts in expected.items():
        compared = two_products(*units)
        assert {row.cause: row.amount for row in compared.differences} == amounts, units
        assert compared.delta == units[1] * 100 - units[0] * 130
        sizes = [abs(row.amount) for row in compared.differences]
        assert sizes == sorted(sizes, reverse=True)


def test_the_calls_are_those_of_each():
    """A cause that only one of them has names no call of the other."""
    (row,) = two_products(1, 1).differences
    assert (row.first, row.first_calls) == (0, ())
    assert (row.second, row.second_calls) == (-30, ("p",))


def test_an_older_account_still_adds_up():
    """Reports that do not say what stands in MACs give the amounts as they are."""
    accounts = [account(rules, CASE) for rules in (convention(unit=2), convention(SEEN, unit=2))]
    old = [
        replace(
            reconciliation,
            explanations=tuple(replace(row, macs=None) for row in reconciliation.explanations),
        )
        for reconciliation in accounts
    ]
    for first, other in itertools.permutations(old):
        compared = contrast_accounts(first, other)
        assert (compared.unit, compared.residual) == (1, 0)


SEEN = rule("sees.o", "core", "aten.mm", amount=CostWeights({"macs": 1}))
CASE = (trace(operator("o")), ledger({"o": 100}))
