"""Define the convention of fvcore.nn.FlopCountAnalysis: MACs of contractions, which it calls
flops, plus operations of norms.

It looks at the nodes of a graph that torch.jit traces, one by one, so the rules do, too. A formula
raises LookupError where the handle of the tool asserts or fails. Sources: fvcore/nn/flop_count.py
(`_DEFAULT_SUPPORTED_OPS`) and fvcore/nn/jit_handles.py.
"""

from collections.abc import Iterable
from math import prod
from typing import Any

import numpy as np

from crossflops.rules.conditions import (
    Site,
    has,
    input_elements,
    lacks,
    of_complex,
    output_elements,
    setting,
)
from crossflops.rules.rule import Parameters, Teaching, Tool, with_formula

_HANDLES, _COUNT = "fvcore/nn/jit_handles.py", "fvcore/nn/flop_count.py"
_TRACED, _MISSING = "fvcore/nn/jit_analysis.py", f"{_COUNT}: no handle for"
_EXPORT = "graph.export-decomposition"

fvcore = Tool(
    "fvcore",
    edition="0.1.5",
    verified=("0.1.5.post20221221",),
    prints="flops",
    per_mac=1,
    level="traced",
    unseen="op.unregistered-zero",
    runs={"hooked": True},
    counts_stored=True,
    source=_COUNT,
    parameters=Parameters(reference="fvcore/nn/parameter_count.py: parameter_count"),
    teaching=Teaching(
        mechanism="set_op_handle of FlopCountAnalysis",
        takes="operator",
        level="traced",
        source="fvcore/nn/jit_analysis.py: set_op_handle",
    ),
)

# What no handle looks into, and numbers that count like real ones: these rules come first.

fvcore.rules("function").hides(
    "opaque-function",
    ("torch.autograd.Function.apply", "torch.jit.ScriptFunction.__call__"),
    cause="function.opaque",
    source=f"{_TRACED}: _should_ignore_node: prim::PythonOp, prim::CallFunction",
)
opaque = fvcore.rules("traced")
opaque.refuses(
    "not-traced",
    "untraced",
    cause="tool.error",
    source=f"{_TRACED}: _get_scoped_trace_graph: torch.jit._get_trace_graph",
)
opaque.hides(
    "native-attention-module",
    ("aten::_native_multi_head_attention", "aten::_transformer_encoder_layer_fwd"),
    cause="attention.module-fastpath",
    source=f"{_MISSING} aten::_native_multi_head_attention",
)
complex_numbers = fvcore.rules("traced", of_complex(), source=_HANDLES)
traced = fvcore.rules("traced", source=_HANDLES)
unseen = fvcore.rules("operator")


# Contractions; tensors are named as in the schema of the operator.


@traced.contraction(
    "aten::_convolution", cause=_EXPORT, source=f"{_HANDLES}: conv_flop_jit", name="convolution"
)
@with_formula("x[0] x n(W) x prod(y[2:]), x instead of y when transposed")
def fvcore_convolution_macs(call: Site) -> int:
    """Return the MACs that fvcore counts for a convolution: batch size x number of weight elements
    x output positions (input positions if it is transposed).
    """
    source, weight = call.shape("input"), call.shape("weight")
    shape = source if call.settings["transposed"] else call.result.shape
    if shape is None:
        raise LookupError("the result has no shape")
    return source[0] * prod(weight) * prod(shape[2:])


@traced.contraction(
    "aten::linear", cause=_EXPORT, source=f"{_HANDLES}: linear_flop_jit", name="linear"
)
@with_formula("n(x) W[0]; if W is a vector, W[0] is its number of inputs")
def fvcore_linear_macs(call: Site) -> int:
    """Return the MACs that fvcore counts for aten::linear: number of input elements x first axis
    of the weight.
    """
    return prod(call.shape("input")) * call.shape("weight")[0]


@traced.contraction(
    "aten::addmm", cause=_EXPORT, source=f"{_HANDLES}: addmm_flop_jit", name="addmm"
)
@with_formula("n x m x p of [n, m] and [m, p], the second and the third operand")
def fvcore_addmm_macs(call: Site) -> int:
    """Return the MACs that fvcore counts for addmm: n x m x p for the product of an [n, m] and an
    [m, p] matrix.
    """
    first, second = call.shape("mat1"), call.shape("mat2")
    if len(first) != 2 or len(second) != 2:
        raise LookupError("fvcore asserts matrices of two axes")
    return prod(first) * second[1]


@traced.contraction("aten::bmm", cause=_EXPORT, source=f"{_HANDLES}: bmm_flop_jit", name="bmm")
@with_formula("b x n x m x p of [b, n, m] and [b, m, p]")
def fvcore_bmm_macs(call: Site) -> int:
    """Return the MACs that fvcore counts for bmm: b x n x m x p for the product of [b, n, m] and
    [b, m, p].
    """
    return prod(call.shape("self")) * call.shape("mat2")[-1]


