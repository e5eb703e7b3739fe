"""The gradient state of a value in a training step: whether it has a gradient, and whether it
depends on an input.
"""

from typing import NamedTuple, TypeAlias

from crossflops.ir.graph import TensorSpec

_FLOATS = ("float", "bfloat", "complex")


class GradientState(NamedTuple):
    """The state of a value: its gradient, and its dependence on an input of the model."""

    trained: bool
    varying: bool


FIXED = GradientState(trained=False, varying=False)
GradientStates: TypeAlias = dict[str, GradientState]


def is_differentiable_tensor(spec: TensorSpec) -> bool:
    """Return whether the elements are of a type that can have gradients: float or complex."""
    return spec.dtype.startswith(_FLOATS)


def join_states(left: GradientState, right: GradientState) -> GradientState:
    """Return a state with a gradient if one of the two has it, and dependent on an input if one of
    the two is.
    """
    return GradientState(left.trained or right.trained, left.varying or right.varying)
