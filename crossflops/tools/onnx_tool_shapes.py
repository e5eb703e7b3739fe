"""Compute the graph as onnx-tool 1.0.1 sees it: its node order, and the shapes that it infers.

Sources: `Graph.topsort_nodes` in onnx_tool/graph.py; `shape_infer` and `value_infer` of the
classes in onnx_tool/node.py. An operator that `operators` does not name is taken to be inferred as
ONNX says, as long as the shapes it comes from are. The values of the graph's inputs, which a
caller would give, are zeros to the tool. Raises LookupError where the tool raises; where it is not
known what a wrong shape or value leads to, the result has none.

The shape of one operator is inferred by `shape_infer` and `value_infer` of the classes in
onnx_tool/node.py. Attributes that are left out have the defaults of their constructors, which are
too short for three axes. A rule takes the node and the shapes of its inputs. It raises LookupError
where the tool raises, and ValueError where it is not known what a wrong shape or value leads to.
"""

import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from math import prod
from typing import TypeAlias

import msgspec

from crossflops.ir.graph import Graph, Node, Op, TensorSpec
from crossflops.rules.rule import with_formula

Shape: TypeAlias = tuple[int, ...]
Shapes: TypeAlias = list[Shape]
ShapeRule: TypeAlias = Callable[[Node, Shapes], Shape]

# By operator: what holds whatever comes in, what where a shape that came in is wrong, and what
# where zeros stand in the place of values that a caller would give.
ALWAYS: dict[str, ShapeRule] = {}
ASTRAY: dict[str, ShapeRule] = {}
OF_ZEROS: dict[str, ShapeRule] = {}

_MEANS = ("ReduceMean", "ReduceSum", "ReduceProd", "ReduceMin", "ReduceMax")
_WITH_AXES = (
    *_MEANS, "Squeeze", "Unsqueeze", "Reshape", "Expand", "Tile", "OneHot", "Split", "TopK",
    "Upsample",
)  # fmt: skip
_VALUES: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(_WITH_AXES, (1,)),
    **dict.fromkeys(("NonZero", "ConstantOfShape"), (0,)),
    "Pad": (1, 3),
    "Slice": (1, 2, 3, 4),
    "Range": (0, 1, 2),
    "NonMaxSuppression": (2,),
    "Compress": (1,),
}


def shape_input_positions(node: Node) -> tuple[int, ...]:
    """Return the indices of the inputs whose values onnx-tool needs to infer the shape of the
    result.
    """
    if node.op.type != "Resize":
        return _VALUES.get(node.op.type, ())
    return (3,) if _has_resize_sizes(node) else (1 if len(node.inputs) == 2 else 2,)


def onnx_tool_shape(spec: TensorSpec | None) -> Shape:
    """Return the shape of a tensor, () for an omitted one; raise ValueError if the shape is
    unknown.
    """
    if spec is None or not spec.name:
        return ()
    if spec.shape is None:
        raise ValueError("a shape is not known")
    return spec.shape


def shape_element_count(shape: Shape) -> int:
    """Return the number of elements of a shape, 0 for a shape without axes."""
    return prod(shape) if shape else 0


def _true_result_shape(node: Node) -> Shape:
    """Return the true shape of a node's first result; raise ValueError if it is unknown."""
    return onnx_tool_shape(node.outputs[0])


def _integers_of_attribute(node: Node, name: str, default: Shape = ()) -> Shape:
    """Return the list of integers in the attribute `name`, or `default` if it is missing."""
    value = node.attrs.get(name)
    return tuple(map(int, value)) if isinstance(value, tuple) else default


def _integers_of_input(node: Node, index: int) -> Shape:
    """Return the stored integers of the input at `index`; raise ValueError if they are unknown."""
    if index not in node.values:
        raise ValueError(f"what {node.op} is asked for is not known")
    return node.values[index]


def _register_shape_rule(
    rules: dict[str, ShapeRule], *types: str
) -> Callable[[ShapeRule], ShapeRule]:
    """Return a decorator that adds a function to `rules`, as the shape rule of these ONNX operator
    types.
    """

    def register_shape_rule(rule: ShapeRule) -> ShapeRule:
        """Add the shape rule for the operator types, and return it."""
        rules.update(dict.fromkeys(types, rule))
        return rule

    return register_shape_rule


# Work by element.


@_register_shape_rule(ALWAYS, "Pow", "Clip", "PRelu", "Sum", "Where")
def _largest_input_shape(node: Node, shapes: Shapes) -> Shape:
    """Return the shape of the largest input; of equally large ones, the one with the most axes."""
    return max(shapes, key=lambda shape: (shape_element_count(shape), len(shape)))


