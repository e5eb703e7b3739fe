"""What skl2onnx writes that the estimator does not compute, told by the estimator itself."""

import importlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import msgspec

from crossflops.core.graph import Node, Op

SOLVE = "Solve"  # which skl2onnx leaves to a runtime of its own
_LINEAR = "LinearClassifier"
_VALUES = ("WhiteKernel", "ConstantKernel")


@contextmanager
def kernels_recorded(names: set[str]) -> Iterator[None]:
    """Write down the nodes of kernels that multiply nothing, while this is open.

    A WhiteKernel between two sets of rows is 0, a ConstantKernel one number: skl2onnx makes their
    shape as a product of two vectors of zeros (operator_converters/_gp_kernels.py).
    """
    places = [
        importlib.import_module(f"skl2onnx.operator_converters.{name}")
        for name in ("_gp_kernels", "gaussian_process")
    ]
    kind = importlib.import_module("skl2onnx.algebra.onnx_operator").OnnxOperator
    convert, add = places[0].convert_kernel, kind.add_to
    marked: dict[int, Any] = {}

    def converted(kernel: Any, rows: Any, *more: Any, **named: Any) -> Any:
        found = convert(kernel, rows, *more, **named)
        if type(kernel).__name__ in _VALUES:
            given = {id(one) for one in (rows, named.get("x_train"), *more)}
            marked.update((id(one), one) for one in _tree(found, given, kind))
        return found

    def added(self: Any, scope: Any, container: Any, *more: Any, **named: Any) -> Any:
        before = len(container.nodes)
        result = add(self, scope, container, *more, **named)
        if id(self) in marked and len(container.nodes) > before:
            names.add(container.nodes[-1].name)
        return result

    with (
        patch.object(places[0], "convert_kernel", converted),
        patch.object(places[1], "convert_kernel", converted),
        patch.object(kind, "add_to", added),
    ):
        yield


def _tree(found: Any, given: set[int], kind: type) -> Iterator[Any]:
    """An operator of skl2onnx and those that it reads, without what the kernel was given."""
    todo = [found]
    while todo:
        one = todo.pop()
        if isinstance(one, kind) and id(one) not in given:
            yield one
            todo += getattr(one, "inputs", None) or ()


def as_computed(node: Node, makers: Mapping[str, Any], empty: Collection[str]) -> Node:
    """The node, standing for what the estimator computes where that is something else.

    `makers` are the estimators by the names of the nodes that were made for them, `empty` the
    nodes of kernels that multiply nothing.
    """
    if node.key in empty:
        return msgspec.structs.replace(node, stands_for=())
    if node.op.type == SOLVE:
        called = msgspec.structs.replace(node, op=Op("scipy", "linalg.solve", 1))
        return msgspec.structs.replace(node, stands_for=(called,))
    rows = getattr(getattr(makers.get(node.key), "coef_", None), "shape", ())
    if node.op.type != _LINEAR or not rows or (len(rows) > 1 and rows[0] != 1):
        return node
    return msgspec.structs.replace(node, stands_for=(_one_column(node, rows[-1]),))


def _one_column(node: Node, features: int) -> Node:
    """The classifier with the one column of weights that the estimator has for two classes.

    skl2onnx/operator_converters/linear_classifier.py writes it a second time, negated.
    """
    columns = {"coefficients": features, "intercepts": 1}
    attrs = {
        name: value[: columns[name]] if name in columns and isinstance(value, tuple) else value
        for name, value in node.attrs.items()
    }
    return msgspec.structs.replace(node, attrs=attrs)
