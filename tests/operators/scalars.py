"""Scalars that record the work that is done with them, and what is needed to compare."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx
from hypothesis import settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

from crossflops.ir.graph import Node
from crossflops.ir.ledger import Cost, CountedNode
from crossflops.ledger.count import count_node


class Tally:
    """Counts what its numbers are used for."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.tape: list[Number] = []  # all that have a gradient, in the order of their making

    def number(self, value: float, graded: bool = False) -> "Number":
        """A scalar that reports to this tally."""
        return Number(float(value), self, graded=graded)

    def array(self, values: Any, graded: bool = False) -> np.ndarray:
        """An array of such scalars."""
        make = partial(self.number, graded=graded)
        return np.vectorize(make, otypes=[object])(np.asarray(values))

    def mac(self, total: "Number", a: "Number", b: "Number") -> "Number":
        """One multiply-accumulate."""
        self.kinds["macs"] += 1
        sides = ((total, 1.0), (a, b.value), (b, a.value))
        return Number(total.value + a.value * b.value, self, sides, product=True)

    def back(self, results: Iterable["Number"]) -> Cost:
        """The work of the gradients of all that has one, of the sum of these results.

        The chain rule from the last number to the first (Griewank and Walther, Evaluating
        Derivatives, 3.2): a factor of a multiply-accumulate takes one of its own, any other
        factor a mul, and what reaches a number in several ways is summed. What was cropped away
        is multiplied nevertheless, by a gradient of zero.
        """
        spent: Counter[str] = Counter()
        for result in results:
            result.receive(1.0)
        for number in reversed(self.tape):
            spent["adds"] += max(number.summands - 1, 0)
            for at, (operand, factor) in enumerate(number.sides):
                if operand.graded:
                    accumulates = number.product and at > 0
                    spent["macs" if accumulates else "muls"] += accumulates or number.scales
                    operand.receive(number.gradient * factor, summand=not accumulates)
        return Cost(**{kind: count for kind, count in spent.items() if count})

    def dot(self, a: Sequence["Number"], b: Sequence["Number"]) -> "Number":
        """A contraction from an empty accumulator."""
        total = self.number(0)
        for x, y in zip(a, b, strict=True):
            total = self.mac(total, x, y)
        return total

    @property
    def cost(self) -> Cost:
        """What was recorded."""
        return Cost(**self.kinds)


class Number:
    """A float of which every use is one operation of its kind.

    `sides` are the numbers it is made of, each with the derivative by it; it is `graded` where
    one of them is, or where it is told so.
    """

    def __init__(
        self,
        value: float,
        tally: Tally,
        sides: "tuple[tuple[Number, float], ...]" = (),
        graded: bool = False,
        product: bool = False,
        scales: bool = False,
    ) -> None:
        self.value, self.tally, self.sides = value, tally, sides
        self.product, self.scales = product, scales
        self.graded = graded or any(operand.graded for operand, _ in sides)
        self.gradient, self.summands = 0.0, 0
        if self.graded:
            tally.tape.append(self)

    def _new(self, kind: str, value: float, *sides: tuple[Any, float]) -> "Number":
        self.tally.kinds[kind] += 1
        made_of = tuple(side for side in sides if isinstance(side[0], Number))
        return Number(value, self.tally, made_of, scales=kind != "adds")

    def flipped(self) -> "Number":
        """With the other sign, in a product that is subtracted: no work of its own."""
        return Number(-self.value, self.tally, ((self, -1.0),))

    def receive(self, gradient: float, *, summand: bool = True) -> None:
        """A part of the gradient, which is one of several to sum, or was accumulated already."""
        self.gradient += gradient
        self.summands += summand

    def __add__(self, other: Any) -> "Number":
        return self._new("adds", self.value + _value(other), (self, 1.0), (other, 1.0))

    def __sub__(self, other: Any) -> "Number":
        return self._new("adds", self.value - _value(other), (self, 1.0), (other, -1.0))

    def __rsub__(self, other: Any) -> "Number":
        return self._new("adds", _value(other) - self.value, (self, -1.0), (other, 1.0))

    def __mul__(self, other: Any) -> "Number":
        factor = _value(other)
        return self._new("muls", self.value * factor, (self, factor), (other, self.value))

    __rmul__ = __mul__
    __radd__ = __add__

    def __truediv__(self, other: Any) -> "Number":
        below = _value(other)
        sides = (self, 1 / below), (other, -self.value / below**2)
        return self._new("divs", self.value / below, *sides)

    def __rtruediv__(self, other: Any) -> "Number":
        above = _value(other)
        return self._new("divs", above / self.value, (self, -above / self.value**2))

    def max(self, other: Any) -> "Number":
        """The larger one: a compare."""
        larger = max(self.value, _value(other))
        sides = (self, float(larger == self.value)), (other, float(larger != self.value))
        return self._new("compares", larger, *sides)

    def above(self, bound: Any) -> bool:
        """Whether it is the larger one: a compare."""
        self.tally.kinds["compares"] += 1
        return self.value > _value(bound)

    def exp(self) -> "Number":
        """A special."""
        power = math.exp(self.value)
        return self._new("specials", power, (self, power))

    def log(self) -> "Number":
        """A special."""
        return self._new("specials", math.log(self.value), (self, 1 / self.value))

    def sqrt(self) -> "Number":
        """A special."""
        root = math.sqrt(self.value)
        return self._new("specials", root, (self, 0.5 / root if root else math.inf))

    def pow(self, exponent: float) -> "Number":
        """A special."""
        slope = exponent * self.value ** (exponent - 1)
        return self._new("specials", self.value**exponent, (self, slope))

    def special(self, function: Callable[..., float], *others: "Number") -> "Number":
        """A special of any name, whose derivative is not known."""
        assert not any(number.graded for number in (self, *others))
        return self._new("specials", function(self.value, *map(_value, others)))

    def tanh(self) -> "Number":
        """A special."""
        result = math.tanh(self.value)
        return self._new("specials", result, (self, 1 - result**2))

    def sigmoid(self) -> "Number":
        """A special."""
        result = 1 / (1 + math.exp(-self.value))
        return self._new("specials", result, (self, result * (1 - result)))


