"""Operators that move, select or name data and compute nothing: a stated zero.

What they require stands above each: sizes that add up or multiply, axes that exist.
"""

from math import prod
from typing import Unpack

from crossflops.ir.graph import Node
from crossflops.ir.ledger import ZERO, Cost
from crossflops.operators.access import given, integer, size, text
from crossflops.operators.gradient import (
    Gradient,
    Wanted,
    moves_back,
    no_gradient,
    scatters_back,
    summed,
    sums_back,
)
from crossflops.operators.operands import (
    Shape,
    axes_given,
    axis,
    broadcast,
    dims_of,
    ints,
    label,
    made,
    out_of_range,
    rank,
    shape_of,
    single,
    sizes,
)
from crossflops.operators.rule import ADDED, Constraint, Exactness, Facts, Operators

operator = Operators(backward=moves_back)
MOVED = "0: data movement"


def moved(_node: Node) -> Cost:
    """No operation: the elements of the result are elements of the inputs, or known values."""
    return ZERO


def moves(type: str, *requires: Constraint, since: int = 1, **facts: Unpack[Facts]) -> None:
    """Declares an operator that moves data and requires this of its operands."""
    operator(type, MOVED, since=since, requires=requires, **facts)(moved)


moves("Cast")
moves("CastLike", since=15)
moves("EyeLike", rank(0, 2), since=9, backward=no_gradient)
moves("ConstantOfShape", rank(0, 1), since=9, backward=no_gradient)
moves("Trilu", rank(0, 2, least=True), single(1), since=14)
moves(
    "OneHot", single(1), sizes("indices depth values[2]"), since=9, operand=2, backward=no_gradient
)
operator(("MemcpyFromHost", "MemcpyToHost"), MOVED, page=ADDED)(moved)
operator("Where", "0: selection", since=9, operand=1, requires=broadcast, backward=sums_back)(
    moved
)

# Operators whose result is a known value, or a handle.
moves("Shape", traffic="view", backward=no_gradient)
moves("Size", traffic="view", backward=no_gradient)
moves("Constant", traffic="view", backward=no_gradient)
moves("Optional", since=15, traffic="view")
moves("OptionalGetElement", since=15, traffic="view")
moves("OptionalHasElement", since=15, traffic="view", backward=no_gradient)
moves("SequenceAt", single(1), since=11, traffic="view")
moves("SequenceConstruct", since=11, traffic="view")
moves("SequenceEmpty", since=11, traffic="view")
moves("SequenceErase", single(1), since=11, traffic="view")
moves("SequenceInsert", single(2), since=11, traffic="view")
moves("SequenceLength", since=11, traffic="view", backward=no_gradient)
moves("ConcatFromSequence", since=11, traffic="gather")

# Operators whose result is their input under another name or type.
moves("Identity", traffic="alias", keeps=True)
moves("BitCast", since=26, traffic="alias", backward=no_gradient)


def reshaped(node: Node) -> str:
    """Reshape: as many elements before as after; 0 copies a size, -1 is what is left."""
    shape = shape_of(node, 0)
    target = node.values.get(1, ints(node, "shape"))
    if target is None:
        after = made(node)
        same = after is None or prod(after) == prod(shape)
        return "" if same else _unequal(node, after or (), prod(shape))
    copied = not integer(node, "allowzero", 0)
    if min(target, default=0) < -1 or (not copied and {0, -1} <= set(target)):
        return f"the shape {_shown(target)} is none that {label(node, 0)} could have"
    if copied and any(not n and place >= len(shape) for place, n in enumerate(target)):
        return f"the shape {_shown(target)} copies a size that {label(node, 0)} does not have"
    wanted = tuple(
        shape[place] if not size and copied else size for place, size in enumerate(target)
    )
    fixed = prod(size for size in wanted if size != -1)
    if wanted.count(-1) == 1:
        divides = prod(shape) % fixed == 0 if fixed else not prod(shape)
        return "" if divides else _unequal(node, target, prod(shape))
    return "" if fixed == prod(shape) else _unequal(node, target, prod(shape))


