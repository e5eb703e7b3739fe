"""What ultralytics-thop 2.2.3 computes for recurrent layers, attention and functions.

thop/rnn_hooks.py, thop/vision/basic_hooks.py (`count_multihead_attention`), thop/profile.py
(`functional_hooks`).
"""

from math import prod
from typing import NamedTuple

from crossflops.ir.trace import Call, Module, Scalar
from crossflops.tools.formulas.contraction import (
    Formula,
    einsum_extents,
    number_of,
    result_of,
    shape_of,
)
from crossflops.tools.formulas.ultralytics_thop import argument, softmax_work


def _gates(call: Call, module: Module) -> int:
    for base in module.bases:
        kind = base.rpartition(".")[2].removesuffix("Cell")
        if base.startswith("torch.nn.modules.rnn.") and kind in ("RNN", "GRU", "LSTM"):
            return {"RNN": 1, "GRU": 3, "LSTM": 4}[kind]
    raise LookupError(f"{call.key} is no recurrent layer")


def _steps(call: Call) -> int:
    """Evaluations of a cell: rows of packed data, else steps, times samples if there are any.

    rnn_hooks.py: _cell_evaluations.
    """
    packed = call.input("0.0")
    shape = (packed.shape or ())[:1] if packed else argument(call)
    return shape[0] if len(shape) < 3 else shape[0] * shape[1]


def _samples(call: Call) -> int:
    shape = argument(call)
    return shape[0] if len(shape) == 2 else 1


def _layer_inputs(module: Module) -> list[int]:
    """The input size of every layer and direction; a projection is what the next layer reads."""
    sides = 2 if module.settings["bidirectional"] else 1
    width = number_of(module, "proj_size") or number_of(module, "hidden_size")
    deeper = [width * sides] * (number_of(module, "num_layers") - 1)
    return [size for size in (number_of(module, "input_size"), *deeper) for _ in range(sides)]


def recurrent(call: Call, module: Module) -> int:
    """Steps x the sum over layers, directions of g H (I + R) + H P, R = P or H.

    rnn_hooks.py: _count_lstm_cell and its kin.
    """
    hidden, projected = number_of(module, "hidden_size"), number_of(module, "proj_size")
    gates, read = _gates(call, module), projected or hidden
    cells = (gates * hidden * (size + read) + hidden * projected for size in _layer_inputs(module))
    return _steps(call) * sum(cells)


def recurrent_gates(call: Call, module: Module) -> int:
    """Steps x layers x directions x the elementwise terms of a cell: RNN H, GRU 7 H, LSTM 8 H."""
    return _steps(call) * len(_layer_inputs(module)) * _elementwise(call, module)


def recurrent_bias(call: Call, module: Module) -> int:
    """Steps x layers x directions x 2 g H."""
    return _steps(call) * len(_layer_inputs(module)) * _biases(call, module)


def _elementwise(call: Call, module: Module) -> int:
    return {1: 1, 3: 7, 4: 8}[_gates(call, module)] * number_of(module, "hidden_size")


def _biases(call: Call, module: Module) -> int:
    return 2 * _gates(call, module) * number_of(module, "hidden_size")


def cell(call: Call, module: Module) -> int:
    """B x g H (I + H), B = 1 for a vector. rnn_hooks.py: count_lstm_cell and its kin."""
    hidden, size = number_of(module, "hidden_size"), number_of(module, "input_size")
    return _samples(call) * _gates(call, module) * hidden * (size + hidden)


def cell_gates(call: Call, module: Module) -> int:
    """B x the elementwise terms of a cell."""
    return _samples(call) * _elementwise(call, module)


def cell_bias(call: Call, module: Module) -> int:
    """B x 2 g H."""
    return _samples(call) * _biases(call, module)


class _Attention(NamedTuple):
    """B, L, E, heads, kdim + vdim, S', and how many positions of S' were appended to the keys."""

    batch: int
    queries: int
    width: int
    heads: int
    sources: int
    attended: int
    appended: int

    def products(self) -> int:
        """B x E x (2 L E + S (kdim + vdim) + 2 L S'): projections, scores, values."""
        projections = 2 * self.queries * self.width + self._projected() * self.sources
        return self.batch * self.width * (projections + 2 * self.queries * self.attended)

    def _projected(self) -> int:
        return self.attended - self.appended

    def softmax(self) -> int:
        """B x heads x L rows of 3 S' - 1."""
        return softmax_work(self.batch * self.heads * self.queries, self.attended)


def attention(call: Call, module: Module) -> int:
    """B x E x (2 L E + S (kdim + vdim) + 2 L S'), S' the attended positions, appended ones too.

    basic_hooks.py: count_multihead_attention.
    """
    return _of_module(call, module).products()


