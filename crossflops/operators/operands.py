"""Constraints on the operands of operators, which are declared next to their formulas.

A constraint looks at a node and says in one line what is wrong with its operands: which one, its
size and the size that is needed. It says "" where nothing is wrong. Where a size is not known it
says "", too, or raises ValueError, which `rule.check_node_operands` takes for no contradiction.
"""

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from math import prod
from typing import NamedTuple

from crossflops.ir.graph import Node
from crossflops.operators.access import integer_attribute
from crossflops.operators.rule import Constraint, OperandProblem

Shape = tuple[int, ...]
Ranks = int | Sequence[int]
_MOST = 4096  # kinds of nodes that a constraint remembers


def input_shape(node: Node, index: int) -> Shape | None:
    """Return the shape of an input; None if it is not given or its shape is unknown."""
    spec = node.inputs[index] if index < len(node.inputs) else None
    return None if spec is None else spec.shape


def input_shape_or_raise(node: Node, index: int) -> Shape:
    """Return the shape of an input. Raises ValueError if it is not given or its shape is
    unknown.
    """
    shape = input_shape(node, index)
    if shape is None:
        raise ValueError(f"the shape of input {index} of {node.op} is unknown")
    return shape


def shape_of_output(node: Node, index: int = 0) -> Shape | None:
    """Return the shape of an output; None if the node does not have it or its shape is unknown."""
    spec = node.outputs[index] if index < len(node.outputs) else None
    return None if spec is None else spec.shape


def input_label(node: Node, index: int, name: str = "") -> str:
    """Return an input in words for a message: its name in the operator (or its index), its name in
    the graph, and its shape.
    """
    spec = node.inputs[index]
    assert spec is not None
    shown = "x".join(map(str, spec.shape)) if spec.shape else "a scalar"
    return f"{name or f'input {index}'} {spec.name!r} ({shown})"


def integer_list_or_none(node: Node, name: str) -> Shape | None:
    """Return an attribute that is a list of integers, or None if it is missing. Raises ValueError
    for another type.
    """
    value = node.attrs.get(name)
    if value is None:
        return None
    if not isinstance(value, tuple) or not all(isinstance(item, int) for item in value):
        raise ValueError(f"attribute {name!r} of {node.op} is not a list of integers")
    return tuple(map(int, value))


def shapes_of_inputs(node: Node) -> tuple[Shape | None, ...]:
    """Return the shapes of all inputs; None for one that is not given or unknown."""
    return tuple([None if spec is None else spec.shape for spec in node.inputs])


def cache_constraint(constraint: Constraint, cache_key: Callable[[Node], Hashable]) -> Constraint:
    """Return a constraint that remembers which nodes passed `constraint`, by the key
    `cache_key(node)`.

    A network repeats its layers, and a look-up takes a tenth of the time. A problem is described
    anew for each node.
    """
    right: set[Hashable] = set()

    def operand_problem_unless_cached(node: Node) -> OperandProblem:
        """Return what is wrong with a node ("" if nothing is); remember the key of a node that
        passed.
        """
        known = cache_key(node)
        if known in right:
            return ""
        wrong = constraint(node)
        if not wrong:
            if len(right) >= _MOST:
                right.clear()
            right.add(known)
        return wrong

    return operand_problem_unless_cached


# -- Patterns of sizes ---------------------------------------------------------------------------


class _Term(NamedTuple):
    """A size of a pattern: a factor times symbols; None is any size. With `or_one`, 1 is allowed
    too.
    """

    factor: int
    symbols: tuple[str, ...]
    or_one: bool


class _Operand(NamedTuple):
    """An operand of a pattern: the sizes before and after its open axes, if any.

    A `single` one may also be one number for all.
    """

    place: int
    name: str
    first: tuple[_Term | None, ...]
    last: tuple[_Term | None, ...]
    open: bool
    single: bool


