"""Define the convention of onnx-tool 1.0.1: MACs of an ONNX file, with its own weights for
operators that do no multiply-accumulates.

Source: onnx_tool/node.py and graph.py (github.com/ThanatosShinji/onnx-tool). Each registered
class infers a shape (see `onnx_tool_shapes`) and counts (`profile`); where none is registered the
tool warns, and then raises when it infers shapes. It looks at the type of an operator and never at
its domain, and into no function, loop or branch. `ratio`, by which a class would count operands,
is 1: the inputs are not known yet when it is set. n(X) is `volume` in tensor.py: the product of
the extents, and 0 for a shape without axes. A formula raises LookupError where the tool raises.
"""

from collections.abc import Callable
from math import prod
from typing import TypeAlias

from crossflops.ir.graph import Node
from crossflops.rules.conditions import Condition, Site, any_but, in_any_domain, setting
from crossflops.rules.rule import Parameters, Tool, with_formula
from crossflops.tools.onnx_tool_shapes import (
    LOST,
    READABLE,
    onnx_tool_shape,
    shape_element_count,
    with_onnx_tool_shapes,
)

_NODE, _GRAPH, _TENSOR = "onnx_tool/node.py", "onnx_tool/graph.py", "onnx_tool/tensor.py"
_RESIZE = ("Resize", "Upsample")
_Declare: TypeAlias = Callable[[Callable[[Node], int]], Callable[[Node], int]]

onnx_tool = Tool(
    "onnx-tool",
    edition="1.0.1",
    verified=("1.0.1",),
    prints="MACs",
    per_mac=1,
    level="node",
    unseen="op.unregistered-zero",
    counts_dead_work=True,
    opens=False,
    shapes=with_onnx_tool_shapes,
    source=f"{_GRAPH}: Graph.profile",
    parameters=Parameters(
        stored="used", scalar=0, reference=f"{_GRAPH}: Graph.profile; {_TENSOR}: volume"
    ),
)
unregistered, failing, counted = (onnx_tool.rules("node") for _ in range(3))


def _contraction_rule(
    name: str, cause: str, *types: str, where: tuple[Condition, ...] = ()
) -> _Declare:
    """Return a decorator that declares a function as the MACs of ONNX operators of these types."""
    source = f"{_NODE}: profile of {_onnx_tool_class_names(types)}"
    nodes = in_any_domain(*types)
    return counted.contraction(nodes, *where, cause=cause, name=name, source=source)


def _component_rule(
    name: str, cause: str, *types: str, where: tuple[Condition, ...] = (), weight: int = 1
) -> _Declare:
    """Return a decorator that declares a function as other operations of ONNX operators of these
    types, times `weight`.
    """
    source = f"{_NODE}: profile of {_onnx_tool_class_names(types)}"
    nodes = in_any_domain(*types)
    return counted.adds(nodes, *where, cause=cause, name=name, factor=weight, source=source)


def _failure_rule(name: str, *types: str) -> _Declare:
    """Return a decorator that declares a function as a failure of onnx-tool, in the rule `name`:
    if the function gives more than 0 for an operator of these types, the tool fails on it.
    """
    source = f"{_NODE}: {_onnx_tool_class_names(types)}"
    return failing.fails(in_any_domain(*types), cause="tool.error", name=name, source=source)


def _onnx_tool_class_names(types: tuple[str, ...]) -> str:
    """Return the names of onnx-tool's node classes for operator types, as one text with commas; at
    most three of them.
    """
    return ", ".join(f"{type_}Node" for type_ in (types[:1] if types == _RESIZE else types[:3]))


def _onnx_tool_input_shape(node: Node, index: int) -> tuple[int, ...]:
    """Return the shape that onnx-tool sees for the input at `index`; raise LookupError if the node
    has no such input.
    """
    if index >= len(node.inputs):
        raise LookupError(f"{node.key} has no tensor {index} among its inputs")
    return onnx_tool_shape(node.inputs[index])


@with_formula("n(Y), 0 for a scalar")
def onnx_tool_result_elements(node: Node) -> int:
    """Return the number of elements of the first result, or 0 if it has no axes."""
    if not node.outputs:
        raise LookupError(f"{node.key} has no outputs")
    return shape_element_count(onnx_tool_shape(node.outputs[0]))


@with_formula("n(X), 0 for a scalar")
def onnx_tool_input_elements(node: Node) -> int:
    """Return the number of elements of the first input, or 0 if it has no axes."""
    return shape_element_count(_onnx_tool_input_shape(node, 0))


