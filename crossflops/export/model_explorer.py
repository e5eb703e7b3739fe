"""Node data for Google's model-explorer: one number for each node, and colours for them.

The form is that of `GraphNodeData` in model_explorer/node_data_builder.py: `results` by the id of
the node, and a `gradient` from the smallest to the largest value. Its ONNX adapter
(model-explorer-onnx) gives a node its name for an id, and a nameless one its place.
https://github.com/google-ai-edge/model-explorer/wiki/2.-User-Guide
"""

from collections.abc import Iterable
from typing import Literal

import msgspec

from crossflops.export.onnx_file import NodeNote

_GRADIENT = (
    {"stop": 0, "bgColor": "#ffffff", "textColor": "#000000"},
    {"stop": 1, "bgColor": "#d94801", "textColor": "#ffffff"},
)


def node_data(notes: Iterable[NodeNote], unit: Literal["macs", "flops"] = "macs") -> str:
    """The file: a node without a count has no value, which is not zero. Ends with a newline."""
    results = {
        note.id: {"value": getattr(note.cost, unit)} for note in notes if not note.uncounted
    }
    plain = {"results": results, "gradient": _GRADIENT}
    return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode() + "\n"
