"""Define the convention of ultralytics-thop 2.2.3: hooks on modules by class and subclass, and a
mode that sees products of functions.

A rule about a module that contains modules is added to theirs. Functions count where no module
with a rule is around, and in the total alone. A rule reads the first argument of a module, by
position or by keyword, and its result; what it does not find is a LookupError here, since the tool
fails there. Sources: thop/profile.py (`register_hooks`, `functional_hooks`, `_FunctionCounter`,
`profile`), thop/vision/basic_hooks.py, thop/vision/calc_func.py, thop/rnn_hooks.py. It imports as
`thop` and is another package than thop.
"""

from math import prod
from typing import NamedTuple

from crossflops.ir.trace import ONCE, Scalar
from crossflops.rules.conditions import (
    HOOKS,
    PRE_HOOK,
    VMAP,
    Condition,
    Site,
    by_forward,
    called,
    has,
    kind_of,
    matches_any_pattern,
    of_complex,
    registered,
    setting,
    under,
)
from crossflops.rules.rule import Parameters, Tool, with_formula
from crossflops.tools import layers
from crossflops.tools.contractions import einsum_operands

_HOOKS, _RNN, _PROFILE = "thop/vision/basic_hooks.py", "thop/rnn_hooks.py", "thop/profile.py"
_EXPORT, _SCALE = "graph.export-decomposition", "attention.scale-or-softmax"

thop = Tool(
    "ultralytics-thop",
    edition="2.2.3",
    verified=("2.2.3",),
    prints="MACs",
    per_mac=1,
    level="module",
    unseen="functional.invisible",
    runs={"training": False, "grad": False, "hooked": True},
    counts_dead_work=True,
    rules_add=True,
    source=_PROFILE,
    parameters=Parameters(reference="thop/vision/calc_func.py: calculate_parameters"),
)
hooked = thop.rules(
    "module", called(), source=_HOOKS, times=ONCE, stands_for=layers.operators_of_layers
)


def ultralytics_argument_shape(call: Site, index: int = 0, *names: str) -> tuple[int, ...]:
    """Return the shape of the argument at position `index` or with one of these names; raise
    LookupError if it is not a tensor of known shape.
    """
    spec = call.input(str(index))
    for name in names:
        spec = spec or call.input(name)
    if spec is None and index == 0 and call.inputs and not call.inputs[0].name[:1].isdigit():
        spec = call.inputs[0]  # the only argument, under a name of its own
    if spec is None or spec.shape is None or "." in spec.name:
        raise LookupError(f"{call.key} has no tensor as argument {index}")
    return spec.shape


def _ultralytics_result_shape(call: Site) -> tuple[int, ...]:
    """Return the shape of a call's result; raise LookupError if it returns something else than one
    tensor.
    """
    if call.call.returns not in ("", "tensor"):
        raise LookupError(f"{call.key} does not return one tensor")
    return call.result.shape or ()


@with_formula("n(x)")
def ultralytics_input_elements(call: Site) -> int:
    """Return the number of elements of the first input."""
    return prod(ultralytics_argument_shape(call))


@with_formula("n(y)")
def ultralytics_output_elements(call: Site) -> int:
    """Return the number of elements of the result."""
    return prod(_ultralytics_result_shape(call))


# Convolutions and linear layers; under `torch.vmap` a hook sees one example of many.

_CONVOLUTION, _TRANSPOSED = kind_of(*layers.CONVOLUTIONS), kind_of(*layers.TRANSPOSED)
_LINEAR, _VMAPPED = kind_of(*layers.LINEAR), under(VMAP)


def _ultralytics_kernel_extents(call: Site) -> tuple[int, ...]:
    """Return the kernel sizes of a convolution, one for each spatial axis.

    They are read from the weight, or from the setting if the weight is computed.
    """
    weights = [parameter.shape for parameter in call.module.params if parameter.name == "weight"]
    return weights[0][2:] if weights else call.extents("kernel_size")


def _ultralytics_filter_taps(call: Site, shape: tuple[int, ...]) -> int:
    """Return kernel positions x channels per group of a convolution, with the channels read from
    `shape`.
    """
    kernel = _ultralytics_kernel_extents(call)
    return shape[-1 - len(kernel)] // call.number("groups") * prod(kernel)


