"""What ptflops' hooks on modules compute, and how it adds up.

ptflops/pytorch_ops.py (`MODULES_MAPPING`) and ptflops/pytorch_engine.py.
"""

from collections.abc import Sequence
from math import prod

from crossflops.ir.modules import chains, child_paths
from crossflops.ir.profile import Amount
from crossflops.ir.trace import Call, Module, Trace
from crossflops.rules.rule import Batch, Share
from crossflops.tools.formulas.contraction import (
    Formula,
    extents_of,
    number_of,
    result_of,
    shape_of,
)
from crossflops.tools.multiplicity import Times, Within
from crossflops.tools.ptflops_layers import SUPPORTED


def _output(call: Call) -> tuple[int, ...]:
    shape = result_of(call).shape
    if shape is None:
        raise LookupError(f"the shape of the result of {call.key} is not known")
    return shape


def _has_bias(module: Module) -> bool:
    # pruning and weight_norm put "bias_orig" or "bias_g" in place of the parameter
    return any(one.name.startswith("bias") for one in module.params)


def _per_position(module: Module) -> int:
    """K x in_channels x (out_channels // groups)."""
    filters = number_of(module, "out_channels") // number_of(module, "groups")
    return prod(extents_of(module, "kernel_size")) * number_of(module, "in_channels") * filters


def convolution(call: Call, module: Module) -> int:
    """x.shape[0] x prod(y.shape[2:]) x K x in_channels x (out_channels // groups).

    pytorch_ops.py: conv_flops_counter_hook. The first axis is taken for the batch.
    """
    positions = shape_of(call, "0")[0] * prod(_output(call)[2:])
    return positions * _per_position(module)


def transposed(call: Call, module: Module) -> int:
    """x.shape[0] x prod(x.shape[2:]) x K x in_channels x (out_channels // groups).

    pytorch_ops.py: conv_flops_counter_hook with transpose=True.
    """
    source = shape_of(call, "0")
    return source[0] * prod(source[2:]) * _per_position(module)


def convolution_bias(call: Call, module: Module) -> int:
    """x.shape[0] x prod(y.shape[1:]), if there is a bias."""
    return shape_of(call, "0")[0] * prod(_output(call)[1:]) if _has_bias(module) else 0


def linear(call: Call, module: Module) -> int:
    """prod(x.shape[:-1]) x in x out. pytorch_ops.py: linear_flops_counter_hook."""
    return prod(shape_of(call, "0")) * _output(call)[-1]


def linear_bias(call: Call, module: Module) -> int:
    """prod(x.shape[:-1]) x out, if there is a bias."""
    return prod(shape_of(call, "0")[:-1]) * _output(call)[-1] if _has_bias(module) else 0


def first_input(call: Call, module: Module) -> int:
    """n(x), x the first positional input."""
    return prod(shape_of(call, "0"))


def norm(call: Call, module: Module) -> int:
    """n(x), twice if the module has a true attribute `affine`. bn_flops_counter_hook."""
    return prod(shape_of(call, "0")) * (2 if module.settings.get("affine") else 1)


def first_example(call: Call, module: Module) -> int:
    """n(y[0]): the elements of the first example of the result. upsample_flops_counter_hook."""
    output = _output(call)
    if not output or not output[0]:
        raise LookupError("the result has no first example")
    return prod(output[1:])


def _matrices(module: Module, prefix: str) -> list[int]:
    """The sizes of the parameters of this prefix that the hook reads: one direction's."""
    layers = range(number_of(module, "num_layers"))
    return [_size(module, f"{prefix}_l{layer}") for layer in layers]


def _size(module: Module, name: str) -> int:
    for one in module.params:
        if one.name == name:
            return one.numel
    raise LookupError(f"{module.path or 'the model'} has no parameter {name}")


def _steps(call: Call, module: Module) -> int:
    """x.shape[0] x x.shape[1], twice if bidirectional."""
    shape = shape_of(call, "0")
    return shape[0] * shape[1] * (2 if module.settings["bidirectional"] else 1)


def recurrent(call: Call, module: Module) -> int:
    """Sample-steps x directions x the sum over layers of n(w_ih) + n(w_hh).

    pytorch_ops.py: rnn_flops_counter_hook. The weights are those of the forward direction.
    """
    weights = sum(_matrices(module, "weight_ih") + _matrices(module, "weight_hh"))
    return _steps(call, module) * weights


def recurrent_gates(call: Call, module: Module) -> int:
    """Sample-steps x directions x layers x the elementwise terms of a cell."""
    return _steps(call, module) * number_of(module, "num_layers") * _elementwise(call, module)


