"""What thop's rules compute: thop/vision/basic_hooks.py, calc_func.py, and thop/rnn_hooks.py."""

from math import prod

from crossflops.ir.trace import Call, Module
from crossflops.tools.formulas.contraction import (
    Formula,
    extents_of,
    number_of,
    result_of,
    shape_of,
)


def _kernel(module: Module) -> int:
    """K, the product of the kernel's extents: of the weight, or stated where that is computed."""
    weights = [one.shape for one in module.params if one.name == "weight"]
    if weights:
        return prod(weights[0][2:])
    # weight_norm and its kin leave no parameter "weight"
    return prod(extents_of(module, "kernel_size"))


def convolution(call: Call, module: Module) -> int:
    """n(y) x (x.shape[1] // groups) x K: the second axis is taken for the channels.

    0.1.1 calc_func.py: calculate_conv2d_flops.
    """
    channels = shape_of(call, "0")[1] // number_of(module, "groups")
    return result_of(call).numel * channels * _kernel(module)


def convolution_by_module(call: Call, module: Module) -> int:
    """n(y) x (in_channels // groups) x K. 0.0.31 basic_hooks.py: count_convNd."""
    channels = number_of(module, "in_channels") // number_of(module, "groups")
    return result_of(call).numel * channels * _kernel(module)


def linear(call: Call, module: Module) -> int:
    """in_features x n(y). basic_hooks.py: count_linear."""
    return number_of(module, "in_features") * result_of(call).numel


def _rows(call: Call) -> int:
    """The positions of a padded sequence that are left in a nested tensor."""
    if call.rows is None:
        raise ValueError(f"{call.key} has rows of lengths that nobody knows")
    return call.rows


def linear_nested(call: Call, module: Module) -> int:
    """in_features x n(y), y without what a padding mask covers. basic_hooks.py: count_linear."""
    width = (result_of(call).shape or (0,))[-1]
    return number_of(module, "in_features") * _rows(call) * width


def dropped_elements(call: Call, module: Module) -> int:
    """Elements of the first input that a padding mask covers."""
    shape = shape_of(call, "0")
    return prod(shape) - _rows(call) * shape[-1]


def softmax(call: Call, module: Module) -> int:
    """rows x (3 f - 1), f the features of the axis. calc_func.py: calculate_softmax."""
    shape = shape_of(call, "0")
    features = shape[number_of(module, "dim")]
    return prod(shape) // features * (3 * features - 1)


def adaptive_average(call: Call, module: Module) -> int:
    """int((prod(in / out) + 1) x n(y)), in float64. 0.1.1: count_adap_avgpool."""
    ratio = 1.0
    outputs = result_of(call).shape or ()
    for source, target in zip(shape_of(call, "0")[2:], outputs[2:], strict=True):
        ratio *= source / target
    return int((ratio + 1) * result_of(call).numel)


def adaptive_average_floored(call: Call, module: Module) -> int:
    """(prod(in // output_size) + 1) x n(y). 0.0.31: count_adap_avgpool."""
    sizes = module.settings["output_size"]
    spatial = shape_of(call, "0")[2:]
    each = sizes if isinstance(sizes, list) else [sizes] * len(spatial)
    kernel = prod(int(source // size) for source, size in zip(spatial, each, strict=True))
    return (kernel + 1) * result_of(call).numel


def _steps(call: Call, module: Module) -> int:
    """Sample-steps as thop reads them: the first two axes of a batched sequence.

    Of a packed one the number of its steps times its largest batch, which is that of the state.
    """
    if call.input("0.0") is None:
        return prod(shape_of(call, "0")[:2])
    state = next(spec for spec in reversed(call.outputs) if spec.shape)
    return shape_of(call, "0.1")[0] * (state.shape or ())[-2]


def _layer_inputs(module: Module) -> list[int]:
    """The input size of every layer and direction."""
    sides = 2 if module.settings["bidirectional"] else 1
    layers = number_of(module, "num_layers")
    deeper = [number_of(module, "hidden_size") * sides] * (layers - 1)
    return [size for size in (number_of(module, "input_size"), *deeper) for _ in range(sides)]


def _gates(call: Call) -> int:
    kind = call.target.rpartition(".")[2].removesuffix("Cell")
    return {"RNN": 1, "GRU": 3, "LSTM": 4}[kind]


def recurrent(call: Call, module: Module) -> int:
    """Sample-steps x the sum over layers, directions of g H (I + H). rnn_hooks.py: count_lstm."""
    hidden = number_of(module, "hidden_size")
    cells = sum(hidden * (size + hidden) for size in _layer_inputs(module))
    return _steps(call, module) * _gates(call) * cells


def recurrent_gates(call: Call, module: Module) -> int:
    """Sample-steps x directions x layers x the elementwise terms of a cell."""
    return _steps(call, module) * len(_layer_inputs(module)) * _elementwise(call, module)


def recurrent_bias(call: Call, module: Module) -> int:
    """Sample-steps x directions x layers x 2 g H."""
    biases = 2 * _gates(call) * number_of(module, "hidden_size")
    return _steps(call, module) * len(_layer_inputs(module)) * biases


def _elementwise(call: Call, module: Module) -> int:
    """RNN H, GRU 3H + H + 3H, LSTM 4H + 3H + H. rnn_hooks.py: _count_lstm_cell and its kin."""
    return {1: 1, 3: 7, 4: 8}[_gates(call)] * number_of(module, "hidden_size")


def cell(call: Call, module: Module) -> int:
    """B x g H (I + H). rnn_hooks.py: count_lstm_cell."""
    hidden = number_of(module, "hidden_size")
    return (
        shape_of(call, "0")[0] * _gates(call) * hidden * (number_of(module, "input_size") + hidden)
    )


def cell_gates(call: Call, module: Module) -> int:
    """B x the elementwise terms of a cell."""
    return shape_of(call, "0")[0] * _elementwise(call, module)


def cell_bias(call: Call, module: Module) -> int:
    """B x 2 g H."""
    return shape_of(call, "0")[0] * 2 * _gates(call) * number_of(module, "hidden_size")


FORMULAS: dict[str, Formula] = {
    "thop.convolution": convolution,
    "thop.convolution_by_module": convolution_by_module,
    "thop.linear": linear,
    "thop.linear_nested": linear_nested,
    "thop.dropped_elements": dropped_elements,
    "thop.softmax": softmax,
    "thop.adaptive_average": adaptive_average,
    "thop.adaptive_average_floored": adaptive_average_floored,
    "thop.recurrent": recurrent,
    "thop.recurrent_gates": recurrent_gates,
    "thop.recurrent_bias": recurrent_bias,
    "thop.cell": cell,
    "thop.cell_gates": cell_gates,
    "thop.cell_bias": cell_bias,
}
