"""Operators that move, select or name data and compute nothing: their cost is zero.

What they require stands above each: sizes that add up or multiply, axes that exist.
"""

from math import prod
from typing import Unpack

from crossflops.ir.graph import Node
from crossflops.ir.ledger import ZERO, Cost
from crossflops.operators.access import (
    has_input,
    input_element_count,
    integer_attribute,
    string_attribute,
)
from crossflops.operators.gradient import (
    Gradient,
    OperandPositions,
    broadcast_sum_cost,
    movement_backward,
    no_gradient,
    scatter_add_backward,
    sum_of_copies_backward,
)
from crossflops.operators.operands import (
    Shape,
    all_inputs_broadcast_constraint,
    axes_or_none,
    axis_constraint,
    axis_range_problem,
    input_label,
    input_shape,
    input_shape_or_raise,
    integer_list_or_none,
    rank_constraint,
    shape_of_output,
    single_number_constraint,
    sizes_constraint,
)
from crossflops.operators.rule import (
    ADDED,
    Constraint,
    Exactness,
    Facts,
    OperandProblem,
    Operators,
)

operator = Operators(backward=movement_backward)
MOVED = "0: data movement"


def movement_cost(_node: Node) -> Cost:
    """Return zero cost: the result consists of elements of the inputs, or of known values."""
    return ZERO


def declare_movement(
    type: str, *requires: Constraint, since: int = 1, **facts: Unpack[Facts]
) -> None:
    """Declare an operator that only moves data, with these constraints on its operands."""
    operator(type, MOVED, since=since, requires=requires, **facts)(movement_cost)


declare_movement("Cast")
declare_movement("CastLike", since=15)
declare_movement("EyeLike", rank_constraint(0, 2), since=9, backward=no_gradient)
declare_movement("ConstantOfShape", rank_constraint(0, 1), since=9, backward=no_gradient)
declare_movement(
    "Trilu", rank_constraint(0, 2, or_higher=True), single_number_constraint(1), since=14
)
declare_movement(
    "OneHot",
    single_number_constraint(1),
    sizes_constraint("indices depth values[2]"),
    since=9,
    operand=2,
    backward=no_gradient,
)
operator(("MemcpyFromHost", "MemcpyToHost"), MOVED, page=ADDED)(movement_cost)
operator(
    "Where",
    "0: selection",
    since=9,
    operand=1,
    requires=all_inputs_broadcast_constraint,
    backward=sum_of_copies_backward,
)(movement_cost)

# Operators whose result is a known value, or a handle.
declare_movement("Shape", traffic="view", backward=no_gradient)
declare_movement("Size", traffic="view", backward=no_gradient)
declare_movement("Constant", traffic="view", backward=no_gradient)
declare_movement("Optional", since=15, traffic="view")
declare_movement("OptionalGetElement", since=15, traffic="view")
declare_movement("OptionalHasElement", since=15, traffic="view", backward=no_gradient)
declare_movement("SequenceAt", single_number_constraint(1), since=11, traffic="view")
declare_movement("SequenceConstruct", since=11, traffic="view")
declare_movement("SequenceEmpty", since=11, traffic="view")
declare_movement("SequenceErase", single_number_constraint(1), since=11, traffic="view")
declare_movement("SequenceInsert", single_number_constraint(2), since=11, traffic="view")
declare_movement("SequenceLength", since=11, traffic="view", backward=no_gradient)
declare_movement("ConcatFromSequence", since=11, traffic="gather")

# Operators whose result is their input under another name or type.
declare_movement("Identity", traffic="alias", keeps=True)
declare_movement("BitCast", since=26, traffic="alias", backward=no_gradient)