def _unequal(node: Node, target: Shape, elements: int) -> str:
    return f"{label(node, 0)} has {elements} elements, which do not fill {_shown(target)}"


def _shown(shape: Shape) -> str:
    return "x".join(map(str, shape)) or "a scalar"


moves("Reshape", rank(1, 1), reshaped, traffic="alias", keeps=True)
moves("Flatten", axis(default=1, last=True), traffic="alias", keeps=True)


def concatenated(node: Node) -> str:
    """Concat: operands of one rank, and of one size along every axis but `axis`."""
    return joined(node, range(len(node.inputs)))


def joined(node: Node, places: range) -> str:
    """The inputs at these places are concatenated along the attribute `axis`."""
    known = [place for place in places if dims_of(node, place) is not None]
    if not known:
        return ""
    first, axis = known[0], integer(node, "axis", 1)
    shape = dims_of(node, first) or ()
    if integer(node, "new_axis", 0):
        return ""
    if wrong := out_of_range(node, axis, first):
        return wrong
    axis %= len(shape)
    for place in known[1:]:
        other = dims_of(node, place) or ()
        if len(other) != len(shape):
            needed = f"{len(shape)} is needed beside {label(node, first)}"
            return f"{label(node, place)} has rank {len(other)}, and {needed}"
        for at, (extent, due) in enumerate(zip(other, shape, strict=True)):
            if at != axis and extent != due:
                has = f"{label(node, place)} has {extent} at axis {at}"
                return f"{has}, and {due} is needed beside {label(node, first)}"
    return ""


moves("Concat", concatenated, keeps=True)