@with_formula("max n(X_i)")
def onnx_tool_largest_input_elements(node: Node) -> int:
    """Return the number of elements of the largest input.

    Two inputs that broadcast each other have more results than that.

    node.py: _max_shape.
    """
    return max(shape_element_count(onnx_tool_shape(spec)) for spec in node.inputs)


# Contractions.


@_contraction_rule("conv", "graph.export-decomposition", "Conv")
@with_formula("n(Y) prod(W[1:]), also for a transposed one, where W is [C, M/g, k...]")
def onnx_tool_convolution_macs(node: Node) -> int:
    """Return the MACs that onnx-tool counts for a convolution, transposed or not: result elements
    x product of all weight axes except the first.
    """
    return onnx_tool_result_elements(node) * shape_element_count(
        _onnx_tool_input_shape(node, 1)[1:]
    )


_contraction_rule("conv_transpose", "conv.transpose-output-size", "ConvTranspose")(
    onnx_tool_convolution_macs
)


def _onnx_tool_kernel_macs(node: Node, kernel: tuple[int, ...]) -> int:
    """Return the MACs that onnx-tool counts for a convolution with a quantized weight: result
    elements x the second to fourth axes of the weight shape `kernel`.
    """
    if len(kernel) < 3:
        raise LookupError("a kernel without axes")
    return onnx_tool_result_elements(node) * prod(kernel[1:4])


@_contraction_rule("qlinear_conv", "conv.dim-unsupported", "QLinearConv")
@with_formula("n(Y) W[1] W[2] W[3], W the fourth input")
def onnx_tool_qlinear_convolution_macs(node: Node) -> int:
    """Return the MACs that onnx-tool counts for QLinearConv: result elements x the second to
    fourth axes of the weight.
    """
    return _onnx_tool_kernel_macs(node, _onnx_tool_input_shape(node, 3))


@_contraction_rule("conv_integer", "conv.dim-unsupported", "ConvInteger")
@with_formula("n(Y) W[1] W[2] W[3]")
def onnx_tool_integer_convolution_macs(node: Node) -> int:
    """Return the MACs that onnx-tool counts for ConvInteger: result elements x the second to
    fourth axes of the weight.
    """
    return _onnx_tool_kernel_macs(node, _onnx_tool_input_shape(node, 1))


def _depends_on_model_inputs(site: Site) -> bool:
    """Return whether the result of the ONNX node depends on the inputs of the model."""
    return site.node is not None and site.node.depends_on_inputs


_OF_VALUES = Condition("whose sizes depend on values", _depends_on_model_inputs)


@_contraction_rule("matmul", "matmul.broadcast-batch-lost", "Gemm", "MatMul", "MatMulInteger")
@_contraction_rule(
    "matmul.of-values", "graph.unknown-shape", "Gemm", "MatMul", where=(_OF_VALUES,)
)
@with_formula("n(Y) K")
def onnx_tool_gemm_macs(node: Node) -> int:
    """Return the MACs that onnx-tool counts for a matrix product: result elements x the summed
    axis K of the second operand.
    """
    depth = _onnx_tool_input_shape(node, 1)
    if len(_onnx_tool_input_shape(node, 0)) < 2 or len(depth) < 2:
        raise LookupError("Gemm and MatMul need two axes or more")
    transposed = node.op.type == "Gemm" and node.attrs.get("transB")
    return onnx_tool_result_elements(node) * depth[-1 if transposed else -2]


@_contraction_rule("qlinear_matmul", "matmul.broadcast-batch-lost", "QLinearMatMul")
@with_formula("n(A) B[-1], B the fourth input")
def onnx_tool_qlinear_matmul_macs(node: Node) -> int:
    """Return the MACs that onnx-tool counts for QLinearMatMul: elements of the first operand x
    last axis of the second.
    """
    return onnx_tool_input_elements(node) * _onnx_tool_input_shape(node, 3)[-1]


@_contraction_rule("einsum", "einsum.path-estimate", "Einsum")
@with_formula("prod(extents of all labels) of two operands, without an ellipsis")
def onnx_tool_einsum_macs(node: Node) -> int:
    """Return the MACs that onnx-tool counts for an einsum of two operands without an ellipsis: the
    product of the sizes of all labels.
    """
    equation = node.attrs["equation"]
    text = equation.decode() if isinstance(equation, bytes) else equation
    if not isinstance(text, str):
        raise TypeError("equation is no text")
    operands, arrow, result = text.replace(" ", "").partition("->")
    terms = operands.split(",")
    if len(terms) != 2 or not arrow:
        raise LookupError("two operands and an arrow are all that is known")
    extents: dict[str, int] = {}
    for index, term in enumerate(terms):
        for position, extent in enumerate(_onnx_tool_input_shape(node, index)):
            extents[term[position]] = extent
    if not set(result) <= set(extents):
        raise LookupError("an index of the result that no axis was found for")
    return prod(extents.values())


