"""Shapes of operators that ONNX's own inference does not know: onnxruntime's, and of ai.onnx.ml.

In: a node without shapes. Out: nodes of ai.onnx with the same shapes, which stand in for it while
ONNX infers, so that one run goes through the whole graph, bodies and small values included. They
say nothing of what the node computes: `crossflops/operators/contrib` does.
May import: frontends, load.
"""

from typing import Any

from crossflops.load.order import bodies

_DOMAINS = ("com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc", "ai.onnx.ml")
_CONTROL = ("If", "Loop", "Scan", "SequenceMap")
# Of ai.onnx: those that onnxruntime adds to it, and that ONNX has dropped.
_ADDED = (
    *("SimplifiedLayerNormalization", "LayerNormalization", "MemcpyFromHost", "MemcpyToHost"),
    *("Affine", "Crop", "ImageScaler", "ParametricSoftplus", "Scale", "ScaledTanh"),
)


def foreign(node: Any) -> bool:
    """Whether ONNX's own inference does not know the operator."""
    if node.domain == "ai.onnx.preview":
        return bool(node.op_type == "FlexAttention")
    return node.domain in _DOMAINS or (not node.domain and node.op_type in _ADDED)


def concerned(graph: Any) -> bool:
    """Whether any node may need a stand-in."""
    return any(
        foreign(node) or (node.op_type in _CONTROL and any(map(concerned, bodies(node))))
        for node in graph.node
    )
