"""Inference in rounds: what one finds out about loops, the next one starts from."""

from typing import Any, NamedTuple

from crossflops.errors import TargetError
from crossflops.normalize.onnx_file.branches import decide
from crossflops.normalize.onnx_file.calls import Calls
from crossflops.normalize.onnx_file.loops import holds, refine, unproven
from crossflops.normalize.onnx_file.stand_ins import infer
from crossflops.normalize.onnx_file.unroll import Unrolling, uneven, unroll

_ROUNDS = 48  # a Loop behind or inside a Loop takes one or two
_DEEPEST = 8  # loops within loops that are unrolled


class Asked(NamedTuple):
    """What a caller says, by node name: how often loops run, which branches count.

    And the functions of the model that are called, where they are not inlined.
    """

    trips: dict[str, int]
    branches: dict[str, str]
    calls: Calls | None = None


def settled(model: Any, asked: Asked) -> tuple[Any, set[str]]:
    """The inferred model, and what its loops carry with changing shapes.

    Loops whose runs differ are replaced by their runs.
    """
    if asked.calls is None and not any(holds(node, "Loop", "If") for node in model.graph.node):
        return _whole(model, asked), set()
    inferred, grows = _inferred(model, asked)
    for _ in range(_DEEPEST):
        chosen = uneven(inferred.graph, asked.trips, grows)
        version = next((one.version for one in model.opset_import if not one.domain), 1)
        how = Unrolling(version, (asked.trips, asked.branches))
        if not chosen or not unroll(model.graph, chosen, how):
            break
        inferred, grows = _inferred(model, asked)
    return inferred, grows


def _inferred(model: Any, asked: Asked) -> tuple[Any, set[str]]:
    """The inferred model, and the values that loops carry with changing shapes.

    As soon as one of these turns up, what was inferred with its first shape is thrown away.
    """
    grows: set[str] = set()
    inferred = _whole(model, asked)
    for _ in range(_ROUNDS):
        before = len(grows)
        changed = refine(inferred.graph, asked.trips, grows)
        changed |= decide(inferred.graph, asked.branches)
        if asked.calls is not None:
            changed |= asked.calls.refine(inferred.graph)
        if not changed:
            grows |= unproven(inferred.graph)
        if len(grows) > before:
            inferred = _whole(model, asked)
        elif changed:
            inferred = _whole(inferred, asked)
        else:
            return inferred, grows
    return _whole(model, asked), grows


def _whole(model: Any, asked: Asked) -> Any:
    count = len(model.graph.node)
    # what a call gives back is not known at first, which would be an error
    inferred = infer(model, strict=asked.calls is None)
    if len(inferred.graph.node) != count:
        raise TargetError("shape inference lost nodes of the model", "install a newer onnx")
    return inferred