def _onnx_tool_sample_steps(node: Node) -> int:
    """Return steps x batch size of a recurrent layer, from the first two axes of its input."""
    steps, batch, *_ = _onnx_tool_input_shape(node, 0)
    return steps * batch


@_contraction_rule("rnn", "rnn.fused", "LSTM", "GRU")
@with_formula("T B (n(W) + n(R))")
def onnx_tool_recurrent_macs(node: Node) -> int:
    """Return the MACs that onnx-tool counts for an LSTM or a GRU: steps x batch size x number of
    elements of its two weight matrices.
    """
    return _onnx_tool_sample_steps(node) * (
        shape_element_count(_onnx_tool_input_shape(node, 1))
        + shape_element_count(_onnx_tool_input_shape(node, 2))
    )


# Work by element, by its weight.

for name, cause, weight, formula, types in (
    ("add", "elementwise.add-function", 1, onnx_tool_result_elements, ("Add", "Sub", "Mul")),
    ("div", "unit.weighted-op-cost", 4, onnx_tool_result_elements, ("Div",)),
    ("compare", "elementwise.native", 1, onnx_tool_result_elements, (
        "Min", "Max", "Neg", "Mod", "Abs", "Ceil", "Less", "LessOrEqual", "Equal", "Greater",
        "GreaterOrEqual", "Round", "Not", "And", "Or", "Xor", "NonZero", "Floor",
    )),
    ("batch_norm", "norm.batch", 31, onnx_tool_result_elements, ("BatchNormalization",)),
    ("lrn", "unit.weighted-op-cost", 37, onnx_tool_result_elements, ("LRN",)),
    ("sign", "elementwise.native", 1, onnx_tool_largest_input_elements, ("Sign", "CumSum")),
    ("quantize", "elementwise.native", 2, onnx_tool_largest_input_elements, (
        "QuantizeLinear", "DequantizeLinear", "ImageScaler",
    )),
    ("reciprocal", "unit.weighted-op-cost", 4, onnx_tool_largest_input_elements, ("Reciprocal",)),
    ("sqrt", "unit.weighted-op-cost", 24, onnx_tool_largest_input_elements, ("Sqrt",)),
    ("exp", "unit.weighted-op-cost", 32, onnx_tool_largest_input_elements, ("Exp", "Pow")),
    ("sin", "unit.weighted-op-cost", 39, onnx_tool_largest_input_elements, ("Sin", "Cos")),
    ("log", "unit.weighted-op-cost", 43, onnx_tool_largest_input_elements, ("Log",)),
    ("atan", "unit.weighted-op-cost", 64, onnx_tool_largest_input_elements, ("Atan",)),
    ("relu", "act.relu", 1, onnx_tool_largest_input_elements, ("Relu",)),
    ("clip", "act.piecewise-other", 2, onnx_tool_largest_input_elements, (
        "LeakyRelu", "PRelu", "Clip",
    )),
    ("hard_sigmoid", "act.piecewise-other", 4, onnx_tool_largest_input_elements, ("HardSigmoid",)),
    ("hard_swish", "act.piecewise-other", 5, onnx_tool_largest_input_elements, ("HardSwish",)),
    ("sigmoid", "act.transcendental", 32, onnx_tool_largest_input_elements, ("Sigmoid",)),
    ("gelu", "act.transcendental", 34, onnx_tool_largest_input_elements, ("Gelu",)),
    ("elu", "act.transcendental", 35, onnx_tool_largest_input_elements, ("Elu",)),
    ("tanh", "act.transcendental", 76, onnx_tool_largest_input_elements, ("Tanh", "Softplus")),
    ("softmax", "softmax", 36, onnx_tool_largest_input_elements, ("Softmax",)),
    ("log_softmax", "softmax", 80, onnx_tool_largest_input_elements, ("LogSoftmax",)),
    ("hardmax", "softmax", 1, onnx_tool_largest_input_elements, ("Hardmax",)),
    ("instance_norm", "norm.instance", 7, onnx_tool_largest_input_elements, (
        "InstanceNormalization",
    )),
    ("lp_norm", "unit.weighted-op-cost", 33, onnx_tool_largest_input_elements, (
        "LpNormalization",
    )),
    ("reduce", "reduce.mean", 1, onnx_tool_input_elements, (
        "ReduceMean", "ReduceSum", "ReduceProd", "ReduceMin", "ReduceMax",
    )),
    ("reduce_l2", "unit.weighted-op-cost", 25, onnx_tool_input_elements, ("ReduceL2",)),
):  # fmt: skip
    _component_rule(name, cause, *types, weight=weight)(formula)
