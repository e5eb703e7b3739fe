"""Define the convention of onnx_opcounter 0.0.4: MACs of an ONNX file, and the number of result
elements for each operator that it does not know.

Source: onnx_opcounter/onnx_opcounter.py (github.com/gmalivenko/onnx-opcounter), `calculate_macs`.
It takes the shapes that onnx.shape_inference gives in its strict mode; where that raises, those of
a run in onnxruntime. It looks at the type of an operator and never at its domain, and into no
function, loop or branch. A shape without axes is np.prod(()) = 1 there. A formula raises
LookupError where the tool does.
"""

from math import prod

from crossflops.ir.graph import Node
from crossflops.rules.conditions import any_but, in_any_domain, setting
from crossflops.rules.prediction import WHOLE, keep_shapes_of_graph
from crossflops.rules.rule import Parameters, Tool, with_formula

_SOURCE = "onnx_opcounter.py: calculate_macs"
_READABLE = ("float32", "int64", "float64")  # the keys of type_mapping: 1, 7, 11
_ADD, _RELU = in_any_domain("Add"), in_any_domain("Relu")
_NORM = in_any_domain("BatchNormalization")
_CONV, _TRANSPOSED = in_any_domain("Conv"), in_any_domain("ConvTranspose")
_PRODUCTS, _RESIZE = in_any_domain("Gemm", "MatMul"), in_any_domain("Upsample", "Resize")
_SILENT = in_any_domain(
    "Constant", "Reshape", "Slice", "Shape", "Gather", "ScatterND", "Tile", "Transpose", "Sign",
    "Squeeze", "Unsqueeze", "Split", "Cast",
)  # fmt: skip
# Without a rule, and they compute nothing.
_MOVING = in_any_domain(
    "Identity", "Concat", "Flatten", "Expand", "Pad", "ConstantOfShape", "GatherElements",
    "GatherND", "ScatterElements", "DepthToSpace", "SpaceToDepth", "Dropout", "Trilu", "Size",
    "Range", "EyeLike", "OneHot", "CastLike", "ReverseSequence", "Compress",
)  # fmt: skip
_RULED = (*_CONV, *_TRANSPOSED, *_PRODUCTS, *_NORM, *_RELU, *_ADD, *_SILENT, *_RESIZE)

opcounter = Tool(
    "onnx-opcounter",
    edition="0.0.4",
    verified=("0.0.4",),
    prints="MACs",
    per_mac=1,
    level="node",
    unseen="op.unregistered-zero",
    counts_dead_work=True,
    opens=False,
    shapes=keep_shapes_of_graph,
    source=_SOURCE,
    parameters=Parameters(stored="all", reference="onnx_opcounter.py: calculate_params"),
)
file = opcounter.rules("graph", source=_SOURCE)
nodes = opcounter.rules("node", source=_SOURCE)


def _opcounter_shape(node: Node, kind: str, index: int = 0) -> tuple[int, ...]:
    """Return the shape of the input or output at `index`; raise LookupError if the node omits this
    tensor, ValueError if its shape is unknown.
    """
    specs = getattr(node, kind)
    spec = specs[index] if index < len(specs) else None
    if spec is None or not spec.name:
        raise LookupError(f"{node.key} has no tensor {index} among its {kind}")
    if spec.shape is None:
        raise ValueError("a shape is not known")
    dims: tuple[int, ...] = spec.shape
    return dims


# Where the tool fails.


@file.fails(
    WHOLE,
    cause="tool.error",
    name="input",
    formula="number of model inputs that are not float32, float64 or int64",
)
def unreadable_input_count(graph: Node) -> int:
    """Return the number of model inputs with an element type that onnx_opcounter cannot read."""
    return sum(spec is not None and spec.dtype not in _READABLE for spec in graph.inputs)


@nodes.fails(cause="tool.error", formula="1 if the first result has no name", name="nameless")
def has_nameless_result(node: Node) -> int:
    """Return 1 if the first result of the node has no name, so that onnx_opcounter fails, else
    0.
    """
    first = node.outputs[0] if node.outputs else None
    return int(bool(node.outputs) and (first is None or not first.name))


