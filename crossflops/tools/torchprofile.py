"""Define the convention of torchprofile: MACs of a torch.jit trace, and one MAC for each element
of norms, averages and elementwise products.

It looks at the nodes of the traced graph one by one, so the rules do, too: shape arithmetic that
was traced counts, work that no output needs does not. A formula raises LookupError for a tensor
that is not there, and ValueError where the axes are not those that the handler unpacks. Source:
torchprofile/profile.py (`profile_macs`), torchprofile/trace.py and torchprofile/handlers.py
(`HANDLER_MAP`).
"""

from collections.abc import Callable
from math import prod

from crossflops.rules.conditions import Site, has, recorded_as, setting
from crossflops.rules.rule import About, Formula, Tool, with_formula

_HANDLERS = "torchprofile/handlers.py"
_TRACE = "torchprofile/trace.py: trace"

torchprofile = Tool(
    "torchprofile",
    edition="0.1",
    verified=("0.1.0",),
    prints="MACs",
    per_mac=1,
    level="jit",
    unseen="op.unregistered-zero",
    counts_stored=True,
    source="torchprofile/profile.py: profile_macs",
)
traced = torchprofile.rules("jit", source=_HANDLERS)
unseen = torchprofile.rules(
    "operator", source=f"{_HANDLERS}: HANDLER_MAP has no handler, a warning"
)

# What it cannot trace or read.

for name, about, source in (
    ("not-traced", "untraced", f"{_TRACE}: torch.jit._get_trace_graph"),
    (
        "undefined-tensor",
        recorded_as("of a tensor that was not created", undefined=True),
        "torchprofile/ir.py: Variable.__post_init__: the type of a tensor that was not created "
        "is None",
    ),
    (
        "complex-constant",
        recorded_as("with an attribute that the tool cannot read", unreadable=True),
        f"{_TRACE}: attributes=, by the kind of each",
    ),
):
    traced.refuses(name, about, cause="tool.error", source=source)


# Contractions; tensors are named as in the schema of the operator, results by place.


def _handler_rule(
    handler: str, *about: About, cause: str = "graph.export-decomposition", name: str = ""
) -> Callable[[Formula], Formula]:
    """Return a decorator that declares a function as the MACs of these operators, in the rule
    `name`; the tool computes them in its function `handler`.
    """
    source = f"{_HANDLERS}: {handler}"
    rule_name = name or handler.removeprefix("_")
    return traced.contraction(*about, cause=cause, source=source, name=rule_name)


def _torchprofile_result_shape(call: Site, index: int = 0) -> tuple[int, ...]:
    """Return the shape of a call's result; raise LookupError if it is unknown."""
    shapes = (spec.shape for spec in call.outputs if spec.name == str(index))
    shape = next(shapes, None)
    if shape is None:
        raise LookupError(f"result {index} has no shape")
    return shape


@_handler_rule("_convolution", "aten::_convolution")
@_handler_rule(
    "_convolution",
    "aten::_convolution",
    setting(transposed=True),
    cause="conv.transpose-groups",
    name="convolution.transposed-groups",
)
@_handler_rule(
    "_convolution",
    "aten::_convolution",
    setting(transposed=True, groups=1),
    cause="conv.transpose-output-size",
    name="convolution.transposed",
)
@with_formula(
    "n(y) x the weight's input channels x prod(k), the output's size even when transposed"
)
def torchprofile_convolution_macs(call: Site) -> int:
    """Return the MACs that torchprofile counts for a convolution: result elements x input channels
    of the weight x kernel positions, also if it is transposed.

    W [a, b, k...] has b input channels if y has a channels, else a: a transposed convolution with
    as many channels in as out is taken for one that is not, and its groups are not divided by.
    """
    out, weight = _torchprofile_result_shape(call), call.shape("weight")
    channels = weight[1] if out[1] == weight[0] else weight[0]
    return prod(out) * channels * prod(weight[2:])


