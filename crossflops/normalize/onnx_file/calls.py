"""Local functions that expand to too many nodes: each is read once per kind of call.

Two calls with the same attributes, and inputs of the same type, shape and (small, known) values
compute the same shapes and the same work. So a function is inferred once for all of them.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from crossflops.errors import TargetError
from crossflops.load.order import bodies
from crossflops.load.payload import ELEMENT_TYPES
from crossflops.load.protobuf import messages
from crossflops.normalize.onnx_file.functions import Identity, identity, with_attributes
from crossflops.normalize.onnx_file.loops import Level, level
from crossflops.normalize.onnx_file.pins import store
from crossflops.normalize.onnx_file.types import Shape, Type, of_graph, put, shape_of
from crossflops.normalize.onnx_file.whole_numbers import SEQUENCE, Value

LIMIT = 250  # different calls: each of them is inferred
_IR_VERSION = 10
_NUMBERS = {name: number for number, name in ELEMENT_TYPES.items()}
_KNOWN = ("int32", "int64")  # types in which sizes are computed


class Operand(NamedTuple):
    """What of an input decides about the shapes inside.

    `place` is that of the first input with the same value.
    """

    dtype: str
    shape: Shape
    value: Value | None
    place: int


Key: TypeAlias = tuple[Identity, tuple[Operand | None, ...], tuple[bytes, ...]]


class Unit(NamedTuple):
    """A function as a model of its own, inferred for one kind of call."""

    name: str
    model: Any
    types: dict[str, Type]
    inputs: tuple[str, ...]
    outputs: tuple[Type | None, ...]


class Calls:
    """The functions of a model, and their units so far.

    `infer` infers a model, in which other functions may be called.
    """

    def __init__(
        self,
        functions: Mapping[Identity, Any],
        opset: Mapping[str, int],
        infer: Callable[[Any], tuple[Any, dict[str, Type]]],
    ) -> None:
        self._functions = functions
        self._opset = opset
        self._infer = infer
        self._units: dict[Key, Unit] = {}
        self._numbers: dict[str, int] = {}

    def opset(self, node: Any) -> dict[str, int]:
        """The operator sets of the function that a node calls."""
        own = self._functions[identity(node)].opset_import
        return {**self._opset, **{one.domain: one.version for one in own}}

    def called(self, node: Any) -> bool:
        """Whether the node calls a function."""
        return identity(node) in self._functions

    def refine(
        self, graph: Any, outer: Level | None = None, around: Mapping[str, Type] | None = None
    ) -> bool:
        """Write the types of what calls give back, in place; whether there is any."""
        here = level(graph, outer)
        types = {**(around or {}), **of_graph(graph)}
        changed = False
        for node in graph.node:
            for body in bodies(node):
                changed |= self.refine(body, here, types)
            if not self.called(node) or all(_is_known(types, name) for name in node.output):
                continue
            operands = operands_of(node, types, here.values)
            if any(one is not None and one.shape is None for one in operands):
                continue
            for name, kind in zip(node.output, self.unit(node, operands).outputs, strict=False):
                if kind is not None and kind.shape is not None and not _is_known(types, name):
                    _declare(graph, name, kind)
                    types[name] = kind
                    changed = True
        return changed

    def unit(self, node: Any, operands: tuple[Operand | None, ...]) -> Unit:
        """The function that a node calls, inferred for these inputs. Raises TargetError."""
        attributes = tuple(sorted(one.SerializeToString() for one in node.attribute))
        key = (identity(node), operands, attributes)
        if key not in self._units:
            if len(self._units) >= LIMIT:
                what = f"the functions are called in more than {LIMIT} different ways"
                raise TargetError(what, "inline them with onnx.inliner, or export without them")
            self._units[key] = self._made(node, operands)
        return self._units[key]

    def _made(self, node: Any, operands: tuple[Operand | None, ...]) -> Unit:
        function = self._functions[identity(node)]
        model = messages().ModelProto(ir_version=_IR_VERSION)
        for domain, version in self.opset(node).items():
            model.opset_import.add(domain=domain, version=version)
        graph = model.graph
        graph.name = function.name
        given = dict(zip(function.input, operands, strict=False))
        names: dict[str, str] = {name: "" for name in function.input if given.get(name) is None}
        for place, (name, operand) in enumerate(given.items()):
            if operand is None:
                continue
            if operand.place == place:
                _give(graph, name, operand)
            else:
                names[name] = function.input[operand.place]
        for name in dict.fromkeys(function.output):
            graph.output.add(name=name)
        graph.node.extend(with_attributes(function, node, names))
        inferred, types = self._infer(model)
        number = self._numbers[function.name] = self._numbers.get(function.name, 0) + 1
        return Unit(
            name=function.name if number == 1 else f"{function.name}#{number}",
            model=inferred,
            types=types,
            inputs=tuple(names[name] if name in names else str(name) for name in given),
            outputs=tuple(types.get(name) for name in function.output),
        )


def operands_of(
    node: Any, types: Mapping[str, Type], values: Mapping[str, Value]
) -> tuple[Operand | None, ...]:
    """What decides about the shapes in the function that a node calls; None for no input."""
    kinds = {name: types.get(name, Type(0, None)) for name in node.input}
    named = {n: (ELEMENT_TYPES.get(one.dtype, ""), one.shape) for n, one in kinds.items()}
    return operands(node, named, values)


def operands(
    node: Any, types: Mapping[str, tuple[str, Shape]], values: Mapping[str, Value]
) -> tuple[Operand | None, ...]:
    """The same, with element types by name."""
    first: dict[str, int] = {}
    found: list[Operand | None] = []
    for place, name in enumerate(node.input):
        if not name:
            found.append(None)
            continue
        dtype, shape = types[name]
        value = values.get(name) if dtype in _KNOWN else None
        if value is not None and value.rank == SEQUENCE:
            value = None
        found.append(Operand(dtype, shape, value, first.setdefault(name, place)))
    return tuple(found)


def _is_known(types: Mapping[str, Type], name: str) -> bool:
    return not name or (name in types and types[name].shape is not None)


def _declare(graph: Any, name: str, kind: Type) -> None:
    found = [one for one in (*graph.value_info, *graph.output) if one.name == name]
    for value in found or (graph.value_info.add(name=name),):
        if shape_of(value.type) is None:
            put(value.type, kind.shape or (), kind.dtype)


def _give(graph: Any, name: str, operand: Operand) -> None:
    number = _NUMBERS.get(operand.dtype, 0)
    if operand.value is not None:
        store(graph, name, number, operand.value)
        return
    value = graph.input.add(name=name)
    if operand.shape is None:
        value.type.tensor_type.elem_type = number
    else:
        put(value.type, operand.shape, number)
