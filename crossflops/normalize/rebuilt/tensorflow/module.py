"""The operations of TensorFlow that stand for an ONNX model, as a tf.Module."""

import re
from collections.abc import Mapping
from math import prod
from typing import Any

import msgspec
import numpy as np
import tensorflow as tf

from crossflops.errors import CrossflopsError, NormalizeError
from crossflops.load.payload import ELEMENT_TYPES
from crossflops.load.protobuf import parse, since
from crossflops.normalize.onnx_file.attributes import attributes
from crossflops.normalize.onnx_file.binding import model_inputs
from crossflops.normalize.rebuilt.bodies import domain_of, opsets
from crossflops.normalize.rebuilt.facts import READ_IT
from crossflops.normalize.rebuilt.tensorflow.rules import RULES, Given, UnfitError

_SMALL = 64  # elements: a shape, a scale. More floats are work, which is not folded
_LARGE = 1 << 20
_CONTRACTIONS = ("Attention", "Conv", "ConvTranspose", "Einsum", "Gemm", "MatMul")
_OF_SHAPES = ("Shape", "Size")
_SPREADING = ("ConstantOfShape", "Expand", "Tile")
_PAYLOADS = ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data")


class Program(msgspec.Struct, frozen=True):
    """An ONNX model as bytes, its sizes definite and its nodes named, and where each node is.

    Weights may be there by shape alone: they are zeros. `paths` are the modules of the nodes.
    """

    data: bytes
    paths: Mapping[str, str]


class OnnxModule(tf.Module):
    """Calls the operations that the rules write for each node, in its own name scope.

    A scope is the path of the module and the name of the node, so that what counts operations
    by name counts nodes and modules. Raises NormalizeError where a rule does not fit.
    """

    def __init__(self, program: Program, name: str) -> None:
        super().__init__(name=re.sub(r"\W", "_", f"m{name}" if name[:1].isdigit() else name))
        self.program = program

    def __reduce__(self) -> Any:
        return OnnxModule, (self.program, self.name)

    def __call__(self, *inputs: Any) -> Any:
        """The outputs by place, of inputs by place."""
        model = parse(self.program.data)
        run = _Run(model, scopes(self.program.paths))
        names = [one.name for one in model_inputs(model.graph)]
        run.values.update(zip(names, map(tf.convert_to_tensor, inputs), strict=True))
        for node in model.graph.node:
            run.add(node)
        return [tf.identity(run.tensor(one.name)) for one in model.graph.output]


