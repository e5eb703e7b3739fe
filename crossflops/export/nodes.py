"""Where the nodes of a model file lie, in bytes. No weight is read.

Field numbers are those of onnx.proto, https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
"""

from collections.abc import Iterator
from typing import NamedTuple

from crossflops.errors import TargetError
from crossflops.load.wire import BYTES, HINT, Data, Field, fields

GRAPH, NODE, METADATA = 7, 1, 9  # ModelProto.graph, GraphProto.node, NodeProto.metadata_props
_OUTPUT, _NAME, _OP_TYPE = 2, 3, 4


class FileNode(NamedTuple):
    """A node of the main graph: its place among the others, names, and its field in the graph.

    `result` is the name of its first result.
    """

    number: int
    name: str
    op_type: str
    result: str
    field: Field

    @property
    def id(self) -> str:
        """How model-explorer's ONNX adapter calls the node."""
        return self.name or f"<node_{self.number}>"


def graph_of(data: Data) -> Field:
    """The field of the main graph. Raises TargetError when there is not exactly one."""
    found = [f for f in fields(data, 0, len(data)) if f.number == GRAPH and f.wire == BYTES]
    if len(found) != 1:
        raise TargetError(f"the file has {len(found)} graphs where a model has one", HINT)
    return found[0]


def nodes_of(data: Data, graph: Field) -> Iterator[FileNode]:
    """The nodes in the order of the file."""
    number = 0
    for field in fields(data, graph.value, graph.end):
        if field.number == NODE and field.wire == BYTES:
            yield _node(data, number, field)
            number += 1


def _node(data: Data, number: int, field: Field) -> FileNode:
    texts: dict[int, str] = {}
    for part in fields(data, field.value, field.end):
        if part.number in (_OUTPUT, _NAME, _OP_TYPE) and part.wire == BYTES:
            text = data[part.value : part.end].decode(errors="replace")
            if not (part.number == _OUTPUT and texts.get(_OUTPUT)):
                texts[part.number] = text
    return FileNode(
        number=number,
        name=texts.get(_NAME, ""),
        op_type=texts.get(_OP_TYPE, ""),
        result=texts.get(_OUTPUT, ""),
        field=field,
    )