def reshape_constraint(node: Node) -> OperandProblem:
    """Return what is wrong with the operands of Reshape, or "" if nothing is: the new shape has as
    many elements as the data.
    """
    shape = input_shape_or_raise(node, 0)
    target = node.values.get(1, integer_list_or_none(node, "shape"))
    if target is None:
        after = shape_of_output(node)
        same = after is None or prod(after) == prod(shape)
        return "" if same else _element_count_problem(node, after or (), prod(shape))
    copied = not integer_attribute(node, "allowzero", 0)
    if min(target, default=0) < -1 or (not copied and {0, -1} <= set(target)):
        return (
            f"the shape {_movement_shape_text(target)} is not possible for {input_label(node, 0)}"
        )
    if copied and any(not n and index >= len(shape) for index, n in enumerate(target)):
        return (
            f"the shape {_movement_shape_text(target)} copies "
            f"a size that {input_label(node, 0)} does not have"
        )
    requested = tuple(
        shape[index] if not size and copied else size for index, size in enumerate(target)
    )
    fixed = prod(size for size in requested if size != -1)
    if requested.count(-1) == 1:
        divides = prod(shape) % fixed == 0 if fixed else not prod(shape)
        return "" if divides else _element_count_problem(node, target, prod(shape))
    return "" if fixed == prod(shape) else _element_count_problem(node, target, prod(shape))


def _element_count_problem(node: Node, target: Shape, elements: int) -> OperandProblem:
    """Return the message that this number of elements does not fill the target shape."""
    return (
        f"{input_label(node, 0)} has {elements} elements, "
        f"which do not fill {_movement_shape_text(target)}"
    )


def _movement_shape_text(shape: Shape) -> str:
    """Return a shape as text, such as "2x3", or "a scalar" for ()."""
    return "x".join(map(str, shape)) or "a scalar"


declare_movement("Reshape", rank_constraint(1, 1), reshape_constraint, traffic="alias", keeps=True)
declare_movement("Flatten", axis_constraint(default=1, last=True), traffic="alias", keeps=True)


def concat_constraint(node: Node) -> OperandProblem:
    """Return what is wrong with the operands of Concat, or "" if nothing is: equal ranks, and
    equal sizes except along `axis`.
    """
    return concat_inputs_problem(node, range(len(node.inputs)))


def concat_inputs_problem(node: Node, indices: range) -> OperandProblem:
    """Return why the inputs at these indices cannot be joined along the attribute `axis`; "" if
    nothing is wrong.
    """
    known = [index for index in indices if input_shape(node, index) is not None]
    if not known:
        return ""
    first, axis = known[0], integer_attribute(node, "axis", 1)
    shape = input_shape(node, first) or ()
    if integer_attribute(node, "new_axis", 0):
        return ""
    if wrong := axis_range_problem(node, axis, first):
        return wrong
    axis %= len(shape)
    for index in known[1:]:
        other = input_shape(node, index) or ()
        if len(other) != len(shape):
            needed = f"{len(shape)} is needed to match {input_label(node, first)}"
            return f"{input_label(node, index)} has rank {len(other)}, but {needed}"
        for at, (extent, due) in enumerate(zip(other, shape, strict=True)):
            if at != axis and extent != due:
                has = f"{input_label(node, index)} has {extent} at axis {at}"
                return f"{has}, but {due} is needed to match {input_label(node, first)}"
    return ""


declare_movement("Concat", concat_constraint, keeps=True)