def scopes(paths: Mapping[str, str]) -> dict[str, str]:
    """A name scope for every node, no two alike."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name, path in paths.items():
        scope = "/".join(_word(one) for one in (*path.split("."), name) if one)
        while scope.lower() in taken:
            scope += "_"
        taken.add(scope.lower())
        found[name] = scope
    return found


def _word(name: str) -> str:
    """What TensorFlow takes as a part of a name."""
    word = re.sub(r"[^\w.-]", "_", name, flags=re.ASCII)
    return word if re.match(r"[A-Za-z0-9]", word) else f"n{word}"


class _Run:
    """One pass over the nodes. What follows from sizes alone is known, and no operation."""

    def __init__(self, model: Any, names: Mapping[str, str]) -> None:
        self._opset = opsets(model)
        self._scopes = names
        self._stored = {one.name: one for one in model.graph.initializer}
        self._known: dict[str, Any] = {}
        self.values: dict[str, Any] = {}
        for name, tensor in self._stored.items():
            if (value := _array(tensor)) is not None and _is_of_sizes(value):
                self._known[name] = value

    def tensor(self, name: str) -> Any:
        """The value of that name, made of a constant where it is one."""
        if name not in self.values:
            known = self._known.get(name)
            stored = self._stored.get(name)
            self.values[name] = _constant(stored) if known is None else tf.constant(known)
        return self.values[name]

    def add(self, node: Any) -> None:
        """The operations of one node. Raises NormalizeError."""
        label = f"{node.op_type} {node.name}"
        try:
            if node.op_type == "Constant":
                results = [_written(node)]
            else:
                results = self._folded(node) or self._operations(node)
        except CrossflopsError:
            raise
        except UnfitError as error:
            what = f"nothing rebuilds {label} in TensorFlow {error}"
            raise NormalizeError(what, READ_IT) from error
        except Exception as error:  # TensorFlow refuses in many ways
            text = " ".join(str(error).split())[:200]
            what = f"nothing rebuilds {label} in TensorFlow: {type(error).__name__}: {text}"
            raise NormalizeError(what, READ_IT) from error
        for name, value in zip(node.output, results, strict=False):
            if isinstance(value, np.ndarray):
                self._known[name] = value
            elif name:
                self.values[name] = value

    def _operations(self, node: Any) -> list[Any]:
        with tf.name_scope(f"{self._scopes[node.name]}/"):
            inputs = [self.tensor(name) if name else None for name in node.input]
            found = RULES[node.op_type](self._given(node, inputs))
        return found if isinstance(found, list) else [found]

    def _given(self, node: Any, inputs: list[Any]) -> Given:
        own = domain_of(node.domain)
        version = since(own, node.op_type, self._opset.get(own, 1))
        return Given(
            inputs,
            [self._known.get(name) for name in node.input],
            {**attributes(node), **_tensors(node)},
            len(node.output),
            version,
        )

    def _folded(self, node: Any) -> list[Any] | None:
        """The results as arrays, None where they depend on data or are work."""
        sizes = node.op_type in _OF_SHAPES
        if not sizes and any(name and name not in self._known for name in node.input):
            return None
        if node.op_type in _CONTRACTIONS or self._spreads(node):
            return None
        with tf.init_scope():
            given = [
                self.tensor(name) if sizes else tf.constant(self._known[name]) if name else None
                for name in node.input
            ]
            found = RULES[node.op_type](self._given(node, given))
            arrays = [one.numpy() for one in (found if isinstance(found, list) else [found])]
        arrays = [np.asarray(one) for one in arrays]
        return arrays if all(map(_is_of_sizes, arrays)) else None

    def _spreads(self, node: Any) -> bool:
        """Whether a few numbers become a large tensor."""
        if node.op_type not in _SPREADING:
            return False
        return prod(int(one) for one in self._known[node.input[-1]].ravel()) > _LARGE


def _is_of_sizes(array: Any) -> bool:
    return bool(array.size <= _SMALL or array.dtype.kind in "iub")


def _array(tensor: Any) -> Any:
    """The elements, None where they are not there."""
    from onnx import numpy_helper

    there = any(getattr(tensor, one) for one in _PAYLOADS) or 0 in tensor.dims
    return np.asarray(numpy_helper.to_array(tensor)) if there else None


def _constant(tensor: Any) -> Any:
    """A constant; zeros, of which only one is stored, where the elements are not there."""
    value = _array(tensor)
    name = ELEMENT_TYPES.get(tensor.data_type, "")
    try:
        dtype = tf.as_dtype(name)
    except TypeError as error:
        raise UnfitError(f"of the type {name}") from error
    if dtype == tf.string:
        raise UnfitError("of texts")
    return (
        tf.constant(0, dtype, tuple(tensor.dims)) if value is None else tf.constant(value, dtype)
    )


def _tensors(node: Any) -> dict[str, Any]:
    """The attributes that are tensors, as arrays."""
    found = {one.name: _array(one.t) for one in node.attribute if one.HasField("t")}
    return {name: value for name, value in found.items() if value is not None}


def _written(node: Any) -> Any:
    """The value of a Constant."""
    if not node.attribute:
        raise UnfitError("without a value")
    one = node.attribute[0]
    if one.HasField("t"):
        value = _array(one.t)
        return _constant(one.t) if value is None or not _is_of_sizes(value) else value
    kinds: dict[str, Any] = {"value_float": np.float32, "value_floats": np.float32}
    value = attributes(node).get(one.name)
    if value is None or "string" in one.name:
        raise UnfitError(f"of the kind {one.name}")
    return np.asarray(value, kinds.get(one.name, np.int64))
