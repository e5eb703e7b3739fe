"""The nodes of a model that no runtime can load: operators of a framework without an ONNX form.

And pools over more axes than onnxruntime has: onnxruntime/core/providers/cpu/nn/pool.cc.
"""

from collections.abc import Iterator
from typing import Any

from crossflops.load.protobuf import operator_schema

_RUNTIMES = ("com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc")
_STANDARD = ("", "ai.onnx", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training")
_MOST = 3  # operators that are named
_POOLS, _MOST_AXES = ("MaxPool", "AveragePool", "LpPool"), 3


def describe_unloadable(model: Any) -> str:
    """Return a sentence that names the nodes because of which no runtime can run a ModelProto; ""
    if there are none.

    Operators of ONNX, of onnxruntime and functions of the model itself can be loaded.
    """
    opset = {imported.domain or "ai.onnx": imported.version for imported in model.opset_import}
    own = {(function.domain, function.name, function.overload) for function in model.functions}
    by_operator: dict[str, list[str]] = {}
    for node in _iterate_onnx_nodes([model.graph, *model.functions]):
        known = (node.domain, node.op_type, node.overload) in own or _is_known_operator(
            node, opset
        )
        if not known:
            name = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
            by_operator.setdefault(name, []).append(_onnx_node_name(node))
    if not by_operator:
        wide = [
            _onnx_node_name(node)
            for node in _iterate_onnx_nodes([model.graph, *model.functions])
            if _is_pooling_over_many_axes(node)
        ]
        return (
            f"onnxruntime cannot run the file: {wide[0]!r} is a pool over more than "
            f"{_MOST_AXES} axes{f', and so are {len(wide) - 1} more' if len(wide) > 1 else ''}"
            if wide
            else ""
        )
    listed = [
        f"{name} ({nodes[0]}{f' and {len(nodes) - 1} more' if len(nodes) > 1 else ''})"
        for name, nodes in list(by_operator.items())[:_MOST]
    ]
    more = len(by_operator) - len(listed)
    others = f" and {more} other operators" if more else ""
    return (
        "no runtime can load the file, since ONNX has no operator for "
        f"{', '.join(listed)}{others}; the file can only be counted and viewed"
    )


def _onnx_node_name(node: Any) -> str:
    """Return the name of an ONNX node, or of its first output if the node has no name."""
    return node.name or next(iter(node.output), "")


def _is_pooling_over_many_axes(node: Any) -> bool:
    """Return whether the node is a pooling over more axes than onnxruntime supports (3)."""
    kernel = next((stored.ints for stored in node.attribute if stored.name == "kernel_shape"), ())
    return not node.domain and node.op_type in _POOLS and len(kernel) > _MOST_AXES


def _is_known_operator(node: Any, opset: dict[str, int]) -> bool:
    """Return whether a runtime or the ONNX standard of this opset defines the node's operator."""
    if node.domain in _RUNTIMES:
        return True
    version = opset.get(node.domain or "ai.onnx", 1)
    return (
        node.domain in _STANDARD
        and operator_schema(node.domain, node.op_type, version) is not None
    )


def _iterate_onnx_nodes(levels: list[Any]) -> Iterator[Any]:
    """Yield the nodes of these graphs and functions, and of all graphs inside their nodes."""
    while levels:
        for node in levels.pop().node:
            yield node
            for attribute in node.attribute:
                levels += [attribute.g] if attribute.HasField("g") else []
                levels += attribute.graphs
