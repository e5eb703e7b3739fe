"""What tf2onnx writes, tidied: loops whose trips and shapes follow, operators that ONNX has."""

from collections.abc import Callable, Iterator
from typing import Any

DOMAIN = "tensorflow"  # of operations that tf2onnx has no rule for
_SIZED = ("OneHot", "TopK", "Range")
_COMPARISONS = ("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal")


def tidy(model: Any) -> None:
    """Tidy the graph of a ModelProto; what tf2onnx left as it was is in TensorFlow's domain."""
    _tidy(model.graph)
    if sum(_owned(node) for node in _everything(model.graph)):
        model.opset_import.add(domain=DOMAIN, version=1)


def _owned(node: Any) -> bool:
    """Whether ONNX has no such operator; then it gets the domain of TensorFlow's operations."""
    from onnx import defs

    if node.domain or defs.has(node.op_type):
        return False
    node.domain = DOMAIN
    return True


def _tidy(graph: Any) -> None:
    """Bring out what stands still in loops, let comparisons read whole numbers, write out erfc.

    Changes the GraphProto and the subgraphs in it; what it computes stays, but for a transposed
    convolution with negative pads, which ONNX does not allow: it computes what TensorFlow does.
    """
    _write_out_erfc(graph)
    made = {one: node for node in graph.node for one in node.output}
    for node in graph.node:
        for body in _bodies(node):
            _tidy(body)
        if node.op_type == "Loop":
            _bring_out(node, graph)
        if node.op_type == "ConvTranspose":
            _pad_the_output(node)
        casts = [made.get(one) for one in node.input]
        if node.op_type in _COMPARISONS and all(one and one.op_type == "Cast" for one in casts):
            # tf2onnx casts the counters to floats, of which nothing would follow
            node.input[:] = [one.input[0] for one in casts if one]


def tell_shapes(graph: Any, source: Any, types: Callable[[str], int | None]) -> None:
    """Write into the GraphProto what TensorFlow knows of the shapes that ONNX cannot infer.

    Those are the results of operations that tf2onnx left as they are, and of those whose sizes
    ONNX wants as an initializer (the depth of OneHot). Others may be in another order of axes than
    TensorFlow's. `source` is the tf.Graph, `types` gives the element type of a tensor in ONNX.
    """
    from onnx import defs, helper

    known = {one.name: one for op in source.get_operations() for one in op.outputs}
    for node in graph.node:
        if node.op_type not in _SIZED and (node.domain or defs.has(node.op_type)):
            continue
        for tensor in (known[name] for name in node.output if name in known):
            kind = types(tensor.name)
            if kind and tensor.shape.is_fully_defined():
                shape = tensor.shape.as_list()
                graph.value_info.append(helper.make_tensor_value_info(tensor.name, kind, shape))


def tell_groups(graph: Any) -> None:
    """Write the groups of a convolution, which tf2onnx takes for one in three dimensions.

    TensorFlow has no such attribute: there are as many as the channels of the input hold those of
    the filter. `graph` is tf2onnx's, X [N, C, ...], W [M, C / groups, ...].
    """
    for node in graph.get_nodes():
        if node.type != "Conv":
            continue
        image, kernel = (graph.get_shape(name) for name in node.input[:2])
        if image and kernel and min(image[1], kernel[1]) > 0:
            node.set_attr("group", image[1] // kernel[1])


def _pad_the_output(node: Any) -> None:
    """What a transposed convolution makes beyond its windows is at the end, as `output_padding`.

    tf2onnx writes it as negative pads, half of them at the beginning. TensorFlow's windows begin
    at the first element wherever the output is longer than they reach (VALID, and SAME with a
    stride beyond the kernel: tensorflow/core/framework/common_shape_fns.cc,
    GetWindowedOutputSizeVerbose).
    """
    from onnx import helper

    pads = next((one for one in node.attribute if one.name == "pads"), None)
    if pads is None or min(pads.ints, default=0) >= 0:
        return
    half = len(pads.ints) // 2
    sums = [begin + end for begin, end in zip(pads.ints[:half], pads.ints[half:], strict=True)]
    begins = [max(one, 0) for one in pads.ints[:half]]
    ends = [max(one, 0) for one in pads.ints[half:]]
    beyond = [max(-one, 0) for one in sums]
    pads.ints[:] = [*begins, *ends]
    node.attribute.append(helper.make_attribute("output_padding", beyond))


def _bodies(node: Any) -> Iterator[Any]:
    return (one.g for one in node.attribute if one.HasField("g"))


def _bring_out(loop: Any, graph: Any) -> None:
    """Let the body read from outside what it carries unchanged (weights), and carry it no more.

    A carried value has an unknown shape for ONNX's inference, since the body could change it.
    """
    (body,) = _bodies(loop)
    read = {one for node in _everything(graph) for one in node.input}
    read |= {one.name for one in graph.output}
    straight = {node.output[0]: node.input[0] for node in body.node if node.op_type == "Identity"}
    for place in reversed(range(len(loop.input) - 2)):
        value, result = body.input[place + 2].name, body.output[place + 1].name
        unused = place >= len(loop.output) or loop.output[place] not in read
        if straight.get(result, result) != value or not unused:
            continue
        for node in _everything(body):
            node.input[:] = [loop.input[place + 2] if one == value else one for one in node.input]
        del loop.input[place + 2], body.input[place + 2], body.output[place + 1]
        if place < len(loop.output):
            del loop.output[place]


def _write_out_erfc(graph: Any) -> None:
    """erfc x = 1 - erf x: tf2onnx has no rule for TensorFlow's Erfc, and leaves it as it is."""
    from onnx import helper

    nodes = list(graph.node)
    if not any(node.op_type == "Erfc" for node in nodes):
        return
    del graph.node[:]
    for node in nodes:
        graph.node.append(node)
        if node.op_type != "Erfc":
            continue
        held = graph.node[-1]
        name, result = held.name, held.output[0]
        held.op_type, held.output[0] = "Erf", f"{result}/erf"
        one = f"{result}/one"
        graph.initializer.append(helper.make_tensor(one, 1, (), [1.0]))
        graph.node.append(
            helper.make_node("Sub", [one, held.output[0]], [result], name=f"{name}__1")
        )


def _everything(graph: Any) -> Iterator[Any]:
    for node in graph.node:
        yield node
        for body in _bodies(node):
            yield from _everything(body)
