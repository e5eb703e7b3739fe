"""What a core clause stands for: not everything that happens to run beneath the call."""

import pytest
from msgspec.structs import replace

from crossflops.ir.trace import Trace
from crossflops.rules.conditions import input_elements
from crossflops.rules.prediction import predict
from crossflops.rules.rule import CostWeights
from tests.reconcile.synthetic import SETTING, call, convention, explained, ledger, module, rule

LAYER = rule("layer", "core", "my.Conv", "module", amount=input_elements, stands_for=("aten.mm",))
MM = rule("mm", "core", "aten.mm", amount=input_elements)


def layer(*calls):
    """A layer of 30 elements under the root, and these calls."""
    return Trace(
        calls=(
            call("(model)", None, "module", "my.Block", 0),
            call("c", "(model)", "module", "my.Conv", 1, size=30),
            *calls,
        ),
        modules=(module(0, "", children=[1]), module(1, "c", "my.Conv")),
        setting=SETTING,
    )


def operator(key, parent="c", target="aten.mm", **more):
    """An operator of the layer."""
    return call(key, parent, "operator", target, 1, **more)


def test_a_rule_stands_for_the_operators_that_it_names():
    """What else runs in the module is unseen, not a matter of the rule's formula."""
    calls = layer(operator("o"), operator("extra", target="aten.bmm"))
    causes, account = explained(convention(LAYER), calls, ledger({"o": 30, "extra": 7}))
    assert causes == {"unseen.by-default": -7}
    assert account.predicted == 30


def test_the_formula_keeps_what_is_its_own():
    """The difference between 30 and the 25 of its operator."""
    causes, _ = explained(convention(LAYER), layer(operator("o")), ledger({"o": 25}))
    assert causes == {"layer": 5}


def test_what_a_hook_does_is_not_the_forward():
    """The same operator, called by a hook of the layer."""
    hook = replace(call("c/hook", "c", "function", "torch.nn.Module.hook", 1), via="hook")
    calls = layer(hook, operator("h", parent="c/hook"), operator("o"))
    unseen = rule("in-hooks", "unseen", "aten.mm")
    causes, account = explained(convention(LAYER, unseen), calls, ledger({"h": 9, "o": 30}))
    assert causes == {"in-hooks": -9}
    assert account.predicted == 30


@pytest.mark.parametrize("weights", [{}, {"macs": 1}])
def test_beneath_a_function_only_the_function_is_booked(weights):
    """Parts and operators within go with it."""
    whole = rule(
        "whole", "core", "f.apply", "function", amount=CostWeights(weights) if weights else None
    )
    part = rule("part", "part", "aten.mm", amount=input_elements)
    rules = convention(whole, MM, part)
    calls = Trace(
        calls=(
            call("(model)", None, "module", "my.Block", 0),
            call("f", "(model)", "function", "f.apply", 0),
            call("f/o", "f", "operator", "aten.mm", 0),
            call("o", "(model)", "operator", "aten.mm", 0, size=5),
        ),
        modules=(module(0, ""),),
        setting=SETTING,
    )
    causes, account = explained(rules, calls, ledger({"f/o": 100, "o": 5}))
    assert causes == ({"part": 5} if weights else {"part": 5, "whole": -100})
    assert account.predicted == (110 if weights else 10)


@pytest.mark.parametrize(("counts", "expected"), [(True, 10), (False, 0)])
def test_what_is_written_into_a_buffer_may_count(counts, expected):
    """Dead for the outputs, and kept by a tool that keeps what outlives the run."""
    rules = convention(MM, counts_stored=counts)
    calls = layer(replace(operator("o", size=10, live=False), stored=True))
    causes, account = explained(rules, calls, ledger({}))
    assert account.predicted == expected
    assert causes == ({"control.dead-code": 10} if counts else {})
    dropped = layer(operator("o", size=10, live=False))
    assert predict(rules, dropped, SETTING).total == 0
