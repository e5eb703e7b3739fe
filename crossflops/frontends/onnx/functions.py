"""Inline the local functions of a file, or infer each once for each kind of call."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from crossflops.errors import TargetError
from crossflops.frontends.onnx.inference import store_constant
from crossflops.frontends.onnx.loops import Level, graph_level
from crossflops.frontends.onnx.types import (
    Shape,
    Type,
    graph_value_types,
    shape_from_proto,
    write_tensor_type,
)
from crossflops.frontends.onnx.values import SEQUENCE, Value
from crossflops.load.order import node_subgraphs, onnx_node_label
from crossflops.load.payload import ELEMENT_TYPES
from crossflops.load.protobuf import onnx_message_module
from crossflops.operators.rule import TORCH

LIMIT = 20_000  # nodes that functions are expanded to
DEPTH = 32  # functions that are called within one another
Identity: TypeAlias = tuple[str, str, str]
_HINT = "inline the functions with onnx.inliner, or export the model without them"


class Scope(NamedTuple):
    """The meaning of names in an inlined function body: outer values, a prefix, attributes."""

    names: dict[str, str]
    prefix: str
    attributes: Mapping[str, Any]


def local_functions(model: Any) -> dict[Identity, Any]:
    """Return a model's local functions by identity, without those that are PyTorch operators.

    Such a node is counted as the operator that it is, while a runtime runs its function.
    """
    return {
        (function.domain, function.name, function.overload): function
        for function in model.functions
        if function.domain != TORCH
    }


def node_count_after_inlining(model: Any, functions: Mapping[Identity, Any]) -> int:
    """Return the number of nodes once all function calls are inlined; 0 if there is no call.

    It is computed without expanding. Raises TargetError when a function calls itself, or when
    calls are nested deeper than 32.
    """
    nodes = _count_expanded_nodes(model.graph, functions)
    return nodes if any(_function_call_flags(model.graph, functions)) else 0


def inline_function_calls(
    model: Any, functions: Mapping[Identity, Any]
) -> dict[str, dict[str, int]]:
    """Replace each function call by the nodes of its body, in place; return their operator sets.

    Values and nodes get the name of the calling node before theirs. Returns the operator sets of
    those nodes whose function imports others than the model, by node name.
    """
    work = _Inliner(functions)
    if functions:
        work.inline_graph(model.graph, Scope({}, "", {}), {})
    del model.functions[:]
    known = {opset.domain for opset in model.opset_import}
    for domain, version in sorted(work.imports.items()):
        if domain not in known:
            model.opset_import.add(domain=domain, version=version)
    return work.editions


def names_read_from_parent(body: Any, names: Mapping[str, str]) -> dict[str, str]:
    """Return those of `names` that a subgraph takes from outside, not from its own values."""
    inner = dict(names)
    for value in (*body.input, *body.initializer):
        inner.pop(value.name, None)
    for node in body.node:
        for name in node.output:
            inner.pop(name, None)
    return inner


def function_nodes_for_call(function: Any, call: Any, names: Mapping[str, str]) -> list[Any]:
    """Return copies of a function's nodes with the attributes of a call and these input names."""
    attributes = {
        attribute.name: attribute for attribute in (*function.attribute_proto, *call.attribute)
    }
    scope = Scope(dict(names), "", attributes)
    work = _Inliner({})
    nodes: list[Any] = []
    for number, origin in enumerate(function.node):
        node = type(origin).FromString(origin.SerializeToString())
        node.name = onnx_node_label(origin, number)
        _substitute_caller_names(node, scope)
        work.append_node_or_call(node, scope, {}, nodes)
    return nodes


def _count_expanded_nodes(graph: Any, functions: Mapping[Identity, Any]) -> int:
    """Return the number of nodes of a graph once all calls of local functions are inlined."""
    sizes: dict[Identity, int] = {}
    open_: list[Identity] = []

    def count_nodes_with_called_functions(nodes: Iterable[Any]) -> int:
        """Return the number of nodes, with those in bodies and in the functions they call."""
        total = 0
        for node in nodes:
            total += 1 + sum(
                count_nodes_with_called_functions(body.node) for body in node_subgraphs(node)
            )
            if (called := _callee_identity(node, functions)) is not None:
                total += node_count_of_inlined_function(called)
        return total

    def node_count_of_inlined_function(key: Identity) -> int:
        """Return the number of nodes of an inlined function. Raises TargetError on recursion."""
        if key in open_:
            raise TargetError(
                f"function {key[1]!r} calls itself, which ONNX does not allow",
                "the file is damaged or was not written by an exporter; export the model again",
            )
        if len(open_) > DEPTH:
            raise TargetError(f"function calls are nested deeper than {DEPTH}", _HINT)
        if key not in sizes:
            open_.append(key)
            sizes[key] = count_nodes_with_called_functions(functions[key].node)
            open_.pop()
        return sizes[key]

    whole_size = count_nodes_with_called_functions(graph.node)
    for key in functions:
        node_count_of_inlined_function(key)
    return whole_size


