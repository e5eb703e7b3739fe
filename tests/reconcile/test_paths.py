"""What is told beside the steps: weights, failures, another mode, where something arises."""

import pytest
from msgspec.structs import replace

from crossflops.ir.trace import ALONG_CHAINS, ALONG_CHAINS_SQUARED, ONCE_IN_EACH, Trace
from crossflops.reconcile.walk import reconcile
from crossflops.rules.conditions import input_elements
from crossflops.rules.prediction import PredictionError, predict
from crossflops.rules.rule import CostWeights
from tests.reconcile.synthetic import (
    SEES,
    SETTING,
    call,
    convention,
    explained,
    ledger,
    module,
    operator,
    printed,
    rule,
    trace,
)


def test_weights_fold_the_ledger():
    """A clause may weigh kinds of cost beneath its call, all the way down."""
    rules = convention(
        rule("weighed", "part", "my.Conv", "module", amount=CostWeights({"macs": 2, "adds": 3}))
    )
    calls = trace(
        call("c", "(model)", "module", "my.Conv", 0),
        operator("o", parent="c"),
        operator("p", parent="c"),
    )
    costs = ledger({"o": 10, "p": 20}, adds={"o": 1, "p": 5})
    assert predict(rules, calls, SETTING, costs).total == 2 * 30 + 3 * 6


def test_where_the_tool_fails_there_is_no_prediction():
    """The error names the tool, the call, the rule and where it is written."""
    rules = convention(
        rule("needs-weight", "core", "aten.mm", amount=lambda call: call.shape("weight")[0])
    )
    with pytest.raises(PredictionError) as caught:
        predict(rules, trace(operator("o")), SETTING)
    assert caught.value.message == (
        "made-up cannot count o, according to rule needs-weight (source of needs-weight): "
        "o has no input weight"
    )
    assert caught.value.hint == "leave out made-up; `crossflops explain made-up` lists its rules"


def test_a_forced_mode_is_booked_first():
    """What the asked mode does beside the forced one: the tool never saw it."""
    calls = trace(operator("o"))
    prediction = predict(convention(SEES), calls, SETTING)
    account = reconcile(prediction, calls, ledger({"o": 100}), base=ledger({"o": 100, "x": 30}))
    assert account.ours == 130
    assert [(explanation.cause, explanation.amount) for explanation in account.explanations] == [
        ("scope.mode-forced-eval", -30)
    ]
    assert account.residual == 0


def test_a_residual_is_found_by_path():
    """Rows set ours, the prediction and what the tool reports side by side, module by module."""
    rows = (module(0, "", children=[1]), module(1, "a", children=[2]), module(2, "a.b"))
    calls = trace(
        call("a", "(model)", "module", "my.Block", 1),
        call("a.b", "a", "module", "my.Block", 2),
        operator("o", parent="a.b", number=2),
        operator("p", parent="a", number=1, size=1),
        rows=rows,
    )
    profile = printed(112, {"": 112, "a": 112, "a.b": 102}.items())
    _, account = explained(convention(SEES), calls, ledger({"o": 90, "p": 10}), profile)
    assert account.residual == 2
    assert [(row.path, row.ours, row.predicted, row.theirs) for row in account.by_path] == [
        ("", 100, 110, 112),
        ("a", 100, 110, 112),
        ("a.b", 90, 100, 102),
    ]


@pytest.mark.parametrize(
    ("times", "whole", "below", "own"),
    [
        (ALONG_CHAINS, 60, 30, 30),
        (ALONG_CHAINS_SQUARED, 120, 60, 60),
        (ONCE_IN_EACH, 30, 30, 30),
    ],
)
def test_a_shared_module_stands_under_each_of_its_parents(times, whole, below, own):
    """10 elements, 3 each: `c` is under `a` and under `b`, and is called in `b` alone."""
    rows = (
        module(0, "", children=[1, 2]),
        module(1, "a", children=[3]),
        module(2, "b", children=[3]),
        module(3, "a.c", "my.Conv"),
    )
    calls = trace(
        call("b", "(model)", "module", "my.Block", 2),
        call("b.c", "b", "module", "my.Conv", 3, size=10),
        operator("o", parent="b.c", number=3),
        rows=rows,
    )
    core = rule(
        "conv", "core", "my.Conv", "module", amount=input_elements, factor=2, times=times,
        stands_for=("aten.mm",),
    )  # fmt: skip
    part = rule("bias", "part", "my.Conv", "module", amount=input_elements, times=times)
    rules = convention(core, part)
    _, account = explained(rules, calls, ledger({"o": 7}))
    assert {row.path: row.predicted for row in account.by_path} == {
        "": whole, "a": below, "b": below, "a.c": own,
    }  # fmt: skip
    for row in account.by_path:
        assert isinstance(row.causes, dict)
        assert row.ours + sum(row.causes.values()) == row.predicted
    others = next(row for row in account.by_path if row.path == "b")
    assert set(others.causes) == {"module.shared-parents", part.cause}


def test_what_runs_by_forward_is_reported_under_its_caller():
    """A tool with hooks on calls never saw the module whose forward was called."""
    inner = call("a", "(model)", "module", "my.Block", 1)
    direct = Trace(
        calls=(
            call("(model)", None, "module", "my.Block", 0),
            replace(inner, via="forward"),
            operator("o", parent="a", number=1),
        ),
        modules=(module(0, "", children=[1]), module(1, "a")),
        setting=SETTING,
    )
    prediction = predict(convention(SEES), direct, SETTING)
    assert [booking.path for booking in prediction.bookings] == [""]
