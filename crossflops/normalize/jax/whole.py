"""A JAX function or a Flax module -> an ONNX graph, and the trace of its equations."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np

from crossflops.core.graph import Graph, Node
from crossflops.core.observation import Observation
from crossflops.core.trace import Module, Setting, Trace
from crossflops.normalize import onnx_file
from crossflops.normalize.decided import Arrays, Linked, Run, Runnable, settled
from crossflops.normalize.digest import digest
from crossflops.normalize.jax.calls import linked
from crossflops.normalize.jax.converter import Converted, input_name, to_onnx
from crossflops.normalize.jax.layers import rows
from crossflops.normalize.jax.model import Pure, pure
from crossflops.normalize.xla.observed import programs


class Seen(msgspec.Struct, frozen=True):
    """A model as a function of arrays that JAX can trace, and its modules."""

    name: str
    pure: Pure
    modules: tuple[Module, ...]
    setting: Setting


def program(
    model: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    setting: Setting,
    observed: Sequence[Setting] = (),
    trips: Mapping[str, int] = {},
    branches: Mapping[str, str] = {},
    arrays: Arrays = None,
    run: Run | None = None,
) -> tuple[bytes, Graph, Trace]:
    """The graph of a model on inputs of these shapes (jax.ShapeDtypeStruct), and its equations.

    Before them the bytes of the ONNX model that the graph was read from. `observed` are the
    programs of XLA that are wanted beside the equations. `trips` and `branches` are those of
    `onnx_file.OnnxFile`, by the names of nodes of the ONNX model; `arrays` are the values of the
    inputs, where there are any, on which `run` runs what depends on them.

    Raises InputError where the model does not take these inputs, NormalizeError where it cannot
    be converted.
    """
    seen = record(model, args, kwargs, setting)
    converted = to_onnx(seen.pure)
    read = partial(onnx_file.of_bytes, trips=trips, branches=branches)
    data, before = _read(converted, read, seen.name, setting)

    def read_with(observed: Observation | None) -> Linked:
        graph = before
        if observed is not None:
            graph, _ = read(converted.data, seen.name, setting, seen=observed)
        return linked(graph, converted, seen.modules)

    runnable = partial(_runnable, model, args, kwargs, setting, arrays)
    graph, fields = settled(read_with, runnable, run)
    graph = msgspec.structs.replace(graph, name=seen.name, **_size(seen.modules))
    graph = msgspec.structs.replace(graph, digest=digest(graph))
    trace = Trace(modules=seen.modules, setting=setting, framework="jax", **fields)
    instructions = tuple(programs(seen.pure, trace, graph, observed))
    return data, graph, msgspec.structs.replace(trace, observed=instructions)


def _runnable(
    model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], setting: Setting, arrays: Arrays
) -> Runnable:
    """The model with its weights, and the values of its inputs by their names."""
    import jax

    valued = pure(model, args, kwargs, setting.training, valued=True)
    data = to_onnx(valued).data
    shapes = jax.tree.leaves((args, dict(kwargs)))
    given = shapes if arrays is None else jax.tree.leaves(arrays)
    pairs = zip(shapes, given, strict=True)
    values = [one for spec, one in pairs if isinstance(spec, jax.ShapeDtypeStruct)]
    named = zip(map(input_name, valued.names), values, strict=True)
    return data, {
        name: np.asarray(one) for name, one in named if not isinstance(one, jax.ShapeDtypeStruct)
    }


def _read(
    converted: Converted, read: Callable[..., tuple[Graph, Trace]], name: str, setting: Setting
) -> tuple[bytes, Graph]:
    """The graph with shapes that follow from the inputs; with declared ones where none do."""
    graph, _ = read(converted.data, name, setting)
    if all(_is_definite(node) for node in graph.nodes):
        return converted.data, graph
    return converted.declared, read(converted.declared, name, setting)[0]


def _is_definite(node: Node) -> bool:
    known = all(spec is None or spec.shape is not None for spec in node.outputs)
    return known and all(_is_definite(one) for body in node.bodies for one in body.nodes)


def record(model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], setting: Setting) -> Seen:
    """Only the function and the modules, without ONNX: all that a tool needs."""
    name = _name(model)
    found = pure(model, args, kwargs, setting.training)
    return Seen(name, found, rows(model, name, found, setting.training), setting)


def _name(model: Any) -> str:
    own = getattr(model, "__name__", None)
    return own if isinstance(own, str) and own.isidentifier() else type(model).__name__


def _size(modules: tuple[Module, ...]) -> dict[str, int]:
    """Number and bytes of the parameters."""
    held = {one.storage: one for row in modules for one in row.params}
    return {
        "params": sum(one.numel for one in held.values()),
        "param_bytes": sum(one.nbytes for one in held.values()),
    }