for mode, weight in (("linear", 4), ("cubic", 8)):
    about = (setting(mode=mode),)
    _component_rule(f"resize.{mode}", "upsample.linear", *_RESIZE, where=about, weight=weight)(
        onnx_tool_result_elements
    )


@_component_rule("sum", "elementwise.add-function", "Sum")
@with_formula("(inputs - 1) max n(X_i)")
def onnx_tool_sum_adds(node: Node) -> int:
    """Return the additions that onnx-tool counts for Sum: (number of inputs - 1) x elements of the
    largest input.
    """
    return (len(node.inputs) - 1) * onnx_tool_largest_input_elements(node)


@_component_rule("layer_norm", "norm.layer", "LayerNormalization")
@with_formula("7 n(X) + 29 n(X) / X[axis], with the first axis only")
def onnx_tool_layer_norm_flops(node: Node) -> int:
    """Return the FLOPs that onnx-tool counts for a layer norm; of several normalized axes it uses
    only the first.
    """
    dims = _onnx_tool_input_shape(node, 0)
    axis = node.attrs.get("axis", -1)
    if not isinstance(axis, int):
        raise TypeError("axis is no number")
    rows = [1 if index == axis % len(dims) else extent for index, extent in enumerate(dims)]
    return 7 * shape_element_count(dims) + 29 * shape_element_count(tuple(rows))


@_component_rule("lrn.products", "unit.weighted-op-cost", "LRN")
@with_formula("n(Y) size, the products of a local response normalization")
def onnx_tool_local_response_products(node: Node) -> int:
    """Return the products that onnx-tool counts for a local response normalization: result
    elements x `size`.
    """
    size = node.attrs["size"]
    if not isinstance(size, int):
        raise TypeError("size is no number")
    return onnx_tool_result_elements(node) * size


@_component_rule("avg_pool", "pool.avg", "AveragePool")
@_component_rule("max_pool", "pool.max", "MaxPool")
@with_formula("n(Y) k; for a window of three axes k is only the first extent")
def onnx_tool_window_adds(node: Node) -> int:
    """Return the additions that onnx-tool counts for a pool: result elements x window positions;
    of a window with three axes it uses only the first.
    """
    kernel = node.attrs.get("kernel_shape", (3, 3))
    if not isinstance(kernel, tuple):
        raise TypeError("kernel_shape is no list")
    extents = [int(k) for k in kernel]
    return onnx_tool_result_elements(node) * (prod(extents) if len(extents) == 2 else extents[0])


@_component_rule("global_pool", "pool.adaptive", "GlobalAveragePool")
@with_formula("n(X) + 4 n(Y)")
def onnx_tool_global_average_operations(node: Node) -> int:
    """Return the operations that onnx-tool counts for a global average pool: number of input
    elements + 4 for each result element.
    """
    return onnx_tool_input_elements(node) + 4 * onnx_tool_result_elements(node)


@_component_rule("conv_bias", "bias.conv", "Conv", "ConvTranspose")
@with_formula("n(Y) if a third input is listed, even with an empty name")
def onnx_tool_convolution_bias_adds(node: Node) -> int:
    """Return the additions that onnx-tool counts for the bias of a convolution: the number of
    result elements, or 0 without a third input.
    """
    return onnx_tool_result_elements(node) if len(node.inputs) > 2 else 0


@_component_rule("quantized_bias", "bias.conv", "QLinearConv")
@with_formula("n(Y) if a ninth input is listed")
def onnx_tool_qlinear_bias_adds(node: Node) -> int:
    """Return the additions that onnx-tool counts for the bias of QLinearConv: the number of result
    elements, or 0 without a ninth input.
    """
    return onnx_tool_result_elements(node) if len(node.inputs) == 9 else 0


@_component_rule("gemm_bias", "bias.linear", "Gemm", "MatMulInteger")
@with_formula("n(Y) if exactly three inputs are listed")
def onnx_tool_gemm_bias_adds(node: Node) -> int:
    """Return the additions that onnx-tool counts for the bias of Gemm: the number of result
    elements, or 0 without exactly three inputs.
    """
    return onnx_tool_result_elements(node) if len(node.inputs) == 3 else 0


