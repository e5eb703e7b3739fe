"""The shape that onnx-tool 1.0.1 infers for one operator, where it is not the operator's own.

Source: the methods `shape_infer` and `value_infer` of the classes in onnx_tool/node.py. Attributes
that are left out have the defaults of their constructors, which are too short for three axes. A
rule takes the node and the shapes of its inputs. It raises LookupError where the tool raises, and
ValueError where it is not known what a wrong shape or value leads to.
"""

import math
from collections.abc import Callable
from math import prod
from typing import TypeAlias

from crossflops.ir.graph import Node
from crossflops.ir.tensor import TensorSpec

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
}


def values(node: Node) -> tuple[int, ...]:
    """The places of the inputs whose values decide about the shape of the result."""
    if node.op.type != "Resize":
        return _VALUES.get(node.op.type, ())
    return (3,) if _has_sizes(node) else (1 if len(node.inputs) == 2 else 2,)


def shape_of(spec: TensorSpec | None) -> Shape:
    """The shape, () of a tensor that is left out. Raises ValueError where it is not known."""
    if spec is None or not spec.name:
        return ()
    if spec.shape is None:
        raise ValueError("a shape is not known")
    return spec.shape


def volume(shape: Shape) -> int:
    """The number of elements, 0 without axes."""
    return prod(shape) if shape else 0


def _true(node: Node) -> Shape:
    return shape_of(node.outputs[0])


def _extents(node: Node, name: str, default: Shape = ()) -> Shape:
    """An attribute that is a list of integers."""
    value = node.attrs.get(name)
    return tuple(map(int, value)) if isinstance(value, tuple) else default


def _for(rules: dict[str, ShapeRule], *types: str) -> Callable[[ShapeRule], ShapeRule]:
    def declare(rule: ShapeRule) -> ShapeRule:
        rules.update(dict.fromkeys(types, rule))
        return rule

    return declare


# Work by element.


@_for(ALWAYS, "Pow", "Clip", "PRelu", "Sum", "Where")
def _largest(node: Node, shapes: Shapes) -> Shape:
    """`_max_shape`: that of the most elements, of these the one with the most axes."""
    return max(shapes, key=lambda shape: (volume(shape), len(shape)))


@_for(
    ASTRAY, "Add", "Sub", "Mul", "Div", "Min", "Max", "Neg", "Mod", "Abs", "Ceil", "Less",
    "LessOrEqual", "Round", "Not", "And", "Or", "Xor",
)  # fmt: skip
def _broadcast(node: Node, shapes: Shapes) -> Shape:
    """`_broadcast_shape`."""
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    for sizes in zip(*padded, strict=True):
        if len(set(sizes) - {1}) > 1:
            raise LookupError(f"{node.key} cannot broadcast {sizes}")
    return tuple(0 if 0 in sizes else max(sizes) for sizes in zip(*padded, strict=True))


@_for(
    ASTRAY, "Exp", "Softmax", "Softplus", "Log", "Sqrt", "Sin", "Cos", "Sigmoid", "Tanh", "Atan",
    "Sign", "HardSigmoid", "HardSwish", "Relu", "Elu", "Gelu", "LeakyRelu", "Reciprocal",
    "LogSoftmax", "Identity", "Cast", "Dropout", "Erf", "Floor", "BatchNormalization",
    "LayerNormalization", "CumSum",
)  # fmt: skip
def _first(node: Node, shapes: Shapes) -> Shape:
    return shapes[0]


# Products and reductions.


@_for(ALWAYS, "MatMul")
def _product(node: Node, shapes: Shapes) -> Shape:
    """GemmNode: the batch of more elements, not that of both."""
    a, b = shapes[:2]
    if len(a) < 2 or len(b) < 2:
        raise LookupError("Gemm and MatMul need two axes or more")
    batch = a[:-2] if volume(a[:-2]) >= volume(b[:-2]) else b[:-2]
    return (*batch, a[-2], b[-1])


@_for(ALWAYS, "ReduceL2")
def _norm(node: Node, shapes: Shapes) -> Shape:
    """ReduceL2Node: axes that are an input are not seen, so all are summed."""
    if len(node.inputs) < 2:
        return _true(node)
    return (1,) * len(shapes[0]) if node.attrs.get("keepdims", 1) else ()


@_for(OF_ZEROS, *_MEANS)
def _reduced_of_zeros(node: Node, shapes: Shapes) -> Shape:
    """ReduceMeanNode: the first axis goes."""
    if not volume(shapes[1]):
        return shapes[0]
    return ((1,) if node.attrs.get("keepdims", 1) else ()) + shapes[0][1:]