def recurrent_bias(call: Call, module: Module) -> int:
    """Sample-steps x directions x the sum over layers of n(b_ih) + n(b_hh), if there are any."""
    if not module.settings["bias"]:
        return 0
    biases = sum(_matrices(module, "bias_ih") + _matrices(module, "bias_hh"))
    return _steps(call, module) * biases


def _elementwise(call: Call, module: Module) -> int:
    """RNN H, GRU H + 3H + 3H, LSTM 4H + 3H + 3H. pytorch_ops.py: rnn_flops."""
    kind = call.target.rpartition(".")[2].removesuffix("Cell")
    return {"RNN": 1, "GRU": 7, "LSTM": 10}[kind] * number_of(module, "hidden_size")


def _rows(call: Call) -> int:
    """x.shape[0]; without a second axis the tool fails."""
    rows, _, *_ = shape_of(call, "0")
    return rows


def cell(call: Call, module: Module) -> int:
    """x.shape[0] x (n(w_ih) + n(w_hh)). pytorch_ops.py: rnn_cell_flops_counter_hook."""
    return _rows(call) * (_size(module, "weight_ih") + _size(module, "weight_hh"))


def cell_gates(call: Call, module: Module) -> int:
    """x.shape[0] x the elementwise terms of a cell."""
    return _rows(call) * _elementwise(call, module)


def cell_bias(call: Call, module: Module) -> int:
    """x.shape[0] x (n(b_ih) + n(b_hh)), if there are any."""
    if not module.settings["bias"]:
        return 0
    return _rows(call) * (_size(module, "bias_ih") + _size(module, "bias_hh"))


def paths(modules: tuple[Module, ...]) -> dict[int, int]:
    """Once for every chain of parents without a rule: pytorch_engine.py: accumulate_flops."""
    return child_paths(modules, SUPPORTED)


def chains_of_paths(modules: tuple[Module, ...]) -> dict[int, dict[int, int]]:
    """The same chains from every module: print_model_with_flops shows what each accumulates."""
    return chains(modules, SUPPORTED)


def _is_alone(call: Call) -> bool:
    """Whether the model is given a single tensor, by position."""
    return (call.arity, call.keywords) == (1, 0) and call.input("0") is not None


def batch(trace: Trace) -> int:
    """len(x), x what the model is given by position, 1 if nothing is; summed over its calls.

    pytorch_engine.py: batch_counter_hook. All but a single tensor goes by keyword, out of an
    `input_constructor`. Raises LookupError for a scalar, which has no length.
    """
    found = 0
    for call in trace.calls:
        if call.level == "module" and call.module == 0 and call.via == "call":
            alone = call.parent is not None or _is_alone(call)
            shape = next((one.shape for one in call.inputs if one.name == "0"), None)
            found += shape[0] if alone and shape is not None else 1
    return found


def positional(call: Call, module: Module) -> int:
    """0; the hook of the model itself reads `input[0]`, and one tensor alone goes by position.

    pytorch_engine.py: get_flops_pytorch. Raises LookupError where all inputs go by keyword.
    """
    if call.parent is None and not _is_alone(call):
        raise LookupError("its inputs go by keyword, which hooks are not given")
    return 0


def total(shares: Sequence[Share]) -> Amount:
    """int(modules / batch + functions + methods), in floats and in this order.

    pytorch_engine.py: compute_average_flops_cost, get_flops_pytorch.
    """
    modules = [one for one in shares if one.rule.batch]
    others = [one for one in shares if not one.rule.batch]
    functions = [one.amount for one in others if _is_functional(one)]
    methods = [one.amount for one in others if not _is_functional(one)]
    count: Amount = sum(one.amount for one in modules)
    count = count / modules[0].divisor if modules else 0.0
    count += sum(functions)
    count += sum(methods)
    return int(count)


def _is_functional(share: Share) -> bool:
    return any(one.startswith("torch.nn.functional.") for one in share.rule.targets)


FORMULAS: dict[str, Formula] = {
    "ptflops.convolution": convolution,
    "ptflops.transposed": transposed,
    "ptflops.convolution_bias": convolution_bias,
    "ptflops.linear": linear,
    "ptflops.linear_bias": linear_bias,
    "ptflops.first_input": first_input,
    "ptflops.norm": norm,
    "ptflops.first_example": first_example,
    "ptflops.recurrent": recurrent,
    "ptflops.recurrent_gates": recurrent_gates,
    "ptflops.recurrent_bias": recurrent_bias,
    "ptflops.cell": cell,
    "ptflops.cell_gates": cell_gates,
    "ptflops.cell_bias": cell_bias,
    "ptflops.positional": positional,
}
TIMES: dict[str, Times] = {"ptflops.paths": paths}
WITHIN: dict[str, Within] = {"ptflops.paths": chains_of_paths}
BATCHES: dict[str, Batch] = {"ptflops.batch": batch}
SUMS = {"ptflops.total": total}