def _value(other: Any) -> float:
    return other.value if isinstance(other, Number) else float(other)


def values(array: Any) -> np.ndarray:
    """The plain numbers of an array of scalars."""
    return np.vectorize(_value, otypes=[float])(np.asarray(array, dtype=object))


def total(items: Sequence[Number]) -> Number:
    """The sum, one add fewer than there are items."""
    so_far = items[0]
    for item in items[1:]:
        so_far = so_far + item
    return so_far


def largest(items: Sequence[Number]) -> Number:
    """The largest, one compare fewer than there are items."""
    so_far = items[0]
    for item in items[1:]:
        so_far = so_far.max(item)
    return so_far


def softmax(row: Sequence[Number]) -> list[Number]:
    """Softmax of one row, as ONNX's function body does it."""
    top = largest(row)
    powers = [(item - top).exp() for item in row]
    bottom = total(powers)
    return [power / bottom for power in powers]


def reference(op: str, arrays: Sequence[np.ndarray | None], outputs: int = 1, **attrs: Any) -> Any:
    """What ONNX's reference implementation of the operator gives."""
    name, _, version = op.partition("-")
    names = ["" if array is None else f"x{i}" for i, array in enumerate(arrays)]
    made = onnx.helper.make_node(name, names, [f"y{i}" for i in range(outputs)], **attrs)
    feeds = {n: a.astype(np.float32) for n, a in zip(names, arrays, strict=True) if a is not None}
    inputs = [
        onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, a.shape)
        for n, a in feeds.items()
    ]
    outs = [onnx.helper.make_tensor_value_info("y0", onnx.TensorProto.FLOAT, None)]
    graph = onnx.helper.make_graph([made], "one", inputs, outs)
    opset = [onnx.helper.make_opsetid("", int(version or 23))]
    model = onnx.helper.make_model(graph, opset_imports=opset)
    return ReferenceEvaluator(model).run(None, feeds)[0]


few = settings(max_examples=40, deadline=None)
small = st.integers(1, 3)


def work(node: Node) -> Cost:
    """The kinds of work that the counter gives, without bytes."""
    counted = count_node(node)
    assert isinstance(counted, CountedNode), counted
    cost = counted.cost
    return Cost(**{kind: getattr(cost, kind) for kind in cost.__struct_fields__[:6]})


def numbers(draw: Any, *shape: int) -> np.ndarray:
    """Small numbers, the same for a seed."""
    return np.random.default_rng(draw(st.integers(0, 99))).normal(size=shape).round(2)
