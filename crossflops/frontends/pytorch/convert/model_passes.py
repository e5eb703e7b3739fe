"""Passes of onnxscript over an ONNX model, without what they would do again for each node."""

import copy
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from crossflops.frontends.pytorch.convert.reference import by_reference
from crossflops.patches import inventory
from crossflops.patches.patching import original, owner_of, patched

# Shapes and types of results, inferred once for nodes that are alike.

_KEPT_INFERENCES = 10_000
_SMALL = 64  # elements of a tensor that is part of a key
_INFERRED: "OrderedDict[Any, tuple[_Inferred | None, ...]]" = OrderedDict()


class _Inferred(NamedTuple):
    """The type and the shape of a result."""

    kind: Any
    shape: Any


@contextmanager
def inferred_once() -> Iterator[None]:
    """In this context a folder of constants infers shapes once for nodes that are alike."""
    if by_reference():
        yield
        return
    folder = owner_of(inventory.FOLDED_SHAPES)
    infer = original(folder, "_do_inference", inventory.FOLDED_SHAPES)

    def infer_once(self: Any, node: Any) -> None:
        key = _key(node, self._opset_imports.get(node.domain))
        known = None if key is None else _INFERRED.get(key)
        if known is not None:
            _INFERRED.move_to_end(key)
            _set_results(node, known)
            return
        before = [(value.type, value.shape) for value in node.outputs]
        for value in node.outputs:
            value.type = value.shape = None
        infer(self, node)
        results = tuple(_inferred(value) for value in node.outputs)
        for value, (kind, shape) in zip(node.outputs, before, strict=True):
            value.type, value.shape = kind, shape
        if key is not None:
            _INFERRED[key] = results
            while len(_INFERRED) > _KEPT_INFERENCES:
                _INFERRED.popitem(last=False)
        _set_results(node, results)

    with patched(folder, "_do_inference", infer_once, inventory.FOLDED_SHAPES):
        yield


def _inferred(value: Any) -> _Inferred | None:
    known = value.type is not None or value.shape is not None
    return _Inferred(value.type, value.shape) if known else None


def _set_results(node: Any, results: tuple[_Inferred | None, ...]) -> None:
    from onnxscript.optimizer._constant_folding import _merge_shapes

    for value, result in zip(node.outputs, results, strict=True):
        if result is not None:
            shape = None if result.shape is None else result.shape.copy()
            value.shape = _merge_shapes(value.shape, shape)
            value.type = copy.copy(result.kind)


def _key(node: Any, opset: int | None) -> Any:
    """What decides the shapes of a node's results; None where that is more than is looked at."""
    from onnxscript.optimizer._constant_folding import _get_numpy_value

    attributes = []
    for name, attribute in node.attributes.items():
        value = _frozen(attribute)
        if value is None:
            return None
        attributes.append((name, attribute.type, value))
    names: dict[str, int] = {}
    inputs: list[Any] = []
    for value in node.inputs:
        if value is None:
            inputs.append(None)
            continue
        shape = None if value.shape is None else tuple(map(str, value.shape))
        numbers = _get_numpy_value(value, size_limit=20)
        held = None if numbers is None else (str(numbers.dtype), numbers.shape, numbers.tobytes())
        place = names.setdefault(value.name, len(names))
        inputs.append((place, str(value.type), shape, held))
    there = tuple(bool(value.name) for value in node.outputs)
    return node.domain, node.op_type, opset, tuple(attributes), tuple(inputs), there


def _frozen(attribute: Any) -> Any:
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
def renumbered() -> Iterator[None]:
    """In this context a model whose operators a newer set leaves alone gets its number alone.

    The version converter looks at every node once for each set in between.
    """
    if by_reference():
        yield
        return
    library = owner_of(inventory.VERSION_CONVERTER)
    convert = original(library, "convert_version", inventory.VERSION_CONVERTER)

    def renumber(model: Any, target_version: int, *args: Any, **kwargs: Any) -> Any:
        from onnx_ir.passes import common

        if model.functions:  # the converter begins with this, too
            common.InlinePass()(model)
            common.RemoveUnusedFunctionsPass()(model)
            common.RemoveUnusedOpsetsPass()(model)
        if not _stays(model, target_version):
            return convert(model, target_version, *args, **kwargs)
        if model.opset_imports[""] != target_version:
            for node in model.graph:
                if node.domain == "":
                    node.version = target_version
            model.opset_imports[""] = target_version
        common.RemoveUnusedNodesPass()(model)
        common.RemoveUnusedOpsetsPass()(model)
        return None

    with patched(library, "convert_version", renumber, inventory.VERSION_CONVERTER):
        yield


def _stays(model: Any, target: int) -> bool:
    """Whether none of the operators of a model is another one in the set of this number."""
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
