"""Compare a user's formulas with references in plain PyTorch, on small random shapes.

    from crossflops.testing.formulas import assert_formulas_hold

    def test_formulas():
        assert_formulas_hold("formulas.py")

The reference is counted as any model is: forward, and as a training step of its operands.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from crossflops.errors import CrossflopsError, FormulaError
from crossflops.ir.graph import Node, Op, TensorSpec
from crossflops.ir.ledger import ZERO, Cost
from crossflops.ir.trace import Setting
from crossflops.operators.formula import Formula, UncountedCallError, operator_rule_of_formula
from crossflops.operators.formula_sources import formulas_in_force, read_formula_file_or_module
from crossflops.operators.gradient import Gradient
from crossflops.report.formula_checks import FormulaCheck

_SIZES = (2, 3, 4, 5, 6)
_SHOWN = 5  # cases that are told, of all that differ


def check_formulas(sources: Iterable[str | Path], cases: int = 20) -> tuple[FormulaCheck, ...]:
    """Compare each formula in these files with its reference on random shapes; return one check
    for each, with its problems.
    """
    formulas = [
        formula for source in sources for formula in read_formula_file_or_module(str(source))
    ]
    return tuple(check_formula(formula, cases) for formula in formulas)


def assert_formulas_hold(*sources: str | Path, cases: int = 20) -> None:
    """Raise AssertionError, with all problems, if a formula in these files differs from its
    reference.
    """
    wrong = [
        f"{check.formula}: {problem}"
        for check in check_formulas(sources, cases)
        for problem in check.problems
    ]
    assert not wrong, "\n".join(wrong)


def check_registered_formulas(cases: int = 20) -> tuple[FormulaCheck, ...]:
    """Compare each registered formula that has a reference with it; return one check for each,
    with its problems.
    """
    known = (formula for formula in formulas_in_force() if formula.reference is not None)
    return tuple(check_formula(formula, cases) for formula in known)


class FormulaCase(msgspec.Struct, frozen=True):
    """The arguments of one call by name: shape and element type for tensors, and other values as
    they are.
    """

    tensors: dict[str, tuple[tuple[int, ...], str]]
    plain: dict[str, Any]

    def __str__(self) -> str:
        """Return the tensors with their shapes and the other arguments, in one line."""
        shown = [
            f"{name} {'x'.join(map(str, shape))}" for name, (shape, _) in self.tensors.items()
        ]
        return ", ".join((*shown, *(f"{name}={value!r}" for name, value in self.plain.items())))


def check_formula(formula: Formula, cases: int = 20, seed: int = 0) -> FormulaCheck:
    """Compare a formula with its reference on random small shapes; return the check with the
    number of cases and the problems.

    It must give whole numbers, as much as the reference forward and back, and twice as much for
    twice the batch. One that is a bound may give more, and of an estimate the amount is not held
    against anything.
    """
    if formula.reference is None or not formula.shapes:
        missing = "reference" if formula.reference is None else "shapes"
        return FormulaCheck(
            formula=formula.text_for_messages, cases=0, problems=(),
            unchecked=f"it has no {missing}: give {missing}= of the decorator",
        )  # fmt: skip
    numbers = random.Random(seed)
    problems: list[str] = []
    compared = 0
    for _ in range(cases):
        case, double_case = _draw_cases(formula, numbers)
        try:
            problems += _case_problems(formula, case, double_case)
            compared += 1
        except UncountedCallError as error:
            problems.append(f"on {case}: it counts nothing of it: {error}")
        except CrossflopsError as error:
            problems.append(f"on {case}: {error.message}")
        if len(problems) >= _SHOWN:
            break
    return FormulaCheck(
        formula=formula.text_for_messages, cases=compared, problems=tuple(problems[:_SHOWN])
    )


# The cases.


def _draw_cases(
    formula: Formula, numbers: random.Random
) -> tuple[FormulaCase, FormulaCase | None]:
    """Return (random arguments for the formula, the same with twice the batch size); the latter is
    None if no size is the batch.
    """
    if callable(formula.shapes):
        return _case_from_sizes(formula, formula.shapes(numbers), {}), None
    sizes: dict[str, int] = {}
    choices = {
        name: numbers.choice(value) if isinstance(value, list) else value
        for name, value in formula.shapes.items()
    }
    for value in choices.values():
        for letter in _size_letters(value):
            sizes.setdefault(letter, numbers.choice(_SIZES))
    case = _case_from_sizes(formula, choices, sizes)
    first = next((letter for value in choices.values() for letter in _size_letters(value)), "")
    batch = formula.batch or first
    if batch == "none" or batch not in sizes:
        return case, None
    return case, _case_from_sizes(formula, choices, {**sizes, batch: 2 * sizes[batch]})


def _size_letters(value: Any) -> list[str]:
    """Return the size letters in a shape such as "b t 2*d:int64", here ["b", "t", "d"]."""
    if not isinstance(value, str):
        return []
    words = value.partition(":")[0].replace("*", " ").split()
    return [word for word in words if not word.isdecimal()]


def _case_from_sizes(
    formula: Formula, choices: Mapping[str, Any], sizes: Mapping[str, int]
) -> FormulaCase:
    """Return the arguments of one call, from the formula's shapes in `choices` and the sizes of
    their letters.
    """
    tensors: dict[str, tuple[tuple[int, ...], str]] = {}
    plain: dict[str, Any] = {}
    for name, value in choices.items():
        if isinstance(value, str):
            axes, _, dtype = value.partition(":")
            shape = tuple(_axis_size(axis, sizes, formula) for axis in axes.split())
            tensors[name] = shape, dtype or "float32"
        elif isinstance(value, tuple) and callable(formula.shapes):
            tensors[name] = value, "float32"
        else:
            plain[name] = value
    return FormulaCase(tensors, plain)


def _axis_size(axis: str, sizes: Mapping[str, int], formula: Formula) -> int:
    """Return the size of an axis such as "2*d" if the letters have these sizes; raise FormulaError
    for an unknown letter.
    """
    size = 1
    for factor in axis.split("*"):
        if not factor.isdecimal() and factor not in sizes:
            raise FormulaError(
                f"{formula.text_for_messages} has the axis {axis!r} in shapes=, but the size "
                f"{factor!r} is unknown",
                'write sizes as letters and numbers with * between them, such as "b t 2*d"',
            )
        size *= int(factor) if factor.isdecimal() else sizes[factor]
    return size


# What is held against what.


def _case_problems(
    formula: Formula, case: FormulaCase, double_case: FormulaCase | None
) -> list[str]:
    """Return one text for each way in which the formula differs from its reference for these
    arguments, [] if it agrees.
    """
    assert formula.reference is not None
    reference_cost = count_reference(formula.reference, case)
    node = _case_node(formula, case, reference_cost.results)
    rule = operator_rule_of_formula(formula)
    cost, exactness = rule.formula(node), rule.exactness(node)
    problems = _amount_problems(case, cost, reference_cost.forward, exactness)
    if callable(rule.backward):
        trainable = frozenset(
            position
            for position, (_, dtype) in enumerate(case.tensors.values())
            if "float" in dtype
        )
        work = rule.backward(node, trainable, cost)
        total = _gradient_total(work)
        if exactness == "exact" and total.macs != reference_cost.backward.macs:
            problems.append(
                f"on {case}: backward {total.macs} MACs,"
                f" and autograd of the reference runs {reference_cost.backward.macs}"
            )
    if double_case is not None:
        results = count_reference(formula.reference, double_case).results
        twice = rule.formula(_case_node(formula, double_case, results))
        if twice != cost * 2:
            problems.append(
                f"on {case}: not linear in the batch: {cost.macs} MACs and {cost.flops} FLOPs,"
                f" and {twice.macs} and {twice.flops} for twice of it"
            )
    return problems


def _amount_problems(
    case: FormulaCase, cost: Cost, reference_cost: Cost, exactness: str
) -> list[str]:
    """Return one text for each of MACs and FLOPs that contradicts the reference; a bound may be
    higher than the reference.
    """
    pairs = (
        ("MACs", cost.macs, reference_cost.macs),
        ("FLOPs", cost.flops, reference_cost.flops),
    )
    problems = []
    for unit, own, its in pairs:
        if exactness == "exact" and own != its:
            problems.append(f"on {case}: {own} {unit}, and the reference does {its}")
        if exactness == "bound" and own < its:
            problems.append(
                f"on {case}: at most {own} {unit}, and the reference does {its}, which is more"
            )
    return problems


def _gradient_total(work: Gradient) -> Cost:
    """Return the cost of a backward pass without recomputation."""
    return sum(work.operands.values(), ZERO) + work.inner


def _case_node(formula: Formula, case: FormulaCase, results: Sequence[TensorSpec]) -> Node:
    """Return a graph node of the formula's operator with these arguments and results."""
    domain, _, kind = formula.name.partition("::")
    plain = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in case.plain.items()
        if value is not None
    }
    return Node(
        key="call",
        op=Op(domain, kind, 1),
        inputs=tuple(
            TensorSpec(name, dtype, shape) for name, (shape, dtype) in case.tensors.items()
        ),
        outputs=tuple(results),
        attrs=plain,
        operand_names=tuple(case.tensors),
    )


