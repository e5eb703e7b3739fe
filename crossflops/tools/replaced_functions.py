"""Define the rules that DeepSpeed's flops profiler and calflops share; both replace functions of
PyTorch.

Both put a function of their own in the place of torch.nn.functional.linear and many more, which
computes an amount from the arguments and goes on to the original. What a model captured before is
not seen. Every module that is registered, by its `__call__`, adds up what was called within it.
Recurrent layers are hooked instead, by their exact class. calflops is a copy of the profiler of
2023: the rules below are those on which the two agree, and refer to functions that both have.
Sources: deepspeed/profiling/flops_profiler/profiler.py, calflops/pytorch_ops.py.

The parameters of these functions are not always PyTorch's: an argument under a name that they do
not have ends the tool with a TypeError.
"""

from collections.abc import Callable
from math import prod
from re import sub
from typing import Any

import numpy as np

from crossflops.ir.graph import TensorSpec
from crossflops.ir.trace import Scalar, Times
from crossflops.rules.conditions import (
    HOOKS,
    VMAP,
    Condition,
    Site,
    by_forward,
    by_name,
    called,
    captured,
    inside,
    padding_dropped,
    registered,
    run_as,
    subclass_of,
    through,
    under,
)
from crossflops.rules.rule import Convention, CountsSteps, Parameters, Rules, Tool, with_formula
from crossflops.tools import layers
from crossflops.tools.contractions import OPERATORS, exact_attention_macs

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
    """The arguments of a call, by the parameter names of the tool's own function.

    The function is `function` or, if none is named, the called one. Raises LookupError for an
    argument that has none of its names.
    """

    def __init__(self, call: Site, function: str = "") -> None:
        called = sub("[123]d$", "", call.target.rpartition(".")[2])
        self._names = _SIGNATURES[function or called]
        provided = [*((spec.name, spec) for spec in call.inputs), *call.settings.items()]
        self._values: dict[str, TensorSpec | Scalar] = {
            self._argument_name(name): value for name, value in provided if "." not in name
        }
        self._lists = {self._argument_name(name) for name in call.call.lists}

    def _argument_name(self, name: str) -> str:
        """Return the parameter name for an argument that was given by name or by position, such as
        "0".
        """
        if name.isdigit() and int(name) < len(self._names):
            return self._names[int(name)]
        if name in self._names:
            return name
        raise LookupError(f"the tool's function has no argument {name}")

    def has(self, name: str) -> bool:
        """Return whether the argument was passed, and is not None."""
        return name in self._values

    def value(self, name: str, default: Scalar) -> Scalar:
        """Return the value of an argument, or `default` if it was not passed or is a tensor."""
        value = self._values.get(name, default)
        return default if isinstance(value, TensorSpec) else value

    def number(self, name: str, default: int) -> int:
        """Return the value of an integer argument, or `default` if it was not passed; raise
        TypeError for another type.
        """
        value = self.value(name, default)
        if not isinstance(value, int):
            raise TypeError(f"{name} is {value!r}")
        return value

    def extents(self, name: str, default: int, axes: int) -> tuple[int, ...]:
        """Return one integer for each of `axes` axes; a single number applies to all of them.

        The tools need a tuple, and fail on a list. Raises TypeError.
        """
        value = self.value(name, default)
        if name in self._lists and name != "output_padding":
            raise TypeError(f"the tool's function takes {name} as a tuple, not as a list")
        if isinstance(value, list):
            return tuple(map(int, value))
        return (self.number(name, default),) * axes

    def shape(self, *names: str) -> tuple[int, ...]:
        """Return the shape of the first of these arguments that is a tensor of known shape; raise
        LookupError if none is.
        """
        for name in names:
            spec = self._values.get(name)
            if isinstance(spec, TensorSpec) and spec.shape is not None:
                return spec.shape
        raise LookupError(f"the call has no tensor {names[0]} of known shape")

    def shapes(self, *names: str) -> list[tuple[int, ...]]:
        """Return the shapes of those arguments in `names` that are tensors, in the order of
        `names`.
        """
        tensors = (name for name in names if isinstance(self._values.get(name), TensorSpec))
        return [self.shape(name) for name in tensors]