@hooked.contraction(_CONVOLUTION, cause=_EXPORT, name="convolution")
@hooked.contraction(_CONVOLUTION, _VMAPPED, cause="function.vmap", name="convolution.vmapped")
@with_formula("n(y) x (C // groups) x K, C the axis of x before the spatial ones")
def ultralytics_convolution_macs(call: Site) -> int:
    """Return the MACs that the tool counts for a convolution: result elements x input channels per
    group x kernel positions.

    calc_func.py: calculate_conv2d_flops.
    """
    return ultralytics_output_elements(call) * _ultralytics_filter_taps(
        call, ultralytics_argument_shape(call)
    )


@hooked.contraction(_TRANSPOSED, cause=_EXPORT, name="transposed")
@hooked.contraction(_TRANSPOSED, _VMAPPED, cause="function.vmap", name="transposed.vmapped")
@with_formula("n(x) x (C // groups) x K, C the axis of y before the spatial ones")
def ultralytics_transposed_macs(call: Site) -> int:
    """Return the MACs that the tool counts for a transposed convolution: input elements x output
    channels per group x kernel positions.
    """
    return ultralytics_input_elements(call) * _ultralytics_filter_taps(
        call, _ultralytics_result_shape(call)
    )


@hooked.contraction(_LINEAR, cause=_EXPORT, name="linear")
@hooked.contraction(_LINEAR, _VMAPPED, cause="function.vmap", name="linear.vmapped")
@with_formula("in_features x n(y)")
def ultralytics_linear_macs(call: Site) -> int:
    """Return the MACs that the tool counts for a linear layer: input features x result elements.

    basic_hooks.py: count_linear.
    """
    return call.number("in_features") * ultralytics_output_elements(call)


# Recurrent layers and their cells: g gates of H units.

_RECURRENT, _CELL = kind_of(*layers.RECURRENT), kind_of(*layers.CELLS)
_GATES = "rnn.gate-elementwise"


def _ultralytics_gate_count(call: Site) -> int:
    """Return the number of gates of a recurrent layer or cell: 1 for RNN, 3 for GRU, 4 for
    LSTM.
    """
    for base in call.module.bases:
        kind = base.rpartition(".")[2].removesuffix("Cell")
        if base.startswith("torch.nn.modules.rnn.") and kind in ("RNN", "GRU", "LSTM"):
            return {"RNN": 1, "GRU": 3, "LSTM": 4}[kind]
    raise LookupError(f"{call.key} is no recurrent layer")


def _ultralytics_cell_evaluations(call: Site) -> int:
    """Return how often a recurrent layer evaluates its cell in one layer and one direction: steps
    x batch size, if there is a batch.

    For packed data it is the number of rows.

    rnn_hooks.py: _cell_evaluations.
    """
    packed = call.input("0.0")
    shape = (packed.shape or ())[:1] if packed else ultralytics_argument_shape(call)
    return shape[0] if len(shape) < 3 else shape[0] * shape[1]


def _ultralytics_layer_input_widths(call: Site) -> list[int]:
    """Return the input width of a recurrent layer for each of its layers and directions, in this
    order.

    A projection is the next layer's input.
    """
    sides = 2 if call.module.settings["bidirectional"] else 1
    width = call.number("proj_size") or call.number("hidden_size")
    deeper = [width * sides] * (call.number("num_layers") - 1)
    return [size for size in (call.number("input_size"), *deeper) for _ in range(sides)]


def _ultralytics_cell_batch_size(call: Site) -> int:
    """Return the batch size of a recurrent cell: the rows of a 2-D input, or 1 for another
    input.
    """
    shape = ultralytics_argument_shape(call)
    return shape[0] if len(shape) == 2 else 1


def _ultralytics_all_cell_evaluations(call: Site) -> int:
    """Return how often a recurrent layer or cell evaluates its cell, over all steps, samples,
    layers and directions.
    """
    if _CELL.holds(call):
        return _ultralytics_cell_batch_size(call)
    return _ultralytics_cell_evaluations(call) * len(_ultralytics_layer_input_widths(call))