class ReferenceCount(msgspec.Struct, frozen=True):
    """The cost of a reference's forward pass, the cost of its backward pass by autograd, and its
    results.
    """

    forward: Cost
    backward: Cost
    results: tuple[TensorSpec, ...]


def count_reference(reference: Callable[..., Any], case: FormulaCase) -> ReferenceCount:
    """Return the counted work of a reference for these arguments; raise FormulaError if it has an
    uncounted operator.
    """
    from crossflops.frontends.pytorch.program import record_and_convert_torch
    from crossflops.ledger.count import count
    from crossflops.ledger.training.weights import TrainedWeights
    from crossflops.ledger.training.work import count_training_step, total_work

    module, tensors = _reference_module(reference, case)
    _, graph, trace = record_and_convert_torch(module, tensors, {}, Setting())
    ledger = count(graph)
    if ledger.uncounted:
        row = ledger.uncounted[0]
        raise FormulaError(
            f"the reference {reference.__name__!r} is not counted: {row.reason}",
            "write it in plain PyTorch",
        )
    step = total_work(count_training_step(graph, TrainedWeights(trace, (), ())))
    return ReferenceCount(
        _cost_without_bytes(ledger.total), step.inputs + step.weights, graph.outputs
    )


def _cost_without_bytes(cost: Cost) -> Cost:
    """Return a copy of the cost with 0 bytes read and written."""
    return msgspec.structs.replace(cost, bytes_read=0, bytes_written=0)


def _reference_module(
    reference: Callable[..., Any], case: FormulaCase
) -> tuple[Any, tuple[Any, ...]]:
    """Return (torch module that calls the reference, its inputs); float tensors are parameters of
    the module.
    """
    import torch

    def zeros_tensor(shape: tuple[int, ...], dtype: str) -> Any:
        """Return a torch tensor of zeros with this shape and element type."""
        return torch.zeros(shape, dtype=getattr(torch, dtype))

    made = {name: zeros_tensor(*described) for name, described in case.tensors.items()}
    floats = [name for name, tensor in made.items() if tensor.is_floating_point()]

    class ReferenceModel(torch.nn.Module):
        """Calls the reference with its weights."""

        def __init__(self) -> None:
            super().__init__()
            for name in floats:
                self.register_parameter(f"{name}_", torch.nn.Parameter(made[name]))

        def forward(self, *others: Any) -> Any:
            """Return what the reference gives for the parameters and the other inputs."""
            left = iter(others)
            tensors = {
                name: getattr(self, f"{name}_") if name in floats else next(left) for name in made
            }
            return reference(**tensors, **case.plain)

    return ReferenceModel(), tuple(made[name] for name in made if name not in floats)
