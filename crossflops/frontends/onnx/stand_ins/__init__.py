"""Shapes of operators that ONNX's own inference does not know: onnxruntime's, and of ai.onnx.ml.

In: a node without shapes. Out: nodes of ai.onnx with the same shapes, which stand in for it while
ONNX infers, so that one run goes through the whole graph, bodies and small values included. They
say nothing of what the node computes: `crossflops/operators/contrib` does.
May import: frontends, load.
"""

from typing import Any

from crossflops.load.order import node_subgraphs

_QUANTIZERS = ("qonnx.custom_op.general", "finn.custom_op.general", "onnx.brevitas")
_DOMAINS = (
    *("com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc", "ai.onnx.ml"),
    *_QUANTIZERS,
)
_CONTROL = ("If", "Loop", "Scan", "SequenceMap")
# Of ai.onnx: those that onnxruntime adds to it, and that ONNX has dropped.
_ADDED = (
    *("SimplifiedLayerNormalization", "MemcpyFromHost", "MemcpyToHost"),
    *("Affine", "Crop", "ImageScaler", "ParametricSoftplus", "Scale", "ScaledTanh"),
    *("ConvGrad", "ConvTransposeGrad", "SinGrad", "ReshapeGrad", "SparseSoftmaxCrossEntropy"),
    "SparseSoftmaxCrossEntropyGrad",
)


# Operators of ai.onnx that ONNX infers from a version on: its own first versions had no
# inference, and those of onnxruntime came before ONNX had them.
_SINCE = {
    **dict.fromkeys(
        (
            *("Abs", "Add", "BatchNormalization", "Cast", "Ceil", "Clip", "Div", "Dropout", "Elu"),
            *("Exp", "Floor", "Gemm", "HardSigmoid", "InstanceNormalization", "LeakyRelu", "Log"),
            *("Max", "Mean", "Min", "Mul", "Neg", "PRelu", "Reciprocal", "Relu", "Selu"),
            *("Sigmoid", "Sqrt", "Sub", "Sum", "Tanh", "Tile"),
        ),
        6,
    ),
    **dict.fromkeys(("GlobalLpPool", "LpPool", "Pad", "Split"), 2),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), 7),
    "Concat": 4,
    "Reshape": 5,
    "Upsample": 7,
    "LayerNormalization": 17,
}
_OPSET = 21  # of stand-ins where the file has none


def substitute_opset(model: Any) -> int:
    """Return the version of ai.onnx for substitute nodes: that of the model, or a default."""
    versions = [int(opset.version) for opset in model.opset_import if not opset.domain]
    return versions[-1] if versions else _OPSET  # of two the last, as for ONNX's inference


def lacks_onnx_inference(domain: str, operator: str, opset: int) -> bool:
    """Return whether ONNX itself cannot infer the shapes of an operator in this version."""
    if domain == "ai.onnx.preview":
        return operator == "FlexAttention"
    if domain:
        return domain in _DOMAINS
    return operator in _ADDED or opset < _SINCE.get(operator, 0)


def has_operator_without_inference(graph: Any, opset: int) -> bool:
    """Return whether a graph, or one in it, has an operator whose shapes ONNX cannot infer."""
    operators = {(node.domain, node.op_type) for node in graph.node}
    if any(lacks_onnx_inference(*operator, opset) for operator in operators):
        return True
    return any(operator in _CONTROL for _, operator in operators) and any(
        has_operator_without_inference(body, opset)
        for node in graph.node
        if node.op_type in _CONTROL
        for body in node_subgraphs(node)
    )