@_register_shape_rule(
    ASTRAY, "Add", "Sub", "Mul", "Div", "Min", "Max", "Neg", "Mod", "Abs", "Ceil", "Less",
    "LessOrEqual", "Round", "Not", "And", "Or", "Xor",
)  # fmt: skip
def _inputs_broadcast_shape(node: Node, shapes: Shapes) -> Shape:
    """Return the broadcast shape of all inputs; raise LookupError if they cannot be broadcast."""
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    for sizes in zip(*padded, strict=True):
        if len(set(sizes) - {1}) > 1:
            raise LookupError(f"{node.key} cannot broadcast {sizes}")
    return tuple(0 if 0 in sizes else max(sizes) for sizes in zip(*padded, strict=True))


@_register_shape_rule(
    ASTRAY, "Exp", "Softmax", "Softplus", "Log", "Sqrt", "Sin", "Cos", "Sigmoid", "Tanh", "Atan",
    "Sign", "HardSigmoid", "HardSwish", "Relu", "Elu", "Gelu", "LeakyRelu", "Reciprocal",
    "LogSoftmax", "Identity", "Cast", "Dropout", "Erf", "Floor", "BatchNormalization",
    "LayerNormalization", "CumSum", "ScatterND", "ScatterElements",
)  # fmt: skip
def _first_input_shape(node: Node, shapes: Shapes) -> Shape:
    """Return the shape of the first input as the shape of the result."""
    return shapes[0]


# Products and reductions.


@_register_shape_rule(ALWAYS, "MatMul")
def _matmul_shape(node: Node, shapes: Shapes) -> Shape:
    """Return the result shape that onnx-tool infers for MatMul: its batch axes are those of the
    operand with more batch elements, instead of the broadcast ones.
    """
    a, b = shapes[:2]
    if len(a) < 2 or len(b) < 2:
        raise LookupError("Gemm and MatMul need two axes or more")
    batch = a[:-2] if shape_element_count(a[:-2]) >= shape_element_count(b[:-2]) else b[:-2]
    return (*batch, a[-2], b[-1])


@_register_shape_rule(ASTRAY, "Gemm")
def _gemm_shape(node: Node, shapes: Shapes) -> Shape:
    """Return the result shape that onnx-tool infers for Gemm; raise LookupError if the summed axes
    differ.
    """
    (rows, met), (other, columns) = shapes[0][-2:], shapes[1][-2:]
    if node.attrs.get("transA"):
        rows, met = met, rows
    if node.attrs.get("transB"):
        other, columns = columns, other
    if met != other:
        raise LookupError(f"{node.key} multiplies {met} by {other}")
    return (rows, columns)


@_register_shape_rule(ALWAYS, "ReduceL2")
def _reduce_l2_shape(node: Node, shapes: Shapes) -> Shape:
    """Return the result shape that onnx-tool infers for ReduceL2: if the axes are an input, all
    axes are reduced.
    """
    if len(node.inputs) < 2:
        return _true_result_shape(node)
    return (1,) * len(shapes[0]) if node.attrs.get("keepdims", 1) else ()


@_register_shape_rule(OF_ZEROS, *_MEANS)
def _reduce_shape_with_zero_axes(node: Node, shapes: Shapes) -> Shape:
    """Return the result shape that onnx-tool infers for a reduction if it reads all axes as 0:
    only the first axis is reduced.
    """
    if not shape_element_count(shapes[1]):
        return shapes[0]
    return ((1,) if node.attrs.get("keepdims", 1) else ()) + shapes[0][1:]


# What moves elements, and asks for sizes.


@_register_shape_rule(ALWAYS, "Reshape")
def _reshape_shape(node: Node, shapes: Shapes) -> Shape:
    """Return the result shape that onnx-tool infers for Reshape: one axis of size 1 instead of a
    scalar.
    """
    data, sizes = shapes[0], node.values.get(1)
    if not sizes:
        shape = _true_result_shape(node) or (1,)
        if data and shape_element_count(data) != shape_element_count(shape):
            raise ValueError(f"which sizes {node.key} is asked for is not known")
    else:
        shape = tuple(size or data[axis] for axis, size in enumerate(sizes))
        left = shape_element_count(data) // max(-shape_element_count(shape), 1)
        shape = tuple(left if size == -1 else size for size in shape)
    if shape_element_count(data) != shape_element_count(shape):
        raise LookupError(f"{node.key} has another number of elements")
    return shape


