"""Arguments as DeepSpeed and calflops take them, whose functions stand in for those of PyTorch.

Their parameters are not always PyTorch's: an argument under a name that they do not have ends the
tool with a TypeError, and here raises LookupError.
Sources: deepspeed/profiling/flops_profiler/profiler.py, calflops/pytorch_ops.py.
"""

from re import sub

from crossflops.ir.tensor import TensorSpec
from crossflops.ir.trace import Call, Scalar

_CONVOLUTION = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
_TRANSPOSED = (
    "input", "weight", "bias", "stride", "padding", "output_padding", "groups", "dilation",
)  # fmt: skip
_POOL = (
    "input", "kernel_size", "stride", "padding", "dilation", "ceil_mode", "count_include_pad",
    "divisor_override", "return_indices",
)  # fmt: skip
_STATISTICS = ("input", "running_mean", "running_var", "weight", "bias")
_SIGNATURES = {
    "conv": _CONVOLUTION,
    "conv_transpose": _TRANSPOSED,
    "linear": ("input", "weight", "bias"),
    "relu": ("input", "inplace"),
    "relu6": ("input", "inplace"),
    "silu": ("input", "inplace"),
    "prelu": ("input", "weight"),
    "elu": ("input", "alpha", "inplace"),
    "leaky_relu": ("input", "negative_slope", "inplace"),
    "gelu": ("input", "approximate"),
    "softmax": ("input", "dim", "_stacklevel", "dtype"),
    "batch_norm": (*_STATISTICS, "training", "momentum", "eps"),
    "instance_norm": (*_STATISTICS, "use_input_stats", "momentum", "eps"),
    "layer_norm": ("input", "normalized_shape", "weight", "bias", "eps"),
    "group_norm": ("input", "num_groups", "weight", "bias", "eps"),
    "matmul": ("input", "other", "out"),
    "addmm": ("input", "mat1", "mat2", "beta", "alpha", "out"),
    "add": ("input", "other", "alpha", "out"),
    "mul": ("input", "other", "out"),
    "pool": _POOL,
    "tensor_addmm": ("self", "mat1", "mat2", "beta", "alpha", "out"),
}


class Arguments:
    """A call's arguments under the names of the tool's own function."""

    def __init__(self, call: Call, names: tuple[str, ...]) -> None:
        self._call = call
        self._names = names
        given = [(one.name, one) for one in call.inputs] + list(call.settings.items())
        self._found: dict[str, TensorSpec | Scalar] = {
            self._named(name): value for name, value in given if "." not in name
        }
        self._lists = {self._named(name) for name in call.lists}

    def _named(self, name: str) -> str:
        if name.isdigit() and int(name) < len(self._names):
            return self._names[int(name)]
        if name in self._names:
            return name
        raise LookupError(f"the tool's function has no argument {name}")

    def has(self, name: str) -> bool:
        """Whether it was given, and is not None."""
        return name in self._found

    def value(self, name: str, default: Scalar) -> Scalar:
        """An argument that is no tensor."""
        found = self._found.get(name, default)
        return default if isinstance(found, TensorSpec) else found

    def is_list(self, name: str) -> bool:
        """Whether it is a list and not a tuple."""
        return name in self._lists

    def number(self, name: str, default: int) -> int:
        """An argument that is a whole number. Raises TypeError for another one."""
        found = self.value(name, default)
        if not isinstance(found, int):
            raise TypeError(f"{name} is {found!r}")
        return found

    def spec(self, name: str) -> TensorSpec | None:
        """A tensor, or None."""
        found = self._found.get(name)
        return found if isinstance(found, TensorSpec) else None

    def shape(self, *names: str) -> tuple[int, ...]:
        """The shape of the first of these tensors that is given. Raises LookupError without it."""
        found = next((one for name in names if (one := self.spec(name)) is not None), None)
        if found is None or found.shape is None:
            raise LookupError(f"the call has no tensor {names[0]} of known shape")
        return found.shape


def bound(call: Call, as_function: str = "") -> Arguments:
    """The arguments under the names of the function that was called, or of another one.

    Raises LookupError for an argument that has none of them.
    """
    function = as_function or sub("[123]d$", "", call.target.rpartition(".")[2])
    return Arguments(call, _SIGNATURES[function])


def extents(given: Arguments, name: str, default: int) -> tuple[int, ...]:
    """One number for each spatial axis of the input, whether given one by one or once.

    The tools ask for a tuple, and fail on a list. Raises TypeError.
    """
    value = given.value(name, default)
    if given.is_list(name) and name != "output_padding":
        raise TypeError(f"the tool's function takes {name} as a tuple, not as a list")
    if isinstance(value, list):
        return tuple(map(int, value))
    return (given.number(name, default),) * len(given.shape("input")[2:])