class _Pattern(NamedTuple):
    """A pattern: operands with the sizes that they share, and symbols that attributes set."""

    operands: tuple[_Operand, ...]
    attributes: tuple[tuple[str, str, int | None], ...]


class _BoundSize(NamedTuple):
    """The size that a symbol is bound to, and the operand that it comes from."""

    size: int
    source: str


_PART = re.compile(r"(\w+)=@(\w+)(?::(-?\d+))?|(\w+\??)(\[[^\]]*\])?")


def sizes_constraint(pattern: str) -> Constraint:
    """Return a constraint on sizes that must agree, from a pattern such as "g=@group:1
    X[N,g*I,...] W[M,I,...] B[M]".

    Operands are in the order of the inputs, each with the sizes of its axes. A letter is the same
    size everywhere; `_` is any size, `...` any number of axes, `4*H` a multiple, `1|M` either,
    `scale?[M]` also a single number, and a name without sizes any operand. `g=@group:1` takes a
    letter from an attribute, with a default; without one the letter stays open. A missing operand
    contradicts nothing.
    """
    parsed = _parse_size_pattern(pattern)
    names = [attribute for _, attribute, _ in parsed.attributes]

    def shapes_and_named_attributes(node: Node) -> Hashable:
        """Return the shapes and those attributes of a node that the pattern names, as a key."""
        return shapes_of_inputs(node), tuple([node.attrs.get(name) for name in names])

    return cache_constraint(partial(_pattern_problem, parsed), shapes_and_named_attributes)


def _parse_size_pattern(pattern: str) -> _Pattern:
    """Return the parsed form of a pattern of operand sizes, such as "A[m,k] B[k,n]"."""
    operands: list[_Operand] = []
    attributes: list[tuple[str, str, int | None]] = []
    for index_of, part in enumerate(pattern.split()):
        match = _PART.fullmatch(part)
        if match is None:
            raise ValueError(f"{part!r} of the pattern {pattern!r} cannot be read")
        symbol, attribute, default, name, axes = match.groups()
        if symbol:
            attributes.append((symbol, attribute, None if default is None else int(default)))
        elif axes is not None:
            operands.append(_parse_operand_pattern(index_of - len(attributes), name, axes[1:-1]))
    return _Pattern(tuple(operands), tuple(attributes))


def _parse_operand_pattern(index: int, name: str, axes: str) -> _Operand:
    """Return the parsed form of one operand in a pattern, from its name and the text of
    its axes.
    """
    words = [word for word in axes.split(",") if word]
    position = words.index("...") if "..." in words else len(words)
    return _Operand(
        place=index,
        name=name.removesuffix("?"),
        first=tuple(map(_parse_axis_term, words[:position])),
        last=tuple(map(_parse_axis_term, words[position + 1 :])),
        open="..." in words,
        single=name.endswith("?"),
    )


def _parse_axis_term(word: str) -> _Term | None:
    """Return the parsed form of one axis in a pattern, a factor and symbols; None for "_", any
    size.
    """
    if word == "_":
        return None
    or_one, word = word.startswith("1|"), word.removeprefix("1|")
    factors = word.split("*")
    factor = prod(int(item) for item in factors if item.isdecimal())
    return _Term(factor, tuple(item for item in factors if not item.isdecimal()), or_one)


def _pattern_problem(pattern: _Pattern, node: Node) -> OperandProblem:
    """Return why the shapes of a node do not match a pattern of sizes; "" if nothing is wrong."""
    bound: dict[str, _BoundSize] = {}
    for symbol, attribute, default in pattern.attributes:
        size = node.attrs.get(attribute, default)
        if isinstance(size, int):
            bound[symbol] = _BoundSize(size, f"{attribute} = {size}")
    for operand in pattern.operands:
        shape = input_shape(node, operand.place)
        if shape is not None and (wrong := _operand_pattern_problem(node, operand, shape, bound)):
            return wrong
    return ""


