"""Caches for the passes of onnxscript over an ONNX model, so that equal nodes are treated only
once.
"""

import copy
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from crossflops.frontends.pytorch.convert.known_forms import REPLACED
from crossflops.frontends.pytorch.convert.reference import is_reference_export
from crossflops.patches import inventory
from crossflops.patches.patching import original_attribute, patch_owner, patching_attribute

# Shapes and types of results, inferred once for nodes that are alike.

_KEPT_INFERENCES = 10_000
_SMALL = 64  # elements of a tensor that is part of a key
_INFERRED: "OrderedDict[Any, tuple[_InferredTensor | None, ...]]" = OrderedDict()
_EVALUATED: "OrderedDict[Any, np.ndarray[Any, Any]]" = OrderedDict()


class _InferredTensor(NamedTuple):
    """The type and the shape of a result."""

    kind: Any
    shape: Any


@contextmanager
def reusing_shape_inference() -> Iterator[None]:
    """Make onnxscript infer shapes, and fold constants, of equal ONNX nodes only once inside the
    block.
    """
    if is_reference_export():
        yield
        return
    folder = patch_owner(inventory.FOLDED_SHAPES)
    infer = original_attribute(folder, "_do_inference", inventory.FOLDED_SHAPES)
    keys = _NodeKeys()

    def infer_node_shapes_once(self: Any, node: Any) -> None:
        """Set the types and shapes of an ONNX node's outputs, which are inferred once for equal
        nodes.
        """
        replaced = node.meta.pop(REPLACED, 0)
        if replaced:  # so that nodes which are written here have the names that they had
            node.graph._name_authority._node_counter += replaced
        key = keys.node_key(node, self._opset_imports.get(node.domain))
        known = None if key is None else _INFERRED.get(key)
        if known is not None:
            _INFERRED.move_to_end(key)
            _set_inferred_outputs(node, known)
            return
        before = [(value.type, value.shape) for value in node.outputs]
        for value in node.outputs:
            value.type = value.shape = None
        infer(self, node)
        results = tuple(_type_and_shape_of_value(value) for value in node.outputs)
        for value, (kind, shape) in zip(node.outputs, before, strict=True):
            value.type, value.shape = kind, shape
        if key is not None:
            _INFERRED[key] = results
            while len(_INFERRED) > _KEPT_INFERENCES:
                _INFERRED.popitem(last=False)
        _set_inferred_outputs(node, results)

    evaluator = patch_owner(inventory.FOLDED_VALUES)
    evaluate = original_attribute(evaluator, "evaluate", inventory.FOLDED_VALUES)

    def evaluate_operator_on_constants_once(self: Any, *operator: Any, **attributes: Any) -> Any:
        """Return the result of an ONNX operator on constants, which is computed once for equal
        operands.
        """
        key = _evaluation_key(operator, attributes)
        known = None if key is None else _EVALUATED.get(key)
        if known is not None:
            _EVALUATED.move_to_end(key)
            return known.copy()
        result = evaluate(self, *operator, **attributes)
        if key is not None and isinstance(result, np.ndarray) and result.size <= _SMALL:
            _EVALUATED[key] = result.copy()
            while len(_EVALUATED) > _KEPT_INFERENCES:
                _EVALUATED.popitem(last=False)
        return result

    with (
        patching_attribute(
            folder, "_do_inference", infer_node_shapes_once, inventory.FOLDED_SHAPES
        ),
        patching_attribute(
            evaluator, "evaluate", evaluate_operator_on_constants_once, inventory.FOLDED_VALUES
        ),
    ):
        yield


def _type_and_shape_of_value(value: Any) -> _InferredTensor | None:
    """Return the type and shape that were inferred for an ONNX value; None if neither is known."""
    known = value.type is not None or value.shape is not None
    return _InferredTensor(value.type, value.shape) if known else None


def _set_inferred_outputs(node: Any, results: tuple[_InferredTensor | None, ...]) -> None:
    """Set the inferred types and shapes at the outputs of an ONNX node, and keep known sizes."""
    from onnxscript.optimizer._constant_folding import _merge_shapes

    for value, result in zip(node.outputs, results, strict=True):
        if result is None:
            continue
        if result.shape is None or value.shape is None or value.shape.dims != result.shape.dims:
            shape = None if result.shape is None else result.shape.copy()
            value.shape = _merge_shapes(value.shape, shape)
        if value.type != result.kind:
            value.type = copy.copy(result.kind)


