"""Explanations + residual = delta: for every trace, convention, ledger and answer."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from crossflops.ir.reconciliation import Reconciliation
from crossflops.ir.trace import Trace
from crossflops.reconcile.walk import reconcile, residual_reconciliation
from crossflops.rules.conditions import input_elements
from crossflops.rules.prediction import predict
from tests.reconcile.synthetic import (
    SETTING,
    call,
    convention,
    conventions,
    explained,
    ledger,
    module,
    printed,
    rule,
    traces,
)


@given(traces(), conventions())
def test_explanations_lead_from_ours_to_the_prediction(case, rules):
    """Every integer between the native count and the predicted one has a cause."""
    trace, costs = case
    prediction = predict(rules, trace, SETTING, costs)
    account = reconcile(prediction, trace, costs)
    assert account.ours == costs.total.macs
    assert account.theirs == account.predicted == prediction.total
    assert (
        account.ours + sum(explanation.amount for explanation in account.explanations)
        == prediction.total
    )
    assert account.residual == 0


@given(traces(), conventions(), st.integers(-(10**30), 10**30))
def test_what_is_printed_otherwise_is_residual(case, rules, shift):
    """Whatever a tool prints beyond its prediction is residual, to the last integer."""
    trace, costs = case
    prediction = predict(rules, trace, SETTING, costs)
    account = reconcile(prediction, trace, costs, printed(prediction.total + shift))
    assert account.residual == shift
    assert (
        account.delta
        == sum(explanation.amount for explanation in account.explanations) + account.residual
    )
    assert account.predicted == prediction.total


@given(traces(), conventions(), st.integers(), st.integers())
def test_an_answer_changes_no_explanation(case, rules, one, other):
    """The prediction and what explains it are fixed before anybody looks at the tool."""
    trace, costs = case
    first, second = (
        reconcile(predict(rules, trace, SETTING, costs), trace, costs, printed(total))
        for total in (one, other)
    )
    assert first.explanations == second.explanations
    assert first.predicted == second.predicted
    assert first.residual - second.residual == one - other


@given(traces(), conventions())
def test_every_explanation_says_something(case, rules):
    """No amount of zero, no cause without calls, each call in the trace or of no call at all."""
    trace, costs = case
    account = reconcile(predict(rules, trace, SETTING, costs), trace, costs)
    known = set(trace.calls_by_key) | {""}
    for explanation in account.explanations:
        assert explanation.calls
        assert set(explanation.calls) <= known
        assert explanation.reference
        assert explanation.amount or len(explanation.calls) > 1


@given(traces(), conventions())
def test_paths_add_up_to_the_whole(case, rules):
    """The row of the root holds our total and the predicted one, where there is any."""
    trace, costs = case
    prediction = predict(rules, trace, SETTING, costs)
    rows = {row.path: row for row in reconcile(prediction, trace, costs).by_path}
    root = rows.get("")
    assert (root.ours if root else 0) == costs.total.macs
    assert (root.predicted if root else 0) == prediction.total


@given(traces(), conventions())
def test_the_causes_of_every_module_add_up(case, rules):
    """At each path the causes lead from our MACs to the prediction, and at the root to both."""
    trace, costs = case
    account = reconcile(predict(rules, trace, SETTING, costs), trace, costs)
    for row in account.by_path:
        assert sum(row.causes.values()) == row.predicted - row.ours
    root = {row.path: row.causes for row in account.by_path}.get("", {})
    for cause in {explanation.cause for explanation in account.explanations}:
        whole = sum(
            explanation.amount
            for explanation in account.explanations
            if explanation.cause == cause
        )
        assert root.get(cause, 0) == whole


@given(traces(), conventions())
def test_what_stands_in_macs_is_what_the_unit_scales(case, rules):
    """The unit is booked on the MACs that the steps before it left."""
    trace, costs = case
    account = reconcile(predict(rules, trace, SETTING, costs), trace, costs)
    core = account.ours + sum(explanation.macs for explanation in account.explanations)
    unit = sum(
        explanation.amount
        for explanation in account.explanations
        if explanation.cause == "unit.mac-vs-flop"
    )
    assert unit == (rules.unit - 1) * core


@given(traces(), conventions(), conventions())
def test_a_wrong_convention_is_caught(case, right, wrong):
    """Where two conventions predict otherwise, the answer of one leaves the other a residual."""
    trace, costs = case
    answer = predict(right, trace, SETTING, costs).total
    prediction = predict(wrong, trace, SETTING, costs)
    account = reconcile(prediction, trace, costs, printed(answer))
    assert account.residual == answer - prediction.total


def test_one_wrong_weight_leaves_what_it_is_off():
    """3 for 2 per element of 10 elements is a residual of -10, and no explanation grows."""
    trace = Trace(
        calls=(
            call("(model)", None, "module", "my.Block", 0),
            call("o", "(model)", "operator", "aten.norm", 0, size=10),
        ),
        modules=(module(0, ""),),
        setting=SETTING,
    )
    costs = ledger({"o": 0})
    rules = {
        factor: convention(rule("norm", "part", "aten.norm", amount=input_elements, factor=factor))
        for factor in (2, 3)
    }
    truth = printed(predict(rules[2], trace, SETTING, costs).total)
    assert truth.total == 20
    assert explained(rules[2], trace, costs, truth)[1].residual == 0
    causes, account = explained(rules[3], trace, costs, truth)
    assert account.residual == -10
    assert causes == {"norm": 30}


def test_a_tool_that_answers_where_it_should_fail_is_all_residual():
    """Nothing is explained by a convention that has nothing to say, and the account says why."""
    obstacle = "it was predicted to fail: tool cannot count o: no weight"
    account = residual_reconciliation(convention(), ledger({"o": 40}), printed(100), obstacle)
    assert (account.ours, account.theirs, account.explanations) == (40, 100, ())
    assert account.residual == account.delta == 60
    assert account.obstacle == obstacle


@given(traces(), conventions(), st.integers() | st.floats(-1e15, 1e15))
def test_a_reconciliation_survives_json(case, rules, total):
    """Amounts of any size and what a tool printed come back as they were."""
    trace, costs = case
    prediction = predict(rules, trace, SETTING, costs)
    account = reconcile(prediction, trace, costs, printed(total))
    text = msgspec.json.encode(account)
    assert msgspec.json.decode(text, type=Reconciliation) == account
