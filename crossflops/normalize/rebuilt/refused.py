"""What no rewriting of an ONNX model helps, said in one line."""

from typing import Any

from crossflops.errors import NormalizeError
from crossflops.normalize.rebuilt.facts import READ_IT

_CONTROL = ("If", "Loop", "Scan", "SequenceMap")
_QUANTIZED = ("QuantizeLinear", "DequantizeLinear", "Integer", "QLinear")


def refuse(model: Any, into: str) -> None:
    """Raises NormalizeError for subgraphs and quantized operators; `into` is what is rebuilt."""
    bodies = (model.graph, *model.functions)
    for node in (node for body in bodies for node in body.node):
        name = f"{node.op_type} {node.name}".strip()
        if node.op_type in _CONTROL:
            what = f"{name} has subgraphs, and no {into} is rebuilt from these"
            raise NormalizeError(what, READ_IT)
        if any(word in node.op_type for word in _QUANTIZED):
            what = f"{name} is quantized, and no layer that a tool knows comes of it"
            raise NormalizeError(what, f"give the file from before it was quantized; {READ_IT}")
