"""A frozen graph (GraphDef) -> a function of its placeholders."""

from collections.abc import Callable, Mapping
from typing import Any

from crossflops.errors import InputError

_INPUTS = ("Placeholder", "PlaceholderWithDefault")
_NO_RESULTS = ("Const", "NoOp", "Assert", "Placeholder", "SaveV2", "RestoreV2")
_RESOURCE = 20  # tensorflow/core/framework/types.proto: DT_RESOURCE
_VARIABLES = ("VariableV2", "VarHandleOp", "VarIsInitializedOp")


def function_of(
    graph: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Callable[..., Any]:
    """A function that runs the graph on the inputs that stand for its placeholders.

    Its results are what no other operation reads. Raises InputError.
    """
    import tensorflow as tf

    if isinstance(graph, tf.Graph):
        graph = graph.as_graph_def()
    nodes = list(graph.node)
    if any(node.op in _VARIABLES or _is_variable(node) for node in nodes):
        raise InputError(
            "the graph has variables, so their shapes are not in it",
            "freeze it, or give the SavedModel",
        )
    wanted = [node.name for node in nodes if node.op == _INPUTS[0]]
    if len(args) + len(kwargs) != len(wanted) or not set(kwargs) <= set(wanted):
        raise InputError(
            f"the graph has the inputs {', '.join(wanted) or '(none)'}",
            "give one --input for each: " + " ".join(f"--input {name}=SHAPE" for name in wanted),
        )
    read = {one.lstrip("^").partition(":")[0] for node in nodes for one in node.input}
    results = [node.name for node in nodes if node.name not in read and node.op not in _NO_RESULTS]
    places = [name for name in wanted if name not in kwargs]

    def run(*given: Any, **named: Any) -> Any:
        inputs = {f"{name}:0": one for name, one in zip(places, given, strict=True)}
        inputs |= {f"{name}:0": one for name, one in named.items()}
        found = tf.graph_util.import_graph_def(
            graph, input_map=inputs, return_elements=results, name=""
        )
        return [tensor for op in found for tensor in op.outputs]

    return run


def _is_variable(node: Any) -> bool:
    """Whether this stands for a variable, as in the graph of a function that is not frozen."""
    return bool(node.op == "Placeholder" and node.attr["dtype"].type == _RESOURCE)
