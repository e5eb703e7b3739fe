"""Parameters: from ours to a tool's, each under one cause."""

import pytest

from crossflops.ir.trace import Call, Module, Parameter, Setting, Trace
from crossflops.reconcile.parameters import reconcile_parameters
from crossflops.rules.rule import Parameters
from crossflops.tools.torchinfo import parameter_count_differences

LINEAR, ODD = "torch.nn.modules.linear.Linear", "torch.nn.modules.sparse.Embedding"
OWN, MODULE = "my.Model", "torch.nn.modules.module.Module"
HOOKS = Parameters(modules=(LINEAR,), called=True)


def row(number, names, cls, sizes=(), children=()):
    """A module with parameters, given as (storage, elements) or (storage, elements, frozen)."""
    return Module(
        id=number,
        names=names,
        bases=(cls, MODULE),
        params=tuple(
            Parameter(f"p{storage}", (size,), storage, trainable=not frozen)
            for storage, size, *frozen in sizes
        ),
        children=tuple((f"c{child}", child) for child in children),
        training=False,
        settings={},
    )


def trace(rows, called):
    """A trace in which these modules were called, in this order."""
    calls = [
        Call(key=f"k{place}", parent=None, level="module", target="", module=number, via="call")
        for place, number in enumerate(called)
    ]
    return Trace(calls=tuple(calls), modules=tuple(rows), setting=Setting())


MODEL = trace(
    (
        row(0, ("",), OWN, [(0, 3)], [1, 2, 3, 4]),
        row(1, ("emb",), ODD, [(1, 40)]),
        row(2, ("lin",), LINEAR, [(2, 20), (3, 5, True)]),
        row(3, ("unused",), LINEAR, [(4, 49)]),
        row(4, ("again",), OWN, [], [2]),
        row(5, (), LINEAR, [(5, 7)]),
    ),
    called=(0, 1, 2, 4, 2, 5),
)
OURS = 3 + 40 + 20 + 5 + 49 + 7


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (Parameters(), {"params.unregistered": -7}),
        (Parameters(trainable=True), {"params.unregistered": -7, "params.frozen": -5}),
        (
            HOOKS,
            {
                "params.bare": -3,
                "params.no-rule": -40,
                "params.counted-again": 25,  # lin beneath the root and beneath `again`
                "params.uncalled": -49,
                "params.unregistered": -7,
            },
        ),
        (
            Parameters(leaves=True, called=True),
            {"params.nonleaf": -3, "params.uncalled": -49, "params.unregistered": -7},
        ),
    ],
)
def test_each_parameter_has_one_cause(rules, expected):
    """By hand: what is left out, and what is counted again."""
    account = reconcile_parameters(rules, MODEL)
    assert {
        explanation.cause: explanation.amount for explanation in account.explanations
    } == expected
    assert (account.ours, account.residual) == (OURS, 0)
    assert account.predicted == OURS + sum(expected.values())


def test_what_a_tool_prints_beside_the_prediction_is_residual():
    """One parameter more is a residual of one."""
    predicted = reconcile_parameters(HOOKS, MODEL).predicted
    account = reconcile_parameters(HOOKS, MODEL, predicted + 1)
    assert (account.residual, account.delta) == (1, predicted + 1 - OURS)


def test_parameters_are_named():
    """By their first names."""
    by_cause = {
        explanation.cause: explanation.parameters
        for explanation in reconcile_parameters(HOOKS, MODEL).explanations
    }
    assert by_cause["params.bare"] == ("p0",)
    assert by_cause["params.counted-again"] == ("lin.p2", "lin.p3")


def test_a_layer_that_is_the_whole_model():
    """A tool that adds children up does not see it."""
    model = trace([row(0, ("",), LINEAR, [(0, 9)])], [0])
    (explanation,) = reconcile_parameters(HOOKS, model).explanations
    assert (explanation.cause, explanation.amount) == ("params.root", -9)


def test_leaves_that_share_a_weight():
    """What both hold counts twice, once for each of them: 40 more than is stored."""
    rows = (
        row(0, ("",), OWN, [], [1, 2]),
        row(1, ("emb",), ODD, [(1, 40)]),
        row(2, ("head",), LINEAR, [(1, 40), (2, 4)]),
    )
    account = reconcile_parameters(Parameters(leaves=True, called=True), trace(rows, (0, 1, 2)))
    assert (account.ours, account.predicted) == (44, 84)
    assert [explanation.cause for explanation in account.explanations] == ["params.counted-again"]


def test_a_tied_weight_counts_twice_less_what_is_in_no_leaf():
    """torchinfo: 40 of both leaves, and nothing more, for 3 + 40 stored; untied it is exact."""

    def model(storage):
        rows = (
            row(0, ("",), OWN, [(0, 3)], [1, 2]),
            row(1, ("emb",), ODD, [(1, 40)]),
            row(2, ("head",), LINEAR, [(storage, 40)]),
        )
        return trace(rows, (0, 1, 2))

    again = {"params.pruned": 0, "params.counted-again": 40 + 40 - 43}
    assert parameter_count_differences(model(1)) == again
    assert set(parameter_count_differences(model(2)).values()) == {0}
