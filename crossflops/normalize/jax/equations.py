"""Which equation of a JAX program each ONNX node was made for: written down while it is made."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from crossflops.core.tensor import TensorSpec
from crossflops.core.trace import Scalar

_NOTE = "crossflops.equation"


class Equation(msgspec.Struct, frozen=True, kw_only=True):
    """An equation as jax2onnx lowers it: a primitive of JAX, or one that it puts in (nnx.conv).

    `stack` is the whole name stack around it, that of the equations that hold it included.
    """

    primitive: str
    stack: str
    settings: dict[str, Scalar]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


class Recorder:
    """The equations in the order in which jax2onnx begins to lower them."""

    def __init__(self) -> None:
        self.equations: list[Equation] = []
        self._stack: list[str] = []

    @contextmanager
    def within(self, eqn: Any, builder: Any) -> Iterator[None]:
        """Every node that is made while this is open is noted with the equation's number.

        A note of an equation within it stays.
        """
        number = len(self.equations)
        last = next(iter(reversed(builder.nodes)), None)
        self._stack.append(str(eqn.source_info.name_stack))
        self.equations.append(_equation(eqn, "/".join(filter(None, self._stack))))
        try:
            yield
        finally:
            self._stack.pop()
        for node in reversed(builder.nodes):
            if node is last:
                break
            node.metadata_props.setdefault(_NOTE, str(number))


def _equation(eqn: Any, stack: str) -> Equation:
    return Equation(
        primitive=eqn.primitive.name,
        stack=stack,
        settings=_settings(eqn.params),
        inputs=tuple(_spec(f"input_{n}", one) for n, one in enumerate(eqn.invars)),
        outputs=tuple(_spec(f"output_{n}", one) for n, one in enumerate(eqn.outvars)),
    )


def _spec(name: str, variable: Any) -> TensorSpec:
    shape = tuple(map(int, variable.aval.shape)) if hasattr(variable.aval, "shape") else None
    return TensorSpec(name, str(getattr(variable.aval, "dtype", "")), shape)


def _settings(params: dict[str, Any]) -> dict[str, Scalar]:
    """The plain parameters of an equation: numbers, texts, lists of numbers."""
    found: dict[str, Scalar] = {}
    for name, value in params.items():
        if isinstance(value, tuple) and value and all(isinstance(item, int) for item in value):
            found[name] = list(value)
        elif value is None or isinstance(value, bool | int | float | str):
            found[name] = value
    return found


def named(model: Any) -> dict[str, int]:
    """Give every node of a model (of onnx_ir) a name of its own; the equations by these names.

    A node that jax2onnx made between equations belongs to that of what it reads, or of what reads
    it; one in a subgraph to that of the node that holds it.
    """
    found: dict[str, int] = {}
    _name(model.graph, None, found, {})
    for function in model.functions.values():
        _name(function, None, found, {})
    return found


def _name(graph: Any, around: int | None, found: dict[str, int], used: dict[str, int]) -> None:
    for node in graph:
        number = noted(node)
        if number is None:
            beside = (noted(one) for one in _beside(node))
            number = next((one for one in beside if one is not None), around)
        kind = node.op_type
        used[kind] = used.get(kind, 0) + 1
        node.name = f"{kind}_{used[kind]}"
        if number is not None:
            found[node.name] = number
            node.metadata_props[_NOTE] = str(number)
        for attribute in node.attributes.values():
            for body in _bodies(attribute):
                _name(body, number, found, used)


def noted(node: Any) -> int | None:
    """The number of the equation that a node was made for, None where none is noted."""
    note = node.metadata_props.get(_NOTE) if node is not None else None
    return int(note) if note is not None else None


def _beside(node: Any) -> Iterator[Any]:
    yield from (one.producer() for one in node.inputs if one is not None)
    yield from (reader for one in node.outputs for reader, _ in one.uses())


def _bodies(attribute: Any) -> list[Any]:
    kind = getattr(attribute.type, "name", "")
    if kind == "GRAPH":
        return [attribute.value]
    return list(attribute.value) if kind == "GRAPHS" else []
