"""Folding of the constants in the ONNX nodes of a form.

Most nodes of a form compute shapes and indices from numbers, and a folder of constants takes them
away again from every model. They are computed here once for each form, as onnxscript's folder
does, and need not be written at all. A form that is not understood stays as it is.
Source: onnxscript/optimizer/_constant_folding.py.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

# elements of a constant of floats that `graph.fold_shape_arithmetic` takes for a shape or a scale
_SMALL = 64
_LARGEST = 1024  # elements of a constant that is kept with a form
_SHAPE = 10  # elements of a constant that onnxscript looks at as at a shape


class GivenValue(msgspec.Struct, frozen=True):
    """A reference to a value that is passed to a form, by its index."""

    place: int


class MadeValue(msgspec.Struct, frozen=True):
    """A reference to a result of a node that a form writes."""

    node: int
    place: int


class TranslationNode(NamedTuple):
    """A node that a form writes; `constant` is the key of a number that all forms share."""

    domain: str
    op_type: str
    overload: str
    version: int | None
    inputs: tuple[Any, ...]
    attributes: tuple[Any, ...]
    results: tuple[tuple[Any, Any], ...]  # type and shape
    constant: Any


class FoldedTranslation(NamedTuple):
    """A form (the translation of an operator to ONNX) with the nodes that remain after constant
    folding.

    `inputs` has the operands of each node that is written, None for others; `constants` are the
    operands that are numbers. `replaced` says how many nodes the folder would have put in the
    place of others before each node, each of which takes a number for its name. `shared` are the
    keys of the numbers for all forms that were computed with.
    """

    inputs: tuple[tuple[Any, ...] | None, ...]
    constants: Mapping[MadeValue, "np.ndarray[Any, Any]"]
    replaced: Mapping[int, int]
    shared: tuple[Any, ...]


# Operators that move numbers, and those that compute: of the latter whole numbers are computed.
_MOVING = frozenset(
    {"Cast", "Concat", "Expand", "Gather", "Identity", "Reshape", "Slice", "Squeeze"}
    | {"Transpose", "Unsqueeze"}
)
_COMPUTING = frozenset({"Add", "Max", "Min", "Mod", "Mul", "Range", "Sub"})
_BIASED = ("Conv", "ConvTranspose")


def fold_translation_nodes(
    nodes: Sequence[TranslationNode],
    outputs: Sequence[Any],
    is_used: Collection[int],
    argument_types: Sequence[tuple[Any, tuple[int, ...] | None]],
    is_unbiased: bool,
    evaluate: Callable[..., Any],
) -> FoldedTranslation | None:
    """Return which ONNX nodes of a form (the translation of one operator) remain after constant
    folding; None if all do or the folding is not understood.

    `argument_types` are the type and shape of each input of the form. The bias of a convolution
    without one, which an exporter makes up, goes as well. `evaluate` computes an operator of ONNX.
    """
    numbers = _TranslationConstants(nodes, outputs, argument_types, evaluate)
    operands = [node.inputs for node in nodes]
    if is_unbiased:
        operands = [
            (*node.inputs[:2], None, *node.inputs[3:])
            if node.op_type in _BIASED and len(node.inputs) > 2
            else node.inputs
            for node in nodes
        ]
    needs = [output for index, output in enumerate(outputs) if index in is_used]
    before = _indices_of_needed_nodes([node.inputs for node in nodes], needs, {})
    after = _indices_of_needed_nodes(operands, needs, numbers.values)
    shared = {index for index, node in enumerate(nodes) if node.constant is not None}
    gone = before - after - shared
    if len(before) == len(nodes) and not gone:
        return None
    if not gone.issubset(numbers.new_nodes):
        return None
    taken = {value for index in after for value in operands[index]}
    if any(
        isinstance(value, GivenValue) and value not in taken
        for index in gone
        for value in nodes[index].inputs
    ):
        return None  # whether a call takes tensors is asked later on
    replaced, waiting = {}, 0
    for index, node in enumerate(nodes):
        if index in gone:
            waiting += numbers.new_nodes[index]
        elif index in after and waiting and node.op_type != "Constant":
            replaced[index], waiting = waiting, 0
    if waiting or (replaced and len(needs) > 1):
        return None
    kept = tuple(
        operands[index] if index in after or index in shared else None
        for index in range(len(nodes))
    )
    constants = {
        value: numbers.values[value]
        for inputs in kept
        for value in inputs or ()
        if value in numbers.values and nodes[value.node].constant is None
    }
    keys = (
        nodes[value.node].constant
        for index in gone
        for value in nodes[index].inputs
        if isinstance(value, MadeValue)
    )
    return FoldedTranslation(
        kept, constants, replaced, tuple({key for key in keys if key is not None})
    )


def _indices_of_needed_nodes(
    operands: Sequence[Sequence[Any]], needs: Sequence[Any], known: Collection[Any]
) -> set[int]:
    """Return the indices of the nodes that are needed to compute the values `needs`, if the values
    `known` are constants.
    """
    live: set[int] = set()
    waiting = [value for value in needs if isinstance(value, MadeValue)]
    while waiting:
        index = waiting.pop().node
        if index not in live:
            live.add(index)
            waiting.extend(
                value
                for value in operands[index]
                if isinstance(value, MadeValue) and value not in known
            )
    return live


class _TranslationConstants:
    """The constants in a form: `values` has the arrays by the reference to the result.

    `new_nodes` has how many nodes the folder writes for each node that becomes a number, or that
    does for sure and is too large to be kept.
    """

    def __init__(
        self,
        nodes: Sequence[TranslationNode],
        outputs: Sequence[Any],
        argument_types: Sequence[tuple[Any, tuple[int, ...] | None]],
        evaluate: Callable[..., Any],
    ) -> None:
        """Compute which nodes of an ONNX form are constants, from its arguments' shapes."""
        self.values: dict[Any, np.ndarray[Any, Any]] = {}
        self.new_nodes: dict[int, int] = {}
        self._provided, self._evaluate = argument_types, evaluate
        self._scalars: set[Any] = set()  # numbers without axes of a type that is not computed
        for index, node in enumerate(nodes):
            result = MadeValue(index, 0)
            if node.domain or len(node.results) != 1 or result in outputs:
                continue
            number = self._constant_node_result(index, node)
            if number is not None and _is_small_enough_to_store(number):
                self.values[result] = number
                self.new_nodes.setdefault(index, 0)
            else:
                self.new_nodes.pop(index, None)
                self._note_large_number(index, node)

    def _constant_node_result(
        self, index: int, node: TranslationNode
    ) -> "np.ndarray[Any, Any] | None":
        """Return the result of a node if it is a constant, else None; record in `new_nodes` how
        many nodes the folder would write for it.
        """
        attributes = {attribute.name: attribute.value for attribute in node.attributes}
        if node.op_type == "Constant":
            return _constant_number(node.attributes)
        if node.op_type in ("Shape", "Size") and node.inputs:
            extents = self._shape_if_known(node.inputs[0])
            if extents is None:
                return None
            self.new_nodes[index] = 1
            if node.op_type == "Size":
                return np.array(np.prod(extents, dtype=np.int64), dtype=np.int64)
            return np.array(
                extents[attributes.get("start", 0) : attributes.get("end")], dtype=np.int64
            )
        if node.op_type == "CastLike":
            number, dtype = (
                self.values.get(node.inputs[0]),
                self._element_type_if_known(node.inputs[1]),
            )
            if number is None or dtype is None or _onnx_element_type(number) != dtype:
                return None
            self.new_nodes[index] = 1
            return number
        numbers = [self.values.get(value) for value in node.inputs]
        if not numbers or any(number is None for number in numbers):
            return None
        replaced = _node_count_after_folding(node.op_type, numbers, attributes)
        if replaced is None:
            return None
        result = self._evaluate(node.op_type, *numbers, **attributes)
        if not isinstance(result, np.ndarray):
            return None
        if result.dtype.kind not in "biu" and node.op_type not in _MOVING:
            return None
        self.new_nodes[index] = replaced
        return result

    def _note_large_number(self, index: int, node: TranslationNode) -> None:
        """Record in `new_nodes` a node that casts or expands a scalar constant: it is folded at
        any size.
        """
        result = MadeValue(index, 0)
        if node.op_type == "CastLike" and node.inputs[0] in self.values:
            scalar = self.values[node.inputs[0]]
            if scalar.ndim == 0 and self._element_type_if_known(node.inputs[1]) is not None:
                self.new_nodes[index] = 1
                self._scalars.add(result)
        elif node.op_type == "Expand" and node.inputs[1] in self.values:
            source, extents = node.inputs[0], self.values[node.inputs[1]]
            number = self.values.get(source)
            is_scalar = source in self._scalars or (number is not None and number.ndim == 0)
            if is_scalar and extents.shape != (0,):
                self.new_nodes[index] = 0

    def _shape_if_known(self, value: Any) -> tuple[int, ...] | None:
        """Return the shape of a value in a form if it is known before a run, else None."""
        if isinstance(value, GivenValue):
            return self._provided[value.place][1]
        number = self.values.get(value)
        return None if number is None else number.shape

    def _element_type_if_known(self, value: Any) -> Any:
        """Return the ONNX element type of a value in a form if it is known before a run, else
        None.
        """
        if isinstance(value, GivenValue):
            return self._provided[value.place][0]
        number = self.values.get(value)
        return None if number is None else _onnx_element_type(number)


