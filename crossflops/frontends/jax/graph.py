"""A JAX function or a Flax module -> an ONNX graph, its equations as calls, and its module table.

That table has the modules of Flax NNX, or a function alone.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import numpy as np

from crossflops.errors import CrossflopsWarning
from crossflops.frontends.converted import (
    ConvertedOperation,
    everywhere,
    identified,
    known,
    plain,
    require_room,
    size,
    standing,
    with_weights,
)
from crossflops.frontends.decided import GraphAndCalls, Runnable, settled
from crossflops.frontends.frontend import Run, Source
from crossflops.frontends.jax.converter import ConvertedFunction, input_name, to_onnx
from crossflops.frontends.jax.gradients import marks, with_own_gradients
from crossflops.frontends.jax.kinds import is_linen, is_module
from crossflops.frontends.jax.lowering import DOMAIN, Equation
from crossflops.frontends.jax.model import FROZEN, Pure, as_words, pure
from crossflops.frontends.jax.scopes import linen_rows, modules, paths_of
from crossflops.frontends.jax.xla import programs
from crossflops.frontends.onnx.reading import of_bytes
from crossflops.ir.graph import Graph, Node, Op
from crossflops.ir.measurement import Observation
from crossflops.ir.trace import Call, Module, Parameter, Setting, Trace


def rows(model: Any, name: str, pure: Pure, training: bool) -> tuple[Module, ...]:
    """One row for every module, each object once, the root first.

    Those of flax.linen are told by what ran. The parameters of a function are the arrays of
    floats that it closes over. What it makes itself is none, nor what it is given.
    """
    if not is_module(model):
        held = pure.weights if isinstance(pure.weights, Mapping) else {}
        # of Keras no module but the root is known, which has all
        variables = {} if FROZEN in held else held.get("params", {})
        return linen_rows(_root(name, pure), pure.called, variables)
    layers = list(modules(model))
    ids = {path: number for number, (path, _) in enumerate(layers)}
    below: dict[str, list[tuple[str, int]]] = {}
    for path, number in ids.items():
        if path:
            around = path.rpartition(".")[0]
            while around not in ids:
                around = around.rpartition(".")[0]
            child = path.removeprefix(f"{around}.") if around else path
            below.setdefault(around, []).append((child, number))
    storages: dict[int, int] = {}
    return tuple(
        Module(
            id=number,
            names=(path,),
            bases=tuple(f"{c.__module__}.{c.__qualname__}" for c in type(module).__mro__[:-1]),
            params=_parameters(module, storages),
            children=tuple(below.get(path, ())),
            training=training,
            settings=plain(vars(module).items()),
        )
        for number, (path, module) in enumerate(layers)
    )


def _root(name: str, pure: Pure) -> Module:
    import jax.numpy as jnp

    # those of flax.linen and Keras
    kinds = pure.weights if isinstance(pure.weights, Mapping) else {}
    others = tuple(f"{kind}." for kind in kinds if kind not in ("params", FROZEN))
    frozen = kinds.get(FROZEN, {})
    params = tuple(
        Parameter(held, tuple(array.shape), number, array.dtype.name, held not in frozen)
        for number, (held, array) in enumerate(pure.held)
        if jnp.issubdtype(array.dtype, jnp.inexact) and array.ndim and not held.startswith(others)
    )
    return Module(
        id=0, names=("",), bases=(name,), params=params, children=(), training=False, settings={}
    )


def _parameters(module: Any, storages: dict[int, int]) -> tuple[Parameter, ...]:
    """The module's own variables of the type nnx.Param; statistics and random state are none."""
    from flax import nnx

    parameters = []
    for name, variable in vars(module).items():
        if isinstance(variable, nnx.Param):
            storage = storages.setdefault(id(variable), len(storages))
            parameters.append(Parameter(name, tuple(variable.shape), storage, variable.dtype.name))
    return tuple(parameters)


# The equations of a JAX program as calls, and the nodes that were made for each.

MADE = "jax2onnx."  # before the type of a node that only the converter put in
ROOT = "(model)"
# They only hold other equations: what is in them is called, not they.
_HOLDERS = (
    *("jit", "pjit", "closed_call", "core_call", "remat2", "checkpoint", "custom_lin"),
    *("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr", "xla_call"),
    *("shard_map", "pallas_call"),
)
# They move values. Beside a node that computes, for the same equation, the converter needs them.
_MOVERS = (
    *("Transpose", "Reshape", "Cast", "CastLike", "Squeeze", "Unsqueeze", "Identity", "Expand"),
    *("Shape", "Concat", "Slice", "Constant", "ConstantOfShape"),
)


class Linked(NamedTuple):
    """A graph whose nodes know their calls and modules, and the calls with their nodes."""

    graph: Graph
    calls: tuple[Call, ...]