# What moves elements, and asks for sizes.


@_for(ALWAYS, "Reshape")
def _reshaped(node: Node, shapes: Shapes) -> Shape:
    """ReshapeNode: to no axes at all is to one."""
    shape = _true(node) or (1,)
    if volume(shapes[0]) != volume(shape):
        raise LookupError(f"{node.key} has another number of elements")
    return shape


@_for(OF_ZEROS, "Reshape")
def _reshaped_of_zeros(node: Node, shapes: Shapes) -> Shape:
    """ReshapeNode: every zero is the extent that is there."""
    data, count = shapes[0], volume(shapes[1])
    if not count:
        return (1,)
    if count > len(data) or volume(data[:count]) != volume(data):
        raise LookupError(f"{node.key} has another number of elements")
    return data[:count]


@_for(ASTRAY, "Expand")
def _expanded(node: Node, shapes: Shapes) -> Shape:
    """ExpandNode: the larger extent of each axis."""
    pair = (_true(node), shapes[0])
    rank = max(map(len, pair))
    return tuple(map(max, *((1,) * (rank - len(shape)) + shape for shape in pair)))


@_for(ASTRAY, "Transpose")
def _permuted(node: Node, shapes: Shapes) -> Shape:
    order = list(_extents(node, "perm")) or list(range(len(shapes[0])))[::-1]
    return tuple(shapes[0][axis] for axis in order)


@_for(ALWAYS, "Shape")
def _sizes(node: Node, shapes: Shapes) -> Shape:
    """ShapeNode: start and end are not seen, and what takes the sizes is led astray."""
    return (len(shapes[0]),)


@_for(ALWAYS, "Squeeze")
def _squeezed(node: Node, shapes: Shapes) -> Shape:
    """SqueezeNode: without axes the first one goes, whatever its extent, and no other."""
    if len(node.inputs) > 1:
        if not shapes[1]:
            raise LookupError(f"{node.key} has axes without a length")
        return _true(node)
    rank = len(shapes[0])
    axes = [axis % max(rank, 1) for axis in _extents(node, "axes", (0,))]
    return tuple(size for axis, size in enumerate(shapes[0]) if axis not in axes)


@_for(OF_ZEROS, "Squeeze")
def _squeezed_of_zeros(node: Node, shapes: Shapes) -> Shape:
    """All axes that are asked for are the first."""
    return shapes[0][1:] if volume(shapes[1]) else shapes[0]


@_for(OF_ZEROS, "Unsqueeze")
def _unsqueezed_of_zeros(node: Node, shapes: Shapes) -> Shape:
    """Of several axes that are all the first the tool runs out of extents."""
    if volume(shapes[1]) > 1:
        raise LookupError(f"{node.key} has too few extents")
    return (1, *shapes[0]) if volume(shapes[1]) else shapes[0]


@_for(OF_ZEROS, "NonZero")
def _all_found(node: Node, shapes: Shapes) -> Shape:
    """NonZeroNode: where nothing is above zero, everything is taken."""
    return (len(shapes[0]), volume(shapes[0]))


@_for(OF_ZEROS, "NonMaxSuppression")
def _raises(node: Node, shapes: Shapes) -> Shape:
    """NonMaxSuppressionNode with a number that is not there."""
    raise LookupError(f"{node.key} takes zeros for what a caller gives")


# Resize.


def _has_sizes(node: Node) -> bool:
    """Whether a Resize has sizes that are not empty, by which its scales are not looked at."""
    return len(node.inputs) > 3 and volume(shape_of(node.inputs[3])) > 0


@_for(ALWAYS, "Resize", "Upsample")
def _enlarged(node: Node, shapes: Shapes) -> Shape:
    """ResizeNode: two sizes are added to the first extents, and of three nothing is made.

    A tensor that is left out has no axes and one element, which raises where a list is wanted.
    """
    data, count = shapes[0], len(node.inputs)
    last = node.inputs[-1]
    if count < 2 or last is None or not last.name:
        raise LookupError(f"{node.key} has no sizes and no scales")
    if not _has_sizes(node):
        if volume(shapes[1 if count == 2 else 2]) != len(data):
            raise ValueError(f"which axes the scales of {node.key} enlarge is not known")
        return _true(node)
    if node.attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise ValueError(f"which sizes {node.key} is asked for is not known")
    if volume(shapes[3]) == 2:
        axes = [axis % len(data) for axis in _extents(node, "axes", (0, 1))]
        return tuple(size + _true(node)[axis] for size, axis in zip(data[:2], axes, strict=True))
    return _true(node) if volume(shapes[3]) == len(data) else ()