@_register_shape_rule(OF_ZEROS, "Reshape")
def _reshape_shape_with_zero_sizes(node: Node, shapes: Shapes) -> Shape:
    """Return the result shape that onnx-tool infers for Reshape if it reads all sizes as 0: the
    same axes of the input.
    """
    data, count = shapes[0], shape_element_count(shapes[1])
    if not count:
        return (1,)
    if count > len(data) or shape_element_count(data[:count]) != shape_element_count(data):
        raise LookupError(f"{node.key} has another number of elements")
    return data[:count]


@_register_shape_rule(ASTRAY, "Expand")
def _expand_shape(node: Node, shapes: Shapes) -> Shape:
    """Return the result shape that onnx-tool infers for Expand: along each axis the larger size of
    input and result.
    """
    pair = (_true_result_shape(node), shapes[0])
    rank = max(map(len, pair))
    return tuple(map(max, *((1,) * (rank - len(shape)) + shape for shape in pair)))


@_register_shape_rule(ASTRAY, "Transpose")
def _transpose_shape(node: Node, shapes: Shapes) -> Shape:
    """Return the result shape that onnx-tool infers for Transpose: the axes in the order of
    `perm`, or reversed.
    """
    order = list(_integers_of_attribute(node, "perm")) or list(range(len(shapes[0])))[::-1]
    return tuple(shapes[0][axis] for axis in order)


@_register_shape_rule(ALWAYS, "Shape")
def _shape_node_shape(node: Node, shapes: Shapes) -> Shape:
    """Return the result shape that onnx-tool infers for Shape: all axes of the input, since
    `start` and `end` are ignored.
    """
    return (len(shapes[0]),)


@_register_shape_rule(ALWAYS, "Squeeze")
def _squeeze_shape(node: Node, shapes: Shapes) -> Shape:
    """Return the result shape that onnx-tool infers for Squeeze; without given axes it removes the
    first axis, of any size.
    """
    if len(node.inputs) > 1:
        if not shapes[1]:
            raise LookupError(f"{node.key} has axes without a length")
        stated = _integers_of_input(node, 1)
    else:
        stated = _integers_of_attribute(node, "axes", (0,))
    axes = [axis % max(len(shapes[0]), 1) for axis in stated]
    return tuple(size for axis, size in enumerate(shapes[0]) if axis not in axes)


@_register_shape_rule(ASTRAY, "Unsqueeze")
def _unsqueeze_shape(node: Node, shapes: Shapes) -> Shape:
    """Return the result shape that onnx-tool infers for Unsqueeze: an axis of size 1 at each given
    position.
    """
    stated = (
        _integers_of_input(node, 1)
        if len(node.inputs) > 1
        else _integers_of_attribute(node, "axes", (0,))
    )
    rank, sizes = len(shapes[0]) + len(stated), iter(shapes[0])
    axes = {axis % rank for axis in stated}
    return tuple(1 if axis in axes else next(sizes) for axis in range(rank))


@_register_shape_rule(ASTRAY, "Slice")
def _slice_shape(node: Node, shapes: Shapes) -> Shape:
    """Return the result shape that onnx-tool infers for Slice, from its starts, ends, axes and
    steps.
    """
    if len(node.inputs) < 2:
        raise ValueError(f"what {node.op} makes of a wrong shape is not known")
    data, starts, ends = shapes[0], _integers_of_input(node, 1), _integers_of_input(node, 2)
    axes = _integers_of_input(node, 3) if len(node.inputs) > 3 else tuple(range(len(data)))
    steps = _integers_of_input(node, 4) if len(node.inputs) > 4 else (1,) * len(starts)
    sizes = list(data)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        sizes[axis] = len(range(data[axis])[start:end:step])
    return tuple(sizes)


@_register_shape_rule(ASTRAY, "Concat")
def _concat_shape(node: Node, shapes: Shapes) -> Shape:
    """Return the result shape that onnx-tool infers for Concat: the sizes along `axis` are added
    up.
    """
    axis, sizes = node.attrs["axis"], list(shapes[0])
    if not isinstance(axis, int):
        raise LookupError(f"{node.key} has no axis")
    sizes[axis] = sum(shape[axis] for shape in shapes)
    return tuple(sizes)


