"""The shapes that onnx-tool 1.0.1 infers, where they are not those of the operators.

Source: the methods `shape_infer` and `value_infer` of the classes in onnx_tool/node.py. What is
not said here is taken to be inferred as ONNX says, as long as the shapes it comes from are. Raises
LookupError where the tool raises, ValueError where it is not known what a wrong shape leads to.
"""

from collections.abc import Callable, Mapping
from math import prod

import msgspec

from crossflops.conventions.formulas.onnx_tool_order import lost
from crossflops.conventions.formulas.onnx_tool_windows import WINDOWS, extents
from crossflops.core.graph import Graph, Node, Op
from crossflops.core.tensor import TensorSpec

Shape = tuple[int, ...]
Shapes = list[Shape]
LOST = Op("", "(lost)", 0)  # stands for the operators of nodes that the tool loses
_Rule = Callable[[Node, Shapes], Shape]


def seen(graph: Graph) -> Graph:
    """The graph with the shapes of the tool in place of the true ones."""
    wrong: dict[str, Shape] = {}
    gone = lost(graph.nodes)
    nodes = tuple(
        msgspec.structs.replace(node, op=LOST) if place in gone else _seen(node, wrong)
        for place, node in enumerate(graph.nodes)
    )
    return msgspec.structs.replace(graph, nodes=nodes) if wrong or gone else graph


def _seen(node: Node, wrong: dict[str, Shape]) -> Node:
    """The node as the tool sees it. `wrong` are the shapes that it got wrong so far; it grows."""
    inputs = tuple(_with(spec, wrong) for spec in node.inputs)
    astray = inputs != node.inputs
    first = node.outputs[0] if node.outputs else None
    if first is None or first.shape is None or not first.name:
        return msgspec.structs.replace(node, inputs=inputs) if astray else node
    rule = _ALWAYS.get(node.op.type) or (_ASTRAY.get(node.op.type) if astray else None)
    if rule is None and astray:
        raise ValueError(f"what {node.op} makes of a wrong shape is not known")
    if rule is None:
        return node
    here = msgspec.structs.replace(node, inputs=inputs)
    known = inputs[:1] if node.op.type in _OF_FIRST else inputs
    told = rule(here, [_shape(spec) for spec in known])
    if told != first.shape:
        wrong[first.name] = told
    outputs = tuple(_with(spec, wrong) for spec in node.outputs)
    return msgspec.structs.replace(here, outputs=outputs)


def _with(spec: TensorSpec | None, wrong: Mapping[str, Shape]) -> TensorSpec | None:
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
    if _true(node) != (len(shapes[0]),):
        raise ValueError(f"{node.key} gives some of the sizes, and for the tool all of them")
    return _true(node)


def _permuted(node: Node, shapes: Shapes) -> Shape:
    order = list(extents(node, "perm")) or list(range(len(shapes[0])))[::-1]
    return tuple(shapes[0][axis] for axis in order)


# Other inputs than the first are looked at for their values.
_OF_FIRST = ("Reshape", "Expand")
# Ruled whatever comes in.
_ALWAYS: dict[str, _Rule] = {
    "ReduceL2": _norm,
    "MatMul": _product,
    "Reshape": _reshaped,
    "Shape": _sizes,
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
