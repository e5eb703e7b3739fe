"""What the hooks of DeepSpeed's profiler and of calflops compute for recurrent layers.

Sources: deepspeed/profiling/flops_profiler/profiler.py and calflops/pytorch_ops.py, both
`_rnn_forward_hook`, `_rnn_cell_forward_hook` and `_rnn_flops`. A hook gets positional inputs only,
and reads the first two axes of the first one: of an unbatched sequence it takes the features for
steps.
"""

from collections.abc import Iterator

from crossflops.ir.trace import Call, Module
from crossflops.tools.formulas.contraction import Formula, number_of

# by class, how often the hidden size is added per step and layer
_ELEMENTWISE = {"RNN": 1, "GRU": 7, "LSTM": 10}


def recurrent(call: Call, module: Module) -> int:
    """T x B x (n(W_ih) + n(W_hh)), summed over layers; of two directions the first, twice."""
    return _steps(call, module) * sum(map(_matrices, _layers(module)))


def first_adds(call: Call, module: Module) -> int:
    """2 g H per step and layer: a product of n terms is taken for 2 n - 1 operations."""
    return _steps(call, module) * sum(2 * shapes["weight_ih"][0] for shapes in _layers(module))


def gates(call: Call, module: Module) -> int:
    """Per step and layer H for an RNN, 7 H for a GRU, 10 H for an LSTM."""
    kind = next(
        name for name in _ELEMENTWISE if module.bases[0].endswith((f".{name}", f".{name}Cell"))
    )
    hidden = number_of(module, "hidden_size")
    return _steps(call, module) * len(list(_layers(module))) * _ELEMENTWISE[kind] * hidden


def bias(call: Call, module: Module) -> int:
    """2 g H per step and layer, if there are biases."""
    if not module.settings["bias"]:
        return 0
    return _steps(call, module) * sum(
        shapes["bias_ih"][0] + shapes["bias_hh"][0] for shapes in _layers(module)
    )


def _steps(call: Call, module: Module) -> int:
    """Samples x steps x directions; of a cell, samples."""
    source = call.input("0")
    if source is None or source.shape is None:
        raise LookupError("the hook needs a tensor as first positional input")
    first, second = source.shape[:2]
    if module.bases[0].endswith("Cell"):
        return first
    return first * second * (2 if module.settings["bidirectional"] else 1)


def _layers(module: Module) -> Iterator[dict[str, tuple[int, ...]]]:
    """The shapes of the forward direction's parameters, layer by layer, without their suffixes.

    Raises KeyError where a parameter is not one any more (weight_norm keeps others): so does
    `__getattr__` in the hook.
    """
    shapes = {parameter.name: parameter.shape for parameter in module.params}
    names = [
        "weight_ih",
        "weight_hh",
        *(("bias_ih", "bias_hh") if module.settings["bias"] else ()),
    ]
    cell = module.bases[0].endswith("Cell")
    for layer in range(1 if cell else number_of(module, "num_layers")):
        suffix = "" if cell else f"_l{layer}"
        yield {name: shapes[f"{name}{suffix}"] for name in names}


def _matrices(shapes: dict[str, tuple[int, ...]]) -> int:
    (rows, inputs), (gates_again, hidden) = shapes["weight_ih"], shapes["weight_hh"]
    return rows * inputs + gates_again * hidden


FORMULAS: dict[str, Formula] = {
    "patched.recurrent": recurrent,
    "patched.first_adds": first_adds,
    "patched.gates": gates,
    "patched.recurrent_bias": bias,
}