def _is_small_enough_to_store(number: "np.ndarray[Any, Any]") -> bool:
    """Return True if the constant has few enough elements to be stored with the form."""
    return number.size <= (_LARGEST if number.dtype.kind in "biu" else _SMALL)


def _constant_number(attributes: Sequence[Any]) -> "np.ndarray[Any, Any] | None":
    """Return the array of an ONNX Constant with these attributes; None if it is large, or no
    number.
    """
    if len(attributes) != 1 or attributes[0].is_ref():
        return None
    name, value = attributes[0].name, attributes[0].value
    if name in ("value_int", "value_ints"):
        return np.array(value, dtype=np.int64)
    if name in ("value_float", "value_floats"):
        return np.array(value, dtype=np.float32)
    if name != "value" or value.size > _LARGEST:
        return None
    number = np.asarray(value.numpy())
    return (
        number
        if number.dtype.kind in "biuf" and value.dtype == _onnx_element_type(number)
        else None
    )


def _onnx_element_type(number: "np.ndarray[Any, Any]") -> Any:
    """Return the ONNX element type of a NumPy array."""
    import onnx_ir as ir

    return ir.DataType.from_numpy(number.dtype)


def _node_count_after_folding(
    op_type: str, numbers: Sequence[Any], attributes: Mapping[str, Any]
) -> int | None:
    """Return how many nodes onnxscript's constant folding writes instead of a node; None if it
    does not fold the node.

    It writes an Identity for what changes nothing, and a Constant for extents that are gathered.
    """
    first = numbers[0]
    if op_type == "Cast":
        return int(_onnx_element_type(first) == attributes.get("to"))
    if op_type == "Concat":
        axis = attributes.get("axis")
        if axis is None or any(number.ndim == 0 or not number.shape[axis] for number in numbers):
            return None
        return int(len(numbers) == 1)
    if op_type in ("Reshape", "Expand"):
        extents = numbers[1]
        if extents.ndim != 1 or (op_type == "Reshape" and extents.size > _SHAPE):
            return 0
        return int(tuple(extents.tolist()) == first.shape)
    if op_type == "Gather":
        is_shape = first.ndim == 1 and first.dtype == np.int64 and first.size <= _SHAPE
        return int(is_shape and attributes.get("axis") == 0 and numbers[1].ndim == 1)
    return 0 if op_type in _MOVING or op_type in _COMPUTING else None