@hooked.contraction(_RECURRENT, cause="rnn.fused", source=_RNN, name="recurrent")
@with_formula("steps x the sum over layers, directions of g H (I + R) + H P, R = P or H")
def ultralytics_recurrent_macs(call: Site) -> int:
    """Return the MACs that the tool counts for a recurrent layer: batch size x steps x the sum
    over layers and directions, with projections.

    rnn_hooks.py: _count_lstm_cell and its kin.
    """
    hidden, projected = call.number("hidden_size"), call.number("proj_size")
    gates, read = _ultralytics_gate_count(call), projected or hidden
    cells = (
        gates * hidden * (size + read) + hidden * projected
        for size in _ultralytics_layer_input_widths(call)
    )
    return _ultralytics_cell_evaluations(call) * sum(cells)


@hooked.contraction(_CELL, cause="rnn.fused", source=_RNN, name="cell")
@with_formula("B x g H (I + H), B = 1 for a vector")
def ultralytics_cell_macs(call: Site) -> int:
    """Return the MACs that the tool counts for a recurrent cell: batch size x g H (I + H), for g
    gates, H units and input width I.

    rnn_hooks.py: count_lstm_cell and its kin.
    """
    hidden, size = call.number("hidden_size"), call.number("input_size")
    return (
        _ultralytics_cell_batch_size(call)
        * _ultralytics_gate_count(call)
        * hidden
        * (size + hidden)
    )


@hooked.adds(_CELL, cause=_GATES, name="cell.gates", source=_RNN)
@hooked.adds(_RECURRENT, cause=_GATES, name="recurrent.gates", source=_RNN)
@with_formula("steps x layers x directions, or B, x the terms of a cell: RNN H, GRU 7 H, LSTM 8 H")
def ultralytics_gate_operations(call: Site) -> int:
    """Return the elementwise operations that the tool counts for a recurrent layer or cell: per
    evaluation of the cell H (RNN), 7 H (GRU) or 8 H (LSTM) for H units.
    """
    return (
        _ultralytics_all_cell_evaluations(call)
        * {1: 1, 3: 7, 4: 8}[_ultralytics_gate_count(call)]
        * call.number("hidden_size")
    )


@hooked.adds(_CELL, setting(bias=True), cause="bias.rnn", name="cell.bias", source=_RNN)
@hooked.adds(_RECURRENT, setting(bias=True), cause="bias.rnn", name="recurrent.bias", source=_RNN)
@with_formula("steps x layers x directions, or B, x 2 g H")
def ultralytics_recurrent_bias_adds(call: Site) -> int:
    """Return the additions that the tool counts for the biases of a recurrent layer or cell: per
    evaluation of the cell 2 g H, for g gates and H units.
    """
    return (
        _ultralytics_all_cell_evaluations(call)
        * 2
        * _ultralytics_gate_count(call)
        * call.number("hidden_size")
    )


# Bilinear layers, and attention: of the module and of the function.

_ATTENTION = kind_of(f"{layers.NN}.activation.MultiheadAttention")


@hooked.contraction(kind_of(f"{layers.NN}.linear.Bilinear"), cause=_EXPORT, name="bilinear")
@with_formula("(in1_features + 1) x in2_features x n(y)")
def ultralytics_bilinear_macs(call: Site) -> int:
    """Return the MACs that the tool counts for nn.Bilinear: (first input size + 1) x second input
    size x result elements.

    basic_hooks.py: count_bilinear.
    """
    weights = (call.number("in1_features") + 1) * call.number("in2_features")
    return weights * ultralytics_output_elements(call)


class _Attention(NamedTuple):
    """The sizes of one attention call: batch size B, queries L, width E, heads, kdim + vdim,
    attended keys S', and how many keys were appended.
    """

    batch: int
    queries: int
    width: int
    heads: int
    sources: int
    attended: int
    appended: int

    def product_macs(self) -> int:
        """Return the MACs that the tool counts for this attention: projections, scores and
        weighted values.
        """
        projections = 2 * self.queries * self.width
        projections += (self.attended - self.appended) * self.sources
        return self.batch * self.width * (projections + 2 * self.queries * self.attended)

    def softmax_operations(self) -> int:
        """Return the operations that the tool counts for the softmax of this attention."""
        return _softmax_operations(self.batch * self.heads * self.queries, self.attended)