@_for(OF_ZEROS, "Resize", "Upsample")
def _enlarged_of_zeros(node: Node, shapes: Shapes) -> Shape:
    """ResizeNode: of sizes or scales that are zeros nothing is left."""
    data, count = shapes[0], len(node.inputs)
    if not _has_sizes(node):
        return (0,) * min(len(data), volume(shapes[1 if count == 2 else 2]))
    if volume(shapes[3]) == 2:
        return data[:2]
    return (0,) * len(data) if volume(shapes[3]) == len(data) else ()


# What slides windows: ConvNode, ConvTransposeNode and PoolBase.


def _padding(node: Node) -> str:
    value = node.attrs.get("auto_pad", "NOTSET")
    return value.decode() if isinstance(value, bytes) else str(value)


def _same_or_valid(padding: str, x: Shape, kernel: Shape, strides: Shape, axes: int) -> Shape:
    """Rounded up, and dilations are not seen."""
    if padding == "VALID":
        x = tuple(extent - k + 1 for extent, k in zip(x, kernel, strict=False))
    return tuple(math.ceil(x[axis] / strides[axis]) for axis in range(axes))


@_for(ALWAYS, "Conv")
def _convolved(node: Node, shapes: Shapes) -> Shape:
    """Of three axes that are padded by name the first alone is left, of four and more nothing."""
    x, w = shapes[:2]
    axes, padding = len(x) - 2, _padding(node)
    strides = _extents(node, "strides", (1,) * 3)
    if padding != "NOTSET":
        taken = 2 if axes == 2 else 1
        return (x[0], w[0], *_same_or_valid(padding, x[2:], w[2:], strides, taken))
    if axes not in (1, 2, 3):
        return ()
    pads, dilations = _extents(node, "pads", (0,) * 6), _extents(node, "dilations", (1,) * 3)
    sizes = [
        int((x[2 + i] + pads[i] + pads[i + axes] - dilations[i] * (w[2 + i] - 1) - 1) / strides[i])
        for i in range(axes)
    ]
    return (x[0], w[0], *(size + 1 for size in sizes))


@_for(ALWAYS, "ConvTranspose")
def _transposed(node: Node, shapes: Shapes) -> Shape:
    """Padding by name is not seen; `output_shape` is taken where it has no zero."""
    x, w = shapes[:2]
    axes, group = len(x) - 2, node.attrs.get("group", 1)
    if axes not in (1, 2, 3) or not isinstance(group, int):
        return ()
    pads, more = _extents(node, "pads", (0,) * 4), _extents(node, "output_padding", (0,) * 4)
    strides, dilations = (_extents(node, name, (1, 1)) for name in ("strides", "dilations"))
    sizes = [
        strides[i] * (x[2 + i] - 1)
        + more[i]
        + ((w[2 + i] - 1) * dilations[i] + 1)
        - (pads[i] + pads[i + axes])
        for i in range(axes)
    ]
    stated = _extents(node, "output_shape")
    if stated and 0 not in stated:
        sizes = list(stated if axes > 1 else stated[:1])
    return (x[0], group * w[1], *sizes)


@_for(ALWAYS, "MaxPool", "AveragePool")
def _pooled(node: Node, shapes: Shapes) -> Shape:
    """Of three axes the padding before counts twice, and the third has the second's dilation.

    Rounded up, a window may begin behind the last element.
    """
    x, padding = shapes[0], _padding(node)
    kernel, strides = _extents(node, "kernel_shape", (3, 3)), _extents(node, "strides", (1, 1))
    if padding != "NOTSET":
        taken = 2 if len(strides) == 2 else 1
        return (*x[:2], *_same_or_valid(padding, x[2:], kernel, strides, taken))
    axes = len(kernel)
    if axes not in (1, 2, 3):
        raise LookupError(f"{node.key} has windows of {axes} axes")
    pads, dilations = _extents(node, "pads", (0,) * 4), _extents(node, "dilations", (1, 1))
    rounded = math.ceil if node.attrs.get("ceil_mode") else math.floor
    sizes = []
    for i in range(axes):
        around = pads[i] + (pads[i] if axes == 3 else pads[i + axes])
        reach = (kernel[i] - 1) * dilations[min(i, 1)] + 1
        sizes.append(rounded((x[2 + i] + around - reach) / strides[i] + 1))
    return (*x[:2], *sizes)
