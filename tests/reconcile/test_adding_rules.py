"""Rules of modules that are added to those of the modules in them, and functions beside them."""

import pytest
from msgspec.structs import replace

from crossflops.ir.trace import Trace
from crossflops.rules.conditions import Site, input_elements
from crossflops.rules.prediction import applies_to_call
from crossflops.tools.ultralytics_thop import condition_outside_classes, function_nesting_condition
from tests.reconcile.synthetic import SETTING, call, convention, explained, ledger, module, rule

OUTER = rule("outer", "core", "my.Block", "module", amount=input_elements)
INNER = rule("inner", "core", "my.Conv", "module", amount=input_elements)


def model():
    """A block of 30 elements that multiplies, and a layer of 8 in it that does, too."""
    return Trace(
        calls=(
            call("(model)", None, "module", "my.Block", 0, size=30),
            call("o", "(model)", "operator", "aten.mm", 0),
            call("c", "(model)", "module", "my.Conv", 1, size=8),
            call("c/o", "c", "operator", "aten.mm", 1),
            call("d", "(model)", "module", "my.Norm", 2),
            call("d/o", "d", "operator", "aten.mm", 2),
        ),
        modules=(
            module(0, "", children=[1, 2]),
            module(1, "c", "my.Conv"),
            module(2, "d", "my.Norm"),
        ),
        setting=SETTING,
    )


@pytest.mark.parametrize(
    ("adds", "predicted", "expected"),
    [
        # the block's rule speaks for what no rule in it does: 30 for 20 + 3
        (True, 38, {"outer": 7, "inner": 1}),
        # what is in the block is not looked at, and the rule does not speak for it
        (False, 30, {"outer": 10, "unseen.by-default": -10}),
    ],
)
def test_a_rule_is_added_or_stands_in_the_place(adds, predicted, expected):
    """The layer in the block has a rule, the other one has none."""
    macs = ledger({"o": 20, "c/o": 7, "d/o": 3})
    causes, account = explained(convention(OUTER, INNER, rules_add=adds), model(), macs)
    assert causes == expected
    assert account.predicted == predicted


def test_what_is_in_the_total_only_has_no_path():
    """The layer's row has nothing of it, that of the whole model has."""
    once = rule("f", "core", "torch.mm", "function", amount=input_elements, in_total_only=True)
    calls = Trace(
        calls=(
            call("(model)", None, "module", "my.Block", 0),
            call("c", "(model)", "module", "my.Conv", 1),
            call("c/f", "c", "function", "torch.mm", 1, size=9),
            call("c/f/o", "c/f", "operator", "aten.mm", 1),
        ),
        modules=(module(0, "", children=[1]), module(1, "c", "my.Conv")),
        setting=SETTING,
    )
    _, account = explained(convention(once), calls, ledger({"c/f/o": 9}))
    assert {row.path: row.predicted for row in account.by_path} == {"": 9, "c": 0}


def functions():
    """A product in a layer, one in a function in it, one in a hook, one beside a hidden layer."""
    layer = call("c", "(model)", "module", "my.Conv", 1)
    calls = (
        call("(model)", None, "module", "my.Block", 0),
        call("f", "(model)", "function", "torch.mm", 0),
        layer,
        call("c/f", "c", "function", "torch.mm", 1),
        call("g", "(model)", "function", "torch.nn.functional.relu", 0),
        call("g/f", "g", "function", "torch.mm", 0),
        call("v", "(model)", "function", "torch.vmap", 0),
        call("v/f", "v", "function", "torch.mm", 0),
        replace(layer, key="d", via="forward"),
        call("d/f", "d", "function", "torch.mm", 1),
        call("e", "(model)", "module", "my.Conv", 2),
        call("e/f", "e", "function", "torch.mm", 2),
    )
    rows = (module(0, ""), module(1, "c", "my.Conv"), module(2, None, "my.Conv"))
    return Trace(calls=calls, modules=rows, setting=SETTING)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ((condition_outside_classes("my.Conv"),), ["f", "g/f", "v/f", "d/f", "e/f"]),
        ((function_nesting_condition(False),), ["f", "c/f", "v/f", "d/f", "e/f"]),
        ((function_nesting_condition(True),), ["g/f"]),
        (
            (condition_outside_classes("my.Conv"), function_nesting_condition(False)),
            ["f", "v/f", "d/f", "e/f"],
        ),
    ],
)
def test_where_a_function_is_called(where, expected):
    """In a registered layer that was called, in another function; `torch.vmap` hides nothing."""
    trace = functions()
    product = rule("f", "core", "torch.mm", "function", where=where)
    about = [call.key for call in trace.calls if applies_to_call(product, Site(call, trace))]
    assert about == expected