@hooked.contraction(_ATTENTION, cause=_EXPORT, name="attention")
@with_formula(
    "B x E x (2 L E + S (kdim + vdim) + 2 L S'), S' the attended positions, appended ones too"
)
def ultralytics_attention_macs(call: Site) -> int:
    """Return the MACs that the tool counts for nn.MultiheadAttention or its function: projections,
    scores and weighted values.

    basic_hooks.py: count_multihead_attention; profile.py: _count_multi_head_attention.
    """
    return _ultralytics_attention_sizes(call).product_macs()


@hooked.adds(_ATTENTION, cause=_SCALE, name="attention.softmax")
@with_formula("B x heads x L rows of 3 S' - 1")
def ultralytics_attention_softmax_operations(call: Site) -> int:
    """Return the operations that the tool counts for the softmax of an attention: batch size x
    heads x queries x (3 S' - 1), for S' attended keys.
    """
    return _ultralytics_attention_sizes(call).softmax_operations()


def _ultralytics_attention_sizes(call: Site) -> _Attention:
    """Return the sizes of an attention, from the call of a module or of a function."""
    return (
        _attention_sizes_of_module(call)
        if call.call.level == "module"
        else _attention_sizes_of_function(call)
    )


def _attention_sizes_of_module(call: Site) -> _Attention:
    """Return the sizes of an attention, from the call of an nn.MultiheadAttention."""
    settings = call.module.settings
    batch_first = settings.get("batch_first") is True
    biased = any(parameter.name == "bias_k" for parameter in call.module.params)
    appended = biased + bool(settings.get("add_zero_attn"))
    return _Attention(
        *_attention_batch_and_query_count(call, batch_first),
        width=call.number("embed_dim"),
        heads=call.number("num_heads"),
        sources=call.number("kdim") + call.number("vdim"),
        attended=_attention_key_length(call, batch_first, appended),
        appended=appended,
    )


def _attention_sizes_of_function(call: Site) -> _Attention:
    """Return the sizes of an attention, from the arguments of multi_head_attention_forward.

    The function has no `batch_first`.
    """
    biased = any(spec.name in ("7", "bias_k") for spec in call.inputs)
    appended = biased + bool(_ultralytics_setting_value(call, 9, "add_zero_attn"))
    key, value = call.shape("1", "key"), call.shape("2", "value")
    return _Attention(
        *_attention_batch_and_query_count(call, batch_first=False),
        width=int(str(_ultralytics_setting_value(call, 3, "embed_dim_to_check"))),
        heads=int(str(_ultralytics_setting_value(call, 4, "num_heads"))),
        sources=key[-1] + value[-1],
        attended=_attention_key_length(call, batch_first=False, appended=appended),
        appended=appended,
    )


def _ultralytics_setting_value(call: Site, index: int, name: str) -> Scalar:
    """Return the argument of a call at position `index` or with this name, None if it was not
    passed.
    """
    return call.settings.get(str(index), call.settings.get(name))


def _attention_batch_and_query_count(call: Site, batch_first: bool) -> tuple[int, int]:
    """Return (batch size, number of queries) of an attention, from the shape of its result."""
    result = call.result.shape or ()
    if len(result) == 2:
        return 1, result[0]
    return (result[0], result[1]) if batch_first else (result[1], result[0])


def _attention_key_length(call: Site, batch_first: bool, appended: int) -> int:
    """Return the number of keys of an attention, with the appended ones, from the returned weights
    or else from the argument `key`.
    """
    if len(call.outputs) > 1:
        return (call.outputs[1].shape or ())[-1]
    keys = ultralytics_argument_shape(call, 1, "key")
    return (keys[-2] if batch_first or len(keys) == 2 else keys[0]) + appended


# Norms and activations.

for name, norm, flag in (
    ("batch", "batchnorm._BatchNorm", "affine"),
    ("instance", "instancenorm._InstanceNorm", "affine"),
    ("layer", "normalization.LayerNorm", "elementwise_affine"),
    ("group", "normalization.GroupNorm", "affine"),
    ("rms", "normalization.RMSNorm", "elementwise_affine"),
):
    kind, cause = kind_of(f"{layers.NN}.{norm}"), f"norm.{name}"
    affine, plain = setting(**{flag: True}), setting(**{flag: False})
    hooked.adds(kind, affine, cause=cause, name=f"{name}_norm.affine", factor=4)(
        ultralytics_input_elements
    )
    hooked.adds(kind, plain, cause=cause, name=f"{name}_norm.plain", factor=2)(
        ultralytics_input_elements
    )