@_register_shape_rule(ALWAYS, "GatherND")
def _gather_nd_shape(node: Node, shapes: Shapes) -> Shape:
    """Return the result shape that onnx-tool infers for GatherND, where it ignores
    `batch_dims`.
    """
    data, indices = shapes[:2]
    if indices[-1] > len(data):
        raise LookupError(f"{node.key} has indices of too many axes")
    return (*indices[:-1], *data[indices[-1] :])


@_register_shape_rule(ASTRAY, "Gather")
def _gather_shape(node: Node, shapes: Shapes) -> Shape:
    """Return the result shape that onnx-tool infers for Gather: the shape of the indices replaces
    the axis.
    """
    data, indices = shapes[:2]
    axis = _axis_attribute(node, len(data))
    return (*data[:axis], *indices, *data[axis + 1 :])


@_register_shape_rule(ASTRAY, "GatherElements")
def _gather_elements_shape(node: Node, shapes: Shapes) -> Shape:
    """Return the result shape that onnx-tool infers for GatherElements: the shape of the
    indices.
    """
    return shapes[1]


@_register_shape_rule(ASTRAY, "TopK")
def _top_k_shape(node: Node, shapes: Shapes) -> Shape:
    """Return the result shape that onnx-tool infers for TopK: k along the axis, even if the axis
    is shorter.
    """
    data, (k, *_) = shapes[0], _integers_of_input(node, 1)
    axis = _axis_attribute(node, len(data), default=-1)
    return (*data[:axis], k, *data[axis + 1 :])


def _axis_attribute(node: Node, rank: int, default: int = 0) -> int:
    """Return the attribute `axis` as an index from 0; raise LookupError if the tensor of `rank`
    axes has no such axis.
    """
    axis = node.attrs.get("axis", default)
    if not isinstance(axis, int) or not -rank <= axis < rank:
        raise LookupError(f"{node.key} has no axis {axis!r}")
    return axis % rank


@_register_shape_rule(ALWAYS, "NonMaxSuppression")
def _suppression_shape(node: Node, shapes: Shapes) -> Shape:
    """Return the result shape that onnx-tool infers for NonMaxSuppression: [n, 3], n the requested
    number of boxes, at most all boxes.
    """
    if len(shapes) < 3:
        raise LookupError(f"{node.key} does not say how many boxes it takes")
    boxes, scores = shapes[:2]
    if (boxes[0], boxes[1]) != (scores[0], scores[2]):
        raise LookupError(f"{node.key} has scores of other boxes")
    return (min(*_integers_of_input(node, 2), shape_element_count(boxes[:-1])), 3)


@_register_shape_rule(OF_ZEROS, "Squeeze")
def _squeeze_shape_with_zero_axes(node: Node, shapes: Shapes) -> Shape:
    """Return the result shape that onnx-tool infers for Squeeze if it reads all given axes as 0:
    without the first axis.
    """
    return shapes[0][1:] if shape_element_count(shapes[1]) else shapes[0]


@_register_shape_rule(OF_ZEROS, "Unsqueeze")
def _unsqueeze_shape_with_zero_axes(node: Node, shapes: Shapes) -> Shape:
    """Return the result shape that onnx-tool infers for Unsqueeze if it reads the given axis as 0:
    with a new first axis. Raise LookupError for several axes.
    """
    if shape_element_count(shapes[1]) > 1:
        raise LookupError(f"{node.key} has too few extents")
    return (1, *shapes[0]) if shape_element_count(shapes[1]) else shapes[0]


@_register_shape_rule(OF_ZEROS, "NonZero")
def _nonzero_of_equal_values_shape(node: Node, shapes: Shapes) -> Shape:
    """Return the result shape that onnx-tool infers for NonZero of equal values: one column for
    every element.
    """
    return (len(shapes[0]), shape_element_count(shapes[0]))


@_register_shape_rule(OF_ZEROS, "Compress")
def _compress_nothing_shape(node: Node, shapes: Shapes) -> Shape:
    """Return the result shape that onnx-tool infers for Compress if the condition has no values:
    nothing is selected, so the axis has size 0.
    """
    if "axis" not in node.attrs:
        return (0,)
    axis = _axis_attribute(node, len(shapes[0]))
    return (*shapes[0][:axis], 0, *shapes[0][axis + 1 :])


@_register_shape_rule(OF_ZEROS, "NonMaxSuppression")
def _raise_for_suppression_inputs(node: Node, shapes: Shapes) -> Shape:
    """Raise LookupError, because onnx-tool fails on a NonMaxSuppression with an input as its
    number of boxes.
    """
    raise LookupError(f"{node.key} takes zeros for what a caller gives")


