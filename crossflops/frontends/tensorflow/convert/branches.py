"""Rewrite branches and loops of a frozen graph so that tf2onnx can convert them.

A choice among any number of branches (`tf.switch_case`) becomes choices between two, which is what
ONNX has: TensorFlow's inlining writes it as operations without a rule in tf2onnx, and every branch
as if it always ran. And every branch and loop gets functions of its own.
"""

import importlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from crossflops.patches import inventory
from crossflops.patches.patching import patching_attribute

_IFS = {"Case": "If", "StatelessCase": "StatelessIf"}
_INT32, _BOOL = 3, 10  # tensorflow/core/framework/types.proto
COPY = "_copy_"  # and a number behind the name of a function are that of its copy
_CALLED = ("then_branch", "else_branch", "cond", "body")
_FIRST = "_first"  # an attribute of a Case that is the rest of another: its first branch's number


def replace_cases_by_ifs(graph: Any) -> Any:
    """Replace each Case in a GraphDef by nested Ifs, in place; return the GraphDef.

    As in TensorFlow, an index that is out of range takes the last branch.
    """
    for nodes, result in _graph_and_functions(graph):
        for node in list(nodes):
            if node.op in _IFS:
                _replace_case_by_if(graph.library, nodes, node, result)
    return graph


def _graph_and_functions(graph: Any) -> Iterator[tuple[Any, str]]:
    """Yield (nodes, suffix of an Equal's result) of a graph and of each function in it.

    The second item is the suffix of an Equal's name where its result is read: a function names the
    result as well.
    """
    yield graph.node, ""
    index = 0
    while index < len(graph.library.function):
        yield graph.library.function[index].node_def, ":z:0"
        index += 1


def _replace_case_by_if(library: Any, nodes: Any, node: Any, result: str) -> None:
    """Replace a Case, in place, by an If: its first branch, and the others as else branch."""
    names = [branch.name for branch in node.attr["branches"].list.func]
    index, number = node.input[0], node.attr[_FIRST].i
    if len(names) > 2:
        rest = _remaining_case_function(library, node, names[1:], number + 1)
        names = [_copy_with_index_input(library, names[0]).signature.name, rest]
        node.input.insert(1, index)
        node.attr["Tin"].list.type.insert(0, _INT32)
    position = nodes.add(op="Const", name=f"{node.name}/number")
    position.attr["dtype"].type = _INT32
    stored = position.attr["value"].tensor
    stored.dtype = _INT32
    stored.tensor_shape.SetInParent()
    stored.int_val.append(number)
    equal = nodes.add(op="Equal", name=f"{node.name}/is_number")
    equal.input.extend([index, f"{position.name}:output:0" if result else position.name])
    equal.attr["T"].type = _INT32
    node.op, node.input[0] = _IFS[node.op], equal.name + result
    node.attr["Tcond"].type = _BOOL
    node.attr["then_branch"].func.name, node.attr["else_branch"].func.name = names[0], names[-1]
    for key in ("branches", _FIRST):
        node.attr.pop(key, None)


def _remaining_case_function(library: Any, node: Any, names: list[str], number: int) -> str:
    """Return the name of a new function that is a Case of the branches `names`."""
    function = _copy_with_index_input(library, names[0])
    del function.node_def[:], function.signature.control_output[:]
    function.control_ret.clear()
    case = function.node_def.add()
    case.CopyFrom(node)
    case.input[:] = [stored.name for stored in function.signature.input_arg]
    case.attr[_FIRST].i = number
    branches = case.attr["branches"].list.func
    del branches[0]
    for index, stored in enumerate(function.signature.output_arg):
        function.ret[stored.name] = f"{case.name}:output:{index}"
    return str(function.signature.name)


def _copy_with_index_input(library: Any, name: str) -> Any:
    """Return a copy of a function that takes the branch index as an additional first input."""
    function = _copy_library_function(library, name)
    taken = function.signature.input_arg
    taken.insert(0, taken.add(name="branch_index", type=_INT32))
    taken.pop()
    function.arg_attr.clear()  # they are by place
    function.attr.pop("_input_shapes", None)
    return function


def copy_shared_functions(graph: Any) -> Any:
    """Copy the functions that several branches or loops share, in place; return the GraphDef.

    Sharing occurs where a function with a branch in it was inlined twice. tf2onnx writes the graph
    of a function into the node that calls it, and stores it only once.
    """
    taken: set[str] = set()
    todo = [graph.node]
    for nodes in todo:
        callers = [(node, key) for node in nodes for key in _CALLED if key in node.attr]
        for called in (node.attr[key].func for node, key in callers):
            if called.name in taken:
                called.name = _copy_library_function(graph.library, called.name).signature.name
            taken.add(called.name)
            todo.append(_library_function(graph.library, called.name).node_def)
    return graph


def giving_function_inputs_shapes(tfonnx: Any) -> AbstractContextManager[object]:
    """Return a context in which tf2onnx knows the shapes of the inputs of branches and loops.

    tf2onnx/tf_loader.py: resolve_functions gives a branch the shapes of all inputs of its If,
    including the condition, and a function none where it reads it before its caller.
    """
    loader: Any = importlib.import_module("tf2onnx.tf_loader")

    def functions_with_input_shapes(graph: Any) -> list[Any]:
        """Return the functions that a graph calls, as TensorFlow graphs with input shapes."""
        made: dict[str, Any] = {}
        _add_called_functions(graph, graph, made)
        for name, function in made.items():
            loader.set_function(name, function)
        return list(made.values())

    return patching_attribute(
        tfonnx, "resolve_functions", functions_with_input_shapes, inventory.BRANCHES
    )


def _add_called_functions(graph: Any, caller: Any, made: dict[str, Any]) -> None:
    """Add the functions that `caller` calls to `made` by name, with shapes of their inputs."""
    from tensorflow.python.framework.function_def_to_graph import function_def_to_graph

    for op in caller.get_operations():
        provided = [tensor.shape for tensor in op.inputs]
        for key in (*_CALLED, "f"):
            if key not in op.node_def.attr or not op.node_def.attr[key].HasField("func"):
                continue
            name = op.node_def.attr[key].func.name
            definition = graph._functions[name].definition
            for (
                stored
            ) in definition.arg_attr.values():  # stale, and taken before those of the caller
                stored.attr.pop("_output_shapes", None)
            taken = len(definition.signature.input_arg)
            try:
                shapes = provided[len(provided) - taken :]
                function = function_def_to_graph(definition, input_shapes=shapes)
            except (TypeError, ValueError):  # it says other shapes than its caller gives
                function = function_def_to_graph(definition)
            _add_called_functions(graph, function, made)
            made[name] = function


def _copy_library_function(library: Any, name: str) -> Any:
    """Add a copy of a function to the library under a new name, and return the copy."""
    function = library.function.add()
    function.CopyFrom(_library_function(library, name))
    function.signature.name = f"{name}{COPY}{len(library.function)}"
    return function


def _library_function(library: Any, name: str) -> Any:
    """Return the function of this name in a library of functions of a GraphDef."""
    return next(function for function in library.function if function.signature.name == name)
