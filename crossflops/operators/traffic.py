"""What a node reads and writes under the unfused model, in bytes or in elements.

Each node reads its inputs, the same tensor once, and writes its outputs; nothing stays in a cache
between two nodes. A weight is read once by each node that uses it.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from crossflops.ir.graph import Node, TensorSpec
from crossflops.operators.rule import OperatorRule

Size: TypeAlias = Callable[[TensorSpec], int]


def nbytes(spec: TensorSpec) -> int:
    """Bytes of a tensor."""
    return spec.nbytes


def numel(spec: TensorSpec) -> int:
    """Elements of a tensor."""
    return spec.numel


def traffic(known: OperatorRule, node: Node, works: bool, size: Size = nbytes) -> tuple[int, int]:
    """What is read and what is written. Raises ValueError where a shape is not known.

    "view" and "alias" move nothing, unless the node works: Dropout is one in inference only.
    "gather" reads its index inputs (all but the first) and as much data as it writes; of the
    `tables` of a "touch" as much is read as the first output has.
    """
    if known.traffic in ("view", "alias") and not works:
        return 0, 0
    written = _sum(node.outputs, size)
    if known.traffic == "gather":
        return written + _sum(node.inputs[1:], size), written
    if not known.tables:
        return _sum(node.inputs, size), written
    read = [spec for i, spec in enumerate(node.inputs) if i not in known.tables]
    tables = [i for i in known.tables if i < len(node.inputs) and node.inputs[i] is not None]
    return _sum(read, size) + len(tables) * _sum(node.outputs[:1], size), written


def _sum(specs: Sequence[TensorSpec | None], size: Size) -> int:
    """The tensors that are there, those of one name once."""
    if len(specs) == 1 and specs[0] is not None:
        return size(specs[0])
    return sum({spec.name: size(spec) for spec in specs if spec is not None}.values())