# Resize.


def _has_resize_sizes(node: Node) -> bool:
    """Return whether a Resize has the input `sizes` with at least one element, which replaces its
    scales.
    """
    return len(node.inputs) > 3 and shape_element_count(onnx_tool_shape(node.inputs[3])) > 0


@_register_shape_rule(ALWAYS, "Resize", "Upsample")
def _resize_shape(node: Node, shapes: Shapes) -> Shape:
    """Return the result shape that onnx-tool infers for Resize: two sizes are added to the first
    two axes, and other incomplete sizes give ().

    An omitted tensor has no axes and one element, which raises where a list is expected.
    """
    data, count = shapes[0], len(node.inputs)
    last = node.inputs[-1]
    if count < 2 or last is None or not last.name:
        raise LookupError(f"{node.key} has no sizes and no scales")
    if not _has_resize_sizes(node):
        if shape_element_count(shapes[1 if count == 2 else 2]) != len(data):
            raise ValueError(f"which axes the scales of {node.key} enlarge is not known")
        return _true_result_shape(node)
    if node.attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise ValueError(f"which sizes {node.key} is asked for is not known")
    if shape_element_count(shapes[3]) == 2:
        axes = [axis % len(data) for axis in _integers_of_attribute(node, "axes", (0, 1))]
        return tuple(
            size + _true_result_shape(node)[axis]
            for size, axis in zip(data[:2], axes, strict=True)
        )
    return _true_result_shape(node) if shape_element_count(shapes[3]) == len(data) else ()


@_register_shape_rule(OF_ZEROS, "Resize", "Upsample")
def _resize_shape_with_zero_sizes(node: Node, shapes: Shapes) -> Shape:
    """Return the result shape that onnx-tool infers for Resize if it reads all sizes or scales as
    0: axes of size 0.
    """
    data, count = shapes[0], len(node.inputs)
    if not _has_resize_sizes(node):
        return (0,) * min(len(data), shape_element_count(shapes[1 if count == 2 else 2]))
    if shape_element_count(shapes[3]) == 2:
        return data[:2]
    return (0,) * len(data) if shape_element_count(shapes[3]) == len(data) else ()


# What slides windows: ConvNode, ConvTransposeNode and PoolBase.


def _auto_pad_mode(node: Node) -> str:
    """Return the attribute `auto_pad` of a node, "NOTSET" if it is missing."""
    value = node.attrs.get("auto_pad", "NOTSET")
    return value.decode() if isinstance(value, bytes) else str(value)


def _auto_pad_extents(padding: str, x: Shape, kernel: Shape, strides: Shape, axes: int) -> Shape:
    """Return the first `axes` spatial sizes of the result for `auto_pad`: input sizes / strides,
    rounded up.
    """
    if padding == "VALID":
        x = tuple(extent - k + 1 for extent, k in zip(x, kernel, strict=False))
    return tuple(math.ceil(x[axis] / strides[axis]) for axis in range(axes))


@_register_shape_rule(ALWAYS, "Conv")
def _convolution_shape(node: Node, shapes: Shapes) -> Shape:
    """Return the result shape that onnx-tool infers for Conv: with `auto_pad` only the first of
    three axes is kept, and more than three axes give ().
    """
    x, w = shapes[:2]
    axes, padding = len(x) - 2, _auto_pad_mode(node)
    strides = _integers_of_attribute(node, "strides", (1,) * 3)
    if padding != "NOTSET":
        taken = 2 if axes == 2 else 1
        return (x[0], w[0], *_auto_pad_extents(padding, x[2:], w[2:], strides, taken))
    if axes not in (1, 2, 3):
        return ()
    pads, dilations = (
        _integers_of_attribute(node, "pads", (0,) * 6),
        _integers_of_attribute(node, "dilations", (1,) * 3),
    )
    sizes = [
        int((x[2 + i] + pads[i] + pads[i + axes] - dilations[i] * (w[2 + i] - 1) - 1) / strides[i])
        for i in range(axes)
    ]
    return (x[0], w[0], *(size + 1 for size in sizes))