def attention_softmax(call: Call, module: Module) -> int:
    """B x heads x L rows of 3 S' - 1."""
    return _of_module(call, module).softmax()


def function_attention(call: Call, module: Module) -> int:
    """The same of F.multi_head_attention_forward. profile.py: _count_multi_head_attention."""
    return _of_function(call).products()


def function_attention_softmax(call: Call, module: Module) -> int:
    """B x heads x L rows of 3 S' - 1."""
    return _of_function(call).softmax()


def _of_module(call: Call, module: Module) -> _Attention:
    batch_first = module.settings.get("batch_first") is True
    biased = any(one.name == "bias_k" for one in module.params)
    appended = biased + bool(module.settings.get("add_zero_attn"))
    return _Attention(
        *_attended(call, batch_first),
        width=number_of(module, "embed_dim"),
        heads=number_of(module, "num_heads"),
        sources=number_of(module, "kdim") + number_of(module, "vdim"),
        attended=_length(call, batch_first, appended),
        appended=appended,
    )


def _of_function(call: Call) -> _Attention:
    """Its arguments by place or by name; it knows no `batch_first`."""
    biased = any(one.name in ("7", "bias_k") for one in call.inputs)
    appended = biased + bool(_setting(call, 9, "add_zero_attn"))
    key, value = shape_of(call, "1", "key"), shape_of(call, "2", "value")
    return _Attention(
        *_attended(call, False),
        width=int(str(_setting(call, 3, "embed_dim_to_check"))),
        heads=int(str(_setting(call, 4, "num_heads"))),
        sources=key[-1] + value[-1],
        attended=_length(call, False, appended),
        appended=appended,
    )


def _setting(call: Call, place: int, name: str) -> Scalar:
    return call.settings.get(str(place), call.settings.get(name))


def _attended(call: Call, batch_first: bool) -> tuple[int, int]:
    """B and L, from the result."""
    result = result_of(call).shape or ()
    if len(result) == 2:
        return 1, result[0]
    return (result[0], result[1]) if batch_first else (result[1], result[0])


def _length(call: Call, batch_first: bool, appended: int) -> int:
    """S', read from the weights where they are returned, else from the keys."""
    if len(call.outputs) > 1:
        return (call.outputs[1].shape or ())[-1]
    keys = argument(call, 1, "key")
    return (keys[-2] if batch_first or len(keys) == 2 else keys[0]) + appended


def product(call: Call, module: Module) -> int:
    """n(y) x the last axis of the first operand. profile.py: _count_matmul."""
    return result_of(call).numel * shape_of(call, "0", "input")[-1]


def dot_product_attention(call: Call, module: Module) -> int:
    """n(y) // Dv x Sk x (D + Dv). profile.py: _count_sdpa."""
    names = ("query", "key", "value")
    query, key, value = (shape_of(call, str(n), name) for n, name in enumerate(names))
    return result_of(call).numel // value[-1] * key[-2] * (query[-1] + value[-1])


def einsum(call: Call, module: Module) -> int:
    """The product of the extents that both operands have, or that one has and the result keeps.

    Nothing for one operand, and nothing for more than two. profile.py: _count_einsum.
    """
    if len(call.inputs) != 2:
        return 0
    operands, kept = einsum_extents(_equation(call), [spec.shape or () for spec in call.inputs])
    first, second = ({x: n for x, n in one.items() if n != 1} for one in operands)
    return prod(
        n for x, n in (first | second).items() if x in kept or (x in first and x in second)
    )


def _equation(call: Call) -> str:
    """The equation, also of lists of numbers: einsum(a, [0, 1], b, [1, 2])."""
    written = call.settings.get("0")
    if isinstance(written, str):
        return written
    places = [str(int(one.name) + 1) for one in call.inputs]
    terms = ["".join(chr(ord("a") + n) for n in _numbers(call, place)) for place in places]
    last = str(2 * len(terms))
    kept = (
        "".join(chr(ord("a") + n) for n in _numbers(call, last)) if last in call.settings else None
    )
    return ",".join(terms) + ("" if kept is None else f"->{kept}")


def _numbers(call: Call, place: str) -> list[int]:
    found = call.settings[place]
    if not isinstance(found, list):
        raise TypeError(f"{call.key} has no subscripts at {place}")
    return [int(n) for n in found]


FORMULAS: dict[str, Formula] = {
    f"ultralytics-thop.{formula.__name__}": formula
    for formula in (
        *(recurrent, recurrent_gates, recurrent_bias, cell, cell_gates, cell_bias),
        *(attention, attention_softmax, function_attention, function_attention_softmax),
        *(product, dot_product_attention, einsum),
    )
}
