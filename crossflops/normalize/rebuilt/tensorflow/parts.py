"""A node of ONNX for an operation of TensorFlow that multiplies, of the shapes that it has."""

import msgspec

from crossflops.core.graph import Attribute, Node, Op
from crossflops.core.tensor import TensorSpec
from crossflops.core.trace import Call

Shape = tuple[int, ...]


def part(node: Node, call: Call, key: str) -> Node:
    """One of the products that a node was written in."""
    given = {spec.name: spec.shape or () for spec in call.inputs}
    out, attributes = call.outputs[0].shape or (), dict[str, Attribute]()
    shapes: tuple[Shape, ...]
    if call.target.startswith(("Conv", "Depthwise")):
        back = "Backprop" in call.target
        name = "ConvTranspose" if back else "Conv"
        data = _channels_first(given["out_backprop" if back else "input"])
        weights = given["filter"]
        shapes = (data, _weights(weights, call.target))
        out = _channels_first(out)
        attributes = {"group": 1 if back else data[1] // shapes[1][1]}
    elif call.target == "Einsum":
        name, shapes = "Einsum", tuple(given.values())
        attributes = {"equation": str(call.settings["equation"])}
    else:
        name, flags = "MatMul", (("transpose_a", "adj_x"), ("transpose_b", "adj_y"))
        shapes = tuple(
            (*shape[:-2], shape[-1], shape[-2]) if any(map(call.settings.get, names)) else shape
            for shape, names in zip(given.values(), flags, strict=True)
        )
    dtype = call.outputs[0].dtype
    return msgspec.structs.replace(
        node,
        key=key,
        op=Op("", name, 13),
        inputs=tuple(TensorSpec(f"{key}:{at}", dtype, one) for at, one in enumerate(shapes)),
        outputs=(TensorSpec(key, dtype, out),),
        attrs=attributes,
        call=call.key,
    )


def _channels_first(shape: Shape) -> Shape:
    return (shape[0], shape[-1], *shape[1:-1])


def _weights(shape: Shape, target: str) -> Shape:
    """(k, in, out), transposed (k, out, in), depthwise (k, in, times), as ONNX orders them."""
    *kernel, first, second = shape
    if target.startswith("Depthwise"):
        return (first * second, 1, *kernel)
    return (second, first, *kernel)
