"""Write nodes of ai.onnx that replace one node during shape inference."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from crossflops.frontends.onnx.types import Shape, Type

Types: TypeAlias = Mapping[str, Type]
FLOAT, UINT8, INT8, INT32, INT64, STRING, BOOL = 1, 2, 3, 6, 7, 8, 9
_INT, _STRING, _TENSOR, _INTS = 2, 3, 4, 7


class SubstituteDraft:
    """A node whose shapes ONNX cannot infer, and the substitute nodes written for it so far."""

    def __init__(self, graph: Any, node: Any, types: Types, opset: int) -> None:
        """Take a node, its graph, the types of its operands and the version of ai.onnx."""
        self.graph, self.node, self.opset = graph, node, opset
        self._types = types
        self._attributes = {attribute.name: attribute for attribute in node.attribute}
        self.nodes: list[Any] = []
        self.made: set[str] = set()

    def input(self, index: int) -> str:
        """Return the name of the node's input at this index, or "" if it is omitted."""
        return str(self.node.input[index]) if index < len(self.node.input) else ""

    def output(self, index: int) -> str:
        """Return the name of the node's output at this index, or "" if it is omitted."""
        return str(self.node.output[index]) if index < len(self.node.output) else ""

    def shape(self, index: int) -> Shape:
        """Return the shape of the node's input at this index, or None if unknown or omitted."""
        kind = self._types.get(self.input(index))
        return kind.shape if kind is not None and self.input(index) else None

    def shape_of(self, name: str) -> Shape:
        """Return the shape of the value of this name, or None if it is unknown."""
        kind = self._types.get(name)
        return kind.shape if kind is not None else None

    def dtype(self, index: int, default: int = FLOAT) -> int:
        """Return the element type (an ONNX number) of an input, or `default` if it is unknown."""
        kind = self._types.get(self.input(index))
        return kind.dtype or default if kind is not None else default

    def integer(self, name: str, default: int = 0) -> int:
        """Return the node's integer attribute of this name, or `default` if it is not set."""
        return int(self._attributes[name].i) if name in self._attributes else default

    def number(self, name: str, default: float) -> float:
        """Return the node's float attribute of this name, or `default` if it is not set."""
        return float(self._attributes[name].f) if name in self._attributes else default

    def text(self, name: str) -> str:
        """Return the node's text attribute of this name, or "" if it is not set."""
        value = self._attributes[name].s if name in self._attributes else b""
        return bytes(value).decode(errors="replace")

    def integers(self, name: str) -> tuple[int, ...]:
        """Return the node's attribute of this name, a list of integers, or () if it is not set."""
        return tuple(self._attributes[name].ints) if name in self._attributes else ()

    def list_length(self, name: str) -> int:
        """Return the number of items in the node's list attribute, or 0 if it is not set."""
        attribute = self._attributes.get(name)
        return (
            0
            if attribute is None
            else len(attribute.ints) + len(attribute.floats) + len(attribute.strings)
        )

    def add_node(self, op: str, inputs: Sequence[str], output: str = "", **attrs: Any) -> str:
        """Add a substitute node; return the name of its output: `output`, or a new name."""
        node = type(self.node)()
        node.op_type = op
        node.input.extend(inputs)
        result = output or self._unused_value_name()
        node.output.append(result)
        for name, value in attrs.items():
            _write_attribute_value(node.attribute.add(name=name), value)
        self.nodes.append(node)
        return result

    def add_node_with_attributes(
        self, op: str, inputs: Sequence[str], output: str, names: Sequence[str]
    ) -> str:
        """Add a substitute node with some attributes of the node; return its output's name."""
        result = self.add_node(op, inputs, output)
        for name in names:
            if name in self._attributes:
                self.nodes[-1].attribute.add().CopyFrom(self._attributes[name])
        return result

    def add_outputs(self, names: Sequence[str]) -> None:
        """Add outputs with these names to the substitute node that was added last."""
        self.nodes[-1].output.extend(names)

    def add_integers(self, values: Sequence[int]) -> str:
        """Add a constant vector of integers, and return its name."""
        name = self.add_node("Constant", ())
        attribute = self.nodes[-1].attribute.add(name="value")
        attribute.type = _TENSOR
        attribute.t.data_type = INT64
        attribute.t.dims.append(len(values))
        attribute.t.int64_data.extend(values)
        return name

    def add_filled_tensor(self, dims: Sequence[int], output: str = "", dtype: int = FLOAT) -> str:
        """Add a tensor of this shape and element type, and return its name."""
        result = self.add_node(
            "ConstantOfShape", (self.add_integers(dims),), output if dtype == FLOAT else ""
        )
        return result if dtype == FLOAT else self.add_node("Cast", (result,), output, to=dtype)

    def add_cast(self, name: str, output: str, dtype: int) -> str:
        """Add a Cast of a value to an element type, and return the name of its result."""
        return self.add_node("Cast", (name,), output, to=dtype)

    def _unused_value_name(self) -> str:
        """Return a value name that is not used yet."""
        result = next((str(name) for name in self.node.output if name), "")
        name = f"{result}#{len(self.made)}"
        self.made.add(name)
        return name


def _write_attribute_value(attribute: Any, value: Any) -> None:
    """Write an integer, a text or a list of integers into an attribute message, in place."""
    if isinstance(value, int):
        attribute.type, attribute.i = _INT, value
    elif isinstance(value, str):
        attribute.type, attribute.s = _STRING, value.encode()
    else:
        attribute.type = _INTS
        attribute.ints.extend(value)
