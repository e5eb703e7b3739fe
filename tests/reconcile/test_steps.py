"""Each step from the native count to a tool's number, one at a time."""

import pytest

from crossflops.ir.trace import ALONG_CHAINS_SQUARED, Setting
from crossflops.reconcile.walk import NativeWork, Stage, steps_of_rule_matches
from crossflops.rules.conditions import input_elements
from crossflops.rules.prediction import predict
from tests.reconcile.synthetic import (
    SEES,
    SETTING,
    call,
    convention,
    explained,
    ledger,
    module,
    operator,
    rule,
    trace,
)


def test_agreement_needs_no_explanation():
    """10 elements, 10 each, 100 MACs: nothing to say."""
    assert explained(convention(SEES), trace(operator("o")), ledger({"o": 100}))[0] == {}


def test_the_unit_is_booked_on_what_the_tool_sees():
    """(2 - 1) x its own count of MACs, not ours; the difference before is the formula's."""
    causes, account = explained(convention(SEES, unit=2), trace(operator("o")), ledger({"o": 130}))
    assert causes == {"sees": -30, "unit.mac-vs-flop": 100}
    assert account.predicted == 200


def test_work_without_a_clause_is_unseen():
    """By the first "unseen" clause that matches, or by the tool's default."""
    rules = convention(
        rule("unseen.mm", "unseen", "aten.mm"), rule("unseen.late", "unseen", "aten.mm")
    )
    calls = trace(operator("a"), operator("b", "aten.other"))
    causes, account = explained(rules, calls, ledger({"a": 7, "b": 5}))
    assert causes == {"unseen.mm": -7, "unseen.by-default": -5}
    assert {explanation.cause: explanation.calls for explanation in account.explanations} == {
        "unseen.mm": ("a",),
        "unseen.by-default": ("b",),
    }


def test_a_node_of_no_call_is_unseen_too():
    """What the export did beside the calls is in our count, and in nobody else's."""
    assert explained(convention(SEES), trace(), ledger({"": 9}))[0] == {"unseen.by-default": -9}


def test_a_core_clause_without_an_amount_hides_what_is_beneath():
    """Its cause takes all the work that it covers, and no unit is left on it."""
    rules = convention(rule("hidden", "core", "aten.mm"), SEES, unit=2)
    causes, account = explained(rules, trace(operator("o")), ledger({"o": 100}))
    assert causes == {"hidden": -100}
    assert account.predicted == 0


def test_the_first_core_clause_holds():
    """The order of clauses is the order of knowledge: the particular before the general."""
    once = rule("once", "core", "aten.mm", amount=input_elements, factor=1)
    calls, costs = trace(operator("o")), ledger({"o": 100})
    assert explained(convention(once, SEES), calls, costs)[1].predicted == 10
    assert explained(convention(SEES, once), calls, costs)[1].predicted == 100


def test_a_module_clause_stands_for_everything_beneath():
    """A rule of a composite replaces those of what it calls; parts are added all the same."""
    rules = convention(
        rule("block", "core", "my.Conv", "module", amount=input_elements, factor=3),
        SEES,
        rule("extra", "part", "aten.mm", amount=input_elements),
    )
    calls = trace(
        call("c", "(model)", "module", "my.Conv", 1, size=7),
        operator("o", parent="c", number=1),
        operator("p", parent="c", number=1),
        rows=(module(0, "", children=[1]), module(1, "c", "my.Conv")),
    )
    causes, account = explained(rules, calls, ledger({"o": 100, "p": 100}))
    assert causes == {"block": 21 - 200, "extra": 20}
    assert account.predicted == 41


def test_parts_are_in_the_unit_of_the_tool():
    """A component is what the tool adds, whatever it counts for a multiply-accumulate."""
    rules = convention(rule("extra", "part", "", amount=input_elements), unit=2)
    assert explained(rules, trace(operator("o")), ledger({"o": 0}))[1].predicted == 10


@pytest.mark.parametrize(("counts", "expected"), [(True, 100), (False, 0)])
def test_dead_work_is_a_cause_where_it_is_counted(counts, expected):
    """A dead call has no native MACs: all of what the tool counts is control.dead-code."""
    rules = convention(SEES, unit=2, counts_dead=counts)
    causes, account = explained(rules, trace(operator("o", live=False)), ledger({}))
    assert account.predicted == 2 * expected
    assert causes == (
        {"control.dead-code": expected, "unit.mac-vs-flop": expected} if counts else {}
    )


def test_a_dead_part_is_dead_code_too():
    """A batch norm whose result is unused is no matter of batch norm."""
    rules = convention(
        rule("norm", "part", "my.Norm", "module", amount=input_elements, factor=4),
        counts_dead=True,
    )
    rows = (module(0, "", children=[1]), module(1, "n", "my.Norm"))

    def norm(live):
        return trace(
            call("n", "(model)", "module", "my.Norm", 1, size=6),
            operator("n/o", parent="n", number=1, live=live),
            rows=rows,
        )

    assert explained(rules, norm(live=False), ledger({}))[0] == {"control.dead-code": 24}
    assert explained(rules, norm(live=True), ledger({}))[0] == {"norm": 24}