@_register_shape_rule(ALWAYS, "ConvTranspose")
def _conv_transpose_shape(node: Node, shapes: Shapes) -> Shape:
    """Return the result shape that onnx-tool infers for ConvTranspose: `auto_pad` is ignored, and
    `output_shape` is used unless it has a 0.
    """
    x, w = shapes[:2]
    axes, group = len(x) - 2, node.attrs.get("group", 1)
    if axes not in (1, 2, 3) or not isinstance(group, int):
        return ()
    pads, more = (
        _integers_of_attribute(node, "pads", (0,) * 4),
        _integers_of_attribute(node, "output_padding", (0,) * 4),
    )
    strides, dilations = (
        _integers_of_attribute(node, name, (1, 1)) for name in ("strides", "dilations")
    )
    sizes = [
        strides[i] * (x[2 + i] - 1)
        + more[i]
        + ((w[2 + i] - 1) * dilations[i] + 1)
        - (pads[i] + pads[i + axes])
        for i in range(axes)
    ]
    stated = _integers_of_attribute(node, "output_shape")
    if stated and 0 not in stated:
        sizes = list(stated if axes > 1 else stated[:1])
    return (x[0], group * w[1], *sizes)


@_register_shape_rule(ALWAYS, "MaxPool", "AveragePool")
def _pool_shape(node: Node, shapes: Shapes) -> Shape:
    """Return the result shape that onnx-tool infers for a pool: with three axes, the padding
    before an axis counts twice, and the third axis has the dilation of the second.

    As sizes are rounded up, a window may begin behind the last element.
    """
    x, padding = shapes[0], _auto_pad_mode(node)
    kernel, strides = (
        _integers_of_attribute(node, "kernel_shape", (3, 3)),
        _integers_of_attribute(node, "strides", (1, 1)),
    )
    if padding != "NOTSET":
        taken = 2 if len(strides) == 2 else 1
        return (*x[:2], *_auto_pad_extents(padding, x[2:], kernel, strides, taken))
    axes = len(kernel)
    if axes not in (1, 2, 3):
        raise LookupError(f"{node.key} has windows of {axes} axes")
    pads, dilations = (
        _integers_of_attribute(node, "pads", (0,) * 4),
        _integers_of_attribute(node, "dilations", (1, 1)),
    )
    rounded = math.ceil if node.attrs.get("ceil_mode") else math.floor
    sizes = []
    for i in range(axes):
        enclosing = pads[i] + (pads[i] if axes == 3 else pads[i + axes])
        reach = (kernel[i] - 1) * dilations[min(i, 1)] + 1
        sizes.append(rounded((x[2 + i] + enclosing - reach) / strides[i] + 1))
    return (*x[:2], *sizes)


# A result has no value, and so is zeros, unless `shape_infer` of its class computes one; this does
# so for every element by itself.
_BY_ELEMENT = ("Equal", "Greater", "GreaterOrEqual")
_COMPUTED = (
    *_BY_ELEMENT, "ArgMax", "Compress", "Constant", "ConstantOfShape", "Flatten", "NonZero",
    "OneHot", "Range", "ReduceL2", "Shape", "Tile",
)  # fmt: skip
LOST = Op("", "(lost)", 0)  # stands for the operators of nodes that the tool loses
# What of a wrong shape has other values or sizes, as far as is known here.
_OF_VALUES = ("Shape", "Upsample")
# Other inputs than the first are looked at for their values.
_OF_FIRST = ("Reshape", "Expand")
_ALIKE = ("TopK",)  # all results have one shape


@with_formula(
    "The graph with the shapes of the tool instead of the true shapes, None for unknown shapes"
)
def with_onnx_tool_shapes(graph: Graph) -> Graph:
    """Return a copy of the graph with the shapes that onnx-tool infers, None for unknown ones.

    Stored tensors have the type that it gives them.
    """
    graph = _with_onnx_tool_types(graph)
    wrong: dict[str, Shape | None] = {}
    provided = {spec.name for spec in graph.inputs}
    gone, even, computed = (
        _positions_of_lost_nodes(graph.nodes),
        _names_of_uniform_tensors(graph),
        _keys_of_shape_makers(graph),
    )
    zeros = provided | {
        spec.name
        for node in graph.nodes
        for spec in node.outputs
        if spec and node.op.type not in _COMPUTED
    }
    without_values = {"NonZero": even, "Compress": zeros}
    nodes = tuple(
        msgspec.structs.replace(node, op=LOST)
        if index in gone
        else node
        if node.key in computed and not _is_any_input_named(node, range(len(node.inputs)), wrong)
        else _node_with_tool_shapes(node, wrong, without_values.get(node.op.type, provided))
        for index, node in enumerate(graph.nodes)
    )
    return msgspec.structs.replace(graph, nodes=nodes) if wrong or gone else graph