@traced.contraction(
    ("aten::matmul", "aten::mm"),
    cause="matmul.broadcast-batch-lost",
    source=f"{_HANDLES}: matmul_flop_jit",
    name="matmul",
)
@with_formula("prod(A) x B[-1]: batch axes that only B has are ignored")
def fvcore_matmul_macs(call: Site) -> int:
    """Return the MACs that fvcore counts for a matrix product: number of elements of the first
    operand x last axis of the second.
    """
    first, second = call.shape("self"), call.shape("other", "mat2")
    if len(second) < 2:
        raise LookupError("fvcore fails on a product with a vector")
    return prod(first) * second[-1]


@traced.contraction(
    "aten::einsum",
    cause="einsum.path-estimate",
    source=f"{_HANDLES}: einsum_flop_jit",
    name="einsum",
)
@with_formula(
    "F / 2, F the FLOPs that numpy.einsum_path prints, to four digits; b n m p for two equations"
)
def fvcore_einsum_macs(call: Site) -> int:
    """Return the MACs that fvcore counts for an einsum: half of the FLOPs that numpy.einsum_path
    prints, or exact MACs for two equations that fvcore knows.

    NumPy's errors (capital letters among them, which become others) are its own.
    """
    equation = str(call.settings["equation"]).replace(" ", "")
    letters = dict.fromkeys(letter for letter in equation if letter.isalpha())
    names = {ord(letter): 97 + index for index, letter in enumerate(letters)}
    shapes = [spec.shape for spec in call.inputs if spec.name.startswith("tensors.")]
    known = equation.translate(names)
    if known in {"abc,abd->acd", "abc,adc->adb"}:
        (n, c, t), last = shapes[0] or (), shapes[-1] or ()
        return n * c * t * last[-1 if known.endswith("acd") else 1]
    return _einsum_path_macs(known, shapes)


def _einsum_path_macs(equation: str, shapes: Iterable[tuple[int, ...] | None]) -> int:
    """Return half of the FLOPs, rounded down, that numpy.einsum_path prints for the best order of
    an einsum.
    """
    arrays = [np.broadcast_to(np.zeros(()), shape or ()) for shape in shapes]
    printed = np.einsum_path(equation, *arrays, optimize="optimal")[1]
    line = next(row for row in printed.split("\n") if "optimized flop" in row.lower())
    return int(float(line.split(":")[-1]) // 2)


_FORMULAS: dict[str, Any] = {node: rule.amount for rule in traced.rules for node in rule.targets}


@complex_numbers.contraction(
    tuple(_FORMULAS),
    cause="contraction.complex",
    name="complex",
    formula="the formula for real numbers: one MAC per complex product",
)
def fvcore_complex_contraction_macs(call: Site) -> int:
    """Return the MACs that fvcore counts for a contraction of complex numbers: one for each
    complex product, as for real numbers.
    """
    return int(_FORMULAS[call.target](call))


# Norms, pools and resampling.


@with_formula("n(x), x of 2 to 5 axes")
def fvcore_norm_elements(call: Site) -> int:
    """Return the number of input elements of a norm, for which fvcore requires 2 to 5 axes.

    jit_handles.py: norm_flop_counter asserts them.
    """
    if not 2 <= len(call.shape("input")) <= 5:
        raise LookupError("fvcore asserts that a norm's input has 2 to 5 axes")
    return input_elements(call)


for name, cause, formula, mode in (
    ("batch_norm.eval", "norm.batch", input_elements, (setting(training=False),)),
    ("batch_norm.train", "norm.batch", fvcore_norm_elements, (setting(training=True),)),
    ("layer_norm", "norm.layer", fvcore_norm_elements, ()),
    ("group_norm", "norm.group", fvcore_norm_elements, ()),
    ("instance_norm", "norm.instance", fvcore_norm_elements, ()),
):
    node, factor = f"aten::{name.partition('.')[0]}", 2 if formula is input_elements else 5
    affine, plain = f"{name}.affine", f"{name}.plain"
    traced.adds(node, *mode, has("weight"), cause=cause, name=affine, factor=factor)(formula)
    traced.adds(node, *mode, lacks("weight"), cause=cause, name=plain, factor=factor - 1)(formula)
for name, cause, factor, formula in (
    ("adaptive_avg_pool2d", "pool.adaptive", 1, input_elements),
    ("upsample_nearest2d", "upsample.nearest", 1, output_elements),
    ("upsample_bilinear2d", "upsample.linear", 4, output_elements),
    ("grid_sampler", "resample.grid", 4, output_elements),
):
    traced.adds(f"aten::{name}", cause=cause, name=name, factor=factor)(formula)

# Why contraction work is not seen.

unseen.misses(
    "string-padding",
    tuple(f"aten.conv{rank}d.padding" for rank in (1, 2, 3)),
    cause="conv.string-padding-unsupported",
    source=f"{_MISSING} aten::_convolution_mode",
)
unseen.misses(
    "attention",
    "aten.scaled_dot_product_attention.default",
    cause="attention.sdpa",
    source=f"{_MISSING} aten::scaled_dot_product_attention",
)
unseen.misses(
    "recurrent",
    ("aten.lstm.*", "aten.gru.*", "aten.rnn_tanh.*", "aten.rnn_relu.*"),
    cause="rnn.fused",
    source=f"{_MISSING} aten::lstm, gru, rnn_tanh, rnn_relu",
)

CONVENTIONS = (fvcore.convention,)