def test_a_module_that_is_half_dead_is_alive():
    """As long as something beneath is used, the difference is the formula's."""
    rules = convention(
        rule("block", "core", "my.Conv", "module", amount=input_elements), counts_dead=True
    )
    calls = trace(
        call("c", "(model)", "module", "my.Conv", 1, size=50),
        operator("o", parent="c", number=1),
        operator("p", parent="c", number=1, live=False),
        rows=(module(0, "", children=[1]), module(1, "c", "my.Conv")),
    )
    assert explained(rules, calls, ledger({"o": 30}))[0] == {"block": 20}


def test_a_module_with_two_parents_is_booked_four_times():
    """The first time is its work; three times more are module.shared-parents, before the unit."""
    rows = (
        module(0, "", children=[1, 2]),
        module(1, "a", children=[3]),
        module(2, "b", children=[3]),
        module(3, "a.c", "my.Conv"),
    )
    calls = trace(
        call("c", "(model)", "module", "my.Conv", 3, size=10),
        operator("o", parent="c", number=3),
        rows=rows,
    )
    core = rule(
        "conv", "core", "my.Conv", "module", amount=input_elements, factor=10,
        times=ALONG_CHAINS_SQUARED,
    )  # fmt: skip
    causes, account = explained(convention(core, unit=2), calls, ledger({"o": 100}))
    assert causes == {"module.shared-parents": 300, "unit.mac-vs-flop": 400}
    assert account.predicted == 800


def test_what_is_registered_nowhere_is_not_booked():
    """A clause that counts along the tree does not see a module in a plain list."""
    calls = trace(
        call("c", "(model)", "module", "my.Conv", 1),
        operator("o", parent="c", number=1),
        rows=(module(0, ""), module(1, None, "my.Conv")),
    )
    core = rule(
        "conv", "core", "my.Conv", "module", amount=input_elements, times=ALONG_CHAINS_SQUARED
    )
    assert explained(convention(core), calls, ledger({"o": 5}))[0] == {"unseen.by-default": -5}


def test_a_kernel_counts_in_the_setting_of_the_tool():
    """What a kernel swallows is hidden where the tool runs, and seen elsewhere."""
    rules = convention(
        rule("kernel", "core", "", fused=("aten._fast*",)), SEES, forces={"hooked": True}
    )
    costs = ledger({"o": 100})
    hooked, plain = Setting(hooked=True), Setting()
    for setting, expected in ((hooked, 0), (plain, 100)):
        calls = trace(operator("o", fused={setting.id: "aten._fast_path"}.items()))
        assert predict(rules, calls, SETTING, costs).total == expected
        assert predict(rules, calls, SETTING, costs).setting == hooked.id


def test_steps_come_in_one_order():
    """Graph, visibility, multiplicity, formula, unit, components; by cause within a step."""
    rows = (
        module(0, "", children=[1, 2]),
        module(1, "a", children=[3]),
        module(2, "b", children=[3]),
        module(3, "a.c", "my.Conv"),
    )
    calls = trace(
        operator("part", "aten.add"),
        operator("core"),
        operator("unseen", "aten.other"),
        call("c", "(model)", "module", "my.Conv", 3, size=10),
        operator("c/o", parent="c", number=3),
        operator("dead", live=False),
        rows=rows,
    )
    shared = rule(
        "a.shared", "core", "my.Conv", "module", amount=input_elements,
        times=ALONG_CHAINS_SQUARED,
    )  # fmt: skip
    rules = convention(
        rule("z.part", "part", "aten.add", amount=input_elements),
        rule("b.part", "part", "aten.add", amount=input_elements, factor=2),
        shared,
        SEES,
        unit=2,
        counts_dead=True,
    )
    costs = ledger({"core": 90, "unseen": 4, "c/o": 10})
    _, account = explained(rules, calls, costs)
    assert [(explanation.cause, explanation.amount) for explanation in account.explanations] == [
        ("control.dead-code", 100),
        ("unseen.by-default", -4),
        ("module.shared-parents", 30),
        ("sees", 10),
        ("unit.mac-vs-flop", 240),
        ("b.part", 20),
        ("z.part", 10),
    ]
    stages = {
        step.stage
        for step in steps_of_rule_matches(
            predict(rules, calls, SETTING, costs),
            calls,
            NativeWork({key: cost.macs for key, cost in costs.costs_by_call.items()}),
        )
    }
    assert stages == set(Stage) - {Stage.PRECISION}  # sums are exact here