def function_identity(node: Any) -> Identity:
    """Return the domain, name and overload of the function that a node would call."""
    return node.domain, node.op_type, node.overload


def _callee_identity(node: Any, functions: Mapping[Identity, Any]) -> Identity | None:
    """Return the identity of the local function that a node calls, or None if it calls none."""
    key = function_identity(node)
    return key if key in functions else None


def _function_call_flags(graph: Any, functions: Mapping[Identity, Any]) -> Iterable[bool]:
    """Yield, for each node and each node in its bodies, whether it calls a local function."""
    for node in graph.node:
        yield _callee_identity(node, functions) is not None
        for body in node_subgraphs(node):
            yield from _function_call_flags(body, functions)


class _Inliner:
    """The inlining of function calls in one model, which collects their operator sets."""

    def __init__(self, functions: Mapping[Identity, Any]) -> None:
        """Take the local functions of a model by domain, name and overload."""
        self._functions = functions
        self._number = 0
        self.editions: dict[str, dict[str, int]] = {}
        self.imports: dict[str, int] = {}

    def inline_graph(self, graph: Any, scope: Scope, edition: dict[str, int]) -> None:
        """Inline the function calls in a graph, in place; `edition` is the opset by domain."""
        nodes: list[Any] = []
        for number, node in enumerate(graph.node):
            if not node.name:
                node.name = scope.prefix + onnx_node_label(node, number)
            self.append_node_or_call(node, scope, edition, nodes)
        copies = [type(node).FromString(node.SerializeToString()) for node in nodes]
        del graph.node[:]
        graph.node.extend(copies)

    def append_node_or_call(
        self, node: Any, scope: Scope, edition: dict[str, int], nodes: list[Any]
    ) -> None:
        """Append a node to `nodes`, or if it calls a local function the nodes of that function."""
        key = _callee_identity(node, self._functions)
        if key is not None:
            return self._append_function_nodes(node, self._functions[key], scope, nodes)
        for body in node_subgraphs(node):
            inner = names_read_from_parent(body, scope.names)
            self._inline_subgraph(body, Scope(inner, scope.prefix, scope.attributes), edition)
        if edition:
            self.editions[node.name] = edition
        nodes.append(node)
        return None

    def _inline_subgraph(self, body: Any, scope: Scope, edition: dict[str, int]) -> None:
        """Rename outer values that a subgraph reads, and inline its function calls, in place."""
        for number, node in enumerate(body.node):
            node.name = scope.prefix + onnx_node_label(node, number)
            _substitute_caller_names(node, scope)
        for value in body.output:
            value.name = scope.names.get(value.name, value.name)
        self.inline_graph(body, scope, edition)

    def _append_function_nodes(
        self, call: Any, function: Any, outer: Scope, nodes: list[Any]
    ) -> None:
        """Append the nodes of the called function to `nodes`, with unique names."""
        self._number += 1
        prefix = f"{call.name}/"
        unique = f"{call.name}#{self._number}/"
        names = dict.fromkeys(function.input[len(call.input) :], "")
        names |= dict(zip(function.input, call.input, strict=False))
        returned: dict[str, str] = {}
        for inner, name in zip(function.output, call.output, strict=False):
            if name and inner not in names and inner not in returned:
                returned[inner] = name
        attributes = {attribute.name: attribute for attribute in function.attribute_proto}
        attributes |= {attribute.name: attribute for attribute in call.attribute}
        edition = {opset.domain: opset.version for opset in function.opset_import}
        self.imports = {**edition, **self.imports}
        for number, origin in enumerate(function.node):
            node = type(origin).FromString(origin.SerializeToString())
            node.name = prefix + onnx_node_label(origin, number)
            node.metadata_props.extend(call.metadata_props if not node.metadata_props else ())
            for name in node.output:
                if name:
                    names[name] = returned.get(name, unique + name)
            scope = Scope(names, prefix, attributes)
            _substitute_caller_names(node, scope)
            for index, name in enumerate(node.output):
                node.output[index] = names.get(name, "")
            self.append_node_or_call(node, scope, edition, nodes)
        self._append_identities(call, function, names, returned, nodes)

    def _append_identities(
        self,
        call: Any,
        function: Any,
        names: Mapping[str, str],
        returned: Mapping[str, str],
        nodes: list[Any],
    ) -> None:
        """Append an Identity for each function output that is also an input, or repeated."""
        for inner, name in zip(function.output, call.output, strict=False):
            if name and returned.get(inner) != name:
                node = type(call)(op_type="Identity", name=f"{call.name}/{name}")
                node.input.append(names.get(inner, ""))
                node.output.append(name)
                nodes.append(node)


