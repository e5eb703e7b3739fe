"""The operator storey of TensorFlow: the operations of the frozen graph, as they are run."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from crossflops.core.tensor import TensorSpec
from crossflops.core.trace import Call, Scalar
from crossflops.normalize.tensorflow.layers import RECURRENT, Layers

# They hold or hand on what others made, and no counter says anything of them.
_SILENT = ("Const", "Placeholder", "NoOp", "Identity")
_HANDED_ON = ("Reshape", "Squeeze", "Identity", "Transpose")
_LIFTED = ("ExpandDims", "Reshape")  # a row of a convolution in one dimension
CALLS = ("StatefulPartitionedCall", "PartitionedCall")  # as of Keras' grouped convolutions
_NOTES = re.compile(r"^_|^T$|^T[a-z]+$")
_BODY = re.compile(r"/(?:body|cond|then|else)/_\d+/")


def operations(graph: Any) -> list[Any]:
    """The operations of a frozen graph that compute or move something."""
    return [op for op in graph.get_operations() if op.type not in _SILENT]


def calls(graph: Any, layers: Layers) -> tuple[Call, ...]:
    """Every operation as a call, beneath calls of the modules whose scopes it is in."""
    found: dict[str, Call] = {"(model)": _module("(model)", None, 0, layers)}
    operators: list[Call] = []
    loops, branches = in_loops(graph), in_branches(graph)
    for op in operations(graph):
        scope, module = layers.of(op.name)
        parent = _open(scope, module, layers, found)
        held = {"in_loop": op.name in loops, "in_branch": op.name in branches}
        operators.append(_operator(op, parent, module, held, layers))
    below: dict[str, list[Call]] = {}
    for one in operators:
        below.setdefault(one.parent or "", []).append(one)
    order: list[Call] = []
    for key, call in found.items():
        order += [call, *below.get(key, ())]
    return tuple(order)


def _open(scope: str, module: int, layers: Layers, found: dict[str, Call]) -> str:
    """The key of the module call of a scope, made with those around it if it is new."""
    if not scope:
        return "(model)"
    if scope not in found:
        parent = _open(*layers.around(scope), layers, found)
        found[scope] = _module(scope, parent, module, layers)
    return scope


def _module(key: str, parent: str | None, module: int, layers: Layers) -> Call:
    return Call(
        key=key,
        parent=parent,
        storey="module",
        target=layers.rows[module].bases[0],
        module=module,
        via="call",
    )


def _operator(
    op: Any, parent: str, module: int, held: Mapping[str, Scalar], layers: Layers
) -> Call:
    layer = layers.kind(module, op.name)
    inputs = tuple(_inputs(op))
    outputs = tuple(_spec(f"output_{n}", one) for n, one in enumerate(op.outputs))
    return Call(
        key=op.name,
        parent=parent,
        storey="operator",
        target=op.type,
        module=module,
        settings={
            **_settings(op),
            **held,
            "cut": _is_cut(op),
            "after": _after(op, layer),
            "layer": layer,
        },
        inputs=inputs,
        outputs=outputs,
    )


def _after(op: Any, layer: str) -> str:
    """What made the first input: a "convolution", a "product", a "recurrent" cell, or ""."""
    if layer == RECURRENT:
        return "recurrent"
    maker = op.inputs[0].op if op.inputs else None
    while maker is not None and maker.type in _HANDED_ON and maker.inputs:
        maker = maker.inputs[0].op
    kind = maker.type if maker is not None else ""
    if kind.startswith(("Conv", "DepthwiseConv", "BatchToSpace")) or kind in CALLS:
        return "convolution"
    return "product" if "MatMul" in kind or kind == "Einsum" else ""


def _is_cut(op: Any) -> bool:
    """Whether the operation works on an image in pieces, as a dilated convolution does."""
    maker = op.inputs[0].op if op.inputs else None
    while maker is not None and maker.type in _LIFTED and maker.inputs:
        maker = maker.inputs[0].op
    return maker is not None and maker.type == "SpaceToBatchND"


def _inputs(op: Any) -> Iterator[TensorSpec]:
    """The inputs by the names of the operation's arguments, of which some are lists."""
    values = iter(op.inputs)
    for argument in op.op_def.input_arg:
        if not (argument.number_attr or argument.type_list_attr):
            yield _spec(argument.name, next(values))
            continue
        listed = op.get_attr(argument.number_attr or argument.type_list_attr)
        for number in range(listed if isinstance(listed, int) else len(listed)):
            yield _spec(f"{argument.name}_{number}", next(values))


def _spec(name: str, tensor: Any) -> TensorSpec:
    shape = tuple(tensor.shape.as_list()) if tensor.shape.is_fully_defined() else None
    return TensorSpec(name, tensor.dtype.base_dtype.name, shape)


def _settings(op: Any) -> dict[str, Scalar]:
    """The plain attributes: numbers, texts, lists of numbers. Types and notes are left out."""
    found: dict[str, Scalar] = {}
    for name, value in op.node_def.attr.items():
        if _NOTES.match(name):
            continue
        kind = value.WhichOneof("value")
        if kind == "s":
            found[name] = value.s.decode(errors="replace")
        elif kind in ("i", "f", "b"):
            found[name] = getattr(value, kind)
        elif kind == "list" and value.list.i:
            found[name] = list(value.list.i)
    return found


def in_loops(graph: Any) -> frozenset[str]:
    """The operations that run once for every step of a loop: between its Enter and its Exit."""
    todo = [op for op in graph.get_operations() if op.type == "Enter"]
    inside: set[str] = set()
    while todo:
        op = todo.pop()
        if op.name in inside or op.type == "Exit":
            continue
        inside.add(op.name)
        todo += [reader for one in op.outputs for reader in one.consumers()]
        todo += op._control_outputs  # constants in a loop hang on it by order alone
    return frozenset(inside)


def in_branches(graph: Any) -> frozenset[str]:
    """The operations of a branch of a condition: between a Switch and its Merge.

    The Switch of a loop asks its LoopCond, and the Merge of a loop has a NextIteration.
    """
    depths: dict[str, int] = {}
    todo = [(op, 0) for op in graph.get_operations() if _opens(op)]
    while todo:
        op, around = todo.pop()
        depth = around + _opens(op) - _closes(op)
        if depth <= depths.get(op.name, 0):
            continue
        depths[op.name] = depth
        readers = [reader for one in op.outputs for reader in one.consumers()]
        todo += [(one, depth) for one in (*readers, *op._control_outputs)]
    return frozenset(depths)


def _opens(op: Any) -> bool:
    return op.type in ("Switch", "_SwitchN") and op.inputs[1].op.type != "LoopCond"


def _closes(op: Any) -> bool:
    return op.type == "Merge" and all(one.op.type != "NextIteration" for one in op.inputs)


def local_name(name: str) -> str:
    """The name of an operation within the function that it was traced in.

    "lstm/while/body/_1/lstm/while/MatMul" is "lstm/while/MatMul" in the body.
    """
    return _BODY.split(name)[-1]