def split_constraint(node: Node) -> OperandProblem:
    """Return what is wrong with the operands of Split, or "" if nothing is: the parts, one per
    result, add up to the axis.

    Without lengths all parts but the last are equal, rounded up, and none is empty.
    """
    shape, axis = input_shape_or_raise(node, 0), integer_attribute(node, "axis", 0)
    if wrong := axis_range_problem(node, axis):
        return wrong
    size, parts = shape[axis], node.values.get(1, integer_list_or_none(node, "split"))
    count = len(node.outputs)
    has = f"{input_label(node, 0)} has {size} at axis {axis % len(shape)}"
    if parts is None:
        if len(node.inputs) > 1 and node.inputs[1] is not None:
            return ""
        if size % count if node.op.since < 18 else -(-size // count) * (count - 1) >= size:
            return f"{has}, which does not divide into {count} parts"
        return ""
    if sum(parts) != size:
        return f"{has}, but the parts add up to {sum(parts)}"
    if len(parts) == count:
        return ""
    return f"{len(parts)} parts are given, but there are {count} results"


declare_movement("Split", rank_constraint(1, 1), split_constraint, keeps=True)


def split_to_sequence_constraint(node: Node) -> OperandProblem:
    """Return what is wrong with the operands of SplitToSequence, or "" if nothing is: the lengths
    add up to the axis.
    """
    shape, parts, axis = (
        input_shape_or_raise(node, 0),
        input_shape(node, 1),
        integer_attribute(node, "axis", 0),
    )
    if wrong := axis_range_problem(node, axis):
        return wrong
    if min(node.values.get(1, ()), default=1) < (0 if parts else 1):
        return f"{input_label(node, 1)} is {node.values[1]}, which is not a valid length of a part"
    if not parts or 1 not in node.values:
        return ""
    total, size = sum(node.values[1]), shape[axis]
    if total == size:
        return ""
    has = f"{input_label(node, 0)} has {size} at axis {axis % len(shape)}"
    return f"{has}, but the parts add up to {total}"


declare_movement("SplitToSequence", split_to_sequence_constraint, since=11, traffic="view")


def transpose_constraint(node: Node) -> OperandProblem:
    """Return what is wrong with Transpose, or "" if nothing is. It requires that `perm` names each
    axis once.
    """
    shape, order = input_shape(node, 0), integer_list_or_none(node, "perm")
    if shape is None or order is None or sorted(order) == list(range(len(shape))):
        return ""
    return (
        f"{input_label(node, 0)} has rank {len(shape)}, but perm = {list(order)} is not an "
        "order of its axes"
    )


declare_movement("Transpose", transpose_constraint, keeps=True)


def squeeze_constraint(node: Node) -> OperandProblem:
    """Return what is wrong with Squeeze, or "" if nothing is: the removed axes have the size 1."""
    shape, axes = input_shape(node, 0), axes_or_none(node, 1)
    if shape is None or axes is None:
        return ""
    for index in axes:
        if wrong := axis_range_problem(node, index):
            return wrong
        if shape[index] != 1:
            return f"{input_label(node, 0)} has {shape[index]} at axis {index}, but 1 is needed"
    return ""


declare_movement("Squeeze", rank_constraint(1, 1), squeeze_constraint, traffic="alias", keeps=True)


def unsqueeze_constraint(node: Node) -> OperandProblem:
    """Return what is wrong with Unsqueeze, or "" if nothing is: the new axes are axes of the
    result, each named once.
    """
    shape, axes = input_shape(node, 0), axes_or_none(node, 1)
    if shape is None or axes is None:
        return ""
    rank = len(shape) + len(axes)
    indices = {axis + rank if axis < 0 else axis for axis in axes}
    if len(indices) == len(axes) and all(0 <= axis < rank for axis in indices):
        return ""
    return (
        f"{input_label(node, 0)} cannot have new axes at {list(axes)}: its result has rank {rank}"
    )


declare_movement(
    "Unsqueeze", rank_constraint(1, (0, 1)), unsqueeze_constraint, traffic="alias", keeps=True
)


def expand_constraint(node: Node) -> OperandProblem:
    """Return what is wrong with the operands of Expand, or "" if nothing is: data and shape
    broadcast.
    """
    shape, target = input_shape(node, 0), node.values.get(1)
    if shape is None or target is None:
        return ""
    for extent, requested in zip(shape[::-1], target[::-1], strict=False):
        if extent != requested and 1 not in (extent, requested):
            return (
                f"{input_label(node, 0)} has {extent} , but the shape "
                f"{_movement_shape_text(target)} has {requested}"
            )
    return ""


declare_movement("Expand", expand_constraint, since=8, keeps=True, backward=sum_of_copies_backward)


def tile_constraint(node: Node) -> OperandProblem:
    """Return what is wrong with the operands of Tile, or "" if nothing is: one number of
    repetitions for each axis.
    """
    return _axis_list_length_problem(node, 1) if node.op.since >= 6 else ""


def _axis_list_length_problem(node: Node, index: int) -> OperandProblem:
    """Return why the input at this index does not have one number for each axis of the data; "" if
    nothing is wrong.
    """
    shape, provided = input_shape(node, 0), input_shape(node, index)
    if shape is None or provided is None or provided == (len(shape),):
        return ""
    needed = f"{len(shape)} numbers are needed for {input_label(node, 0)}"
    return f"{input_label(node, index)} does not fit: {needed}"


declare_movement("Tile", tile_constraint, keeps=True, backward=sum_of_copies_backward)


def pad_constraint(node: Node) -> OperandProblem:
    """Return what is wrong with the operands of Pad, or "" if nothing is: two numbers for each
    axis, or for each one in `axes`.
    """
    shape, axes = input_shape(node, 0), input_shape(node, 3)
    provided = input_shape(node, 1) if len(node.inputs) > 1 else None
    old = integer_list_or_none(node, "pads") or integer_list_or_none(node, "paddings")
    count = provided[0] if provided is not None and len(provided) == 1 else old and len(old)
    if shape is None or count is None:
        return ""
    if len(node.inputs) > 3 and node.inputs[3] is not None:
        if axes is None:
            return ""
        if len(axes) != 1:
            return f"{input_label(node, 3)} needs to be a list of numbers"
        due, needed = 2 * axes[0], "two numbers for each of the axes"
    else:
        due, needed = 2 * len(shape), "two numbers for each axis"
    if count == due:
        return _pad_mirror_problem(node, shape)
    return f"{count} pads are given for {input_label(node, 0)}, but {due} are needed, {needed}"


def _pad_mirror_problem(node: Node, shape: Shape) -> OperandProblem:
    """Return why Pad cannot fill its pads with elements of the data, since an axis is too short;
    "" if nothing is wrong.
    """
    mode = str(node.attrs.get("mode", "constant"))
    pads = node.values.get(1, integer_list_or_none(node, "pads")) or ()
    axes = node.values.get(3, tuple(range(len(shape))))
    if mode == "constant" or len(pads) != 2 * len(axes):
        return ""
    for index, before, after in zip(axes, pads, pads[len(axes) :], strict=False):
        left = shape[index] + min(before, 0) + min(after, 0)
        least = max(before, after, 0) + 1 if mode == "reflect" else 1
        if (before or after) and left < least:
            has = f"{input_label(node, 0)} has {left} at axis {index}"
            return f"{has}, but at least {least} is needed for mode {mode!r}"
    return ""


def _pad_backward(node: Node, requested: OperandPositions, _forward: Cost) -> Gradient:
    """Return the cost of the gradient of Pad.

    copied borders are added to their sources, constants cost nothing.
    """
    if string_attribute(node, "mode", "constant") == "constant":
        return Gradient(dict.fromkeys(requested, ZERO))
    return Gradient({index: broadcast_sum_cost(node, index) for index in requested})


declare_movement(
    "Pad",
    rank_constraint(1, 1),
    single_number_constraint(2),
    pad_constraint,
    backward=_pad_backward,
)


def slice_constraint(node: Node) -> OperandProblem:
    """Return what is wrong with the starts, ends or axes of Slice; "" if nothing is wrong."""
    shape = input_shape(node, 0)
    lengths = {index: input_shape(node, index) for index in (1, 2, 3, 4)}
    known = {index: dims for index, dims in lengths.items() if dims is not None}
    for index, dims in known.items():
        if len(dims) != 1:
            return f"{input_label(node, index)} needs to be a list of numbers"
        first = next(iter(known))
        if dims != known[first]:
            return f"{input_label(node, index)} is not as long as {input_label(node, first)}"
    if shape is None:
        return ""
    starts = known.get(1)
    if 3 not in known and starts is not None and starts[0] > len(shape):
        return f"{input_label(node, 1)} has more numbers than {input_label(node, 0)} has axes"
    for index in axes_or_none(node, 3) or ():
        if wrong := axis_range_problem(node, index):
            return wrong
    return ""


declare_movement("Slice", slice_constraint, traffic="gather", keeps=True)


def gather_constraint(node: Node) -> OperandProblem:
    """Return what is wrong with the operands of Gather, or "" if nothing is: `axis` is an axis of
    the data, indices are in it.
    """
    shape, axis = input_shape_or_raise(node, 0), integer_attribute(node, "axis", 0)
    if wrong := axis_range_problem(node, axis):
        return wrong
    return _gather_index_problem(node, 1, shape[axis], axis % len(shape))


declare_movement(
    "Gather", gather_constraint, traffic="gather", keeps=True, backward=scatter_add_backward
)


def _gather_index_problem(node: Node, position: int, size: int, axis: int) -> OperandProblem:
    """Return why known indices (input `position`) are out of range for an axis of this size; "" if
    nothing is wrong.
    """
    indices = input_shape(node, position)
    if not size and indices is not None and 0 not in indices:
        has = f"{input_label(node, 0)} has 0 at axis {axis}"
        return f"{has}, but {input_label(node, position)} selects {prod(indices)} elements of it"
    for index in node.values.get(position, ()):
        if not -size <= index < size:
            has = f"{input_label(node, 0)} has {size} at axis {axis}"
            return f"{has}, but {input_label(node, position)} selects index {index}"
    return ""


def gather_elements_constraint(node: Node) -> OperandProblem:
    """Return what is wrong with GatherElements or ScatterElements, or "" if nothing is: indices of
    the data's rank, no longer except along `axis`.
    """
    shape, indices, axis = (
        input_shape_or_raise(node, 0),
        input_shape_or_raise(node, 1),
        integer_attribute(node, "axis", 0),
    )
    if not shape or len(shape) != len(indices):
        return f"{input_label(node, 1)} does not have the rank of {input_label(node, 0)}"
    if wrong := axis_range_problem(node, axis):
        return wrong
    for at, (extent, index) in enumerate(zip(shape, indices, strict=True)):
        if at != axis % len(shape) and index > extent:
            has = f"{input_label(node, 1)} has {index} at axis {at}"
            return f"{has}, but {input_label(node, 0)} has only {extent}"
    return _gather_index_problem(node, 1, shape[axis], axis % len(shape))


declare_movement(
    "GatherElements",
    gather_elements_constraint,
    since=11,
    traffic="gather",
    backward=scatter_add_backward,
)


def gather_nd_constraint(node: Node) -> OperandProblem:
    """Return what is wrong with GatherND, or "" if nothing is: each row of indices selects along
    axes behind batch_dims.
    """
    shape, indices = input_shape_or_raise(node, 0), input_shape_or_raise(node, 1)
    batch = integer_attribute(node, "batch_dims", 0)
    if not shape or not indices:
        return f"{input_label(node, 0 if not shape else 1)} has rank 0, but needs at least 1"
    if batch >= len(shape) or batch >= len(indices):
        return f"batch_dims = {batch} are more than the axes of {input_label(node, 0)}"
    if shape[:batch] != indices[:batch] and 0 not in indices:
        return (
            f"{input_label(node, 1)} does not begin with the "
            f"{batch} batch sizes of {input_label(node, 0)}"
        )
    if indices[-1] > len(shape) - batch:
        has = f"{input_label(node, 1)} has {indices[-1]} at its last axis"
        return f"{has}, but {input_label(node, 0)} has {len(shape) - batch} axes after batch_dims"
    return ""


declare_movement(
    "GatherND", gather_nd_constraint, since=11, traffic="gather", backward=scatter_add_backward
)


def scatter_nd_constraint(node: Node) -> OperandProblem:
    """Return what is wrong with ScatterND, or "" if nothing is: updates of the shape
    indices.shape[:-1] + data.shape[indices.shape[-1]:].
    """
    shape, indices, updates = (input_shape(node, index) for index in (0, 1, 2))
    if shape is None or indices is None:
        return ""
    if not shape or not indices:
        return f"{input_label(node, 0 if not shape else 1)} has rank 0, but needs at least 1"
    if indices[-1] > len(shape):
        has = f"{input_label(node, 1)} has {indices[-1]} at its last axis"
        return f"{has}, but {input_label(node, 0)} has {len(shape)} axes"
    requested = indices[:-1] + shape[indices[-1] :]
    if updates is None or updates == requested:
        return ""
    return (
        f"{input_label(node, 2)} needs to be "
        f"{_movement_shape_text(requested)} for {input_label(node, 1)}"
    )


def scatter_elements_constraint(node: Node) -> OperandProblem:
    """Return what is wrong with ScatterElements, or "" if nothing is: indices as for
    GatherElements, and as many updates.
    """
    indices, updates = input_shape(node, 1), input_shape(node, 2)
    if indices is not None and updates is not None and indices != updates:
        return f"{input_label(node, 2)} does not have the shape of {input_label(node, 1)}"
    return gather_elements_constraint(node)


declare_movement("Scatter", scatter_elements_constraint, since=9)


def depth_to_space_constraint(node: Node) -> OperandProblem:
    """Return what is wrong with DepthToSpace, or "" if nothing is: blocksize squared divides the
    channels of [N, C, H, W].
    """
    return _divisibility_problem(node, {1: integer_attribute(node, "blocksize") ** 2})


declare_movement("DepthToSpace", depth_to_space_constraint, keeps=True)


def space_to_depth_constraint(node: Node) -> OperandProblem:
    """Return what is wrong with SpaceToDepth, or "" if nothing is: blocksize divides H and W of
    [N, C, H, W].
    """
    return _divisibility_problem(node, dict.fromkeys((2, 3), integer_attribute(node, "blocksize")))


declare_movement("SpaceToDepth", space_to_depth_constraint, keeps=True)


def _divisibility_problem(node: Node, divisors: dict[int, int]) -> OperandProblem:
    """Return why a size of the 4-D input is not a multiple of its divisor (by axis); "" if nothing
    is wrong.
    """
    shape = input_shape_or_raise(node, 0)
    if len(shape) != 4:
        return f"{input_label(node, 0)} has rank {len(shape)}, but needs 4"
    for index, divisor in divisors.items():
        if divisor > 0 and shape[index] % divisor:
            has = f"{input_label(node, 0)} has {shape[index]} at axis {index}"
            return f"{has}, but a multiple of {divisor} is needed"
    return ""


def reverse_sequence_constraint(node: Node) -> OperandProblem:
    """Return what is wrong with ReverseSequence, or "" if nothing is: one length for each index of
    the batch axis.
    """
    shape, lengths = input_shape_or_raise(node, 0), input_shape_or_raise(node, 1)
    batch = integer_attribute(node, "batch_axis", 1)
    if len(shape) < 2:
        return f"{input_label(node, 0)} has rank {len(shape)}, but needs at least 2"
    if wrong := axis_range_problem(node, batch):
        return wrong
    if lengths != (shape[batch],):
        has = f"{input_label(node, 0)} has {shape[batch]} at axis {batch}"
        return f"{has}, but {input_label(node, 1)} does not have one length for each"
    return ""


declare_movement("ReverseSequence", reverse_sequence_constraint, since=10)


def compress_constraint(node: Node) -> OperandProblem:
    """Return what is wrong with Compress, or "" if nothing is: a list of conditions, and an axis
    of the data.
    """
    shape, condition = input_shape(node, 0), input_shape(node, 1)
    if condition is not None and len(condition) != 1:
        return f"{input_label(node, 1)} has rank {len(condition)}, but needs 1"
    if shape is None or "axis" not in node.attrs:
        return ""
    return axis_range_problem(node, integer_attribute(node, "axis"))


declare_movement("Compress", compress_constraint, since=9, traffic="gather")


def max_unpool_constraint(node: Node) -> OperandProblem:
    """Return what is wrong with MaxUnpool, or "" if nothing is: an index for each element, and an
    output that is large enough.
    """
    shape, indices, wished = (input_shape(node, index) for index in (0, 1, 2))
    if shape is None:
        return ""
    if indices is not None and shape != indices:
        return f"{input_label(node, 1)} does not have the shape of {input_label(node, 0)}"
    if min(integer_list_or_none(node, "kernel_shape") or (1,)) < 1:
        return (
            f"attribute 'kernel_shape' has {min(integer_list_or_none(node, 'kernel_shape') or ())}"
        )
    if wished is None or wished == (len(shape),):
        requested, least = node.values.get(2, shape), _unpool_extents(node, shape)
        fits = all(size >= need for size, need in zip(requested[2:], least, strict=False))
        if requested[:2] == shape[:2] and (2 not in node.values or fits):
            return ""
        needed = _movement_shape_text((*shape[:2], *least))
        return f"{input_label(node, 2)} is {requested}, but at least {needed} is needed"
    return (
        f"{input_label(node, 2)} needs {len(shape)} numbers, "
        f"one for each axis of {input_label(node, 0)}"
    )


declare_movement("MaxUnpool", rank_constraint(2, 1), max_unpool_constraint, since=9)


def _unpool_extents(node: Node, shape: Shape) -> Shape:
    """Return the spatial sizes of the data from which a max pooling gives a result of
    this shape.
    """
    kernel = integer_list_or_none(node, "kernel_shape") or ()
    strides, pads = (
        integer_list_or_none(node, "strides") or (1,) * len(kernel),
        integer_list_or_none(node, "pads"),
    )
    pads = pads or (0,) * 2 * len(kernel)
    return tuple(
        (size - 1) * stride + extent - before - after
        for size, stride, extent, before, after in zip(
            shape[2:], strides, kernel, pads, pads[len(kernel) :], strict=False
        )
    )


def crop_pad_constraint(node: Node) -> OperandProblem:
    """Return what is wrong with CenterCropPad, or "" if nothing is: a size for each axis, or for
    each one in `axes`.
    """
    shape, sizes, axes = (
        input_shape_or_raise(node, 0),
        input_shape_or_raise(node, 1),
        integer_list_or_none(node, "axes"),
    )
    needed = len(shape) if axes is None else len(axes)
    for index in axes or ():
        if wrong := axis_range_problem(node, index):
            return wrong
    if sizes == (needed,):
        return ""
    return (
        f"{input_label(node, 1)} does not fit: {needed} "
        f"sizes are needed for {input_label(node, 0)}"
    )


declare_movement("CenterCropPad", crop_pad_constraint, since=18)


def tensor_scatter_constraint(node: Node) -> OperandProblem:
    """Return what is wrong with TensorScatter, or "" if nothing is: the update has the cache's
    sizes, and is no longer along `axis`.
    """
    cache, update, axis = (
        input_shape_or_raise(node, 0),
        input_shape_or_raise(node, 1),
        integer_attribute(node, "axis", -2),
    )
    if len(cache) != len(update):
        return f"{input_label(node, 1)} does not have the rank of {input_label(node, 0)}"
    if wrong := axis_range_problem(node, axis):
        return wrong
    axis %= len(cache)
    for at, (extent, new) in enumerate(zip(cache, update, strict=True)):
        if (new != extent and at != axis) or new > extent:
            has = f"{input_label(node, 1)} has {new} at axis {at}"
            return f"{has}, but {input_label(node, 0)} has {extent}"
    return ""


declare_movement(
    "TensorScatter",
    tensor_scatter_constraint,
    sizes_constraint("past_cache[B,...] update[B,...] write_indices[B]"),
    since=24,
)


# output = scale * data * mask, where the mask compares a random number with the ratio.
DROPPED = Cost(muls=2, compares=1)


def _dropout_training_flag(node: Node) -> int:
    """Return 1 if a Dropout node drops elements, 0 if it does not, -1 if that is unknown.

    Its third input, false by default, decides.
    """
    stored = node.values.get(2, (-1,))[0] if has_input(node, 2) else 0
    return integer_attribute(node, "training_mode", stored)


def _dropout_exactness(node: Node) -> Exactness:
    """Return "estimate" if Dropout draws random numbers, since their cost is estimated; else
    "exact".
    """
    return "estimate" if _dropout_training_flag(node) == 1 else "exact"


def _dropout_backward(node: Node, requested: OperandPositions, forward: Cost) -> Gradient:
    """Return the cost of the gradient of Dropout: in training dX = dY * mask * scale, 2 muls per
    element; else nothing.
    """
    work = Cost(muls=2 * input_element_count(node)) if forward.flops else ZERO
    return Gradient(dict.fromkeys(requested, work))


@operator(
    "Dropout",
    "0 in inference, in training n(data)*(2 muls, compare)",
    traffic="alias",
    doubt=_dropout_exactness,
    requires=single_number_constraint(1, 2),
    backward=_dropout_backward,
)
def onnx_dropout_cost(node: Node) -> Cost:
    """Return the cost of Dropout: nothing in inference; in training scale * data * mask, 2 muls
    and a compare per element.

    In training 2 muls and the compare of the mask per element, after a generator that is not
    counted. The input `training_mode` is a constant, or the attribute of that name which the
    normalizer of PyTorch's graphs writes. Raises ValueError where it is neither.
    https://onnx.ai/onnx/operators/onnx__Dropout.html
    """
    mode = _dropout_training_flag(node)
    if mode < 0:
        raise ValueError(
            "it is unknown whether Dropout drops, because the value of training_mode is unknown"
        )
    return DROPPED * input_element_count(node) if mode else ZERO