# The element types that `onnxdtype2npdtype` of onnx_tool/tensor.py has a name for.
READABLE = (
    "float32", "float64", "float16", "int32", "int16", "int64", "int8", "uint8", "uint16", "bool",
    "string",
)  # fmt: skip
_EIGHT_BYTES = ("uint64", "complex64")


def _with_onnx_tool_types(graph: Graph) -> Graph:
    """Return a copy of the graph where stored tensors have the element types that onnx-tool gives
    them: float64 for a type that it does not know.

    NumPy reads None as float64. So the tool makes zeros of a tensor whose elements are listed one
    by one, and reads raw bytes as floats of eight bytes, which is right only for types of that
    width.
    """

    def with_onnx_tool_type(spec: TensorSpec | None) -> TensorSpec | None:
        """Return a tensor spec with the element type that onnx-tool gives to a stored tensor."""
        if spec is None or spec.role not in ("parameter", "constant") or spec.dtype in READABLE:
            return spec
        if spec.name in graph.listed or spec.dtype in _EIGHT_BYTES or 0 in (spec.shape or ()):
            return msgspec.structs.replace(spec, dtype="float64")
        return spec

    nodes = []
    for node in graph.nodes:
        inputs = tuple(map(with_onnx_tool_type, node.inputs))
        changed = inputs != node.inputs
        nodes.append(msgspec.structs.replace(node, inputs=inputs) if changed else node)
    return msgspec.structs.replace(graph, nodes=tuple(nodes))


# Inputs that hold sizes, by their number in all: `_SHAPE_TENSORS` of onnx_tool/graph.py.
_SIZES: dict[tuple[str, int], tuple[int, ...]] = {
    **{(op, 2): (1,) for op in (
        "Reshape", "Resize", "Upsample", "Expand", "Tile", "TopK", "Pad", "Split", "Unsqueeze",
        "Squeeze", "ReduceSum", "ReduceMean",
    )},
    **{(op, count): (count - 1,) for op in ("Resize", "Upsample") for count in (3, 4)},
    **{("Slice", count): tuple(range(1, count)) for count in (3, 4, 5)},
    **{("NonMaxSuppression", count): (2,) for count in (4, 5)},
    ("ConstantOfShape", 1): (0,), ("Range", 3): (0, 1, 2), ("OneHot", 3): (1,), ("Pad", 3): (1,),
}  # fmt: skip


def _keys_of_shape_makers(graph: Graph) -> set[str]:
    """Return the keys of the nodes whose values onnx-tool computes because shapes depend on them.

    As Graph.__find_shape_tensors__, it goes back from each required shape. Values that depend on
    inputs are not followed, since the tool does not know them.
    """
    makers = {spec.name: node for node in graph.nodes for spec in node.outputs if spec}
    computed: set[str] = set()
    todo = [
        node.inputs[index]
        for node in graph.nodes
        for index in _SIZES.get((node.op.type, len(node.inputs)), ())
    ]
    while todo:
        spec = todo.pop()
        maker = makers.get(spec.name) if spec else None
        if maker is not None and maker.key not in computed:
            computed.add(maker.key)
            todo += maker.inputs if maker.op.type != "Shape" else ()
    return computed


def _names_of_uniform_tensors(graph: Graph) -> set[str]:
    """Return the names of tensors whose elements are all equal in onnx-tool, mostly zeros, because
    it has no data.

    The tool has no data.
    """
    even = {spec.name for spec in graph.inputs}
    for node in graph.nodes:
        by_element = node.op.type in _BY_ELEMENT and all(
            spec is None or spec.name in even or spec.numel == 1 for spec in node.inputs
        )
        if by_element or node.op.type not in _COMPUTED:
            even |= {spec.name for spec in node.outputs if spec}
    return even


def _node_with_tool_shapes(node: Node, wrong: dict[str, Shape | None], provided: set[str]) -> Node:
    """Return a copy of the node with the shapes that onnx-tool infers; add each wrong shape to
    `wrong`, by tensor name.
    """
    node = msgspec.structs.replace(
        node, inputs=tuple(_with_wrong_shape(spec, wrong) for spec in node.inputs)
    )
    first = node.outputs[0] if node.outputs else None
    if first is None or not first.name:
        return node
    try:
        shape = _first_result_shape(node, wrong, provided)
    except ValueError:
        wrong |= {spec.name: None for spec in node.outputs if spec}
    else:
        similar = node.outputs if node.op.type in _ALIKE else (first,)
        wrong |= {spec.name: shape for spec in similar if spec and spec.shape != shape}
    outputs = tuple(_with_wrong_shape(spec, wrong) for spec in node.outputs)
    return msgspec.structs.replace(node, outputs=outputs)


