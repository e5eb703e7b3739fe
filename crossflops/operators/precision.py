"""The precision that a contraction runs in: how its operands are stored, not what carries them.

A runtime folds DequantizeLinear, and the shuffling behind it, into the kernel of the contraction.
So an operand is as precise as what was dequantized, and only one that a node computed in floats
is a float. Two operands of one precision give its name ("int8"); of two, both are named, data
first ("float32xint4"). Signs are left out: uint8 is called int8.
"""

from collections.abc import Iterable, Mapping

from crossflops.ir.graph import Node, TensorSpec
from crossflops.operators import rule


def stored(node: Node, known: Mapping[str, str]) -> dict[str, str]:
    """The precision in which the results of a node are stored, by name, where another is `known`.

    `known` are the precisions of dequantized values so far.
    """
    data = node.inputs[0] if node.inputs else None
    if data is None:
        return {}
    if node.op.type == "DequantizeLinear":
        precision = data.dtype
    elif data.name in known and (moving := rule(node.op)) and moving.keeps:
        precision = known[data.name]
    else:
        return {}
    return {spec.name: precision for spec in node.outputs if spec is not None}


def contraction(node: Node, known: Mapping[str, str]) -> str:
    """The precision of a contraction, "" if the type of no operand is known.

    Its operands are those that its rule names; what it packs into bytes has a precision beside.
    """
    contracting = rule(node.op)
    places = contracting.contracts if contracting else (0, 1)
    chosen = range(len(node.inputs)) if places is None else places
    specs = [node.inputs[place] for place in chosen if place < len(node.inputs)]
    names = [known.get(spec.name, spec.dtype) for spec in specs if spec is not None]
    packed = contracting.packed(node) if contracting and contracting.packed else ""
    return _joined([*names, packed])


def _joined(names: Iterable[str]) -> str:
    unsigned = [name.removeprefix("u") if name.startswith("uint") else name for name in names]
    return "x".join(dict.fromkeys(name for name in unsigned if name))


def computed(operand: int, node: Node) -> str:
    """The element type in which any other node computes: that of its rule's operand."""
    first = node.inputs[operand] if operand < len(node.inputs) else None
    specs: tuple[TensorSpec | None, ...] = (first, *node.inputs, *node.outputs)
    return next((spec.dtype for spec in specs if spec is not None), "")
