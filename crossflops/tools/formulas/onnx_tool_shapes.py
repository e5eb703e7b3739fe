"""The shapes that onnx-tool 1.0.1 infers, where they are not those of the operators.

Source: the methods `shape_infer` and `value_infer` of the classes in onnx_tool/node.py. What is
not said here is taken to be inferred as ONNX says, as long as the shapes it comes from are. The
values of the graph's inputs, which a caller would give, are zeros to the tool. Raises LookupError
where the tool raises; where it is not known what a wrong shape or value leads to, the result has
none.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from math import prod

import msgspec

from crossflops.ir.graph import Graph, Node, Op
from crossflops.ir.tensor import TensorSpec
from crossflops.tools.formulas.onnx_tool_order import lost
from crossflops.tools.formulas.onnx_tool_windows import WINDOWS, extents

Shape = tuple[int, ...]
Shapes = list[Shape]
LOST = Op("", "(lost)", 0)  # stands for the operators of nodes that the tool loses
_Rule = Callable[[Node, Shapes], Shape]


def seen(graph: Graph) -> Graph:
    """The graph with the shapes of the tool in place of the true ones, None where nobody knows."""
    wrong: dict[str, Shape | None] = {}
    given = {spec.name for spec in graph.inputs}
    gone = lost(graph.nodes)
    nodes = tuple(
        msgspec.structs.replace(node, op=LOST) if place in gone else _seen(node, wrong, given)
        for place, node in enumerate(graph.nodes)
    )
    return msgspec.structs.replace(graph, nodes=nodes) if wrong or gone else graph


def _seen(node: Node, wrong: dict[str, Shape | None], given: set[str]) -> Node:
    """The node as the tool sees it. `wrong` are the shapes that it got wrong so far; it grows."""
    inputs = tuple(_with(spec, wrong) for spec in node.inputs)
    first = node.outputs[0] if node.outputs else None
    if first is None or not first.name:
        return msgspec.structs.replace(node, inputs=inputs)
    here = msgspec.structs.replace(node, inputs=inputs)
    try:
        told = _inferred(here, wrong, given)
    except ValueError:
        wrong |= {spec.name: None for spec in node.outputs if spec}
    else:
        if told != first.shape:
            wrong[first.name] = told
    outputs = tuple(_with(spec, wrong) for spec in node.outputs)
    return msgspec.structs.replace(here, outputs=outputs)


def _inferred(node: Node, wrong: Mapping[str, Shape | None], given: set[str]) -> Shape | None:
    """The shape of the first result. ValueError where it is not known what the tool makes of it.

    `given` are the names of what a caller gives, whose values the tool takes for zeros.
    """
    op, inputs, places = node.op.type, node.inputs, _values(node)
    if _any_of(node, places, given):
        if op not in _OF_ZEROS:
            raise ValueError(f"what {node.op} makes of zeros is not known")
        return _OF_ZEROS[op](node, [_shape(spec) for spec in inputs])
    astray = _any_of(node, range(len(inputs)), wrong)
    if _any_of(node, places, wrong) or (astray and op in _OF_VALUES):
        raise ValueError(f"what {node.op} makes of other values is not known")
    rule = _ALWAYS.get(op) or (_ASTRAY.get(op) if astray else None)
    if rule is not None:
        known = inputs[:1] if op in _OF_FIRST else inputs
        return rule(node, [_shape(spec) for spec in known])
    if astray:
        raise ValueError(f"what {node.op} makes of a wrong shape is not known")
    return node.outputs[0].shape if node.outputs[0] else None


def _values(node: Node) -> tuple[int, ...]:
    """The places of the inputs whose values decide about the shape of the result."""
    if node.op.type != "Resize":
        return _VALUES.get(node.op.type, ())
    return (3,) if _has_sizes(node) else (1 if len(node.inputs) == 2 else 2,)


def _has_sizes(node: Node) -> bool:
    """Whether a Resize has sizes that are not empty, by which its scales are not looked at."""
    return len(node.inputs) > 3 and _volume(_shape(node.inputs[3])) > 0


def _any_of(node: Node, places: Iterable[int], names: Container[str]) -> bool:
    """Whether one of these inputs bears one of the names."""
    specs = (node.inputs[place] for place in places if place < len(node.inputs))
    return any(spec is not None and spec.name in names for spec in specs)


def _with(spec: TensorSpec | None, wrong: Mapping[str, Shape | None]) -> TensorSpec | None:
    if spec is None or spec.name not in wrong:
        return spec
    return msgspec.structs.replace(spec, shape=wrong[spec.name])


def _shape(spec: TensorSpec | None) -> Shape:
    """A tensor that is left out is one without axes."""
    if spec is None or not spec.name:
        return ()
    if spec.shape is None:
        raise ValueError("a shape is not known")
    return spec.shape


def _true(node: Node) -> Shape:
    return _shape(node.outputs[0])


def _volume(shape: Shape) -> int:
    return prod(shape) if shape else 0


def _largest(node: Node, shapes: Shapes) -> Shape:
    """`_max_shape`: that of the most elements, of these the one with the most axes."""
    found = shapes[0]
    for shape in shapes:
        longer = _volume(shape) == _volume(found) and len(shape) > len(found)
        if _volume(shape) > _volume(found) or longer:
            found = shape
    return found


def _broadcast(node: Node, shapes: Shapes) -> Shape:
    """`_broadcast_shape`."""
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    for sizes in zip(*padded, strict=True):
        if len(set(sizes) - {1}) > 1:
            raise LookupError(f"{node.key} cannot broadcast {sizes}")
    return tuple(0 if 0 in sizes else max(sizes) for sizes in zip(*padded, strict=True))


def _first(node: Node, shapes: Shapes) -> Shape:
    return shapes[0]


def _norm(node: Node, shapes: Shapes) -> Shape:
    """ReduceL2Node: axes that are an input are not seen, so all are summed."""
    if len(node.inputs) < 2:
        return _true(node)
    return (1,) * len(shapes[0]) if node.attrs.get("keepdims", 1) else ()


def _product(node: Node, shapes: Shapes) -> Shape:
    """GemmNode: the batch of more elements, not that of both."""
    a, b = shapes[:2]
    if len(a) < 2 or len(b) < 2:
        raise LookupError("Gemm and MatMul need two axes or more")
    batch = a[:-2] if _volume(a[:-2]) >= _volume(b[:-2]) else b[:-2]
    return (*batch, a[-2], b[-1])


def _reshaped(node: Node, shapes: Shapes) -> Shape:
    """ReshapeNode: to no axes at all is to one."""
    shape = _true(node) or (1,)
    if _volume(shapes[0]) != _volume(shape):
        raise LookupError(f"{node.key} has another number of elements")
    return shape


def _expanded(node: Node, shapes: Shapes) -> Shape:
    """ExpandNode: the larger extent of each axis."""
    wanted, given = _true(node), shapes[0]
    rank = max(len(wanted), len(given))
    pairs = zip(*((1,) * (rank - len(one)) + one for one in (wanted, given)), strict=True)
    return tuple(map(max, pairs))


def _sizes(node: Node, shapes: Shapes) -> Shape:
    """ShapeNode: start and end are not seen, and who takes the sizes is led astray."""
    return (len(shapes[0]),)


def _axes(node: Node, rank: int) -> tuple[int, ...]:
    """The attribute, the first axis where it is left out."""
    return tuple(axis % max(rank, 1) for axis in extents(node, "axes", (0,)))


def _squeezed(node: Node, shapes: Shapes) -> Shape:
    """SqueezeNode: without axes the first one goes, whatever its extent, and no other."""
    if len(node.inputs) > 1:
        if not shapes[1]:
            raise LookupError(f"{node.key} has axes without a length")
        return _true(node)
    axes = _axes(node, len(shapes[0]))
    return tuple(size for axis, size in enumerate(shapes[0]) if axis not in axes)


def _squeezed_of_zeros(node: Node, shapes: Shapes) -> Shape:
    """All axes that are asked for are the first."""
    return shapes[0][1:] if _volume(shapes[1]) else shapes[0]


def _unsqueezed_of_zeros(node: Node, shapes: Shapes) -> Shape:
    """Of several axes that are all the first the tool runs out of extents."""
    if _volume(shapes[1]) > 1:
        raise LookupError(f"{node.key} has too few extents")
    return (1, *shapes[0]) if _volume(shapes[1]) else shapes[0]


def _reduced_of_zeros(node: Node, shapes: Shapes) -> Shape:
    """ReduceMeanNode: the first axis goes."""
    if not _volume(shapes[1]):
        return shapes[0]
    return ((1,) if node.attrs.get("keepdims", 1) else ()) + shapes[0][1:]


def _reshaped_of_zeros(node: Node, shapes: Shapes) -> Shape:
    """ReshapeNode: every zero is the extent that is there."""
    data, count = shapes[0], _volume(shapes[1])
    if not count:
        return (1,)
    if count > len(data) or _volume(data[:count]) != _volume(data):
        raise LookupError(f"{node.key} has another number of elements")
    return data[:count]


def _all_found(node: Node, shapes: Shapes) -> Shape:
    """NonZeroNode: where nothing is above zero, everything is taken."""
    return (len(shapes[0]), _volume(shapes[0]))


def _raises(node: Node, shapes: Shapes) -> Shape:
    """RangeNode with a step of 0, NonMaxSuppressionNode with a number that is not there."""
    raise LookupError(f"{node.key} takes zeros for what a caller gives")


def _enlarged(node: Node, shapes: Shapes) -> Shape:
    """ResizeNode: two sizes are added to the first extents, and of three nothing is made.

    A tensor that is left out has no axes and one element, which raises where a list is wanted.
    """
    data, count = shapes[0], len(node.inputs)
    last = node.inputs[-1]
    if count < 2 or last is None or not last.name:
        raise LookupError(f"{node.key} has no sizes and no scales")
    if not _has_sizes(node):
        if _volume(shapes[1 if count == 2 else 2]) != len(data):
            raise ValueError(f"which axes the scales of {node.key} enlarge is not known")
        return _true(node)
    if node.attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise ValueError(f"which sizes {node.key} is asked for is not known")
    if _volume(shapes[3]) == 2:
        axes = [axis % len(data) for axis in extents(node, "axes", (0, 1))]
        return tuple(size + _true(node)[axis] for size, axis in zip(data[:2], axes, strict=True))
    return _true(node) if _volume(shapes[3]) == len(data) else ()


def _enlarged_of_zeros(node: Node, shapes: Shapes) -> Shape:
    """ResizeNode: of sizes or scales that are zeros nothing is left."""
    data, count = shapes[0], len(node.inputs)
    if not _has_sizes(node):
        return (0,) * min(len(data), _volume(shapes[1 if count == 2 else 2]))
    if _volume(shapes[3]) == 2:
        return data[:2]
    return (0,) * len(data) if _volume(shapes[3]) == len(data) else ()


def _permuted(node: Node, shapes: Shapes) -> Shape:
    order = list(extents(node, "perm")) or list(range(len(shapes[0])))[::-1]
    return tuple(shapes[0][axis] for axis in order)


_MEANS = ("ReduceMean", "ReduceSum", "ReduceProd", "ReduceMin", "ReduceMax")
# The inputs whose values decide about the shape, and what comes of zeros in their place.
_VALUES: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(
        (*_MEANS, "Squeeze", "Unsqueeze", "Reshape", "Expand", "Tile", "OneHot"), (1,)
    ),
    **dict.fromkeys(("Split", "TopK"), (1,)),
    "NonZero": (0,),
    "ConstantOfShape": (0,),
    "Pad": (1, 3),
    "Slice": (1, 2, 3, 4),
    "Range": (0, 1, 2),
    "NonMaxSuppression": (2,),
    "Upsample": (1,),
}
# What of a wrong shape has other values or sizes, as far as is known here.
_OF_VALUES = ("Shape", "Upsample")
_OF_ZEROS: dict[str, _Rule] = {
    **dict.fromkeys(_MEANS, _reduced_of_zeros),
    "Squeeze": _squeezed_of_zeros,
    "Unsqueeze": _unsqueezed_of_zeros,
    "Reshape": _reshaped_of_zeros,
    "NonZero": _all_found,
    "NonMaxSuppression": _raises,
    **dict.fromkeys(("Resize", "Upsample"), _enlarged_of_zeros),
}
# Other inputs than the first are looked at for their values.
_OF_FIRST = ("Reshape", "Expand")
# Ruled whatever comes in.
_ALWAYS: dict[str, _Rule] = {
    "ReduceL2": _norm,
    "MatMul": _product,
    "Reshape": _reshaped,
    "Shape": _sizes,
    "Squeeze": _squeezed,
    **dict.fromkeys(("Resize", "Upsample"), _enlarged),
    **WINDOWS,
    **dict.fromkeys(("Pow", "Clip", "PRelu", "Sum", "Where"), _largest),
}
# Ruled where a wrong shape comes in.
_ASTRAY: dict[str, _Rule] = {
    "Expand": _expanded,
    "Transpose": _permuted,
    **dict.fromkeys(
        (
            "Add", "Sub", "Mul", "Div", "Min", "Max", "Neg", "Mod", "Abs", "Ceil", "Less",
            "LessOrEqual", "Round", "Not", "And", "Or", "Xor",
        ),
        _broadcast,
    ),
    **dict.fromkeys(
        (
            "Exp", "Softmax", "Softplus", "Log", "Sqrt", "Sin", "Cos", "Sigmoid", "Tanh", "Atan",
            "Sign", "HardSigmoid", "HardSwish", "Relu", "Elu", "Gelu", "LeakyRelu", "Reciprocal",
            "LogSoftmax", "Identity", "Cast", "Dropout", "Erf", "Floor", "BatchNormalization",
            "LayerNormalization", "CumSum",
        ),
        _first,
    ),
}  # fmt: skip

VIEWS = {"onnx-tool.shapes": seen}