def _with_wrong_shape(
    spec: TensorSpec | None, wrong: Mapping[str, Shape | None]
) -> TensorSpec | None:
    """Return a copy of the tensor spec with the shape in `wrong`, or the spec itself if its name
    is not in `wrong`.
    """
    if spec is None or spec.name not in wrong:
        return spec
    return msgspec.structs.replace(spec, shape=wrong[spec.name])


def _first_result_shape(
    node: Node, wrong: Mapping[str, Shape | None], provided: set[str]
) -> Shape | None:
    """Return the shape that onnx-tool infers for the first result of a node; raise ValueError if
    that shape is unknown, LookupError if the tool fails.

    `provided` are the names of the inputs that a caller gives, whose values the tool reads as
    zeros.
    """
    op, inputs, indices = node.op.type, node.inputs, shape_input_positions(node)
    if _is_any_input_named(node, indices, provided):
        if op not in OF_ZEROS:
            raise ValueError(f"what {node.op} makes of zeros is not known")
        return OF_ZEROS[op](node, [onnx_tool_shape(spec) for spec in inputs])
    if op in ("NonZero", "Compress") and not node.constant:
        raise ValueError(f"what {node.op} finds is not known")
    astray = _is_any_input_named(node, range(len(inputs)), wrong)
    if _is_any_input_named(node, indices, wrong) or (astray and op in _OF_VALUES):
        raise ValueError(f"what {node.op} makes of other values is not known")
    rule = ALWAYS.get(op) or (ASTRAY.get(op) if astray else None)
    if rule is not None:
        known = inputs[:1] if op in _OF_FIRST else inputs
        return rule(node, [onnx_tool_shape(spec) for spec in known])
    if astray:
        raise ValueError(f"what {node.op} makes of a wrong shape is not known")
    return node.outputs[0].shape if node.outputs[0] else None


def _is_any_input_named(node: Node, indices: Iterable[int], names: Container[str]) -> bool:
    """Return whether at least one of the inputs at `indices` has a name in `names`."""
    specs = (node.inputs[index] for index in indices if index < len(node.inputs))
    return any(spec is not None and spec.name in names for spec in specs)


# The order in which the tool puts the nodes. A tensor that is left out is one of the name "" to
# it: a node that leaves out a result makes it, and a node that leaves out an input waits for it.
# A node that does both waits for itself, and is lost with all that depends on it.


def _positions_of_lost_nodes(nodes: Sequence[Node]) -> frozenset[int]:
    """Return the indices of the nodes that onnx-tool leaves out when it sorts them; raise
    ValueError if that is unknown.
    """
    inputs = [_names_or_empty(node.inputs) for node in nodes]
    outputs = [_names_or_empty(node.outputs) for node in nodes]
    made = {name for names in outputs for name in names}
    if "" not in made:
        return frozenset()
    takers: dict[str, list[int]] = {}
    waiting = []
    for index, names in enumerate(inputs):
        waited = [name for name in names if name in made]
        waiting.append(len(waited))
        for name in waited:
            takers.setdefault(name, []).append(index)
    order: list[int] = []
    while ready := [index for index, count in enumerate(waiting) if count == 0]:
        for index in ready:
            waiting[index] -= 1
        for index in ready:
            for name in outputs[index]:
                for taker in takers.get(name, ()):
                    waiting[taker] -= 1
        order += ready
    _check_nameless_shapes(nodes, order, inputs, outputs)
    return frozenset(range(len(nodes))) - frozenset(order)


def _check_nameless_shapes(
    nodes: Sequence[Node],
    order: Sequence[int],
    inputs: Sequence[Sequence[str]],
    outputs: Sequence[Sequence[str]],
) -> None:
    """Raise ValueError if a node reads a tensor without a name, whose shape is then unclear.

    It has the shape of the last one written.
    """
    made = {name for names in outputs for name in names if name}
    there: set[str] = set()
    for index in order:
        if "" in inputs[index]:
            raise ValueError(
                f"{nodes[index].key} reads a tensor without a name that another node makes"
            )
        if any(name in made and name not in there for name in inputs[index]):
            raise ValueError(f"{nodes[index].key} comes before its inputs")
        there.update(outputs[index])


def _names_or_empty(specs: Sequence[TensorSpec | None]) -> list[str]:
    """Return the name of each tensor spec, "" for a missing one."""
    return [spec.name if spec is not None else "" for spec in specs]
