"""A call of a kernel: as its formula sees it, and as a reference in plain PyTorch computes it."""

import os
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

import crossflops
from crossflops.ir.graph import Node, Op, TensorSpec
from crossflops.ir.ledger import ZERO, Cost
from crossflops.operators.formula import OperatorCall
from crossflops.operators.formula_sources import find_formula

# Random calls of each kernel: every call of a reference is a module of the model that is counted.
EVERY = bool(os.environ.get("CROSSFLOPS_EVERY_SHAPE"))
CASES = 50 if EVERY else 6


class Case(NamedTuple):
    """One call: its tensors by name, those that have a gradient, plain arguments, and results.

    `values` are recorded whole numbers of tensors, `given` what the reference needs beside.
    `settings` stand for the "*" in the name of the operator.
    """

    tensors: Mapping[str, tuple[int, ...]]
    wanted: tuple[str, ...]
    results: Sequence[tuple[int, ...]]
    attributes: Mapping[str, Any] = {}
    values: Mapping[str, tuple[int, ...]] = {}
    given: Mapping[str, Any] = {}
    settings: str = ""


class Kernel(NamedTuple):
    """An operator, how a random call of it is drawn, and a reference for it.

    `others` compute the same, with other names for some of their operands and arguments. Where
    autograd of the reference is not the backward pass, `gradient` is a reference of that alone: it
    also takes the `result` of the call and the `gradient` of that.
    """

    operator: str
    draw: Callable[[random.Random], Case]
    reference: Callable[..., Any]
    backward: bool = True
    others: Mapping[str, Mapping[str, str]] = {}
    gradient: Callable[..., Any] | None = None

    @property
    def operators(self) -> tuple[str, ...]:
        """All operators whose formulas the reference holds."""
        return self.operator, *self.others


def _name_in_graph(operator: str, case: Case) -> str:
    """Return the name of the operator that a call has in a graph."""
    return f"{operator.replace('::', '.').replace('*', case.settings)}.default"


def operator_call(operator: str, case: Case) -> OperatorCall:
    """Return the call as a formula sees it."""
    names = tuple(case.tensors)
    node = Node(
        key="call",
        op=Op("torch.ops", _name_in_graph(operator, case), 1),
        inputs=tuple(TensorSpec(name, "float32", shape) for name, shape in case.tensors.items()),
        outputs=tuple(TensorSpec("y", "float32", shape) for shape in case.results),
        attrs=dict(case.attributes),
        values={names.index(name): numbers for name, numbers in case.values.items()},
        operand_names=names,
    )
    return OperatorCall(node)


def formula_work(operator: str, case: Case) -> tuple[Cost, Cost]:
    """Return what the formula counts: forwards, and all backwards."""
    formula = find_formula("torch.ops", _name_in_graph(operator, case))
    assert formula is not None, operator
    assert formula.name == operator
    call = operator_call(operator, case)
    forward = formula.function(call)
    if not callable(formula.backward):
        return forward, ZERO
    found = formula.backward(call, frozenset(case.wanted))
    backward = sum(found.operands.values(), found.inner + found.recomputed)
    return forward, backward


class _Reference(nn.Module):
    """One call of a reference."""

    def __init__(self, function: Callable[..., Any], case: Case) -> None:
        super().__init__()
        self.function, self.case = function, case
        for name, value in case.given.items():
            if isinstance(value, torch.Tensor):
                self.register_buffer(name, value)

    def forward(self, tensors: list[torch.Tensor]) -> Any:
        named = dict(zip(self.case.tensors, tensors, strict=True))
        given = {
            name: getattr(self, name) if isinstance(value, torch.Tensor) else value
            for name, value in self.case.given.items()
        }
        return self.function(**named, **self.case.attributes, **given)


class References(nn.Module):
    """All calls of a reference, each in a module of its own."""

    def __init__(self, function: Callable[..., Any], cases: Sequence[Case]) -> None:
        super().__init__()
        self.cases = nn.ModuleList(_Reference(function, case) for case in cases)

    def forward(self, *groups: list[torch.Tensor]) -> Any:
        return [case(tensors) for case, tensors in zip(self.cases, groups, strict=True)]


