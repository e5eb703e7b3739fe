"""Inference in rounds: what one finds out about loops, the next one starts from."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from crossflops.errors import TargetError
from crossflops.normalize.onnx_file.inference import infer
from crossflops.normalize.onnx_file.loops import refine, unproven
from crossflops.normalize.onnx_file.unroll import Unrolling, uneven, unroll

_ROUNDS = 64  # a Loop behind or inside a Loop takes one or two
_DEEPEST = 8  # loops within loops that are unrolled


class Asked(NamedTuple):
    """What a caller says, by node name: how often loops run, which branches count."""

    trips: dict[str, int]
    branches: dict[str, str]


def settled(model: Any, asked: Asked) -> tuple[Any, set[str]]:
    """The inferred model, and what its loops carry with changing shapes.

    Loops whose runs differ are replaced by their runs.
    """
    inferred, grows = _inferred(model, asked.trips)
    for _ in range(_DEEPEST):
        chosen = uneven(inferred.graph, asked.trips, grows)
        version = next((one.version for one in model.opset_import if not one.domain), 1)
        how = Unrolling(version, (asked.trips, asked.branches))
        if not chosen or not unroll(model.graph, chosen, how):
            break
        inferred, grows = _inferred(model, asked.trips)
    return inferred, grows


def _inferred(model: Any, trips: Mapping[str, int]) -> tuple[Any, set[str]]:
    """The inferred model, and the values that loops carry with changing shapes.

    As soon as one of these turns up, what was inferred with its first shape is thrown away.
    """
    grows: set[str] = set()
    inferred = _whole(model)
    for _ in range(_ROUNDS):
        before = len(grows)
        changed = refine(inferred.graph, trips, grows)
        if not changed:
            grows |= unproven(inferred.graph)
        if len(grows) > before:
            inferred = _whole(model)
        elif changed:
            inferred = _whole(inferred)
        else:
            return inferred, grows
    return _whole(model), grows


def _whole(model: Any) -> Any:
    count = len(model.graph.node)
    inferred = infer(model)
    if len(inferred.graph.node) != count:
        raise TargetError("shape inference lost nodes of the model", "install a newer onnx")
    return inferred