def _substitute_caller_names(node: Any, scope: Scope) -> None:
    """Replace a node's input names and attribute references by those of the caller, in place."""
    for index, name in enumerate(node.input):
        node.input[index] = scope.names.get(name, name)
    kept = []
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            provided = scope.attributes.get(attribute.ref_attr_name)
            if provided is None:
                continue
            copy = type(attribute).FromString(provided.SerializeToString())
            copy.name = attribute.name
            kept.append(copy)
        else:
            kept.append(type(attribute).FromString(attribute.SerializeToString()))
    if any(attribute.ref_attr_name for attribute in node.attribute):
        del node.attribute[:]
        node.attribute.extend(kept)


# Local functions that expand to too many nodes: each is read once per kind of call.
#
# Two calls with the same attributes, and inputs of the same type, shape and (small, known) values
# compute the same shapes and the same work. So a function is inferred once for all of them.

CALL_LIMIT = 250  # different calls: each of them is inferred
_IR_VERSION = 10
_NUMBERS = {name: number for number, name in ELEMENT_TYPES.items()}
_KNOWN = ("int32", "int64")  # types in which sizes are computed


class Operand(NamedTuple):
    """The facts of a call's input that decide shapes: type, shape and (small, known) value.

    `place` is the index of the first input with the same value.
    """

    dtype: str
    shape: Shape
    value: Value | None
    place: int


Key: TypeAlias = tuple[Identity, tuple[Operand | None, ...], tuple[bytes, ...]]


class Unit(NamedTuple):
    """A function as a model of its own, with shapes inferred for one kind of call."""

    name: str
    model: Any
    types: dict[str, Type]
    inputs: tuple[str, ...]
    outputs: tuple[Type | None, ...]


