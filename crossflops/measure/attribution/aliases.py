"""Which value of the counted graph a value of the executed graph is.

onnxruntime keeps the name of what a fused kernel makes, but not where it changes the layout of
tensors: those get names of their own. What these are is known from the kernel's own name, and
from what reads them.
"""

from collections.abc import Iterator

from crossflops.core.graph import Node
from crossflops.measure.attribution.executed import Executed, Level
from crossflops.measure.attribution.origin import Origin

_NCHWC = "_nchwc"  # nchwc_transformer.cc names a kernel after what it makes, and appends this
_MOVING = (
    *("ReorderInput", "ReorderOutput", "Reshape", "Transpose", "Cast", "Identity", "Flatten"),
    *("Squeeze", "Unsqueeze", "MemcpyFromHost", "MemcpyToHost"),
)
_PREFIXES = ("Fused", "QLinear", "Nhwc", "Dynamic", "Integer")
_SAME = {"Gemm": "MatMul", "MatMulInteger": "MatMul", "QGemm": "MatMul", "ConvInteger": "Conv"}


def aliases(origin: Origin, level: Level) -> dict[str, str]:
    """Values of the executed level -> values of the counted one, as far as it is known.

    A value that both have under one name is itself. Others are, the surest first: what the node
    of the same name and operator makes; what the like operator reads that its reader stands for;
    behind a reader that only moves data, what that one makes; what its kernel is named after.
    """
    found = dict(_by_name(origin, level))
    for node in reversed(level.nodes):
        _from_reader(origin, level, node, found)
    for node in level.nodes:
        inside = _named_after(origin, node)
        if inside and node.outputs and node.outputs[0] not in found:
            found[node.outputs[0]] = inside
    return found


def moves(op: str) -> bool:
    """Whether a kernel only moves data."""
    return op in _MOVING


def kind(op: str) -> str:
    """The operator without what the runtime says of how it does it: FusedConv is a Conv."""
    for prefix in _PREFIXES:
        op = op.removeprefix(prefix)
    return _SAME.get(op, op)


def _by_name(origin: Origin, level: Level) -> Iterator[tuple[str, str]]:
    for node in level.nodes:
        like = origin.by_key.get(node.name)
        made = like.outputs if like is not None and like.op.type == node.op else ()
        for place, name in enumerate(node.outputs):
            if name in origin.maker:
                yield name, name
            elif place < len(made) and (spec := made[place]) is not None:
                yield name, spec.name


def _named_after(origin: Origin, node: Executed) -> str | None:
    """A value that is made within the kernel, told by its name."""
    name = node.name.removesuffix(_NCHWC)
    if name != node.name and name in origin.maker:
        return name
    like = origin.by_key.get(name) or origin.by_key.get(name.partition("/")[0])
    made = like.outputs if like is not None else ()
    return made[0].name if made and made[0] is not None else None


def _from_reader(origin: Origin, level: Level, node: Executed, found: dict[str, str]) -> None:
    """What a node reads, from what it makes."""
    made = next((found[one] for one in node.outputs if one in found), None)
    start = _named_after(origin, node) or made
    unknown = [
        place
        for place, name in enumerate(node.inputs)
        if name and name not in found and name not in level.stored and name not in origin.maker
    ]
    if start is None or not unknown:
        return
    like = _like(origin, node, start)
    for place in unknown:
        if like is not None and place < len(like.inputs) and like.inputs[place] is not None:
            spec = like.inputs[place]
            if place == 0 or len(like.inputs) == len(node.inputs):
                assert spec is not None
                found[node.inputs[place]] = spec.name
        elif place == 0 and moves(node.op):
            found[node.inputs[0]] = start


def _like(origin: Origin, node: Executed, start: str) -> Node | None:
    """The nearest node behind a value that has the operator of the kernel."""
    if moves(node.op):  # one of many: only if it makes the very value
        maker = origin.maker.get(start)
        return maker if maker is not None and maker.op.type == node.op else None
    wanted = kind(node.op)
    return next((one for one in origin.behind(start) if kind(one.op.type) == wanted), None)
