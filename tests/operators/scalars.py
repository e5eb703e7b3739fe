"""Scalars that record the work that is done with them, and what is needed to compare."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from hypothesis import settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

from crossflops.ir.cost import Cost
from crossflops.ir.graph import Node
from crossflops.ir.ledger import Counted
from crossflops.ledger.count import count_node


class Tally:
    """Counts what its numbers are used for."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()

    def number(self, value: float) -> "Number":
        """A scalar that reports to this tally."""
        return Number(float(value), self)

    def array(self, values: Any) -> np.ndarray:
        """An array of such scalars."""
        return np.vectorize(self.number, otypes=[object])(np.asarray(values))

    def mac(self, total: "Number", a: "Number", b: "Number") -> "Number":
        """One multiply-accumulate."""
        self.kinds["macs"] += 1
        return Number(total.value + a.value * b.value, self)

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
    """A float of which every use is one operation of its kind."""

    def __init__(self, value: float, tally: Tally) -> None:
        self.value, self.tally = value, tally

    def _new(self, kind: str, value: float) -> "Number":
        self.tally.kinds[kind] += 1
        return Number(value, self.tally)

    def __add__(self, other: Any) -> "Number":
        return self._new("adds", self.value + _value(other))

    def __sub__(self, other: Any) -> "Number":
        return self._new("adds", self.value - _value(other))

    def __rsub__(self, other: Any) -> "Number":
        return self._new("adds", _value(other) - self.value)

    def __mul__(self, other: Any) -> "Number":
        return self._new("muls", self.value * _value(other))

    __rmul__ = __mul__
    __radd__ = __add__

    def __truediv__(self, other: Any) -> "Number":
        return self._new("divs", self.value / _value(other))

    def __rtruediv__(self, other: Any) -> "Number":
        return self._new("divs", _value(other) / self.value)

    def max(self, other: Any) -> "Number":
        """The larger one: a compare."""
        return self._new("compares", max(self.value, _value(other)))

    def exp(self) -> "Number":
        """A special."""
        return self._new("specials", math.exp(self.value))

    def log(self) -> "Number":
        """A special."""
        return self._new("specials", math.log(self.value))

    def sqrt(self) -> "Number":
        """A special."""
        return self._new("specials", math.sqrt(self.value))

    def pow(self, exponent: float) -> "Number":
        """A special."""
        return self._new("specials", self.value**exponent)

    def special(self, function: Callable[..., float], *others: "Number") -> "Number":
        """A special of any name."""
        return self._new("specials", function(self.value, *map(_value, others)))

    def tanh(self) -> "Number":
        """A special."""
        return self._new("specials", math.tanh(self.value))

    def sigmoid(self) -> "Number":
        """A special."""
        return self._new("specials", 1 / (1 + math.exp(-self.value)))


def _value(other: Any) -> float:
    return other.value if isinstance(other, Number) else float(other)


def values(array: Any) -> np.ndarray:
    """The plain numbers of an array of scalars."""
    return np.vectorize(_value, otypes=[float])(np.asarray(array, dtype=object))


def total(items: Sequence[Number]) -> Number:
    """The sum, one add fewer than there are items."""
    found = items[0]
    for item in items[1:]:
        found = found + item
    return found


def largest(items: Sequence[Number]) -> Number:
    """The largest, one compare fewer than there are items."""
    found = items[0]
    for item in items[1:]:
        found = found.max(item)
    return found


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


def work(one: Node) -> Cost:
    """The kinds of work that the counter gives, without bytes."""
    counted = count_node(one)
    assert isinstance(counted, Counted), counted
    cost = counted.cost
    return Cost(**{kind: getattr(cost, kind) for kind in cost.__struct_fields__[:6]})


def numbers(draw: Any, *shape: int) -> np.ndarray:
    """Small numbers, the same for a seed."""
    return np.random.default_rng(draw(st.integers(0, 99))).normal(size=shape).round(2)