def linked(graph: Graph, converted: ConvertedFunction, rows: tuple[Module, ...]) -> Linked:
    """Every node is linked to the equation that it was made for, in the module around that.

    A node that only the converter put in (a layout transposition, say) gets a call of its own,
    whose target says so.
    """
    ids = {path: row.id for row in rows for path in row.names}
    chains = [_chain(equation, ids) for equation in converted.equations]
    keys = _keys(converted.equations, chains)
    computing = _computing(graph.nodes, converted)
    nodes: dict[str, list[str]] = {}
    made: dict[str, Call] = {}

    def placed(node: Node, around: int | None) -> Node:
        number = converted.origins.get(node.key.partition("@")[0], around)
        path = chains[number][-1] if number is not None else ""
        key = keys[number] if number is not None else ""
        if node.op.type in _MOVERS and (number is None or number in computing):
            key = f"{node.key} ({MADE})"
            made[key] = _made(key, node, ids[path], _parent(path))
        nodes.setdefault(key, []).append(node.key)
        bodies = tuple(
            msgspec.structs.replace(body, nodes=tuple(placed(node, number) for node in body.nodes))
            for body in node.bodies
        )
        more = marks(node, number, converted.equations)
        return msgspec.structs.replace(node, call=key, path=path, bodies=bodies, **more)

    nodes_of_graph = tuple(placed(node, None) for node in standing(graph.nodes, _meant(converted)))
    graph = msgspec.structs.replace(graph, nodes=nodes_of_graph)
    graph = with_own_gradients(graph, converted.own, converted.origins, converted.equations)
    graph = with_weights(graph, converted.weights)
    linked_calls = [
        _operator(key, equation, chain, ids, nodes.get(key, ()))
        for key, equation, chain in zip(keys, converted.equations, chains, strict=True)
        if equation.primitive not in _HOLDERS or key in nodes
    ]
    own = (_with(call, nodes[call.key]) for call in made.values())
    return Linked(graph, (*_modules(chains, rows, ids), *linked_calls, *own))


def _meant(
    converted: ConvertedFunction,
) -> Callable[[Node], tuple[str, ConvertedOperation] | None]:
    """The operation of JAX that a node was made for: the outermost around it whose cost is known.

    What is in loops that were unrolled was made as often as they run.
    """
    equations = converted.equations
    outermost: list[int | None] = []
    for number, equation in enumerate(equations):
        above = outermost[equation.around] if equation.around is not None else None
        own = number if any(known(DOMAIN, name) for name in equation.names) else None
        outermost.append(own if above is None else above)

    def meant(node: Node) -> tuple[str, ConvertedOperation] | None:
        name, _, run = node.key.partition("@")
        number = converted.origins.get(name)
        chosen = outermost[number] if number is not None else None
        if chosen is None:
            return None
        equation = equations[chosen]
        name = next(name for name in equation.names if known(DOMAIN, name))
        op = Op(DOMAIN, name, 1)
        return f"{chosen}@{run}", ConvertedOperation(
            op, equation.inputs, equation.outputs, equation.settings
        )

    return meant


def _chain(equation: Equation, ids: dict[str, int]) -> tuple[str, ...]:
    """The paths of the modules around an equation, the root first."""
    inner = [path for path in paths_of(equation.stack) if path and path in ids]
    return ("", *inner)


def _keys(equations: Iterable[Equation], chains: Iterable[tuple[str, ...]]) -> list[str]:
    """A key for every equation: "layers.0/dot_general", the next one "layers.0/dot_general_2"."""
    times: Counter[str] = Counter()
    keys = []
    for equation, chain in zip(equations, chains, strict=True):
        name = f"{chain[-1]}/{equation.primitive}" if chain[-1] else equation.primitive
        times[name] += 1
        keys.append(name if times[name] == 1 else f"{name}_{times[name]}")
    return keys


def _computing(nodes: Iterable[Node], converted: ConvertedFunction) -> set[int]:
    """The equations for which at least one node does more than to move values."""
    return {
        converted.origins[name]
        for node in everywhere(nodes)
        if node.op.type not in _MOVERS
        and (name := node.key.partition("@")[0]) in converted.origins
    }


def _modules(
    chains: Iterable[tuple[str, ...]], rows: tuple[Module, ...], ids: dict[str, int]
) -> Iterator[Call]:
    """One call for every module that ran, in that in which it ran first."""
    around: dict[str, str | None] = {"": None}
    for chain in chains:
        for outer, inner in pairwise(chain):
            if inner != outer:
                around.setdefault(inner, _parent(outer))
    for path, parent in around.items():
        yield Call(
            key=_parent(path),
            parent=parent,
            level="module",
            target=rows[ids[path]].bases[0],
            module=ids[path],
            via="call",
        )


def _parent(path: str) -> str:
    return path or ROOT


def _operator(
    key: str, equation: Equation, chain: tuple[str, ...], ids: dict[str, int], nodes: Iterable[str]
) -> Call:
    return Call(
        key=key,
        parent=_parent(chain[-1]),
        level="operator",
        target=equation.primitive,
        module=ids[chain[-1]],
        settings={**equation.settings, "stack": equation.stack},
        inputs=equation.inputs,
        outputs=equation.outputs,
        nodes=tuple(nodes),
    )


