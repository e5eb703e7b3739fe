"""What a tool divides by the batch, and what its own arithmetic makes of the sum."""

import pytest
from msgspec.structs import replace

from crossflops.ir.trace import Trace
from crossflops.rules.conditions import input_elements
from crossflops.rules.prediction import PredictionError, exact_sum, predict
from crossflops.rules.rule import Share, formula_equation
from crossflops.tools.ptflops_pytorch import ptflops_total_amount
from tests.reconcile.synthetic import (
    BATCH,
    SETTING,
    call,
    convention,
    explained,
    ledger,
    module,
    printed,
    rule,
)

LAYER = rule("layer", "core", "my.Conv", "module", amount=input_elements, factor=10, batch=BATCH)
NORM = rule("norm", "part", "my.Norm", "module", amount=input_elements, batch=BATCH)
RELU = rule(
    "relu", "part", "torch.nn.functional.relu", "function", amount=input_elements,
    in_total_only=True,
)  # fmt: skip


def model(batch=4):
    """A layer of 100 MACs and a norm of 7 elements, each a module; a function of 3 elements."""
    return Trace(
        calls=(
            call("(model)", None, "module", "my.Block", 0, size=batch),
            call("c", "(model)", "module", "my.Conv", 1, size=10),
            call("c/o", "c", "operator", "aten.mm", 1),
            call("n", "(model)", "module", "my.Norm", 2, size=7),
            call("c2", "(model)", "module", "my.Block", 3),
            call("f", "c2", "function", "torch.nn.functional.relu", 3, size=3),
        ),
        modules=(
            module(0, "", children=[1, 2, 3]),
            module(1, "c", "my.Conv"),
            module(2, "n", "my.Norm"),
            module(3, "b"),
        ),
        setting=SETTING,
    )


COSTS = ledger({"c/o": 100})


def test_what_is_divided_and_what_is_not():
    """(100 + 7) / 4 is 26.75, and 3 of the function: the tool cuts off at 29."""
    rules = convention(LAYER, NORM, RELU, adds_up=ptflops_total_amount)
    causes, account = explained(rules, model(), COSTS)
    assert account.predicted == 29
    # 25 of 100 are left, and 1 of 7: the fraction is lost with the last that is divided
    assert causes == {"norm": 7, "relu": 3, "scope.batch-divided": -81}
    assert account.residual == 0


def test_the_step_comes_after_the_unit():
    """2 per MAC of 100 in 4 examples: 100 more for the unit, then 150 of 200 less."""
    causes, account = explained(convention(LAYER, unit=2), model(), COSTS)
    assert (causes, account.predicted) == (
        {"unit.mac-vs-flop": 100, "scope.batch-divided": -150},
        50,
    )


def test_a_sum_that_is_no_integer_ends_with_its_fraction():
    """107 / 4 + 3 is 29.75 where the tool cuts nothing off: the fraction has its own step."""
    rules = convention(LAYER, NORM, RELU)
    causes, account = explained(rules, model(), COSTS, printed(29.75))
    assert account.predicted == 29.75
    assert causes["scope.batch-divided"] == -81
    assert causes["precision.rounded"] == 0.75
    assert list(causes)[-1] == "precision.rounded"
    assert account.residual == 0


def test_a_formula_may_compute_with_floats():
    """1.5 for each of 3 elements and of 7: 4.5 and 10.5 make 15, each is cut off."""

    def one_and_a_half(call):
        return 1.5 * call.inputs[0].numel

    norm = rule("norm", "part", "my.Norm", "module", amount=one_and_a_half)
    relu = replace(RELU, amount=one_and_a_half)
    causes, account = explained(convention(norm, relu), model(), ledger({}))
    assert account.predicted == 15
    assert causes == {"norm": 10, "relu": 4, "precision.rounded": 1}


def test_every_module_has_its_own_rounding():
    """100 / 4 of the layer, int(7 / 4) of the norm; the function stands in the total alone."""
    rules = convention(LAYER, NORM, RELU, adds_up=ptflops_total_amount)
    _, account = explained(rules, model(), COSTS)
    assert {row.path: row.predicted for row in account.by_path} == {"": 29, "c": 25, "n": 1}
    for row in account.by_path:
        assert sum(row.causes.values()) == row.predicted - row.ours


@pytest.mark.parametrize(
    ("batch", "why"), [(0, "a batch of 0"), (None, "tuple index out of range")]
)
def test_without_a_length_the_tool_fails(batch, why):
    """A division by 0 examples, and a scalar that has no length."""
    calls = model(batch or 0)
    if batch is None:
        scalar = replace(calls.calls[0].inputs[0], shape=())
        calls = replace(calls, calls=(replace(calls.calls[0], inputs=(scalar,)), *calls.calls[1:]))
    with pytest.raises(PredictionError) as caught:
        predict(convention(LAYER), calls, SETTING)
    size = f"for its batch size {formula_equation(BATCH)}"
    assert caught.value.message == f"made-up cannot count the model, {size}: {why}"


def test_several_inputs_have_no_batch():
    """They go by keyword, where the tool looks for none."""
    calls = model()
    inputs = (calls.calls[0].inputs[0], replace(calls.calls[0].inputs[0], name="1"))
    root = replace(calls.calls[0], inputs=inputs, arity=2)
    two = replace(calls, calls=(root, *calls.calls[1:]))
    assert predict(convention(LAYER), two, SETTING).total == 100


@pytest.mark.parametrize(
    ("amounts", "expected"),
    [([(1, 4), (3, 4)], 1), ([(1, 4)], 0.25), ([(10**30 + 1, 3)], (10**30 + 1) // 3), ([], 0)],
)
def test_exact_sums(amounts, expected):
    """Integers stay integers, whatever their size; only what is no integer becomes a float."""
    call = model().calls[0]
    added = exact_sum([Share(LAYER, amount, call, divisor) for amount, divisor in amounts])
    assert type(added) is type(expected)
    assert added == pytest.approx(expected)