@_component_rule("rnn_bias", "bias.rnn", "LSTM", "GRU")
@with_formula("T B n(B), B the fourth input, which is required")
def onnx_tool_recurrent_bias_adds(node: Node) -> int:
    """Return the additions that onnx-tool counts for the biases of an LSTM or a GRU: steps x batch
    size x number of bias elements.
    """
    return _onnx_tool_sample_steps(node) * shape_element_count(_onnx_tool_input_shape(node, 3))


@_component_rule("lstm", "rnn.gate-elementwise", "LSTM", weight=180)
@with_formula("T B H, with H = W[1] / 4")
def onnx_tool_lstm_unit_steps(node: Node) -> int:
    """Return steps x batch size x units of an LSTM, for which onnx-tool counts 180 operations
    each, also with two directions.
    """
    return _onnx_tool_sample_steps(node) * (_onnx_tool_input_shape(node, 1)[1] // 4)


@_component_rule("gru", "rnn.gate-elementwise", "GRU", weight=110)
@with_formula("T B H, with H = W[1] / 3")
def onnx_tool_gru_unit_steps(node: Node) -> int:
    """Return steps x batch size x units of a GRU, for which onnx-tool counts 110 operations each,
    also with two directions.
    """
    if len(node.outputs) < 2:
        raise LookupError("the second result has to be listed")
    return _onnx_tool_sample_steps(node) * (_onnx_tool_input_shape(node, 1)[1] // 3)


counted.misses(
    "lost", str(LOST), cause="graph.lost-nodes", source=f"{_GRAPH}: Graph.topsort_nodes"
)

# Where the tool fails: on what it has no class for, and where a class lacks what it asks for.

_SILENT = in_any_domain(
    "ArgMax", "Cast", "Compress", "Concat", "Constant", "ConstantOfShape", "DepthToSpace",
    "Dropout", "Erf", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "GridSample",
    "Identity", "NonMaxSuppression", "OneHot", "Pad", "RandomNormalLike", "RandomUniformLike",
    "Range", "Reshape", "RoiAlign", "ScatterElements", "ScatterND", "Shape", "Slice", "Split",
    "Squeeze", "Tile", "TopK", "Transpose", "Trilu", "Unsqueeze", "Where",
)  # fmt: skip
# What only other domains have, by name alone.
_FOREIGN = ("*.ArrayFeatureExtractor", "*.ZipMap", "*.CategoryMapper", "Scan")
_COUNTED = dict.fromkeys(name for rule in counted.rules for name in rule.targets)
unregistered.refuses(
    "unregistered",
    any_but(*_COUNTED, *_SILENT, *_FOREIGN),
    cause="tool.error",
    source=f"{_NODE}: Node.value_infer",
)


@failing.fails(
    cause="tool.error",
    source=f"{_TENSOR}: onnxdtype2npdtype",
    formula="number of stored tensors of a type unknown to the tool: bfloat16, uint32, int4",
    name="unreadable",
)
def unreadable_tensor_count(node: Node) -> int:
    """Return the number of stored tensors with an element type that onnx-tool cannot read, such as
    bfloat16.
    """
    return sum(
        spec is not None and spec.role in ("parameter", "constant") and spec.dtype not in READABLE
        for spec in node.inputs
    )


@_failure_rule("modeless", *_RESIZE)
@with_formula("1 if the attribute mode is missing")
def lacks_mode_attribute(node: Node) -> int:
    """Return 1 if the attribute `mode` is missing, so that onnx-tool fails, else 0."""
    return int("mode" not in node.attrs)


@_failure_rule("axisless", "Split", "TopK")
@with_formula("1 if the attribute axis is missing (TopK: only if X has several axes)")
def lacks_axis_attribute(node: Node) -> int:
    """Return 1 if the attribute `axis` is missing, so that onnx-tool fails, else 0."""
    alone = node.op.type == "TopK" and len(_onnx_tool_input_shape(node, 0)) == 1
    return int("axis" not in node.attrs and not alone)


@_failure_rule("valueless", "Constant")
@with_formula("1 if the value is a number, a text or a list, not a tensor")
def lacks_tensor_value(node: Node) -> int:
    """Return 1 if a Constant has a number, a text or a list instead of a tensor, so that onnx-tool
    fails, else 0.
    """
    return int(any(name.startswith("value_") for name in node.attrs))


@_failure_rule("scan", "Scan")
@with_formula("1 with fewer than 4 inputs or fewer than 5 results")
def has_too_few_scan_operands(node: Node) -> int:
    """Return 1 if a Scan has fewer than 4 inputs or fewer than 5 results, so that onnx-tool fails,
    else 0.
    """
    return int(len(node.inputs) < 4 or len(node.outputs) < 5)


CONVENTIONS = (onnx_tool.convention,)
