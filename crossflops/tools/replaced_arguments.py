"""The arguments of a call, as a tool takes them whose function stands in for that of PyTorch.

The parameters of DeepSpeed's and calflops' functions are not always PyTorch's: an argument under a
name that they do not have ends the tool with a TypeError.
Sources: deepspeed/profiling/flops_profiler/profiler.py, calflops/pytorch_ops.py.
"""

from re import sub

from crossflops.ir.tensor import TensorSpec
from crossflops.ir.trace import Scalar
from crossflops.rules.conditions import Site

_STATISTICS = ("input", "running_mean", "running_var", "weight", "bias")
_SIGNATURES = {
    "conv": ("input", "weight", "bias", "stride", "padding", "dilation", "groups"),
    "conv_transpose": (
        "input", "weight", "bias", "stride", "padding", "output_padding", "groups", "dilation",
    ),
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
    "tensor_addmm": ("self", "mat1", "mat2", "beta", "alpha", "out"),
    "add": ("input", "other", "alpha", "out"),
    "mul": ("input", "other", "out"),
    "pool": (
        "input", "kernel_size", "stride", "padding", "dilation", "ceil_mode", "count_include_pad",
        "divisor_override", "return_indices",
    ),
}  # fmt: skip


class Arguments:
    """A call's arguments under the names of the tool's own function.

    That is the one for `function` or, if none is named, for what was called. Raises LookupError
    for an argument that has none of its names.
    """

    def __init__(self, call: Site, function: str = "") -> None:
        called = sub("[123]d$", "", call.target.rpartition(".")[2])
        self._names = _SIGNATURES[function or called]
        given = [*((spec.name, spec) for spec in call.inputs), *call.settings.items()]
        self._values: dict[str, TensorSpec | Scalar] = {
            self._named(name): value for name, value in given if "." not in name
        }
        self._lists = {self._named(name) for name in call.call.lists}

    def _named(self, name: str) -> str:
        if name.isdigit() and int(name) < len(self._names):
            return self._names[int(name)]
        if name in self._names:
            return name
        raise LookupError(f"the tool's function has no argument {name}")

    def has(self, name: str) -> bool:
        """Whether it was given, and is not None."""
        return name in self._values

    def value(self, name: str, default: Scalar) -> Scalar:
        """An argument that is no tensor."""
        value = self._values.get(name, default)
        return default if isinstance(value, TensorSpec) else value

    def number(self, name: str, default: int) -> int:
        """An argument that is a whole number. Raises TypeError for another one."""
        value = self.value(name, default)
        if not isinstance(value, int):
            raise TypeError(f"{name} is {value!r}")
        return value

    def extents(self, name: str, default: int, axes: int) -> tuple[int, ...]:
        """One number for each of so many axes, whether given one by one or once.

        The tools ask for a tuple, and fail on a list. Raises TypeError.
        """
        value = self.value(name, default)
        if name in self._lists and name != "output_padding":
            raise TypeError(f"the tool's function takes {name} as a tuple, not as a list")
        if isinstance(value, list):
            return tuple(map(int, value))
        return (self.number(name, default),) * axes

    def shape(self, *names: str) -> tuple[int, ...]:
        """The shape of the first of these tensors that is given. Raises LookupError without it."""
        for name in names:
            spec = self._values.get(name)
            if isinstance(spec, TensorSpec) and spec.shape is not None:
                return spec.shape
        raise LookupError(f"the call has no tensor {names[0]} of known shape")

    def shapes(self, *names: str) -> list[tuple[int, ...]]:
        """The shapes of those of them that are given as tensors."""
        tensors = (name for name in names if isinstance(self._values.get(name), TensorSpec))
        return [self.shape(name) for name in tensors]
