"""The description of a node that a function body computes, and the writer of the body's ONNX
nodes.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import msgspec


class TensorDescription(msgspec.Struct, frozen=True):
    """The shape and the type of an operand or a result; `used` means that a node reads it."""

    shape: tuple[int, ...]
    dtype: Any
    used: bool = True


class OpaqueNode(msgspec.Struct, frozen=True):
    """A node without an ONNX form; `settings` are its plain arguments by their names."""

    op_type: str
    operands: tuple[TensorDescription, ...]
    results: tuple[TensorDescription, ...]
    settings: dict[str, Any]


def describe_opaque_node(node: Any) -> OpaqueNode | None:
    """Return the description of an opaque ONNX node; None if a shape or a dtype is unknown."""
    values = (*node.inputs, *node.outputs)
    described = [_describe_onnx_value(value) for value in values]
    known = [row for row in described if row is not None]
    if len(known) < len(values):
        return None
    first = len(node.inputs)
    settings = {name: attribute.value for name, attribute in node.attributes.items()}
    return OpaqueNode(node.op_type, tuple(known[:first]), tuple(known[first:]), settings)


def _describe_onnx_value(value: Any) -> TensorDescription | None:
    """Return the shape and dtype of an ONNX value and whether anything uses it; None if its shape
    or dtype is unknown.
    """
    if value is None or value.shape is None or value.dtype is None:
        return None
    if not all(isinstance(extent, int) for extent in value.shape):
        return None
    used = bool(value.uses()) or value.is_graph_output()
    return TensorDescription(tuple(value.shape), value.dtype, used)


class OnnxBodyWriter:
    """A writer that appends nodes to a body. The bodies of loops within it share its names."""

    def __init__(self, numbers: Iterator[int] | None = None) -> None:
        """Start a function body without nodes; `numbers` give the names of its values."""
        self.nodes: list[Any] = []
        self._numbers = itertools.count() if numbers is None else numbers

    def __call__(self, operator: str, *operands: Any, **attributes: Any) -> Any:
        """Append an ONNX node of this operator to the body, and return its result."""
        return self.append_with_results(1, operator, *operands, **attributes)[0]

    def append_with_results(
        self, result_count: int, operator: str, *operands: Any, **attributes: Any
    ) -> list[Any]:
        """Append an ONNX node of an operator to the body; return its `result_count` results."""
        import onnx_ir as ir

        results = [ir.Value(name=self.new_name()) for _ in range(result_count)]
        converted = ir.convenience.convert_attributes(attributes)
        self.nodes.append(ir.Node("", operator, operands, converted, outputs=results))
        return results

    def new_name(self) -> str:
        """Return a new value name, unique in the body."""
        return f"value{next(self._numbers)}"

    def new_loop_body_writer(self) -> "OnnxBodyWriter":
        """Return a new writer for the body of a loop within this body."""
        return OnnxBodyWriter(self._numbers)

    def constant_integers(self, *numbers: int) -> Any:
        """Append a constant list of integers, such as axes or sizes, and return its value."""
        return self("Constant", value_ints=list(numbers))

    def constant_integer(self, number: int) -> Any:
        """Append a constant integer, and return its value."""
        return self("Constant", value_int=number)

    def constant_float_like(self, number: float, like: Any) -> Any:
        """Append a constant float in the dtype of a value, and return its value."""
        import onnx_ir as ir

        value = ir.tensor(number, dtype=ir.DataType.DOUBLE)
        return self("CastLike", self("Constant", value=value), like)

    def append_range(self, length: int) -> Any:
        """Append the integers from 0 to `length` - 1 as a tensor, and return its value."""
        return self(
            "Range",
            self.constant_integer(0),
            self.constant_integer(length),
            self.constant_integer(1),
        )

    def append_zeros_like(self, result: TensorDescription) -> Any:
        """Append a tensor of zeros with the shape and dtype of a result, and return its value."""
        import onnx_ir as ir

        value = ir.tensor([0], dtype=result.dtype)
        return self("ConstantOfShape", self.constant_integers(*result.shape), value=value)

    def append_column_reshape(self, vector: Any) -> Any:
        """Append a reshape of a vector [N] to a column [N, 1], and return its value."""
        return self("Unsqueeze", vector, self.constant_integers(1))

    def append_float32_cast(self, value: Any, described: TensorDescription) -> Any:
        """Append a cast of a float16 or bfloat16 value to float32, and return it; another value as
        it is.
        """
        import onnx_ir as ir

        narrow = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
        return (
            self("Cast", value, to=int(ir.DataType.FLOAT)) if described.dtype in narrow else value
        )

    def append_int64_cast(self, value: Any) -> Any:
        """Append a cast of a value to int64, and return it."""
        import onnx_ir as ir

        return self("Cast", value, to=int(ir.DataType.INT64))


# Writes a node's body with the values of its operands, and returns its results; None without one.
Body: TypeAlias = Callable[[OnnxBodyWriter, OpaqueNode, Sequence[Any]], "list[Any] | None"]