def split(node: Node) -> str:
    """Split: the parts add up to the axis that is split, one part for each result.

    Without lengths all parts but the last have the same, rounded up, and none is empty.
    """
    shape, axis = shape_of(node, 0), integer(node, "axis", 0)
    if wrong := out_of_range(node, axis):
        return wrong
    size, parts = shape[axis], node.values.get(1, ints(node, "split"))
    count = len(node.outputs)
    has = f"{label(node, 0)} has {size} at axis {axis % len(shape)}"
    if parts is None:
        if len(node.inputs) > 1 and node.inputs[1] is not None:
            return ""
        if size % count if node.op.since < 18 else -(-size // count) * (count - 1) >= size:
            return f"{has}, which does not divide into {count} parts"
        return ""
    if sum(parts) != size:
        return f"{has}, and the parts add up to {sum(parts)}"
    return "" if len(parts) == count else f"{len(parts)} parts are given for {count} results"


moves("Split", rank(1, 1), split, keeps=True)


def split_to_sequence(node: Node) -> str:
    """SplitToSequence: an axis of the operand, and lengths that add up to it."""
    shape, parts, axis = shape_of(node, 0), dims_of(node, 1), integer(node, "axis", 0)
    if wrong := out_of_range(node, axis):
        return wrong
    if min(node.values.get(1, ()), default=1) < (0 if parts else 1):
        return f"{label(node, 1)} is {node.values[1]}, and no part may be so long"
    if not parts or 1 not in node.values:
        return ""
    total, size = sum(node.values[1]), shape[axis]
    if total == size:
        return ""
    has = f"{label(node, 0)} has {size} at axis {axis % len(shape)}"
    return f"{has}, and the parts add up to {total}"


moves("SplitToSequence", split_to_sequence, since=11, traffic="view")


def transposed(node: Node) -> str:
    """Transpose: `perm` names each axis once."""
    shape, order = dims_of(node, 0), ints(node, "perm")
    if shape is None or order is None or sorted(order) == list(range(len(shape))):
        return ""
    return f"{label(node, 0)} has rank {len(shape)}, and perm = {list(order)} is no order of it"


moves("Transpose", transposed, keeps=True)


def squeezed(node: Node) -> str:
    """Squeeze: the axes that are left out have the size 1."""
    shape, axes = dims_of(node, 0), axes_given(node, 1)
    if shape is None or axes is None:
        return ""
    for place in axes:
        if wrong := out_of_range(node, place):
            return wrong
        if shape[place] != 1:
            return f"{label(node, 0)} has {shape[place]} at axis {place}, and 1 is needed"
    return ""


moves("Squeeze", rank(1, 1), squeezed, traffic="alias", keeps=True)


def unsqueezed(node: Node) -> str:
    """Unsqueeze: the new axes are those of the result, each once."""
    shape, axes = dims_of(node, 0), axes_given(node, 1)
    if shape is None or axes is None:
        return ""
    rank = len(shape) + len(axes)
    places = {axis + rank if axis < 0 else axis for axis in axes}
    if len(places) == len(axes) and all(0 <= axis < rank for axis in places):
        return ""
    return f"{label(node, 0)} cannot have new axes at {list(axes)}: its result has rank {rank}"


moves("Unsqueeze", rank(1, (0, 1)), unsqueezed, traffic="alias", keeps=True)


def expanded(node: Node) -> str:
    """Expand: the operand and the shape broadcast."""
    shape, target = dims_of(node, 0), node.values.get(1)
    if shape is None or target is None:
        return ""
    for extent, wanted in zip(shape[::-1], target[::-1], strict=False):
        if extent != wanted and 1 not in (extent, wanted):
            return f"{label(node, 0)} has {extent} where the shape {_shown(target)} has {wanted}"
    return ""


moves("Expand", expanded, since=8, keeps=True, backward=sums_back)


def tiled(node: Node) -> str:
    """Tile: one number of repetitions for each axis."""
    return _one_per_axis(node, 1) if node.op.since >= 6 else ""


def _one_per_axis(node: Node, place: int) -> str:
    shape, given = dims_of(node, 0), dims_of(node, place)
    if shape is None or given is None or given == (len(shape),):
        return ""
    needed = f"{len(shape)} numbers are needed for {label(node, 0)}"
    return f"{label(node, place)} does not fit: {needed}"


moves("Tile", tiled, keeps=True, backward=sums_back)


def padded(node: Node) -> str:
    """Pad: two numbers for each axis, or for each one in `axes`."""
    shape, axes = dims_of(node, 0), dims_of(node, 3)
    given = dims_of(node, 1) if len(node.inputs) > 1 else None
    old = ints(node, "pads") or ints(node, "paddings")
    count = given[0] if given is not None and len(given) == 1 else old and len(old)
    if shape is None or count is None:
        return ""
    if len(node.inputs) > 3 and node.inputs[3] is not None:
        if axes is None:
            return ""
        if len(axes) != 1:
            return f"{label(node, 3)} needs to be a list of numbers"
        due, needed = 2 * axes[0], "two numbers for each of the axes"
    else:
        due, needed = 2 * len(shape), "two numbers for each axis"
    if count == due:
        return _mirrored(node, shape)
    return f"{count} pads are given for {label(node, 0)}, and {due} are needed, {needed}"


def _mirrored(node: Node, shape: Shape) -> str:
    """What is padded with its own elements has some, and reflected one more than are added."""
    mode = str(node.attrs.get("mode", "constant"))
    pads = node.values.get(1, ints(node, "pads")) or ()
    axes = node.values.get(3, tuple(range(len(shape))))
    if mode == "constant" or len(pads) != 2 * len(axes):
        return ""
    for place, before, after in zip(axes, pads, pads[len(axes) :], strict=False):
        left = shape[place] + min(before, 0) + min(after, 0)
        least = max(before, after, 0) + 1 if mode == "reflect" else 1
        if (before or after) and left < least:
            has = f"{label(node, 0)} has {left} at axis {place}"
            return f"{has}, and at least {least} is needed for mode {mode!r}"
    return ""


def _pad_backward(node: Node, wanted: Wanted, _forward: Cost) -> Gradient:
    """What was copied into the border is added to its source, constants are cut away: 0."""
    if text(node, "mode", "constant") == "constant":
        return Gradient(dict.fromkeys(wanted, ZERO))
    return Gradient({place: summed(node, place) for place in wanted})


moves("Pad", rank(1, 1), single(2), padded, backward=_pad_backward)


def sliced(node: Node) -> str:
    """Slice: a start and an end for each axis that is cut, and axes that exist."""
    shape = dims_of(node, 0)
    lengths = {place: dims_of(node, place) for place in (1, 2, 3, 4)}
    known = {place: dims for place, dims in lengths.items() if dims is not None}
    for place, dims in known.items():
        if len(dims) != 1:
            return f"{label(node, place)} needs to be a list of numbers"
        first = next(iter(known))
        if dims != known[first]:
            return f"{label(node, place)} is not as long as {label(node, first)}"
    if shape is None:
        return ""
    starts = known.get(1)
    if 3 not in known and starts is not None and starts[0] > len(shape):
        return f"{label(node, 1)} is longer than {label(node, 0)} has axes"
    for place in axes_given(node, 3) or ():
        if wrong := out_of_range(node, place):
            return wrong
    return ""


moves("Slice", sliced, traffic="gather", keeps=True)


def gathered(node: Node) -> str:
    """Gather: an axis of the data, and indices that are within it."""
    shape, axis = shape_of(node, 0), integer(node, "axis", 0)
    if wrong := out_of_range(node, axis):
        return wrong
    return _within(node, 1, shape[axis], axis % len(shape))


moves("Gather", gathered, traffic="gather", keeps=True, backward=scatters_back)


def _within(node: Node, place: int, size: int, axis: int) -> str:
    indices = dims_of(node, place)
    if not size and indices is not None and 0 not in indices:
        has = f"{label(node, 0)} has 0 at axis {axis}"
        return f"{has}, and {label(node, place)} asks for {prod(indices)} of it"
    for index in node.values.get(place, ()):
        if not -size <= index < size:
            has = f"{label(node, 0)} has {size} at axis {axis}"
            return f"{has}, and {label(node, place)} asks for {index}"
    return ""


def gathered_elements(node: Node) -> str:
    """GatherElements, ScatterElements: indices of the data's rank, no longer but along `axis`."""
    shape, indices, axis = shape_of(node, 0), shape_of(node, 1), integer(node, "axis", 0)
    if not shape or len(shape) != len(indices):
        return f"{label(node, 1)} has not the rank of {label(node, 0)}"
    if wrong := out_of_range(node, axis):
        return wrong
    for at, (extent, index) in enumerate(zip(shape, indices, strict=True)):
        if at != axis % len(shape) and index > extent:
            has = f"{label(node, 1)} has {index} at axis {at}"
            return f"{has}, and {label(node, 0)} only {extent}"
    return _within(node, 1, shape[axis], axis % len(shape))


moves("GatherElements", gathered_elements, since=11, traffic="gather", backward=scatters_back)


def gathered_nd(node: Node) -> str:
    """GatherND: the last axis of the indices holds places along the axes behind batch_dims."""
    shape, indices = shape_of(node, 0), shape_of(node, 1)
    batch = integer(node, "batch_dims", 0)
    if not shape or not indices:
        return f"{label(node, 0 if not shape else 1)} has rank 0, and needs at least 1"
    if batch >= len(shape) or batch >= len(indices):
        return f"batch_dims = {batch} are more than the axes of {label(node, 0)}"
    if shape[:batch] != indices[:batch] and 0 not in indices:
        return f"{label(node, 1)} does not begin with the {batch} batch sizes of {label(node, 0)}"
    if indices[-1] > len(shape) - batch:
        has = f"{label(node, 1)} has {indices[-1]} at its last axis"
        return f"{has}, and {label(node, 0)} has {len(shape) - batch} axes behind batch_dims"
    return ""


moves("GatherND", gathered_nd, since=11, traffic="gather", backward=scatters_back)


def scattered_nd(node: Node) -> str:
    """ScatterND: updates have the shape indices.shape[:-1] + data.shape[indices.shape[-1]:]."""
    shape, indices, updates = (dims_of(node, place) for place in (0, 1, 2))
    if shape is None or indices is None:
        return ""
    if not shape or not indices:
        return f"{label(node, 0 if not shape else 1)} has rank 0, and needs at least 1"
    if indices[-1] > len(shape):
        has = f"{label(node, 1)} has {indices[-1]} at its last axis"
        return f"{has}, and {label(node, 0)} has {len(shape)} axes"
    wanted = indices[:-1] + shape[indices[-1] :]
    if updates is None or updates == wanted:
        return ""
    return f"{label(node, 2)} needs to be {_shown(wanted)} for {label(node, 1)}"


def scattered(node: Node) -> str:
    """ScatterElements: indices as of GatherElements, and as many updates."""
    indices, updates = dims_of(node, 1), dims_of(node, 2)
    if indices is not None and updates is not None and indices != updates:
        return f"{label(node, 2)} has not the shape of {label(node, 1)}"
    return gathered_elements(node)


moves("Scatter", scattered, since=9)


def depth_to_space(node: Node) -> str:
    """DepthToSpace: blocksize squared divides the channels of [N, C, H, W]."""
    return _divides(node, {1: integer(node, "blocksize") ** 2})


moves("DepthToSpace", depth_to_space, keeps=True)


def space_to_depth(node: Node) -> str:
    """SpaceToDepth: blocksize divides H and W of [N, C, H, W]."""
    return _divides(node, dict.fromkeys((2, 3), integer(node, "blocksize")))


moves("SpaceToDepth", space_to_depth, keeps=True)


def _divides(node: Node, divisors: dict[int, int]) -> str:
    shape = shape_of(node, 0)
    if len(shape) != 4:
        return f"{label(node, 0)} has rank {len(shape)}, and needs 4"
    for place, divisor in divisors.items():
        if divisor > 0 and shape[place] % divisor:
            has = f"{label(node, 0)} has {shape[place]} at axis {place}"
            return f"{has}, and a multiple of {divisor} is needed"
    return ""


def reversed_sequence(node: Node) -> str:
    """ReverseSequence: one length for each member of the batch; axes 0 and 1 in some order."""
    shape, lengths = shape_of(node, 0), shape_of(node, 1)
    batch = integer(node, "batch_axis", 1)
    if len(shape) < 2:
        return f"{label(node, 0)} has rank {len(shape)}, and needs at least 2"
    if wrong := out_of_range(node, batch):
        return wrong
    if lengths != (shape[batch],):
        has = f"{label(node, 0)} has {shape[batch]} at axis {batch}"
        return f"{has}, and {label(node, 1)} needs one length for each"
    return ""


moves("ReverseSequence", reversed_sequence, since=10)


def compressed(node: Node) -> str:
    """Compress: a list of conditions, and an axis of the data."""
    shape, condition = dims_of(node, 0), dims_of(node, 1)
    if condition is not None and len(condition) != 1:
        return f"{label(node, 1)} has rank {len(condition)}, and needs 1"
    if shape is None or "axis" not in node.attrs:
        return ""
    return out_of_range(node, integer(node, "axis"))


moves("Compress", compressed, since=9, traffic="gather")


def unpooled(node: Node) -> str:
    """MaxUnpool: one place for each element, and a window of as many axes."""
    shape, places, wished = (dims_of(node, index) for index in (0, 1, 2))
    if shape is None:
        return ""
    if places is not None and shape != places:
        return f"{label(node, 1)} has not the shape of {label(node, 0)}"
    if min(ints(node, "kernel_shape") or (1,)) < 1:
        return f"attribute 'kernel_shape' has {min(ints(node, 'kernel_shape') or ())}"
    if wished is None or wished == (len(shape),):
        wanted, least = node.values.get(2, shape), _widened(node, shape)
        fits = all(size >= need for size, need in zip(wanted[2:], least, strict=False))
        if wanted[:2] == shape[:2] and (2 not in node.values or fits):
            return ""
        needed = _shown((*shape[:2], *least))
        return f"{label(node, 2)} is {wanted}, and at least {needed} is needed"
    return f"{label(node, 2)} needs {len(shape)} numbers, one for each axis of {label(node, 0)}"


moves("MaxUnpool", rank(2, 1), unpooled, since=9)


def _widened(node: Node, shape: Shape) -> Shape:
    """The extents that windows take which were led to these places."""
    kernel = ints(node, "kernel_shape") or ()
    strides, pads = ints(node, "strides") or (1,) * len(kernel), ints(node, "pads")
    pads = pads or (0,) * 2 * len(kernel)
    return tuple(
        (size - 1) * stride + extent - before - after
        for size, stride, extent, before, after in zip(
            shape[2:], strides, kernel, pads, pads[len(kernel) :], strict=False
        )
    )


def cropped(node: Node) -> str:
    """CenterCropPad: a size for each axis, or for each one in `axes`."""
    shape, sizes, axes = shape_of(node, 0), shape_of(node, 1), ints(node, "axes")
    needed = len(shape) if axes is None else len(axes)
    for place in axes or ():
        if wrong := out_of_range(node, place):
            return wrong
    if sizes == (needed,):
        return ""
    return f"{label(node, 1)} does not fit: {needed} sizes are needed for {label(node, 0)}"


moves("CenterCropPad", cropped, since=18)


def written(node: Node) -> str:
    """TensorScatter: the update has the sizes of the cache, and is no longer along `axis`."""
    cache, update, axis = shape_of(node, 0), shape_of(node, 1), integer(node, "axis", -2)
    if len(cache) != len(update):
        return f"{label(node, 1)} has not the rank of {label(node, 0)}"
    if wrong := out_of_range(node, axis):
        return wrong
    axis %= len(cache)
    for at, (extent, new) in enumerate(zip(cache, update, strict=True)):
        if (new != extent and at != axis) or new > extent:
            has = f"{label(node, 1)} has {new} at axis {at}"
            return f"{has}, and {label(node, 0)} has {extent}"
    return ""


moves(
    "TensorScatter", written, sizes("past_cache[B,...] update[B,...] write_indices[B]"), since=24
)


# output = scale * data * mask, where the mask compares a random number with the ratio.
DROPPED = Cost(muls=2, compares=1)


def _mode(node: Node) -> int:
    """Whether a Dropout drops, -1 where that is not known: its third input, false by default."""
    stored = node.values.get(2, (-1,))[0] if given(node, 2) else 0
    return integer(node, "training_mode", stored)


def _drawn(node: Node) -> Exactness:
    """What a random number costs is an estimate."""
    return "estimate" if _mode(node) == 1 else "exact"


def _dropout_backward(node: Node, wanted: Wanted, forward: Cost) -> Gradient:
    """In training dX = dY * mask * scale: 2 muls for each element."""
    work = Cost(muls=2 * size(node)) if forward.flops else ZERO
    return Gradient(dict.fromkeys(wanted, work))


@operator(
    "Dropout",
    "0 in inference, in training n(data)*(2 muls, compare)",
    traffic="alias",
    doubt=_drawn,
    requires=single(1, 2),
    backward=_dropout_backward,
)
def dropout(node: Node) -> Cost:
    """Dropout: the input itself in inference, in training scale * data * mask.

    In training 2 muls and the compare of the mask per element, after a generator that is not
    counted. The input `training_mode` is a constant, or the attribute of that name which the
    normalizer of PyTorch's graphs writes. Raises ValueError where it is neither.
    https://onnx.ai/onnx/operators/onnx__Dropout.html
    """
    mode = _mode(node)
    if mode < 0:
        raise ValueError("whether Dropout drops depends on the value of training_mode")
    return DROPPED * size(node) if mode else ZERO
