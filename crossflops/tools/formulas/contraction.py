"""Amounts that clauses name: pure functions of one call's specs, in exact integers.

Operator calls name their tensors by the operator's schema ("input", "weight", "self", "mat2" ...),
module calls by place ("0" is the first positional argument). A formula raises LookupError when
the call has no such tensor: the tool itself fails there.
"""

from collections.abc import Callable
from math import prod

from crossflops.ir.profile import Amount
from crossflops.ir.tensor import TensorSpec
from crossflops.ir.trace import Call, Module
from crossflops.tools.einsum import einsum_extents as einsum_extents
from crossflops.tools.einsum import einsum_pairs

Formula = Callable[[Call, Module], Amount]


def shape_of(call: Call, *names: str) -> tuple[int, ...]:
    """The shape of the first of these inputs that the call has."""
    for name in names:
        spec = call.input(name)
        if spec is not None and spec.shape is not None:
            return spec.shape
    raise LookupError(f"{call.key} has no input {' or '.join(names)}")


def result_of(call: Call) -> TensorSpec:
    """The first output of the call."""
    if not call.outputs:
        raise LookupError(f"{call.key} has no output")
    return call.outputs[0]


def number_of(module: Module, name: str) -> int:
    """A setting that is a number. Raises LookupError without it, TypeError for another kind."""
    value = module.settings[name]
    if not isinstance(value, int | float):
        raise TypeError(f"{name} of {module.path or 'the model'} is {value!r}")
    return int(value)


def extents_of(module: Module, name: str) -> tuple[int, ...]:
    """A setting that is one extent or one for each axis. Raises as `number_of` does."""
    value = module.settings[name]
    return tuple(map(int, value)) if isinstance(value, list) else (number_of(module, name),)


def input_elements(call: Call, module: Module) -> int:
    """n(x), x the first input."""
    if not call.inputs:
        raise LookupError(f"{call.key} has no input")
    return call.inputs[0].numel


def output_elements(call: Call, module: Module) -> int:
    """n(y), y the first output."""
    return result_of(call).numel


def convolution(call: Call, module: Module) -> int:
    """N x S x prod(W), S the output positions, or the input positions when transposed.

    W is [Co, Ci/g, k...], transposed [Ci, Co/g, k...], so groups are in it. An unbatched input
    has one axis less, and N = 1.
    """
    weight = shape_of(call, "weight")
    rank = len(weight) - 2
    transposed = "transpose" in call.target or call.settings.get("transposed") is True
    source = shape_of(call, "input", "self")
    shape = source if transposed else result_of(call).shape or ()
    batch = source[0] if len(source) == len(weight) else 1
    return batch * prod(shape[len(shape) - rank :]) * prod(weight)


def linear(call: Call, module: Module) -> int:
    """rows x in x out: n(x) x out, W is [out, in]."""
    weight = shape_of(call, "weight")
    return prod(shape_of(call, "input")) * (weight[0] if len(weight) == 2 else 1)


def matmul(call: Call, module: Module) -> int:
    """n(Y) x K, by the rules of numpy.matmul; K is the last axis of the first operand."""
    return result_of(call).numel * shape_of(call, "mat1", "batch1", "self")[-1]


def tensordot(call: Call, module: Module) -> int:
    """n(Y) x K, K the product of the contracted axes: n(A) n(B) = n(Y) K^2."""
    first, second = (spec.numel for spec in call.inputs[:2])
    outputs = result_of(call).numel
    square = first * second // outputs if outputs else 0
    return outputs * _root(square)


def _root(square: int) -> int:
    from math import isqrt

    return isqrt(square)


def einsum(call: Call, module: Module) -> int:
    """Pairwise from left to right: the product of the extents of all labels of a pair that sums.

    Labels that only one operand has and nobody needs any more are summed first; a pair that
    sums over nothing multiplies, which is no contraction.
    """
    shapes = [spec.shape or () for spec in call.inputs]
    pairs, extents = einsum_pairs(str(call.settings["equation"]), shapes)
    return sum(prod(extents[x] for x in pair) for pair, kept in pairs if len(kept) < len(pair))


def scaled_dot_product_attention(call: Call, module: Module) -> int:
    """B x H x Sq x Sk x (D + Dv): the score and the value products, causal or not."""
    query, key, value = (shape_of(call, name) for name in ("query", "key", "value"))
    return prod(query[:-1]) * key[-2] * (query[-1] + value[-1])


def recurrent(call: Call, module: Module) -> int:
    """T x B x the elements of all weight matrices (every layer, direction and projection)."""
    source = shape_of(call, "input")
    weights = sum(s.numel for s in call.inputs if s.name.startswith("params") and _is_matrix(s))
    return prod(source[:-1]) * weights


def recurrent_cell(call: Call, module: Module) -> int:
    """B x (n(w_ih) + n(w_hh))."""
    source = shape_of(call, "input")
    weights = prod(shape_of(call, "w_ih")) + prod(shape_of(call, "w_hh"))
    return prod(source[:-1]) * weights


def _is_matrix(spec: TensorSpec) -> bool:
    return spec.shape is not None and len(spec.shape) == 2


FORMULAS: dict[str, Formula] = {
    "input_elements": input_elements,
    "output_elements": output_elements,
    "convolution": convolution,
    "linear": linear,
    "matmul": matmul,
    "tensordot": tensordot,
    "einsum": einsum,
    "scaled_dot_product_attention": scaled_dot_product_attention,
    "recurrent": recurrent,
    "recurrent_cell": recurrent_cell,
}