def _tensors(case: Case) -> list[torch.Tensor]:
    found = []
    for name, shape in case.tensors.items():
        numbers = case.values.get(name)
        if numbers is not None:
            found.append(torch.tensor(numbers).reshape(shape))
        else:
            found.append(torch.rand(shape, requires_grad=name in case.wanted))
    return found


def rename_operands(case: Case, names: Mapping[str, str]) -> Case:
    """Return the same call of an operator with other names of its operands and arguments."""

    def change(held: Mapping[str, Any]) -> dict[str, Any]:
        return {names.get(name, name): value for name, value in held.items()}

    return case._replace(
        tensors=change(case.tensors),
        wanted=tuple(names.get(name, name) for name in case.wanted),
        attributes=change(case.attributes),
        values=change(case.values),
    )


def reference_work(
    function: Callable[..., Any], cases: Sequence[Case], backward: bool
) -> tuple[Cost, list[tuple[int, int, int, int]]]:
    """Return the work by kind of all calls; and of each MACs and FLOPs, forwards and backwards."""
    model = References(function, cases)
    report = crossflops.count(model, tuple(map(_tensors, cases)), train=backward)
    assert not report.uncounted, report.uncounted
    if backward:
        assert not report.training.uncounted, report.training.uncounted
    totals = report.totals
    kinds = ("macs", "adds", "muls", "divs", "compares", "specials")
    whole = Cost(**{kind: getattr(totals, kind) for kind in kinds})
    rows = [[0, 0, 0, 0] for _ in cases]
    for node in report.nodes:
        if not node.path:
            assert node.flops == 0, node
            continue
        row = rows[int(node.path.split(".")[1])]
        row[0] += node.macs
        row[1] += node.flops
        if backward:
            training = node.training
            row[2] += training.backward_input_macs + training.backward_weight_macs
            row[2] += training.recomputed_macs
            row[3] += training.backward_input_flops + training.backward_weight_flops
            row[3] += training.recomputed_flops
    return whole, [tuple(row) for row in rows]


def check_against_reference(kernel: Kernel, cases: int = CASES) -> None:
    """Hold a formula against its reference on random small calls, forwards and backwards."""
    draw = random.Random(kernel.operator)
    drawn = [kernel.draw(draw) for _ in range(cases)]
    by_autograd = kernel.backward and kernel.gradient is None
    whole, rows = reference_work(kernel.reference, drawn, by_autograd)
    if kernel.gradient is not None:
        rows = _with_gradient_work(kernel.gradient, drawn, rows)
    for operator, names in {kernel.operator: {}, **kernel.others}.items():
        calls = [rename_operands(case, names) for case in drawn]
        _check_formula(operator, calls, kernel.backward, whole, rows)


def _with_gradient_work(
    function: Callable[..., Any],
    cases: Sequence[Case],
    rows: Sequence[tuple[int, int, int, int]],
) -> list[tuple[int, int, int, int]]:
    """Return the work of the calls with that of their backward pass, by a reference of it."""
    backward = [
        case._replace(
            tensors={**case.tensors, "result": case.results[0], "gradient": case.results[0]},
            wanted=(),
        )
        for case in cases
    ]
    _, work = reference_work(function, backward, backward=False)
    return [(*row[:2], *own[:2]) for row, own in zip(rows, work, strict=True)]


def _check_formula(
    operator: str,
    drawn: Sequence[Case],
    backward: bool,
    whole: Cost,
    rows: Sequence[tuple[int, int, int, int]],
) -> None:
    work = [formula_work(operator, case) for case in drawn]
    counted = [
        (first.macs, first.flops, *((back.macs, back.flops) if backward else (0, 0)))
        for first, back in work
    ]
    for case, mine, reference in zip(drawn, counted, rows, strict=True):
        assert mine == reference, (operator, case)
    assert sum((first for first, _ in work), ZERO) == whole