class Calls:
    """The local functions of a model, and the kinds of calls inferred so far.

    `infer` infers a model that may call other functions.
    """

    def __init__(
        self,
        functions: Mapping[Identity, Any],
        opset: Mapping[str, int],
        infer: Callable[[Any], tuple[Any, dict[str, Type]]],
    ) -> None:
        """Take the local functions, operator set versions and a function that infers shapes."""
        self._functions = functions
        self._opset = opset
        self._infer = infer
        self._units: dict[Key, Unit] = {}
        self._numbers: dict[str, int] = {}

    def opset_of_called_function(self, node: Any) -> dict[str, int]:
        """Return the operator set versions, by domain, of the function that a node calls."""
        own = self._functions[function_identity(node)].opset_import
        return {**self._opset, **{imported.domain: imported.version for imported in own}}

    def is_function_call(self, node: Any) -> bool:
        """Return whether a node calls a local function of the model."""
        return function_identity(node) in self._functions

    def write_result_types(
        self, graph: Any, outer: Level | None = None, enclosing: Mapping[str, Type] | None = None
    ) -> bool:
        """Write the types of function results into a graph, in place; return if any was new."""
        here = graph_level(graph, outer)
        types = {**(enclosing or {}), **graph_value_types(graph)}
        changed = False
        for node in graph.node:
            for body in node_subgraphs(node):
                changed |= self.write_result_types(body, here, types)
            if not self.is_function_call(node) or all(
                _is_shape_known(types, name) for name in node.output
            ):
                continue
            operands = operands_from_types(node, types, here.values)
            if any(operand is not None and operand.shape is None for operand in operands):
                continue
            for name, kind in zip(
                node.output, self.function_unit(node, operands).outputs, strict=False
            ):
                if (
                    kind is not None
                    and kind.shape is not None
                    and not _is_shape_known(types, name)
                ):
                    _declare_value_type(graph, name, kind)
                    types[name] = kind
                    changed = True
        return changed

    def function_unit(self, node: Any, operands: tuple[Operand | None, ...]) -> Unit:
        """Return the called function with shapes for these operands. Raises TargetError."""
        attributes = tuple(sorted(attribute.SerializeToString() for attribute in node.attribute))
        key = (function_identity(node), operands, attributes)
        if key not in self._units:
            if len(self._units) >= CALL_LIMIT:
                message = (
                    f"the functions are called with more than {CALL_LIMIT} different combinations "
                    "of shapes and attributes"
                )
                raise TargetError(
                    message,
                    "inline the functions with onnx.inliner, or export the model without them",
                )
            self._units[key] = self._build_unit(node, operands)
        return self._units[key]

    def _build_unit(self, node: Any, operands: tuple[Operand | None, ...]) -> Unit:
        """Return the called function as a model, with shapes inferred for these operands."""
        function = self._functions[function_identity(node)]
        model = onnx_message_module().ModelProto(ir_version=_IR_VERSION)
        for domain, version in self.opset_of_called_function(node).items():
            model.opset_import.add(domain=domain, version=version)
        graph = model.graph
        graph.name = function.name
        provided = dict(zip(function.input, operands, strict=False))
        names: dict[str, str] = {name: "" for name in function.input if provided.get(name) is None}
        for index, (name, operand) in enumerate(provided.items()):
            if operand is None:
                continue
            if operand.place == index:
                _add_operand(graph, name, operand)
            else:
                names[name] = function.input[operand.place]
        for name in dict.fromkeys(function.output):
            graph.output.add(name=name)
        graph.node.extend(function_nodes_for_call(function, node, names))
        inferred, types = self._infer(model)
        number = self._numbers[function.name] = self._numbers.get(function.name, 0) + 1
        return Unit(
            name=function.name if number == 1 else f"{function.name}#{number}",
            model=inferred,
            types=types,
            inputs=tuple(names[name] if name in names else str(name) for name in provided),
            outputs=tuple(types.get(name) for name in function.output),
        )


def operands_from_types(
    node: Any, types: Mapping[str, Type], values: Mapping[str, Value]
) -> tuple[Operand | None, ...]:
    """Return, for each input of a call, its type, shape and small value; None if omitted."""
    kinds = {name: types.get(name, Type(0, None)) for name in node.input}
    named = {n: (ELEMENT_TYPES.get(kind.dtype, ""), kind.shape) for n, kind in kinds.items()}
    return operands_from_dtypes(node, named, values)


def operands_from_dtypes(
    node: Any, types: Mapping[str, tuple[str, Shape]], values: Mapping[str, Value]
) -> tuple[Operand | None, ...]:
    """Return, for each input of a call, its type, shape and small value; `types` are by name."""
    first: dict[str, int] = {}
    known_operands: list[Operand | None] = []
    for index, name in enumerate(node.input):
        if not name:
            known_operands.append(None)
            continue
        dtype, shape = types[name]
        value = values.get(name) if dtype in _KNOWN else None
        if value is not None and value.rank == SEQUENCE:
            value = None
        known_operands.append(Operand(dtype, shape, value, first.setdefault(name, index)))
    return tuple(known_operands)


def _is_shape_known(types: Mapping[str, Type], name: str) -> bool:
    """Return whether the shape of a value is known; True for an omitted value (name "")."""
    return not name or (name in types and types[name].shape is not None)


def _declare_value_type(graph: Any, name: str, kind: Type) -> None:
    """Write an inferred shape and element type to a value without a declared shape, in place."""
    declared = [value for value in (*graph.value_info, *graph.output) if value.name == name]
    for value in declared or (graph.value_info.add(name=name),):
        if shape_from_proto(value.type) is None:
            write_tensor_type(value.type, kind.shape or (), kind.dtype)


def _add_operand(graph: Any, name: str, operand: Operand) -> None:
    """Add an operand to a graph: as a constant if its value is known, else as an input."""
    number = _NUMBERS.get(operand.dtype, 0)
    if operand.value is not None:
        store_constant(graph, name, number, operand.value)
        return
    value = graph.input.add(name=name)
    if operand.shape is None:
        value.type.tensor_type.elem_type = number
    else:
        write_tensor_type(value.type, operand.shape, number)
