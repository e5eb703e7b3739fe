"""Operators that move, select or name data and compute nothing: a stated zero."""

from crossflops.ir.cost import ZERO, Cost
from crossflops.ir.graph import Node
from crossflops.operators.access import given, integer, size
from crossflops.operators.arrangement import (
    compressed,
    concatenated,
    cropped,
    depth_to_space,
    expanded,
    gathered,
    gathered_elements,
    gathered_nd,
    padded,
    reshaped,
    reversed_sequence,
    scattered,
    sliced,
    space_to_depth,
    split,
    split_to_sequence,
    squeezed,
    tiled,
    transposed,
    unpooled,
    unsqueezed,
    written,
)
from crossflops.operators.operands import axis, broadcast, listed, rank, single, sizes
from crossflops.operators.rule import Constraint, Entry, Exactness, Traffic, entry

# Name and first version of operators that read every input and write every output.
_TOUCH: tuple[tuple[str, int], ...] = (
    *(("Cast", 1), ("CastLike", 15), ("Transpose", 1), ("Concat", 1), ("Split", 1), ("Pad", 1)),
    *(("Tile", 1), ("Expand", 8), ("Trilu", 14), ("ConstantOfShape", 9), ("EyeLike", 9)),
    *(("DepthToSpace", 1), ("SpaceToDepth", 1), ("ReverseSequence", 10), ("TensorScatter", 24)),
    *(("CenterCropPad", 18), ("MaxUnpool", 9), ("Scatter", 9)),
)

# Operators whose result is their input under another name, shape or type, or a known value.
_VIEW: tuple[tuple[str, int], ...] = (
    *(("Reshape", 1), ("Flatten", 1), ("Squeeze", 1), ("Unsqueeze", 1), ("Identity", 1)),
    *(("Shape", 1), ("Size", 1), ("Constant", 1), ("BitCast", 26)),
    *(("Optional", 15), ("OptionalGetElement", 15), ("OptionalHasElement", 15)),
    *(("SequenceAt", 11), ("SequenceConstruct", 11), ("SequenceEmpty", 11)),
    *(("SequenceErase", 11), ("SequenceInsert", 11), ("SequenceLength", 11)),
    *(("SplitToSequence", 11),),
)

# Operators that read from their first input only what the others, or attributes, point at.
_GATHER: tuple[tuple[str, int], ...] = (
    *(("Gather", 1), ("GatherElements", 11), ("GatherND", 11), ("Slice", 1), ("Compress", 9)),
    *(("ConcatFromSequence", 11),),
)


_REQUIRES: dict[str, tuple[Constraint, ...]] = {
    "Transpose": (transposed,),
    "Concat": (concatenated,),
    "Split": (listed(1), split),
    "Pad": (listed(1), single(2), padded),
    "Tile": (tiled,),
    "Expand": (expanded,),
    "Trilu": (rank(0, 2, least=True), single(1)),
    "ConstantOfShape": (rank(0, 1),),
    "EyeLike": (rank(0, 2),),
    "DepthToSpace": (depth_to_space,),
    "SpaceToDepth": (space_to_depth,),
    "ReverseSequence": (reversed_sequence,),
    "TensorScatter": (written, sizes("past_cache[B,...] update[B,...] write_indices[B]")),
    "CenterCropPad": (cropped,),
    "MaxUnpool": (listed(2), unpooled),
    "Scatter": (scattered,),
    "Reshape": (listed(1), reshaped),
    "Flatten": (axis(default=1, last=True),),
    "Squeeze": (listed(1), squeezed),
    "Unsqueeze": (rank(1, (0, 1)), unsqueezed),
    "Gather": (gathered,),
    "GatherElements": (gathered_elements,),
    "GatherND": (gathered_nd,),
    "Slice": (sliced,),
    "Compress": (compressed,),
    "SplitToSequence": (split_to_sequence,),
    "SequenceAt": (single(1),),
    "SequenceErase": (single(1),),
    "SequenceInsert": (single(2),),
}


def moved(_node: Node) -> Cost:
    """No operation: the elements of the result are elements of the inputs, or known values."""
    return ZERO


# output = scale * data * mask, where the mask compares a random number with the ratio.
DROPPED = Cost(muls=2, compares=1)


def dropout(node: Node) -> Cost:
    """Dropout: the input itself in inference, in training scale * data * mask.

    In training 2 muls and the compare of the mask per element, after a generator that is not
    counted. The attribute `training_mode` is the value of the input of that name, which the
    normalizer writes where it is known. Raises ValueError where it is not.
    https://onnx.ai/onnx/operators/onnx__Dropout.html
    """
    mode = integer(node, "training_mode", 0 if not given(node, 2) else -1)
    if mode < 0:
        raise ValueError("whether Dropout drops depends on the value of training_mode")
    return DROPPED * size(node) if mode else ZERO


def _drawn(node: Node) -> Exactness:
    """What a random number costs is an estimate."""
    return "estimate" if node.attrs.get("training_mode") else "exact"


def _moving(table: tuple[tuple[str, int], ...], traffic: Traffic) -> tuple[Entry, ...]:
    return tuple(
        entry(
            name,
            moved,
            "0: data movement",
            since=since,
            traffic=traffic,
            requires=_REQUIRES.get(name, ()),
        )
        for name, since in table
    )


ENTRIES: tuple[Entry, ...] = (
    *_moving(_TOUCH, "touch"),
    *_moving(_VIEW, "view"),
    *_moving(_GATHER, "gather"),
    entry(
        "Where",
        moved,
        "0: selection",
        since=9,
        operand=1,
        requires=broadcast,
    ),
    entry(
        "OneHot",
        moved,
        "0: data movement",
        since=9,
        operand=2,
        requires=(single(1), sizes("indices depth values[2]")),
    ),
    entry(
        "Dropout",
        dropout,
        "0 in inference, in training n(data)*(2 muls, compare)",
        traffic="view",
        doubt=_drawn,
        requires=single(1, 2),
    ),
)