def functional_names(*names: str) -> tuple[str, ...]:
    """Return each name with the prefix "torch.nn.functional."."""
    return tuple(f"torch.nn.functional.{name}" for name in names)


def functional_names_by_rank(name: str) -> tuple[str, ...]:
    """Return the full names of a function of torch.nn.functional for 1, 2 and 3 axes, such as
    "torch.nn.functional.conv1d".
    """
    return functional_names(*(f"{name}{rank}d" for rank in (1, 2, 3)))


def function_rule_group() -> Rules:
    """Return a new, empty group of rules for functions that are called by their own name."""
    return Rules("function", by_name())


LINEAR, CONVOLUTION, TRANSPOSED = (
    functional_names("linear"),
    functional_names_by_rank("conv"),
    functional_names_by_rank("conv_transpose"),
)
_MATMUL = ("torch.matmul", "torch.Tensor.matmul")
_ADDMM = ("torch.addmm", "torch.Tensor.addmm", "torch.baddbmm")
ARITHMETIC = ("torch.add", "torch.Tensor.add", "torch.mul", "torch.Tensor.mul")
PIECEWISE = functional_names("prelu", "leaky_relu", "relu6")
_TRANSCENDENTAL = functional_names("elu", "silu", "gelu")
_RESAMPLED = functional_names("interpolate", "upsample")
POOLS = (
    ("average", "pool.avg", functional_names_by_rank("avg_pool")),
    ("maximum", "pool.max", functional_names_by_rank("max_pool")),
    (
        "adaptive",
        "pool.adaptive",
        functional_names_by_rank("adaptive_avg_pool")
        + functional_names_by_rank("adaptive_max_pool"),
    ),
)
HOOKED = (*layers.RECURRENT, *layers.CELLS)

# The third argument of a convolution, transposed or not, is its bias.
BIASED = Condition(
    "with a bias", lambda call: any(call.input(name) is not None for name in ("2", "bias"))
)

BROADCAST, RECOMPUTED = "matmul.broadcast-batch-lost", "conv.output-size-recomputed"
_ESTIMATE, _DROPPED = "einsum.path-estimate", "attention.padding-skipped"
_AT = "torch.Tensor.__matmul__"

# Products are in both numbers of a tool, FLOPs and MACs. All else is in FLOPs alone, but functions
# that may fail end the MACs as well, on arguments that they do not take.
_products, _may_fail, _parts = function_rule_group(), function_rule_group(), function_rule_group()
_dropped = Rules("function", padding_dropped(), by_name(), factor=-1)
hooks, hook_parts, _first_adds = (Rules("module", called(), source="_rnn_flops") for _ in range(3))

# Linear layers and convolutions.


@_products.contraction(
    LINEAR, padding_dropped(), cause=_DROPPED, name="linear.nested", source="_linear_flops_compute"
)
@with_formula("n(x) x W[0], x without what a padding mask covers")
def functional_nested_linear_macs(call: Site) -> int:
    """Return the MACs that the tool counts for F.linear of a nested tensor: elements without
    padding x output features.

    numel() of a nested tensor has no padding in it.
    """
    provided = Arguments(call)
    return call.valid_positions * provided.shape("input")[-1] * provided.shape("weight")[0]


@_products.contraction(LINEAR, cause=BROADCAST, source="_linear_flops_compute", name="linear")
@with_formula("n(x) x W[0]")
def functional_linear_macs(call: Site) -> int:
    """Return the MACs that the tool counts for F.linear: number of input elements x output
    features.
    """
    provided = Arguments(call)
    return prod(provided.shape("input")) * provided.shape("weight")[0]


@_products.contraction(
    CONVOLUTION, cause=RECOMPUTED, source="_conv_flops_compute", name="convolution"
)
@with_formula("N x Ci x Co/g x prod(k) x prod(o), o computed from padding, stride and dilation")
def functional_convolution_macs(call: Site) -> int:
    """Return the MACs that the tool counts for a convolution: batch size x input channels x output
    channels per group x kernel positions x output positions.
    """
    provided = Arguments(call)
    return (
        functional_channel_products(provided)
        * prod(provided.shape("weight")[2:])
        * prod(functional_output_extents(provided))
    )