def _made(key: str, node: Node, module: int, parent: str) -> Call:
    """A call that only the converter made."""
    return Call(
        key=key,
        parent=parent,
        level="operator",
        target=f"{MADE}{node.op.type}",
        module=module,
        outputs=tuple(spec for spec in node.outputs if spec is not None),
    )


def _with(call: Call, nodes: Iterable[str]) -> Call:
    return msgspec.structs.replace(call, nodes=tuple(nodes))


class TraceableModel(msgspec.Struct, frozen=True):
    """A model as a function of arrays that JAX can trace, and its modules."""

    name: str
    pure: Pure
    modules: tuple[Module, ...]
    setting: Setting


def program(source: Source, setting: Setting) -> tuple[bytes, Graph, Trace]:
    """Record a model and convert it: see `record` and `convert`."""
    return convert(source, record(source.model, source.args, source.kwargs, setting))


def convert(
    source: Source, seen: TraceableModel, views: Sequence[Setting] = (), run: Run | None = None
) -> tuple[bytes, Graph, Trace]:
    """Return the ONNX model of a recorded model as bytes, its graph, and its equations.

    `views` are the programs of XLA that are wanted beside the equations. The source's `control`
    names nodes of the ONNX model; its `arrays` are the values of the inputs, where there are any,
    on which `run` runs what depends on them.

    Raises InputError where the model does not take these inputs, NormalizeError where it cannot
    be converted.
    """
    setting = seen.setting
    converted = to_onnx(seen.pure)
    read = partial(of_bytes, control=source.control)
    data, before = _read(converted, read, seen.name, setting)

    def read_with(observed: Observation | None) -> GraphAndCalls:
        graph = before
        if observed is not None:
            graph, _ = read(converted.data, seen.name, setting, seen=observed)
        return linked(graph, converted, seen.modules)

    runnable = partial(_runnable, source, setting)
    graph, fields = settled(read_with, runnable, run)
    graph = identified(graph, seen.name, **size(seen.modules))
    trace = Trace(
        modules=seen.modules, setting=setting, framework="jax", loops_alike=True, **fields
    )
    instructions = tuple(programs(seen.pure, trace, graph, views))
    return data, graph, msgspec.structs.replace(trace, observed=instructions)


_NO_WEIGHTS = (
    "a module of flax.linen holds no weights: those of the file are what its `init` makes of"
    " seed 0"
)


def file_with_weights(source: Source, setting: Setting) -> bytes:
    """Return the bytes of the ONNX model of `program`, with the numbers of its weights.

    Raises NormalizeError as `program` does, InputError for weights that no such file can hold.
    """
    import jax

    if is_linen(source.model):
        warnings.warn(_NO_WEIGHTS, CrossflopsWarning, stacklevel=2)
    valued = pure(source.model, source.args, source.kwargs, setting.training, valued=True)
    weights = jax.tree.leaves(valued.weights)
    require_room(sum(array.size * array.dtype.itemsize for array in weights))
    read = partial(of_bytes, control=source.control)
    return _read(to_onnx(valued), read, _name(source.model), setting)[0]


def _runnable(source: Source, setting: Setting) -> Runnable:
    """The model with its weights, and the values of its inputs by their names."""
    import jax

    valued = pure(source.model, source.args, source.kwargs, setting.training, valued=True)
    data = to_onnx(valued).data
    shapes = jax.tree.leaves((source.args, dict(source.kwargs)))
    given = shapes if source.arrays is None else jax.tree.leaves(source.arrays)
    pairs = zip(shapes, given, strict=True)
    values = [value for spec, value in pairs if isinstance(spec, jax.ShapeDtypeStruct)]
    named = zip(map(input_name, valued.names), values, strict=True)
    feeds = (
        (name, as_words(array))
        for name, array in named
        if not isinstance(array, jax.ShapeDtypeStruct)
    )
    return data, {name: np.asarray(array) for name, array in feeds}


def _read(
    converted: ConvertedFunction,
    read: Callable[..., tuple[Graph, Trace]],
    name: str,
    setting: Setting,
) -> tuple[bytes, Graph]:
    """The graph with shapes that follow from the inputs; with declared ones where none do."""
    graph, _ = read(converted.data, name, setting)
    if all(_is_definite(node) for node in graph.nodes):
        return converted.data, graph
    return converted.declared, read(converted.declared, name, setting)[0]


def _is_definite(node: Node) -> bool:
    known = all(spec is None or spec.shape is not None for spec in node.outputs)
    return known and all(_is_definite(inner) for body in node.bodies for inner in body.nodes)


def record(
    model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], setting: Setting
) -> TraceableModel:
    """Make a function of arrays of a model, for inputs of these shapes (jax.ShapeDtypeStruct).

    With its modules that is all that a tool needs. Raises InputError where the model does not take
    these inputs.
    """
    name = _name(model)
    pure_model = pure(model, args, kwargs, setting.training)
    return TraceableModel(
        name, pure_model, rows(model, name, pure_model, setting.training), setting
    )


def _name(model: Any) -> str:
    own = getattr(model, "__name__", None)
    return own if isinstance(own, str) and own.isidentifier() else type(model).__name__