@nodes.fails(
    "*.*",
    any_but("ai.onnx.*"),
    cause="tool.error",
    formula="1 if neither onnx.shape_inference nor the file gives the shapes of the results",
    name="foreign",
)
def has_unknown_custom_shapes(node: Node) -> int:
    """Return 1 if the result shapes of a custom operator are unknown, so that onnx_opcounter
    fails, else 0.

    Shape inference knows the results of a function, and the file has the types of the model's
    outputs.

    It tells those of a function, and the file has the types of its outputs.
    """
    first = node.outputs[0] if node.outputs else None
    stated = first is not None and first.role == "output"
    return int(node.choice != "function" and not stated)


nodes.refuses("cubic", _RESIZE, setting(mode="cubic"), cause="tool.error")


# Contractions.


@nodes.contraction(_TRANSPOSED, cause="conv.transpose-output-size", name="conv_transpose")
@nodes.contraction(_CONV, cause="graph.export-decomposition", name="conv")
@with_formula(
    "n(Y) (C // g) prod(k), C axis 1 of X, k the attribute kernel_shape, which is required"
)
def opcounter_convolution_macs(node: Node) -> int:
    """Return the MACs that onnx_opcounter counts for a convolution, transposed or not: result
    elements x input channels per group x kernel positions.
    """
    kernel = node.attrs["kernel_shape"]
    group = node.attrs.get("group", 1)
    if not isinstance(kernel, tuple) or not isinstance(group, int):
        raise TypeError("kernel_shape or group is of another kind")
    channels = _opcounter_shape(node, "inputs")[1]
    return prod(_opcounter_shape(node, "outputs")) * (channels // group) * prod(map(int, kernel))


@nodes.contraction(_PRODUCTS, cause="matmul.broadcast-batch-lost", name="matmul")
@with_formula(
    "n(A) Y[-1]: batch axes that only B has are ignored; if B is a vector, Y[-1] is an axis of A"
)
def opcounter_matmul_macs(node: Node) -> int:
    """Return the MACs that onnx_opcounter counts for a matrix product: number of elements of the
    first operand x last axis of the result.
    """
    return prod(_opcounter_shape(node, "inputs")) * _opcounter_shape(node, "outputs")[-1]


# The rest.


@nodes.adds(_ADD, cause="elementwise.add-function", name="add")
@nodes.adds(_RELU, cause="act.relu", name="relu")
@with_formula("n(A), also if B is larger")
def opcounter_input_elements(node: Node) -> int:
    """Return the operations that onnx_opcounter counts for an addition or a ReLU: the number of
    elements of the first input.
    """
    return prod(_opcounter_shape(node, "inputs"))


_OTHERS = any_but(*_RULED, *_MOVING)


@nodes.adds("*", _OTHERS, cause="op.unregistered-nonzero", name="unknown")
@nodes.adds(_MOVING, cause="graph.identity-or-constant-nodes", name="moving")
@nodes.adds(_RESIZE, setting(mode="linear"), cause="upsample.linear", name="linear", factor=11)
@nodes.adds(_NORM, cause="norm.batch", name="batch_norm", factor=2)
@with_formula("n(Y), for any operator")
def opcounter_output_elements(node: Node) -> int:
    """Return the operations that onnx_opcounter counts for other operators, before the factor of
    the rule: the number of elements of the first result.
    """
    return prod(_opcounter_shape(node, "outputs"))


# Why contraction work is not seen.

for name, cause, types in (
    ("rnn", "rnn.fused", ("LSTM", "GRU", "RNN")),
    ("attention", "attention.sdpa", ("Attention",)),
    ("einsum", "einsum.path-estimate", ("Einsum",)),
    ("loop", "control.loop-body-once", ("Loop", "Scan", "SequenceMap")),
    ("if", "control.branch", ("If",)),
):
    nodes.misses(name, in_any_domain(*types), cause=cause)

CONVENTIONS = (opcounter.convention,)