def functional_channel_products(provided: Arguments) -> int:
    """Return batch size x input channels x output channels per group of a convolution.

    Raises ValueError where the second axis of the input is not the channels, which the tools
    assert: so an unbatched input fails.
    """
    source, weight = provided.shape("input"), provided.shape("weight")
    groups = provided.number("groups", 1)
    if weight[1] * groups != source[1]:
        raise ValueError("the tool asserts that the second axis of the input has the channels")
    return source[0] * source[1] * (weight[0] // groups)


@_parts.adds(
    CONVOLUTION, BIASED, cause="bias.conv", name="convolution.bias", source="_conv_flops_compute"
)
@with_formula("N x Co x prod(o), o as in the convolution")
def functional_convolution_bias_adds(call: Site) -> int:
    """Return the additions that the tool counts for the bias of a convolution: batch size x output
    channels x output positions.
    """
    provided = Arguments(call)
    return (
        provided.shape("weight")[0]
        * provided.shape("input")[0]
        * prod(functional_output_extents(provided))
    )


def functional_output_extents(provided: Arguments) -> tuple[int, ...]:
    """Return the spatial sizes of a convolution's result, as the tool computes them from the
    arguments.

    "same" is read as a padding of d (k - 1) // 2 on both sides, one short if that is odd.
    """
    source, kernel = provided.shape("input")[2:], provided.shape("weight")[2:]
    strides, dilations = (
        provided.extents(name, 1, len(source)) for name in ("stride", "dilation")
    )
    padding = provided.value("padding", 0)
    if padding == "same":
        paddings = tuple(d * (k - 1) // 2 for d, k in zip(dilations, kernel, strict=False))
    elif padding == "valid":
        paddings = (0,) * len(source)
    else:
        paddings = provided.extents("padding", 0, len(source))
    return functional_window_positions(source, kernel, strides, paddings, dilations)


def functional_window_positions(
    source: tuple[int, ...],
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    paddings: tuple[int, ...],
    dilations: tuple[int, ...],
) -> tuple[int, ...]:
    """Return the number of window positions along each axis, (i + 2 p - (d (k - 1) + 1)) // s + 1,
    for input size i, padding p, dilation d, kernel size k and stride s.
    """
    return tuple(
        (extent + 2 * paddings[axis] - (dilations[axis] * (kernel[axis] - 1) + 1)) // strides[axis]
        + 1
        for axis, extent in enumerate(source)
    )


# Products of matrices, sums of them, and einsum.


@_products.contraction(_MATMUL, cause=BROADCAST, source="_matmul_flops_compute", name="matmul")
@with_formula("prod(A) x B[-1]: batch axes that only B has are ignored")
def functional_matmul_macs(call: Site) -> int:
    """Return the MACs that the tool counts for torch.matmul: number of elements of the first
    operand x last axis of the second.
    """
    provided = Arguments(call, "matmul")
    return prod(provided.shape("input")) * provided.shape("other")[-1]


@_products.contraction(_ADDMM, cause=BROADCAST, source="_addmm_flops_compute", name="addmm")
@with_formula("prod(A) x B[-1] of input + A B")
def functional_addmm_macs(call: Site) -> int:
    """Return the MACs that the tool counts for addmm (input + A B): number of elements of A x last
    axis of B.
    """
    provided = _addmm_arguments(call)
    return prod(provided.shape("mat1")) * provided.shape("mat2")[-1]


@_parts.adds(_ADDMM, cause="bias.linear", name="addmm.input", source="_addmm_flops_compute")
@with_formula("n(input) of input + A B, before it is broadcast")
def functional_addmm_adds(call: Site) -> int:
    """Return the additions that the tool counts for addmm (input + A B): the number of elements of
    `input` before it is broadcast.
    """
    return prod(_addmm_arguments(call).shape("input", "self"))


def _addmm_arguments(call: Site) -> Arguments:
    """Return the arguments of a call of addmm, by the parameter names of the tool's function or
    method for it.
    """
    by_method = call.target in ("torch.Tensor.addmm", "torch.baddbmm")
    return Arguments(call, "tensor_addmm" if by_method else "addmm")


@_may_fail.contraction(
    "torch.einsum", cause=_ESTIMATE, source="_einsum_flops_compute", name="einsum"
)
@with_formula("floor(F / 2), F the FLOPs that numpy.einsum_path prints")
def functional_einsum_macs(call: Site) -> int:
    """Return the MACs that the tool counts for an einsum: half of the FLOPs that numpy.einsum_path
    prints, rounded down.
    """
    return einsum_path_flops(call) // 2


@_parts.adds("torch.einsum", cause=_ESTIMATE, name="einsum.odd", source="_einsum_flops_compute")
@with_formula("F mod 2, F the FLOPs that numpy.einsum_path prints")
def functional_einsum_odd_flop(call: Site) -> int:
    """Return the operation that is left if the FLOPs that numpy.einsum_path prints are halved: 1
    for an odd number, else 0.
    """
    return einsum_path_flops(call) % 2


def einsum_path_flops(call: Site, equation_index: int = 0) -> int:
    """Return the FLOPs that numpy.einsum_path prints for the best order of an einsum, to four
    digits.

    `equation_index` is the argument that holds the equation. Raises LookupError where the tool's
    function cannot be called so: with the operands in one list, or with lists of axes for an
    equation.
    """
    equation = call.settings.get(str(equation_index))
    if not isinstance(equation, str) or any("." in spec.name for spec in call.inputs):
        raise LookupError("the tool's function takes an equation and its operands")
    equation = equation.replace(" ", "")
    letters = dict.fromkeys(letter for letter in equation if letter.isalpha())
    names = {ord(letter): 97 + number for number, letter in enumerate(letters)}
    arrays = [np.broadcast_to(np.zeros(()), spec.shape or ()) for spec in call.inputs]
    printed = np.einsum_path(equation.translate(names), *arrays, optimize="optimal")[1]
    line = next(row for row in printed.split("\n") if "optimized flop" in row.lower())
    return int(float(line.rpartition(":")[2]))


# Under `torch.vmap` each of them sees one example of many.
_vmapped = Rules("function", under(VMAP), by_name())
for name, formula, targets, source in (
    ("linear", functional_linear_macs, LINEAR, "_linear_flops_compute"),
    ("convolution", functional_convolution_macs, CONVOLUTION, "_conv_flops_compute"),
    ("matmul", functional_matmul_macs, _MATMUL, "_matmul_flops_compute"),
):
    _vmapped.contraction(targets, cause="function.vmap", name=f"{name}.vmapped", source=source)(
        formula
    )


# Arithmetic, activations, norms and pools.


@_parts.adds(
    ARITHMETIC,
    cause="elementwise.add-function",
    name="arithmetic",
    source="_elementwise_flops_compute",
)
@with_formula("n(y) for an addition or a multiplication")
def functional_arithmetic_operations(call: Site) -> int:
    """Return the operations that the tool counts for an addition or a multiplication: the number
    of elements of the broadcast result.
    """
    return prod(np.broadcast_shapes(*Arguments(call).shapes("input", "other")))


@with_formula("n(x)")
def functional_input_elements(call: Site) -> int:
    """Return the number of elements of the function's input."""
    return prod(Arguments(call).shape("input"))


@with_formula("n(positions of x that a padding mask covers)")
def functional_masked_elements(call: Site) -> int:
    """Return the number of input elements that a padding mask covers, which the tool does not
    count.
    """
    shape = Arguments(call).shape("input")
    return prod(shape) - call.valid_positions * shape[-1]


for name, cause, targets, source in (
    ("relu", "act.relu", functional_names("relu"), "_relu_flops_compute"),
    ("piecewise", "act.piecewise-other", PIECEWISE, "_leaky_relu_flops_compute"),
    ("transcendental", "act.transcendental", _TRANSCENDENTAL, "_gelu_flops_compute"),
    ("softmax", "softmax", functional_names("softmax"), "_softmax_flops_compute"),
):
    _parts.adds(targets, cause=cause, name=name, source=source)(functional_input_elements)
    if name in ("relu", "transcendental"):  # those that an encoder calls
        _dropped.adds(targets, cause=_DROPPED, name=f"{name}.nested", source=source)(
            functional_masked_elements
        )


@_parts.adds(
    functional_names("batch_norm"),
    cause="norm.batch",
    source="_batch_norm_flops_compute",
    name="batch_norm",
)
@with_formula("2 n(x) with weights, n(x) without; 5 n(x) and 4 n(x) with batch statistics")
def functional_batch_norm_operations(call: Site) -> int:
    """Return the operations that the tool counts for F.batch_norm: 1 to 5 for each input
    element.
    """
    provided = Arguments(call)
    statistics = 3 if provided.value("training", False) else 0
    return (statistics + (2 if provided.has("weight") else 1)) * prod(provided.shape("input"))


@with_formula("5 n(x) with weights, 4 n(x) without")
def functional_norm_adds(call: Site) -> int:
    """Return the operations that the tool counts for a layer, group or instance norm: 5 for each
    input element with a weight, else 4.
    """
    return _norm_adds_per_element(call) * functional_input_elements(call)


@_dropped.adds(
    functional_names("layer_norm"),
    cause=_DROPPED,
    name="layer_norm.nested",
    source="_layer_norm_flops_compute",
)
@with_formula("5 n(covered) with weights, 4 n(covered) without")
def functional_masked_norm_operations(call: Site) -> int:
    """Return the operations that a layer norm of the positions covered by a padding mask would
    have, which the tool does not count.
    """
    return _norm_adds_per_element(call) * functional_masked_elements(call)


def _norm_adds_per_element(call: Site) -> int:
    """Return the operations per input element that the tool counts for a norm: 5 with a weight,
    else 4.
    """
    return 5 if Arguments(call).has("weight") else 4


for kind in ("layer", "group", "instance"):
    _parts.adds(
        functional_names(f"{kind}_norm"),
        cause=f"norm.{kind}",
        name=f"{kind}_norm",
        source=f"_{kind}_norm_flops_compute",
    )(functional_norm_adds)


@with_formula("n(x)")
def functional_pool_elements(call: Site) -> int:
    """Return the number of input elements, which is what the tool counts for a pool.

    The tools' function has no argument `output_size`, which ends them.
    """
    return prod(Arguments(call, "pool").shape("input"))


for name, cause, targets in POOLS:
    _may_fail.adds(targets, cause=cause, name=name, source="_pool_flops_compute")(
        functional_pool_elements
    )


# F.interpolate and F.upsample, whose input is taken by position and anything else either way.


def _is_nearest_mode(call: Site) -> bool:
    """Return whether the mode of a resampling begins with "nearest"."""
    return str(_resampling_argument(call, "mode", "3", "nearest")).startswith("nearest")


_COPIED = Condition("in a nearest mode", _is_nearest_mode)
_INTERPOLATED = Condition("in another mode", lambda call: not _is_nearest_mode(call))


def resampling_rule(group: Rules) -> Callable[[Callable[[Site], int]], Callable[[Site], int]]:
    """Return a decorator that declares a function as the amount of F.interpolate and F.upsample,
    by one rule for nearest modes and one for other modes.
    """

    def add_resampling_rule(amount: Callable[[Site], int]) -> Callable[[Site], int]:
        """Add the two rules with this amount, and return the function."""
        for name, cause, condition in (
            ("resampling.copied", "upsample.nearest", _COPIED),
            ("resampling.interpolated", "upsample.linear", _INTERPOLATED),
        ):
            about = {"cause": cause, "name": name, "source": "_upsample_flops_compute"}
            group.adds(_RESAMPLED, condition, **about)(amount)
        return amount

    return add_resampling_rule


def _resampling_argument(call: Site, name: str, location: str, default: Any = None) -> Any:
    """Return the argument of a resampling with this name or at this position, or `default` if it
    was not passed.
    """
    return call.settings.get(name, call.settings.get(location, default))


def resampling_input(call: Site) -> TensorSpec:
    """Return the input tensor of a resampling; raise LookupError if it is not given by position,
    or its shape is unknown.
    """
    spec = call.input("0")
    if spec is None or spec.shape is None:
        raise LookupError("the tool's function takes the input by position")
    return spec


def resampling_given_positions(call: Site) -> int | None:
    """Return the product of the given `size` of a resampling (spatial axes only), or None if no
    size is given.
    """
    size = _resampling_argument(call, "size", "1")
    if isinstance(size, list):
        return prod(map(int, size))
    return int(size) if isinstance(size, int | float) else None


def resampling_scale_factors(call: Site) -> list[float] | float:
    """Return the scale factors of a resampling, one for each axis or one number for all axes;
    raise LookupError if none is given.
    """
    scale = _resampling_argument(call, "scale_factor", "2")
    if not isinstance(scale, int | float | list):
        raise LookupError("neither size nor scale_factor")
    return scale


# Recurrent layers and their cells, of H units with g gates. A hook is given inputs by position
# alone, and reads the first two axes of the first one: of an unbatched sequence it takes the
# features for steps.

_ELEMENTWISE = {"RNN": 1, "GRU": 7, "LSTM": 10}  # how often H is added in each step and layer


def _is_recurrent_cell(call: Site) -> bool:
    """Return whether a call is of a recurrent cell, such as LSTMCell."""
    return call.target.endswith("Cell")


def _hook_sample_steps(call: Site) -> int:
    """Return batch size x steps x directions of a recurrent layer, or the batch size of a
    recurrent cell.
    """
    source = call.input("0")
    if source is None or source.shape is None:
        raise LookupError("the hook needs a tensor as first positional input")
    samples, steps = source.shape[:2]
    if _is_recurrent_cell(call):
        return samples
    return samples * steps * (2 if call.module.settings["bidirectional"] else 1)


def _hook_layer_shapes(call: Site) -> list[list[tuple[int, ...]]]:
    """Return for each layer the shapes of its parameters in the forward direction: [weight_ih,
    weight_hh], and both biases if it has them.

    Raises KeyError where a parameter was replaced by others (as weight_norm does): so does
    `__getattr__` in the hook.
    """
    shapes = {parameter.name: parameter.shape for parameter in call.module.params}
    names = ["weight_ih", "weight_hh"]
    names += ["bias_ih", "bias_hh"] if call.module.settings["bias"] else []
    numbers = range(1 if _is_recurrent_cell(call) else call.number("num_layers"))
    suffixes = ["" if _is_recurrent_cell(call) else f"_l{number}" for number in numbers]
    return [[shapes[f"{name}{suffix}"] for name in names] for suffix in suffixes]


@hooks.contraction(
    HOOKED, cause="rnn.fused", stands_for=layers.operators_of_layers(HOOKED), name="recurrent"
)
@with_formula(
    "T x B x (n(W_ih) + n(W_hh)), summed over layers; for two directions, twice the first one"
)
def hook_recurrent_macs(call: Site) -> int:
    """Return the MACs that the tool counts for a recurrent layer or cell: steps x batch size x
    directions x number of elements of the weights of the forward direction.
    """
    return _hook_sample_steps(call) * sum(
        prod(matrix) for layer in _hook_layer_shapes(call) for matrix in layer[:2]
    )


@hook_parts.adds(HOOKED, cause="rnn.gate-elementwise", name="recurrent.gates")
@with_formula("H per step and layer for an RNN, 7 H for a GRU, 10 H for an LSTM")
def hook_gate_operations(call: Site) -> int:
    """Return the elementwise operations that the tool counts for a recurrent layer or cell: per
    step, sample, direction and layer H (RNN), 7 H (GRU) or 10 H (LSTM) for H units.
    """
    kind = call.target.rpartition(".")[2].removesuffix("Cell")
    units = call.number("hidden_size")
    return _hook_sample_steps(call) * len(_hook_layer_shapes(call)) * _ELEMENTWISE[kind] * units


@hook_parts.adds(HOOKED, cause="bias.rnn", name="recurrent.bias")
@with_formula("2 g H per step and layer, if there are biases")
def hook_recurrent_bias_adds(call: Site) -> int:
    """Return the additions that the tool counts for the biases of a recurrent layer or cell: per
    step, sample, direction and layer the number of bias elements.
    """
    return _hook_sample_steps(call) * sum(
        bias[0] for layer in _hook_layer_shapes(call) for bias in layer[2:]
    )


@_first_adds.adds(HOOKED, cause="unit.first-add-omitted", name="recurrent.first-adds", factor=-1)
@with_formula("2 g H per step and layer: a product of n terms counts as 2 n - 1 operations")
def hook_missing_first_adds(call: Site) -> int:
    """Return the number of additions that the tool leaves out for a recurrent layer. For a sum of
    n products it counts 2n - 1 operations instead of 2n: one too few for each of 2 g H sums (H
    units, g gates).
    """
    return _hook_sample_steps(call) * sum(2 * layer[0][0] for layer in _hook_layer_shapes(call))


# The tools.


def module_hooking_tool(
    tool: str, edition_number: str, source: str, *, prints: str, per_mac: int, **more: Any
) -> Tool:
    """Return the description of a tool that runs the model in evaluation mode and hooks every
    module; `source` is the tool's file.
    """
    return Tool(
        tool,
        edition=edition_number,
        prints=prints,
        per_mac=per_mac,
        level="function",
        unseen="op.unregistered-zero",
        runs={"training": False, "hooked": True},
        counts_dead_work=True,
        source=source,
        **more,
    )


def rules_for_unseen_work(*replaced: Rules) -> Rules:
    """Return the rules that say why the tool does not see a contraction, the most specific reason
    first.

    `replaced` are the rules about functions that contract.
    """
    rules = [rule for group in replaced for rule in group.rules if rule.kind == "core"]
    names = dict.fromkeys(name for rule in rules for name in rule.targets)
    fused = layers.operators_of_layers(HOOKED)
    group = Rules("operator", source="_patch_functionals")
    group.misses(
        "fastpath",
        run_as("aten._native_multi_head_attention*", "aten._transformer_encoder_layer*"),
        cause="attention.module-fastpath",
    )
    group.misses("captured", captured(), through(*names), cause="functional.captured-reference")
    group.misses(
        "direct-forward", fused, by_forward(), inside(*HOOKED), cause="module.direct-forward"
    )
    group.misses(
        "unregistered", fused, inside(*HOOKED), registered(False), cause="module.unregistered"
    )
    group.misses("subclass", fused, subclass_of(*HOOKED), cause="module.type-unmatched")
    group.misses("attention", OPERATORS[exact_attention_macs], cause="attention.sdpa")
    if "torch.matmul" in names and _AT not in names:
        group.misses("operator", through(_AT), cause="matmul.operator-invisible")
    group.misses("scripted", under("torch.jit.ScriptFunction.__call__"), cause="function.opaque")
    group.misses("hook", under(HOOKS), cause="module.hook-work")
    return group


def flops_and_macs_conventions(
    tool: str,
    version: str,
    source: str,
    *,
    products: Rules,
    may_fail: Rules,
    parts: Rules,
    times: Times,
    parameters: Parameters,
    steps: tuple[CountsSteps, CountsSteps],
) -> tuple[Convention, Convention]:
    """Return the conventions of the two numbers that one run of the tool prints: (FLOPs, MACs),
    from the rules of this module and the tool's own ones.

    FLOPs, as `tool`, are twice the MACs of the products, and all other work. MACs, as `tool`-macs,
    are those of the replaced functions alone: neither einsum nor recurrent layers have any.
    `steps` says for both how they count a training step.
    """
    about: dict[str, Any] = {"parameters": parameters, "verified": (version,)}
    flops = module_hooking_tool(
        tool, version, source, prints="FLOPs", per_mac=2, step=steps[0], **about
    )
    name = f"{tool}-macs"
    macs = module_hooking_tool(
        name, version, source, prints="MACs", per_mac=1, step=steps[1], **about
    )
    counted = (_vmapped, _products, products)
    uncounted = (_may_fail, may_fail, hooks)
    also = (_parts, parts, _dropped, hook_parts, _first_adds)
    flops.include(*counted, *uncounted, *also, times=times, source=source)
    macs.include(*counted, times=times, source=source)
    macs.include(*uncounted, times=times, source=source, factor=0)
    for number in (flops, macs):
        number.include(rules_for_unseen_work(*counted, _may_fail), source=source)
    return flops.convention, macs.convention
