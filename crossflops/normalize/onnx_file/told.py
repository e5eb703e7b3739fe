"""What onnx.shape_inference alone tells of a file, in its strict mode: some tools know no more."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from crossflops.core.graph import Graph
from crossflops.core.tensor import TensorSpec
from crossflops.load import read
from crossflops.normalize.onnx_file.binding import bind

Told = Mapping[str, tuple[int, ...]]


def told(
    path: str, dims: Mapping[str, int], specs: Sequence[TensorSpec]
) -> dict[str, tuple[int, ...]] | None:
    """Shapes by name, an extent that is not known as 0; None where inference raises.

    What the file says of what lies inside is left aside, as by tools that infer afresh. `dims`
    and `specs` bind the sizes of its inputs.
    """
    import onnx

    model: Any = read(path)
    bind(model.graph, dims, specs, path)
    del model.graph.value_info[:]
    try:
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    except onnx.shape_inference.InferenceError:
        return None
    graph = inferred.graph
    return {
        value.name: tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        for value in (*graph.value_info, *graph.input, *graph.output)
    }


def as_told(graph: Graph, shapes: Told) -> Graph:
    """The graph with these shapes; a tensor of which nothing is told is left out of its node."""
    nodes = tuple(
        msgspec.structs.replace(
            node, inputs=_told(node.inputs, shapes), outputs=_told(node.outputs, shapes)
        )
        for node in graph.nodes
    )
    return msgspec.structs.replace(graph, nodes=nodes)


def _told(specs: tuple[TensorSpec | None, ...], shapes: Told) -> tuple[TensorSpec | None, ...]:
    return tuple(
        spec
        if spec is None or spec.role in ("parameter", "constant")
        else msgspec.structs.replace(spec, shape=shapes[spec.name])
        if spec.name in shapes
        else None
        for spec in specs
    )
