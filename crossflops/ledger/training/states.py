"""The states of a value in a training step: its gradient, and its dependence on an input."""

from typing import NamedTuple, TypeAlias

from crossflops.ir.graph import TensorSpec

_FLOATS = ("float", "bfloat", "complex")


class GradientState(NamedTuple):
    """The state of a value: its gradient, and its dependence on an input of the model."""

    trained: bool
    varying: bool


FIXED = GradientState(trained=False, varying=False)
Values: TypeAlias = dict[str, GradientState]


def is_differentiable_tensor(spec: TensorSpec) -> bool:
    """Return whether the elements are numbers that have gradients."""
    return spec.dtype.startswith(_FLOATS)


def join_states(left: GradientState, right: GradientState) -> GradientState:
    """Return the state of a value that is either of two others."""
    return GradientState(left.trained or right.trained, left.varying or right.varying)
