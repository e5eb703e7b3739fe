"""Facts that converters need of a node, and checks for nodes that cannot be rebuilt."""

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from crossflops.errors import NormalizeError

READ_IT = "use `crossflops count`, or a tool that reads ONNX files and runs no framework"

# A torch layer for a node, None if it has none, and the positions of the inputs that it takes.
LayerAndInputs: TypeAlias = tuple[Any, tuple[int, ...]]


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A node: its attributes, which inputs it has, and the values of the constant ones.

    `constants` are arrays by index, None where an input is computed or left out; `shapes` are
    those of the inputs, None where unknown.
    """

    operator: str
    name: str
    attributes: dict[str, Any]
    given: tuple[bool, ...]
    constants: tuple[Any, ...]
    shapes: tuple[tuple[int, ...] | None, ...]
    outputs: int

    def has(self, index: int) -> bool:
        """Return whether the node is given the input at this position."""
        return index < len(self.given) and self.given[index]

    def constant(self, index: int) -> Any:
        """Return the value of an input as an array; None if it is computed or not given."""
        return self.constants[index] if index < len(self.constants) else None

    def shape(self, index: int) -> tuple[int, ...] | None:
        """Return the shape of an input, or None if it is unknown."""
        return self.shapes[index] if index < len(self.shapes) else None


# What no rewriting of an ONNX model helps, said in one line.

_CONTROL = ("If", "Loop", "Scan", "SequenceMap")
_QUANTIZED = ("QuantizeLinear", "DequantizeLinear", "Integer", "QLinear")


def reject_unbuildable_nodes(model: Any, target: str) -> None:
    """Raise NormalizeError for a node with subgraphs or a quantized operator; `target` names the
    kind of module for the message.
    """
    bodies = (model.graph, *model.functions)
    for node in (node for body in bodies for node in body.node):
        name = f"{node.op_type} {node.name}".strip()
        if node.op_type in _CONTROL:
            message = f"{name} has subgraphs, which cannot be rebuilt as a {target}"
            raise NormalizeError(message, READ_IT)
        if any(word in node.op_type for word in _QUANTIZED):
            message = f"{name} is quantized, and a quantized layer cannot be rebuilt as a {target}"
            raise NormalizeError(message, f"give the file before quantization; {READ_IT}")


# Operators that ONNX itself defines by others, replaced by these.

_ROUNDS = 8  # functions in functions


def inline_function_bodies(model: Any, lacking: Callable[[Any], set[str]]) -> Any:
    """Return the model in which the operators that `lacking(model)` names are replaced by their
    ONNX function bodies.
    """
    from onnx import inliner

    for _ in range(_ROUNDS):
        names = sorted(
            name for name in lacking(model) if _has_function_body(name, opset_versions(model))
        )
        if not names:
            break
        model = _with_inferred_value_types(model)
        model = inliner.inline_selected_functions(
            model, [("", name) for name in names], inline_schema_functions=True
        )
    return model


def opset_versions(model: Any) -> dict[str, int]:
    """Return the version of each operator set that the model imports, by domain ("" for the ONNX
    standard).
    """
    return {standard_domain(opset.domain): opset.version for opset in model.opset_import}


def standard_domain(name: str) -> str:
    """Return the domain of an operator set, with "" for "ai.onnx", the ONNX standard."""
    return "" if name == "ai.onnx" else name


def operator_schema(operator: str, opset: int, domain: str = "") -> Any:
    """Return the ONNX schema of an operator in this version of its operator set, or None if there
    is none.
    """
    from onnx import defs

    try:
        return defs.get_schema(operator, max_inclusive_version=opset, domain=domain)
    except defs.SchemaError:
        return None


def _with_inferred_value_types(model: Any) -> Any:
    """Return the model with the types and shapes of all its values, on which function bodies
    depend.
    """
    from onnx import helper, shape_inference

    model = shape_inference.infer_shapes(model)
    known = {value.name for value in (*model.graph.value_info, *model.graph.input)}
    for tensor in model.graph.initializer:
        if tensor.name not in known:
            value = helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            model.graph.value_info.append(value)
    return model


def _has_function_body(operator: str, versions: dict[str, int]) -> bool:
    """Return whether the ONNX standard defines the operator by a function body."""
    schema = operator_schema(operator, versions.get("", 1))
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)