_PRELU, _SOFTMAX, _LOG_SOFTMAX, _SOFTMIN, _SOFTMAX_2D = (
    kind_of(f"{layers.NN}.activation.{name}")
    for name in ("PReLU", "Softmax", "LogSoftmax", "Softmin", "Softmax2d")
)
hooked.adds(_PRELU, cause="act.piecewise-other", name="prelu")(ultralytics_input_elements)


def _softmax_operations(rows: int, features: int) -> int:
    """Return the operations of a softmax over `rows` rows of f features: 3 f - 1 per row
    (exponentials, additions, divisions).
    """
    return rows * (2 * features + max(features - 1, 0))


def _softmax_rows_and_features(call: Site) -> tuple[int, int]:
    """Return (rows, elements in a row) of a softmax; Softmax2d has its channels as a row."""
    shape = ultralytics_argument_shape(call)
    axis = -3 if _SOFTMAX_2D.holds(call) else call.module.settings.get("dim")
    if axis is None:
        axis = 0 if len(shape) in (0, 1, 3) else 1
    if not isinstance(axis, int):
        raise TypeError(f"dim of {call.key} is {axis!r}")
    features = shape[axis] if shape else 1
    return (prod(shape) // features if features else 0), features


@hooked.adds(_SOFTMAX_2D, cause="softmax", name="softmax_2d")
@hooked.adds(_SOFTMAX, cause="softmax", name="softmax")
@with_formula("rows x (3 f - 1), f the features of the axis")
def ultralytics_softmax_operations(call: Site) -> int:
    """Return the operations that the tool counts for nn.Softmax or nn.Softmax2d: rows x (3 f - 1),
    for f elements in a row.

    basic_hooks.py: count_softmax.
    """
    return _softmax_operations(*_softmax_rows_and_features(call))


@hooked.adds(_LOG_SOFTMAX, cause="softmax", name="log_softmax")
@with_formula("rows x 3 f: one additional logarithm for each row")
def ultralytics_log_softmax_operations(call: Site) -> int:
    """Return the operations that the tool counts for nn.LogSoftmax: 3 f per row of f elements,
    which is one logarithm more than for a softmax.
    """
    return ultralytics_softmax_operations(call) + _softmax_rows_and_features(call)[0]


@hooked.adds(_SOFTMIN, cause="softmax", name="softmin")
@with_formula("rows x (3 f - 1) + n(x): the tool also counts the negation of all elements")
def ultralytics_softmin_operations(call: Site) -> int:
    """Return the operations that the tool counts for nn.Softmin: those of a softmax, plus one
    negation for each input element.
    """
    return ultralytics_softmax_operations(call) + ultralytics_input_elements(call)


# Pools, window by window, and upsampling.


@hooked.adds(kind_of(*layers.AVERAGE_POOLS), cause="pool.avg", name="average")
@with_formula("n(all windows) + n(y)")
def ultralytics_average_pool_operations(call: Site) -> int:
    """Return the operations that the tool counts for an average pool: the positions in all windows
    + the result elements.

    basic_hooks.py: count_avgpool. Along each axis a window is cut off where the input ends, or its
    padding if that is counted.
    """
    results, shape = _ultralytics_result_shape(call), ultralytics_argument_shape(call)
    axes = _pool_axis_count(call)
    kernel, stride, padding = (
        _extents_per_axis(call, name, axes) for name in ("kernel_size", "stride", "padding")
    )
    padded = bool(call.module.settings["count_include_pad"])
    windows = prod(
        _positions_in_windows(size, count, kernel[axis], stride[axis], padding[axis], padded)
        for axis, (size, count) in enumerate(zip(shape[-axes:], results[-axes:], strict=True))
    )
    return prod(shape[:-axes]) * windows + prod(results)


def _pool_axis_count(call: Site) -> int:
    """Return the number of spatial axes of an average pool.

    A kernel that is one number belongs to AvgPool3d or AvgPool2d.
    """
    kernel = call.module.settings["kernel_size"]
    if isinstance(kernel, list):
        return len(kernel)
    return 3 if any(base.endswith(".AvgPool3d") for base in call.module.bases) else 2


def _extents_per_axis(call: Site, name: str, axes: int) -> tuple[int, ...]:
    """Return the setting `name` as one number for each of `axes` axes; a single number applies to
    all axes.
    """
    extents = call.extents(name)
    return extents if isinstance(call.module.settings[name], list) else extents * axes


def _positions_in_windows(
    size: int, count: int, kernel: int, stride: int, padding: int, padded: bool
) -> int:
    """Return how many positions all windows of a pool have together along one axis; padding counts
    only if `padded` is true.
    """
    low, high = (-padding, size + padding) if padded else (0, size)
    starts = (index * stride - padding for index in range(count))
    return sum(max(min(start + kernel, high) - max(start, low), 0) for start in starts)


@hooked.adds(kind_of(*layers.ADAPTIVE_POOLS), cause="pool.adaptive", name="adaptive")
@with_formula("n(all windows) + n(y): window j is [floor(j I / O), ceil((j + 1) I / O))")
def ultralytics_adaptive_average_operations(call: Site) -> int:
    """Return the operations that the tool counts for an adaptive average pool: the positions in
    all windows + the result elements.

    basic_hooks.py: count_adap_avgpool.
    """
    results = _ultralytics_result_shape(call)
    windows = (
        sum(-(-(j + 1) * size // count) - j * size // count for j in range(count))
        for size, count in zip(ultralytics_argument_shape(call), results, strict=False)
    )
    return prod(windows) + prod(results)


_UPSAMPLE = kind_of(f"{layers.NN}.upsampling.Upsample")
for mode, factor in (("linear", 5), ("bilinear", 11), ("bicubic", 259), ("trilinear", 31)):
    about, name = (_UPSAMPLE, setting(mode=mode)), f"upsample.{mode}"
    hooked.adds(*about, cause="upsample.linear", name=name, factor=factor)(
        ultralytics_output_elements
    )


# Products of functions, where no module with a rule and no other function is around.

# Functions that a trace names, and the tool's mode does not see.
_TRANSPARENT = ("einops.einsum", "torch.autograd.Function.apply", HOOKS, VMAP)


def condition_outside_classes(*classes: str) -> Condition:
    """Return a condition that holds for calls that no registered module of these classes, or of a
    subclass, encloses.
    """
    known = frozenset(classes)

    def is_outside_classes(site: Site) -> bool:
        """Return whether no module of these classes, hooked by the tool, encloses the call."""
        early = False  # pre-hooks that the model had before run ahead of the tool's own
        for call in site.around:
            if call.target == PRE_HOOK:
                early = True
            elif call.level == "module":
                module = site.trace.modules[call.module]
                hooked = call.via == "call" and module.names and not early
                if hooked and not known.isdisjoint(module.bases):
                    return False
                early = False
        return True

    return Condition("outside layers with a rule", is_outside_classes, classes)


def function_nesting_condition(expected: bool = True) -> Condition:
    """Return a condition that holds for calls inside a function of PyTorch, or, if `expected` is
    false, for calls outside any.
    """

    def is_inside_torch_function_as_expected(site: Site) -> bool:
        """Return whether a function of PyTorch encloses the call, or, if `expected` is false,
        whether none does.
        """
        functions = [call for call in site.around if call.level == "function"]
        outer = functions[1:] if site.call.level == "function" else functions
        return (
            any(not matches_any_pattern(call.target, _TRANSPARENT) for call in outer) == expected
        )

    return Condition(
        "called by a function" if expected else "not called by a function",
        is_inside_torch_function_as_expected,
    )


def _classes_with_rule(*kinds: str) -> tuple[str, ...]:
    """Return the names of the module classes that have a rule of one of these kinds, such as
    "core".
    """
    rules = (rule for rule in hooked.rules if rule.kind in kinds)
    about = (condition for rule in rules for condition in rule.where if condition.whom)
    return tuple(dict.fromkeys(name for condition in about for name in condition.names))


# An embedding has a rule that is always 0, and so hides what functions do inside of it.
functions = thop.rules(
    "function",
    condition_outside_classes(
        *_classes_with_rule("core", "part"), f"{layers.NN}.sparse.Embedding"
    ),
    function_nesting_condition(expected=False),
    source=f"{_PROFILE}: functional_hooks",
    in_total_only=True,
)
_FORWARD = "torch.nn.functional.multi_head_attention_forward"
functions.contraction(_FORWARD, cause=_EXPORT, name="attention.forward")(
    ultralytics_attention_macs
)
functions.adds(_FORWARD, cause=_SCALE, name="attention.forward.softmax")(
    ultralytics_attention_softmax_operations
)

_PRODUCTS = (
    *("torch.matmul", "torch.Tensor.matmul", "torch.Tensor.__matmul__", "torch.bmm"),
    *("torch.Tensor.bmm", "torch.nn.functional.linear"),
)


@functions.contraction(_PRODUCTS, cause=_EXPORT, name="products")
@functions.contraction(
    _PRODUCTS, of_complex(), cause="contraction.complex", name="products.complex"
)
@functions.contraction(_PRODUCTS, _VMAPPED, cause="function.vmap", name="products.vmapped")
@with_formula("n(y) x the last axis of the first operand")
def ultralytics_matmul_macs(call: Site) -> int:
    """Return the MACs that the tool counts for a matrix product by a function: result elements x
    last axis of the first operand.

    profile.py: _count_matmul.
    """
    return call.result.numel * call.shape("0", "input")[-1]


@functions.contraction(
    "torch.nn.functional.scaled_dot_product_attention", cause=_EXPORT, name="sdpa"
)
@with_formula("n(y) // Dv x Sk x (D + Dv)")
def ultralytics_dot_product_attention_macs(call: Site) -> int:
    """Return the MACs that the tool counts for scaled_dot_product_attention: result rows x keys x
    (head size of queries + head size of values).

    profile.py: _count_sdpa.
    """
    names = ("query", "key", "value")
    query, key, value = (call.shape(str(index), name) for index, name in enumerate(names))
    return call.result.numel // value[-1] * key[-2] * (query[-1] + value[-1])


for name, operand in (("einsum.several", "3"), ("einsum.listed", "1.2")):
    functions.hides(name, "torch.einsum", has(operand), cause="op.unregistered-zero")


@functions.contraction("torch.einsum", cause="einsum.path-estimate", name="einsum")
@with_formula(
    "prod(extents of the labels that both operands have, or that one has and the result keeps)"
)
def ultralytics_einsum_macs(call: Site) -> int:
    """Return the MACs that the tool counts for an einsum of two operands: the product of the sizes
    of the labels that both have or the result keeps; 0 for other numbers of operands.

    Nothing for one operand, and nothing for more than two. profile.py: _count_einsum.
    """
    if len(call.inputs) != 2:
        return 0
    operands, kept = einsum_operands(
        _ultralytics_equation(call), [spec.shape or () for spec in call.inputs]
    )
    first, second = ({x: n for x, n in labels.items() if n != 1} for labels in operands)
    return prod(
        n for x, n in (first | second).items() if x in kept or (x in first and x in second)
    )


def _ultralytics_equation(call: Site) -> str:
    """Return the equation of an einsum as text, also if it was given as lists of integers:
    einsum(a, [0, 1], b, [1, 2]).
    """
    written = call.settings.get("0")
    if isinstance(written, str):
        return written
    terms = [_subscript_letters(call, str(int(spec.name) + 1)) for spec in call.inputs]
    last = str(2 * len(terms))
    return ",".join(terms) + (
        f"->{_subscript_letters(call, last)}" if last in call.settings else ""
    )


def _subscript_letters(call: Site, location: str) -> str:
    """Return einsum subscripts as letters, from the list of integers at `location`."""
    subscripts = call.settings[location]
    if not isinstance(subscripts, list):
        raise TypeError(f"{call.key} has no subscripts at {location}")
    return "".join(chr(ord("a") + int(number)) for number in subscripts)


# Why contraction work is not seen, the most particular reason first.

unseen = thop.rules("operator", source=f"{_PROFILE}: register_hooks")
_KNOWN = kind_of(*_classes_with_rule("core"))
unseen.misses("hook", under(HOOKS), cause="module.hook-work")
unseen.misses("direct-forward", _KNOWN, by_forward(), cause="module.direct-forward")
unseen.misses("unregistered", _KNOWN, registered(False), cause="module.unregistered")

CONVENTIONS = (thop.convention,)
