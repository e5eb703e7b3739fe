"""Sizes that are known, told to an inference that does not follow how they were computed."""

import struct
from typing import Any

from crossflops.frontends.onnx.loops import levels
from crossflops.frontends.onnx.types import of_graph
from crossflops.frontends.onnx.values import FLOATS, MATRIX, SEQUENCE, Value

# Operators whose result has a shape that the values of their inputs say, and the first of these.
SIZED = {
    **dict.fromkeys(("ConstantOfShape", "Range"), 0),
    **dict.fromkeys(("BlackmanWindow", "HammingWindow", "HannWindow", "MelWeightMatrix"), 0),
    **dict.fromkeys(("AffineGrid", "CenterCropPad", "Col2Im", "DFT", "MaxUnpool"), 1),
    **dict.fromkeys(("OneHot", "STFT", "TopK", "Upsample"), 1),
    **dict.fromkeys(("Expand", "Pad", "Reshape", "Resize", "Slice", "Split", "Tile"), 1),
    **dict.fromkeys(("Squeeze", "Unsqueeze", "ReduceMean", "ReduceSum"), 1),  # their axes
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceMax", "ReduceMin", "ReduceProd"), 1),
    **dict.fromkeys(("ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"), 1),
}
_PIN = "#known"
_FORMATS = {6: "i", 7: "q"}  # TensorProto.INT32 and INT64
_KINDS = {**dict.fromkeys(_FORMATS, ""), **FLOATS}  # of the values of a type that is pinned


def pin(graph: Any) -> bool:
    """Let nodes whose result has no shape read the sizes that are known as constants, in place.

    Whether there is any. `unpinned` gives the name of the value that a constant stands for.
    """
    pinned = False
    for around in levels(graph):
        types = of_graph(around.graph)
        for node in around.graph.node:
            first = SIZED.get(node.op_type)
            if first is None or node.domain not in ("", "ai.onnx"):
                continue
            if all(around.shapes.get(name) is not None for name in node.output if name):
                continue
            for place, name in enumerate(node.input[first:], first):
                value = around.values.get(name)
                kind = types[name].dtype if name in types else 7
                if value is None or value.rank in (SEQUENCE, MATRIX):
                    continue
                if _KINDS.get(kind) != value.kind:
                    continue
                if name.endswith(_PIN) or (
                    node.op_type == "Split" and min(value.items, default=0) < 0
                ):
                    continue  # a branch that never runs may hold what no tensor can have
                node.input[place] = f"{name}{_PIN}"
                store(around.graph, node.input[place], kind, value)
                pinned = True
    return pinned


def store(graph: Any, name: str, kind: int, value: Value) -> None:
    """Add an initializer of that type: INT32, INT64 or a float."""
    form = value.kind or _FORMATS[kind]
    graph.initializer.add(
        name=name,
        data_type=kind,
        dims=[len(value.items)] * value.rank,
        raw_data=struct.pack(f"<{len(value.items)}{form}", *value.items),
    )


def unpinned(name: str) -> str:
    """The name of a value in the file."""
    return name.removesuffix(_PIN)
