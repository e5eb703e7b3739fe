"""A call that a tool counts by a rule about the module around it, and once more by itself."""

from msgspec.structs import replace

from crossflops.ir.trace import Trace
from crossflops.rules.conditions import input_elements
from tests.reconcile.synthetic import SETTING, call, convention, explained, ledger, module, rule

BLOCK = rule(
    "block", "core", "my.Block", "module", amount=input_elements, factor=10,
    stands_for=("aten.mm",),
)  # fmt: skip
ACT = rule("act", "part", "my.Act", "module", amount=input_elements)
MM = rule("mm", "core", "torch.mm", "function", amount=input_elements, factor=10, again="twice.mm")
RELU = rule("relu", "part", "F.relu", "function", amount=input_elements, again="twice.relu")


def inside(cls, *calls, via="call"):
    """These calls in a module of this class, on 10 elements, in a model that has no rule."""
    around = call("b", "(model)", "module", cls, 1, size=10)
    around = replace(around, via=via)
    return Trace(
        calls=(call("(model)", None, "module", "my.Model", 0), around, *calls),
        modules=(module(0, "", "my.Model", children=[1]), module(1, "b", cls)),
        setting=SETTING,
    )


def product(operator="aten.mm", parent="b"):
    """A function of 10 elements that runs one operator."""
    return (
        call("b/f", parent, "function", "torch.mm", 1, size=10),
        call("b/f/o", "b/f", "operator", operator, 1),
    )


def test_a_product_is_booked_beside_the_rule_that_stands_for_it():
    """100 of the block, and 100 more; the unit on both."""
    calls = inside("my.Block", *product())
    causes, account = explained(convention(BLOCK, MM, unit=2), calls, ledger({"b/f/o": 90}))
    assert causes == {"twice.mm": 100, "block": 10, "unit.mac-vs-flop": 200}
    assert account.predicted == 400
    assert account.explanations[0].macs == 100


def test_without_such_a_rule_it_speaks_for_itself():
    """The difference from the native count is its own formula's."""
    calls = inside("my.Other", *product())
    causes, account = explained(convention(BLOCK, MM, unit=2), calls, ledger({"b/f/o": 90}))
    assert causes == {"mm": 10, "unit.mac-vs-flop": 100}
    assert account.predicted == 200


def test_what_the_rule_does_not_stand_for_is_no_repetition():
    """Another operator in the same module is counted once, by the function."""
    calls = inside("my.Block", *product("aten.bmm"), call("b/o", "b", "operator", "aten.mm", 1))
    causes, account = explained(convention(BLOCK, MM), calls, ledger({"b/f/o": 100, "b/o": 100}))
    assert causes == {}
    assert account.predicted == 200


def test_without_a_cause_for_it_nothing_is_booked_twice():
    """What a core clause speaks for, another one leaves alone."""
    once = rule("mm", "core", "torch.mm", "function", amount=input_elements, factor=10)
    calls = inside("my.Block", *product())
    assert explained(convention(BLOCK, once), calls, ledger({"b/f/o": 100}))[1].predicted == 100


def relu(parent="b"):
    """An activation of 10 elements."""
    return call("b/r", parent, "function", "F.relu", 1, size=10)


def test_a_part_of_a_module_with_a_rule_is_a_repetition():
    """The hook on the module, and the function that it calls."""
    causes, account = explained(convention(ACT, RELU), inside("my.Act", relu()), ledger({}))
    assert causes == {"act": 10, "twice.relu": 10}
    assert [explanation.cause for explanation in account.explanations] == ["twice.relu", "act"]


def test_a_part_of_any_other_module_is_not():
    """Nor is what a hook of the module does."""
    assert explained(convention(ACT, RELU), inside("my.Other", relu()), ledger({}))[0] == {
        "relu": 10
    }
    hook = call("b/h", "b", "function", "torch.nn.Module.hook", 1)
    hook = replace(hook, via="hook")
    calls = inside("my.Act", hook, relu("b/h"))
    assert explained(convention(ACT, RELU), calls, ledger({}))[0] == {"act": 10, "relu": 10}


def test_functions_are_seen_in_modules_that_a_rule_ignores():
    """A module inside one with a rule is not looked at; the functions that it calls are."""
    inner = call("b.c", "b", "module", "my.Block", 1, size=10)
    calls = inside("my.Block", inner, *product("aten.bmm", parent="b.c"))
    causes, account = explained(convention(BLOCK, MM), calls, ledger({"b/f/o": 100}))
    assert account.predicted == 200
    assert causes == {"block": 100}


def by_mode(child):
    """The call, as a mode of the model's makes it while it handles the one around."""
    return replace(child, via="mode")


def test_what_a_mode_calls_is_booked_beside_the_function_around_it():
    """100 of the function that the model calls, and 100 of the one that a mode calls for it."""
    inner = by_mode(call("b/f/f", "b/f", "function", "torch.mm", 1, size=10))
    operator = call("b/f/f/o", "b/f/f", "operator", "aten.mm", 1)
    once = rule("mm", "core", "torch.mm", "function", amount=input_elements, factor=10)
    calls = inside("my.Other", product()[0], inner, operator)
    causes, account = explained(convention(once, unit=2), calls, ledger({"b/f/f/o": 100}))
    assert account.predicted == 400
    assert causes == {"function.mode": 100, "unit.mac-vs-flop": 200}


def test_a_product_that_a_mode_alone_shows_is_counted_by_its_formula():
    """`x @ y` is seen as torch.mm there, and once."""
    around = call("b/f", "b", "function", "Tensor.__matmul__", 1, size=10)
    inner = by_mode(call("b/f/f", "b/f", "function", "torch.mm", 1, size=10))
    operator = call("b/f/f/o", "b/f/f", "operator", "aten.mm", 1)
    calls = inside("my.Other", around, inner, operator)
    causes, account = explained(convention(MM), calls, ledger({"b/f/f/o": 90}))
    assert (account.predicted, causes) == (100, {"mm": 10})


def test_a_part_that_a_mode_shows_has_its_cause():
    """It is no part of what the tool sees without the mode."""
    calls = inside("my.Other", by_mode(relu()))
    assert explained(convention(RELU), calls, ledger({}))[0] == {"function.mode": 10}