class _NodeKeys:
    """The cache keys of one model's nodes: the facts on which the shapes of their results depend.

    Attributes and constants are shared by many nodes: each is read once, and kept alive so that no
    other object gets its id.
    """

    def __init__(self) -> None:
        """Start empty caches of the keys of attributes and constants."""
        self._attributes: dict[int, tuple[Any, Any]] = {}
        self._constants: dict[int, tuple[Any, Any]] = {}

    def node_key(self, node: Any, opset: int | None) -> Any:
        """Return the key that ONNX nodes with equal results of shape inference have in common;
        None if there is no such key.
        """
        import onnx_ir as ir

        attributes = []
        for name, attribute in node.attributes.items():
            value = self._attribute_key(attribute)
            if value is None:
                return None
            attributes.append((name, attribute.type, value))
        names: dict[str, int] = {}
        inputs: list[Any] = []
        for value in node.inputs:
            if value is None:
                inputs.append(None)
                continue
            shape, kind = value.shape, value.type
            extents = None if shape is None else tuple(map(_shape_extent_key, shape.dims))
            stored = None if value.const_value is None else self._constant_key(value)
            index = names.setdefault(value.name, len(names))
            is_tensor = isinstance(kind, ir.TensorType)
            inputs.append((index, kind.dtype if is_tensor else str(kind), extents, stored))
        there = tuple(bool(value.name) for value in node.outputs)
        return node.domain, node.op_type, opset, tuple(attributes), tuple(inputs), there

    def _attribute_key(self, attribute: Any) -> Any:
        """Return a hashable key of an ONNX attribute's value, cached by the object."""
        known = self._attributes.get(id(attribute))
        if known is None:
            known = self._attributes[id(attribute)] = attribute, _attribute_value_key(attribute)
        return known[1]

    def _constant_key(self, value: Any) -> Any:
        """Return a hashable key of the constant numbers of an ONNX value, cached by the object;
        None if they are more than 20.
        """
        from onnxscript.optimizer._constant_folding import _get_numpy_value

        stored = value.const_value
        known = self._constants.get(id(stored))
        if known is None:
            numbers = _get_numpy_value(value, size_limit=20)
            key = (
                None if numbers is None else (str(numbers.dtype), numbers.shape, numbers.tobytes())
            )
            known = self._constants[id(stored)] = stored, key
        return known[1]


def _shape_extent_key(extent: Any) -> Any:
    """Return a size of a shape as it is if it is an integer, else as text."""
    return extent if isinstance(extent, int) else str(extent)


def _numbers_key(numbers: "np.ndarray[Any, Any]") -> tuple[Any, tuple[int, ...], Any]:
    """Return dtype, shape and contents of an array as a hashable key."""
    stored = tuple(numbers.flat) if numbers.dtype.hasobject else numbers.tobytes()
    return numbers.dtype, numbers.shape, stored


def _evaluation_key(operator: tuple[Any, ...], attributes: Mapping[str, Any]) -> Any:
    """Return the key under which the result of an ONNX operator on constants is cached; None if it
    is not to be cached.
    """
    domain, name, version, *inputs = operator
    if any(value is not None and value.size > _SMALL for value in inputs):
        return None
    if not all(isinstance(value, int | float | str | bytes) for value in attributes.values()):
        return None
    provided = tuple(None if value is None else _numbers_key(value) for value in inputs)
    # as they are written: 0.0 and -0.0 are equal
    named = tuple((name, type(value), repr(value)) for name, value in attributes.items())
    return domain, name, version, provided, named


def _attribute_value_key(attribute: Any) -> Any:
    """Return a hashable key of an ONNX attribute's value; None for a graph, a reference or a large
    tensor.
    """
    if attribute.is_ref():
        return None
    value = attribute.value
    if isinstance(value, int | float | str | bytes):
        return type(value), repr(value)
    if isinstance(value, list | tuple) and all(isinstance(at, int | float | str) for at in value):
        return "list", repr(tuple(value))
    if attribute.type.name == "TENSOR" and value.size <= _SMALL:
        return str(value.dtype), tuple(value.shape), value.tobytes()
    return None


# The set of operators that a model is of.


@contextmanager
def renumbering_opsets() -> Iterator[None]:
    """Let onnxscript, inside the block, convert a model to another opset version by the version
    number alone, if its operators do not change.

    The version converter visits every node once for each set in between.
    """
    if is_reference_export():
        yield
        return
    library = patch_owner(inventory.VERSION_CONVERTER)
    convert = original_attribute(library, "convert_version", inventory.VERSION_CONVERTER)

    def renumber_or_convert_opset(
        model: Any, target_version: int, *args: Any, **kwargs: Any
    ) -> Any:
        """Convert an ONNX model to another opset version; if its operators do not change, only set
        the version.
        """
        from onnx_ir.passes import common

        if model.functions:  # the converter begins with this, too
            common.InlinePass()(model)
            common.RemoveUnusedFunctionsPass()(model)
            common.RemoveUnusedOpsetsPass()(model)
        if not _has_same_operators(model, target_version):
            return convert(model, target_version, *args, **kwargs)
        if model.opset_imports[""] != target_version:
            for node in model.graph:
                if node.domain == "":
                    node.version = target_version
            model.opset_imports[""] = target_version
        common.RemoveUnusedNodesPass()(model)
        common.RemoveUnusedOpsetsPass()(model)
        return None

    with patching_attribute(
        library, "convert_version", renumber_or_convert_opset, inventory.VERSION_CONVERTER
    ):
        yield


def _has_same_operators(model: Any, target: int) -> bool:
    """Return True if no operator of a model changes between its opset version and `target`."""
    from onnxscript.version_converter import _version_converter as converter

    known = model.opset_imports.get("")
    if model.functions or known is None or "ai.onnx" in model.opset_imports:
        return False
    if not converter.version_supported(model, target):
        return False
    seen: set[tuple[str, int]] = set()
    for node in model.graph:
        attributes = node.attributes.values()
        if any(at.is_ref() or "GRAPH" in at.type.name for at in attributes):
            return False
        if node.domain == "":
            version = node.version or known
            if version > target:
                return False
            seen.add((node.op_type, version))
    find: Callable[..., Any] = converter.registry.lookup_adapters
    return not any(
        find("", name, number, True) is not None
        for name, version in seen
        for number in range(version, target)
    )
