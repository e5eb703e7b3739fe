"""The input of a rule: a node of ONNX, with its inputs as TensorFlow tensors."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from crossflops.ir.graph import Attribute

Result: TypeAlias = Any  # a tensor, or a list of them where the operator has several outputs


class UnfitError(Exception):
    """A form of an operator that its rule does not support. The text names the form."""


class NodeInputs:
    """The inputs of a node by index, its attributes, and its number of outputs.

    `inputs` are tensors, None where one is left out; `known` are their values where these are
    known before anything runs (sizes, axes). `since` is the version of the operator.
    """

    def __init__(
        self,
        inputs: Sequence[Any],
        known: Sequence[Any],
        attributes: dict[str, Attribute],
        outputs: int,
        since: int,
    ) -> None:
        self.inputs = tuple(inputs)
        self.known = tuple(known)
        self.attributes = attributes
        self.outputs = outputs
        self.since = since

    def input(self, index: int) -> Any:
        """Return the tensor of the input at this position, or None if it is not given."""
        return self.inputs[index] if index < len(self.inputs) else None

    def attribute(self, name: str, default: Any) -> Any:
        """Return the value of an attribute, or the default if the node does not set it."""
        return self.attributes.get(name, default)

    def array_of_input(self, index: int) -> Any:
        """Return the value of an input as an array, or None if it is not given. Raises UnfitError
        if it depends on data.
        """
        if self.input(index) is None:
            return None
        known = self.known[index]
        if known is None:
            raise UnfitError(f"whose input {index} depends on data")
        return np.asarray(known)

    def integer_list(self, index: int, name: str = "") -> list[int] | None:
        """Return a list of integers from an input or, if that is not given, from an attribute;
        None without both.
        """
        value = self.array_of_input(index)
        if value is None:
            value = self.attributes.get(name)
        return None if value is None else [int(number) for number in np.ravel(value)]

    def number_or_default(self, index: int, default: Any) -> Any:
        """Return the number in an input, or the default if it is not given."""
        value = self.array_of_input(index)
        return default if value is None else np.ravel(value)[0].item()


Rule: TypeAlias = Callable[[NodeInputs], Result]


def definite_shape(tensor: Any) -> list[int]:
    """Return the sizes of a tensor as integers. Raises UnfitError if a size is open."""
    if not tensor.shape.is_fully_defined():
        raise UnfitError(f"of a tensor of the shape {tensor.shape}")
    return [int(size) for size in tensor.shape]


def tensor_rank(tensor: Any) -> int:
    """Return the number of axes of a tensor."""
    return len(definite_shape(tensor))


def to_channels_last(tensor: Any) -> Any:
    """Return the tensor with its axes N, C, D1, D2 ... in the order N, D1, D2 ..., C."""
    return tf.transpose(tensor, [0, *range(2, tensor_rank(tensor)), 1])


def to_channels_first(tensor: Any) -> Any:
    """Return the tensor with its axes N, D1, D2 ..., C in the order N, C, D1, D2 ..."""
    axes = tensor_rank(tensor)
    return tf.transpose(tensor, [0, axes - 1, *range(1, axes - 1)])


def constant_in_dtype_of(value: Any, tensor: Any) -> Any:
    """Return the value as a TensorFlow constant of the tensor's element type."""
    return tf.constant(value, tensor.dtype)