@_handler_rule("_matmul", "aten::linear", "aten::matmul")
@with_formula("n(y) K, K the contracted axis, broadcast or not; linear layers too")
def torchprofile_matmul_macs(call: Site) -> int:
    """Return the MACs that torchprofile counts for a matrix product or a linear layer: result
    elements x size of the summed axis.
    """
    first, second = call.shape("self", "input"), call.shape("other", "weight")
    if not first or not second:
        raise LookupError("a product with a scalar")
    if len(first) == 1:
        return prod(second)
    if len(second) == 1 or (len(first) == 2 and len(second) == 2):
        return prod(first) * (prod(second) // first[-1] if len(second) == 2 else 1)
    *batch, n, p = _torchprofile_result_shape(call)
    *_, n, m = first
    *_, m, p = second
    return prod(batch) * n * m * p


@_handler_rule("_addmm", "aten::addmm")
@with_formula("n x m x p of [n, m] and [m, p], the second and the third operand")
def torchprofile_addmm_macs(call: Site) -> int:
    """Return the MACs that torchprofile counts for addmm: n x m x p for the product of an [n, m]
    and an [m, p] matrix.
    """
    n, _ = call.shape("mat1")
    m, p = call.shape("mat2")
    return n * m * p


@_handler_rule("_addmv", "aten::addmv")
@with_formula("n x m of the matrix")
def torchprofile_addmv_macs(call: Site) -> int:
    """Return the MACs that torchprofile counts for addmv: the number of elements of the matrix."""
    n, m = call.shape("mat")
    return n * m


@_handler_rule("_bmm", "aten::bmm")
@with_formula("b x n x m x p of [b, n, m] and [b, m, p]")
def torchprofile_bmm_macs(call: Site) -> int:
    """Return the MACs that torchprofile counts for bmm: b x n x m x p for the product of [b, n, m]
    and [b, m, p].
    """
    _, n, _ = call.shape("self")
    b, m, p = call.shape("mat2")
    return b * n * m * p


@_handler_rule("_baddbmm", "aten::baddbmm")
@with_formula("b x n x m x p; what is added must have all three axes of the result")
def torchprofile_baddbmm_macs(call: Site) -> int:
    """Return the MACs that torchprofile counts for baddbmm: b x n x m x p for the product of [b,
    n, m] and [b, m, p].
    """
    _, n, p = call.shape("self")
    _, n1, m = call.shape("batch1")
    b, m1, p1 = call.shape("batch2")
    if (n, m, p) != (n1, m1, p1):
        raise ValueError(f"torchprofile asserts that what is added has the axes {n1} and {p1}")
    return b * n * m * p


@_handler_rule(
    "_scaled_dot_product_attention", "aten::scaled_dot_product_attention", name="attention"
)
@with_formula("B x heads x Sq x Skv x (D + Dv), as many heads of keys as of queries")
def torchprofile_attention_macs(call: Site) -> int:
    """Return the MACs that torchprofile counts for an attention: batch size x heads x queries x
    keys x (head size of queries + head size of values).

    The tool asserts the latter.
    """
    query, key, value = (call.shape(name) for name in ("query", "key", "value"))
    heads = prod(query[1:-2])
    same = query[0] == key[0] == value[0] and heads == prod(key[1:-2]) == prod(value[1:-2])
    if not same or query[-1] != key[-1] or key[-2] != value[-2]:
        raise ValueError("torchprofile asserts that queries, keys and values have equal axes")
    return query[0] * heads * query[-2] * key[-2] * (query[-1] + value[-1])


@_handler_rule("_einsum", "aten::einsum", cause="einsum.path-estimate")
@with_formula('prod(extents of all labels), for any number of operands; 0 with "..."')
def torchprofile_einsum_macs(call: Site) -> int:
    """Return the MACs that torchprofile counts for an einsum: the product of the sizes of all
    labels, or 0 for an equation with "...".

    A label's extent is that of the last operand that has it.
    """
    equation = call.settings.get("equation")
    operands = [spec for spec in call.inputs if spec.name.startswith("tensors.")]
    if not isinstance(equation, str) or not operands or "..." in equation:
        return 0
    extents: dict[str, int] = {}
    for labels, spec in zip(equation.partition("->")[0].split(","), operands, strict=False):
        if spec.shape is None:
            return 0
        extents.update(zip(labels.replace(" ", ""), spec.shape, strict=False))
    return prod(extents.values())


@_handler_rule("_lstm", "aten::lstm")
@with_formula("steps x batch x directions x 4 H (I + H), I the width below each layer")
def torchprofile_lstm_macs(call: Site) -> int:
    """Return the MACs that torchprofile counts for an LSTM: steps x batch size x directions x the
    sum over layers of 4 H (I + H), for H units and input width I.
    """
    out, hidden = _torchprofile_result_shape(call), _torchprofile_result_shape(call, 1)
    width = hidden[-1]
    directions = out[-1] // width
    layers = hidden[0] // directions
    below = [call.shape("input", "data")[-1], *[width * directions] * (layers - 1)]
    return out[0] * out[1] * directions * sum(4 * width * (size + width) for size in below)


# Products by element, norms, averages and resampling.

_PRODUCTS = ("aten::mul", "aten::mul_")


def _has_integer_scalar_result(call: Site) -> bool:
    """Return whether the first result of a call is an integer without axes, such as the size of a
    tensor.
    """
    spec = call.outputs[0] if call.outputs else None
    return spec is not None and spec.shape == () and spec.dtype.startswith("int")


@traced.adds(_PRODUCTS, cause="elementwise.add-function", name="mul")
@with_formula("n(y) for a multiplication of tensors")
def torchprofile_tensor_product_operations(call: Site) -> int:
    """Return the MACs that torchprofile counts for a product of tensors: the number of result
    elements, or 0 if the result is an integer without axes.

    handlers.py: _mul.
    """
    return 0 if _has_integer_scalar_result(call) else prod(_torchprofile_result_shape(call))


@traced.adds(
    _PRODUCTS,
    cause="graph.shape-arithmetic-counted",
    name="shape-arithmetic",
    formula="1 for a product of integers that the tracer keeps as a scalar tensor",
)
def torchprofile_integer_product_operations(call: Site) -> int:
    """Return 1 for a product of integers that the trace keeps as a tensor without axes, such as
    sizes, else 0.

    handlers.py: _mul.
    """
    return int(_has_integer_scalar_result(call))


@with_formula("n(y), y the first result")
def torchprofile_result_elements(call: Site) -> int:
    """Return the number of elements of the first result.

    handlers.py: _norm, _avg_pool_or_mean, _leaky_relu.
    """
    return prod(_torchprofile_result_shape(call))


for norm in ("batch", "instance", "layer", "group"):
    name = f"{norm}_norm"
    traced.adds(f"aten::{name}", has("weight"), cause=f"norm.{norm}", name=name)(
        torchprofile_result_elements
    )
for name, cause in (("avg_pool", "pool.avg"), ("adaptive_avg_pool", "pool.adaptive")):
    nodes = tuple(f"aten::{name}{rank}d" for rank in (1, 2, 3))
    traced.adds(nodes, cause=cause, name=name)(torchprofile_result_elements)
traced.adds("aten::mean", cause="reduce.mean", name="mean")(torchprofile_result_elements)
traced.adds("aten::leaky_relu", cause="act.piecewise-other", name="leaky_relu")(
    torchprofile_result_elements
)
traced.adds(
    "aten::upsample_bilinear2d", cause="upsample.linear", name="upsample_bilinear2d", factor=4
)(torchprofile_result_elements)
for mode, number, factor in (("bilinear", 0, 4), ("bicubic", 2, 16)):
    traced.adds(
        "aten::grid_sampler",
        setting(interpolation_mode=number),
        cause="resample.grid",
        name=f"grid_sampler.{mode}",
        factor=factor,
    )(torchprofile_result_elements)

# Why contraction work is not seen.

unseen.misses(
    "string-padding",
    tuple(f"aten.conv{rank}d.padding" for rank in (1, 2, 3)),
    cause="conv.string-padding-unsupported",
)
unseen.misses("recurrent", ("aten.gru.*", "aten.rnn_tanh.*", "aten.rnn_relu.*"), cause="rnn.fused")

CONVENTIONS = (torchprofile.convention,)