def _operand_pattern_problem(
    node: Node, operand: _Operand, shape: Shape, bound: dict[str, _BoundSize]
) -> OperandProblem:
    """Return why the shape of an operand does not match its pattern, "" if it does; record sizes
    of new symbols in `bound`.
    """
    if operand.single and shape in ((), (1,)):
        return ""
    first, last = operand.first, operand.last
    rank, needed = len(shape), len(first) + len(last)
    if rank < needed or (rank != needed and not operand.open):
        return _rank_problem(node, operand, needed)
    for axis, term in enumerate(first):
        if term is not None and (wrong := _axis_pattern_problem(node, operand, axis, term, bound)):
            return wrong
    for axis, term in enumerate(last, rank - len(last)):
        if term is not None and (wrong := _axis_pattern_problem(node, operand, axis, term, bound)):
            return wrong
    return ""


def _rank_problem(node: Node, operand: _Operand, needed: int) -> OperandProblem:
    """Return the message that an operand does not have the `needed` number of axes."""
    shown = input_label(node, operand.place, operand.name)
    least = "at least " if operand.open else ""
    rank = len(input_shape(node, operand.place) or ())
    return f"{shown} has rank {rank}, but needs {least}{needed}"


def _axis_pattern_problem(
    node: Node, operand: _Operand, axis: int, term: _Term, bound: dict[str, _BoundSize]
) -> OperandProblem:
    """Return why an axis contradicts its pattern, "" if it does not; record the size of a new
    symbol in `bound`.
    """
    size = (input_shape(node, operand.place) or ())[axis]
    if term.or_one and size == 1:
        return ""
    factor, source, free = term.factor, "", ""
    for symbol in term.symbols:
        known = bound.get(symbol)
        if known is not None:
            factor, source = factor * known.size, known.source
        elif free:
            return ""
        else:
            free = symbol
    if free and factor and size % factor == 0:
        bound[free] = _BoundSize(size // factor, input_label(node, operand.place, operand.name))
        return ""
    if not free and size == factor:
        return ""
    has = f"{input_label(node, operand.place, operand.name)} has {size} at axis {axis}"
    needed = f"a multiple of {factor}" if free else f"{factor}"
    return f"{has}, but {needed} is needed" + (f" for {source}" if source else "")


# -- Ranks, equal operands, broadcasting ---------------------------------------------------------


def rank_constraint(
    index: int, allowed_ranks: Ranks, name: str = "", or_higher: bool = False
) -> Constraint:
    """Return a constraint on the rank of an operand: one of `allowed_ranks`, or with
    `or_higher` that rank or more.
    """
    ranks = (allowed_ranks,) if isinstance(allowed_ranks, int) else tuple(allowed_ranks)

    def operand_rank_problem(node: Node) -> OperandProblem:
        """Return why the operand does not have an accepted rank; "" if nothing is wrong."""
        shape = input_shape(node, index)
        if shape is None or len(shape) in ranks or (or_higher and len(shape) >= ranks[0]):
            return ""
        needed = ("at least " if or_higher else "") + " or ".join(map(str, ranks))
        return f"{input_label(node, index, name)} has rank {len(shape)}, but needs {needed}"

    return operand_rank_problem


def single_number_constraint(*indices: int) -> Constraint:
    """Return a constraint which requires that each of these operands is one number: a scalar, or a
    vector of length 1.
    """

    def single_number_problem(node: Node) -> OperandProblem:
        """Return which operand is not one number; "" if nothing is wrong."""
        for index in indices:
            shape = input_shape(node, index)
            if shape is not None and shape not in ((), (1,)):
                return f"{input_label(node, index)} needs to be one number"
        return ""

    return single_number_problem


def equal_shapes_constraint(*indices: int) -> Constraint:
    """Return a constraint which requires that these operands have the same shape."""

    def equal_shapes_problem(node: Node) -> OperandProblem:
        """Return which operand does not have the shape of the first one; "" if nothing
        is wrong.
        """
        first: int | None = None
        for index in indices:
            shape = input_shape(node, index)
            if shape is None:
                continue
            if first is None:
                first = index
            elif shape != input_shape(node, first):
                return (
                    f"{input_label(node, index)} does not have the shape of "
                    f"{input_label(node, first)}"
                )
        return ""

    return equal_shapes_problem


def shape_constraint(
    index: int, allowed_shapes: Callable[[Node], Iterable[Shape] | None], name: str = ""
) -> Constraint:
    """Return a constraint which requires that an operand has one of the shapes
    `allowed_shapes(node)` (None: any shape).
    """

    def shape_choice_problem(node: Node) -> OperandProblem:
        """Return why the operand has none of the allowed shapes; "" if nothing is wrong."""
        shape = input_shape(node, index)
        options = None if shape is None else allowed_shapes(node)
        if options is None or shape in (options := list(options)):
            return ""
        needed = " or ".join("x".join(map(str, option)) or "a scalar" for option in options)
        return f"{input_label(node, index, name)} needs to be {needed}"

    return shape_choice_problem


def all_inputs_broadcast_constraint(node: Node) -> OperandProblem:
    """Return why the operands do not broadcast to one shape as in numpy; "" if nothing
    is wrong.
    """
    known = [spec.shape for spec in node.inputs if spec is not None and spec.shape is not None]
    if not known or known.count(known[0]) == len(known):
        return ""
    return _inputs_broadcast_problem(node, range(len(node.inputs)), 0)


def broadcast_constraint_on(*indices: int, without: int = 0) -> Constraint:
    """Return a constraint which requires that these operands broadcast as in numpy, their last
    `without` axes excepted.
    """

    def operand_broadcast_problem(node: Node) -> OperandProblem:
        """Return why the operands do not broadcast; "" if nothing is wrong."""
        return _inputs_broadcast_problem(node, indices, without)

    return operand_broadcast_problem


def _inputs_broadcast_problem(node: Node, indices: Sequence[int], without: int) -> OperandProblem:
    """Return why the inputs at these indices do not broadcast, without their last `without` axes;
    "" if nothing is wrong.
    """
    sizes_: dict[int, tuple[int, int]] = {}  # by place from behind: the size, and whose it is
    for index in indices:
        shape = input_shape(node, index)
        if shape is None:
            continue
        for position in range(1 + without, len(shape) + 1):
            size = shape[-position]
            if size == 1:
                continue
            other, owner = sizes_.setdefault(position, (size, index))
            if size != other:
                return _broadcast_problem(node, index, len(shape) - position, size, owner, other)
    return ""


def _broadcast_problem(
    node: Node, index: int, axis: int, size: int, owner: int, other: int
) -> OperandProblem:
    """Return the message that the size of one axis of an input does not broadcast with that of
    another input.
    """
    has = f"{input_label(node, index)} has {size} at axis {axis}"
    return f"{has}, which does not broadcast with the {other} of {input_label(node, owner)}"


def broadcast_to_constraint(
    index: int, target: Callable[[Node], Shape | None], name: str
) -> Constraint:
    """Return a constraint which requires that an operand broadcasts to the shape `target(node)`;
    `name` is for messages.
    """

    def broadcast_to_target_problem(node: Node) -> OperandProblem:
        """Return why the operand does not broadcast to the target shape; "" if nothing
        is wrong.
        """
        shape, requested = input_shape(node, index), target(node)
        if shape is None or requested is None or can_broadcast_to(shape, requested):
            return ""
        shown = "x".join(map(str, requested)) or "a scalar"
        return f"{input_label(node, index)} does not broadcast to {name}, which is {shown}"

    return broadcast_to_target_problem


def can_broadcast_to(shape: Shape, requested: Shape) -> bool:
    """Return whether a shape broadcasts to the shape `requested`."""
    if len(shape) > len(requested):
        return False
    return all(
        size in (1, other) for size, other in zip(shape[::-1], requested[::-1], strict=False)
    )


# -- Axes ----------------------------------------------------------------------------------------


def axis_constraint(
    index: int = 0, default: int | None = None, last: bool = False, name: str = "axis"
) -> Constraint:
    """Return a constraint which requires that an attribute is an axis of the operand (with `last`:
    or one behind its last axis).
    """

    def axis_attribute_problem(node: Node) -> OperandProblem:
        """Return why the attribute is no axis of the operand; "" if nothing is wrong."""
        shape = input_shape(node, index)
        if shape is None or (default is None and name not in node.attrs):
            return ""
        return axis_range_problem(node, integer_attribute(node, name, default), index, last)

    return axis_attribute_problem


def axis_range_problem(
    node: Node, position: int, index: int = 0, last: bool = False
) -> OperandProblem:
    """Return why `position` is no axis of an operand; "" if it is one."""
    rank_ = len(input_shape(node, index) or ())
    if -rank_ <= position < rank_ + last:
        return ""
    return (
        f"axis {position} is out of range for {input_label(node, index)}, which has rank {rank_}"
    )


def axes_or_none(node: Node, index: int, name: str = "axes") -> Shape | None:
    """Return the axes that an input or an attribute gives; None if they are not known."""
    if index in node.values:
        return node.values[index]
    return integer_list_or_none(node, name)


def axes_constraint(input_index: int = 1, index: int = 0, name: str = "axes") -> Constraint:
    """Return a constraint which requires that the axes in an input, or in an attribute, are axes
    of the operand `index`.
    """

    def axes_problem(node: Node) -> OperandProblem:
        """Return which of the given axes is no axis of the operand; "" if nothing is wrong."""
        shape, provided = input_shape(node, index), axes_or_none(node, input_index, name)
        if shape is None or provided is None:
            return ""
        return next(
            (wrong for place_ in provided if (wrong := axis_range_problem(node, place_, index))),
            "",
        )

    return axes_problem


# -- Products ------------------------------------------------------------------------------------


def inner_axis_constraint(first: int = 0, second: int = 1) -> Constraint:
    """Return a constraint on the factors of a product as numpy.matmul: inner sizes K are equal,
    batches broadcast.
    """

    def inner_axis_problem(node: Node) -> OperandProblem:
        """Return why the two factors do not fit; "" if nothing is wrong."""
        a, b = input_shape(node, first), input_shape(node, second)
        for index, shape in ((first, a), (second, b)):
            if shape == ():
                return (
                    f"{input_label(node, index)} is a scalar, but a matrix or a vector is needed"
                )
        if a is None or b is None:
            return ""
        axis_ = max(len(b) - 2, 0)
        if a[-1] != b[axis_]:
            has = f"{input_label(node, second)} has {b[axis_]} at axis {axis_}"
            return f"{has}, but {a[-1]} is needed for the last axis of {input_label(node, first)}"
        if len(a) > 2 and len(b) > 2 and a[:-2] != b[:-2]:
            return _inputs_broadcast_problem(node, (first, second), 2)
        return ""

    return inner_axis_problem


# -- By rank -------------------------------------------------------------------------------------


def first_problem_constraint(*constraints: Constraint) -> Constraint:
    """Return a constraint that reports the first problem which one of these constraints finds."""

    def first_problem_of_constraints(node: Node) -> OperandProblem:
        """Return the first problem that one of the constraints finds; "" if none finds one."""
        return next((wrong for constraint in constraints if (wrong := constraint(node))), "")

    return first_problem_of_constraints


def constraint_by_rank(index: int, options: Mapping[int, Constraint]) -> Constraint:
    """Return a constraint that applies the one in `options` for the rank of an operand; other
    ranks are wrong.
    """
    wrong = rank_constraint(index, tuple(options))

    def problem_for_rank(node: Node) -> OperandProblem:
        """Return the problem that the constraint for this rank finds; "" if it finds none."""
        shape = input_shape(node, index)
        return "" if shape is None else options.get(len(shape), wrong)(node)

    return problem_for_rank
