"""A fitted estimator -> an ONNX graph, and a table of its steps as modules."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from crossflops.errors import CrossflopsWarning, InputError
from crossflops.frontends.converted import identified, size
from crossflops.frontends.onnx.reading import of_bytes
from crossflops.frontends.sklearn.converter import as_computed, to_onnx
from crossflops.frontends.sklearn.estimators import Part, of_estimator, parts
from crossflops.ir.graph import Graph, Node
from crossflops.ir.tensor import TensorSpec
from crossflops.ir.trace import Module, Parameter, Setting, Trace


def program(
    model: Any, args: tuple[TensorSpec, ...], kwargs: Mapping[str, TensorSpec], setting: Setting
) -> tuple[bytes, Graph, Trace]:
    """The graph of all that the estimator predicts for inputs of these shapes: labels and scores.

    Before it the bytes of the ONNX model. Modules are the steps of pipelines and what ensembles
    hold, as far as skl2onnx makes nodes of their own for them; the parameters of the others are
    those of the module around them. No calls are recorded. Raises InputError for inputs of
    another width than what was fitted, NormalizeError where skl2onnx fails.
    """
    if setting.training:
        raise InputError("--train-mode is for models that have one", "leave it out")
    _check(model, args, kwargs)
    inside = parts(model)
    converted = to_onnx(model, args, kwargs, [part.estimator for part in inside])
    name = type(model).__name__
    with warnings.catch_warnings():
        # skl2onnx says of an output what the estimator would give, not what its nodes make
        warnings.filterwarnings("ignore", "the file says", CrossflopsWarning)
        graph, _ = of_bytes(converted.data, name, setting)
    paths = {id(part.estimator): part.path for part in inside}
    estimators = {id(part.estimator): part.estimator for part in inside}
    makers = {node: estimators.get(maker) for node, maker in converted.makers.items()}
    owners = {node: paths[maker] for node, maker in converted.makers.items() if maker in paths}
    rows = _table(inside, set(owners.values()))
    nodes = [
        _placed(as_computed(node, makers, converted.empty), owners, "") for node in graph.nodes
    ]
    graph = msgspec.structs.replace(graph, nodes=tuple(nodes))
    graph = identified(graph, name, **size(rows))
    return (
        converted.data,
        graph,
        Trace(calls=(), modules=rows, setting=setting, framework="sklearn"),
    )


def _check(model: Any, args: tuple[TensorSpec, ...], kwargs: Mapping[str, TensorSpec]) -> None:
    """Whether X is as wide as what was fitted. Columns that are given one by one are not asked."""
    wide = getattr(model, "n_features_in_", None)
    shape = (1, wide or 4)
    hint = f"give --input {shape[0]}x{shape[1]}, or more rows"
    if not args and not kwargs:
        raise InputError("the model needs the shape of its input", hint)
    given = [*args, *kwargs.values()]
    if len(given) == 1 and wide is not None:
        dims = given[0].shape or ()
        if len(dims) != 2 or dims[1] != wide:
            shown = "x".join(map(str, dims)) or "scalar"
            raise InputError(f"the model was fitted on {wide} features, not on {shown}", hint)


def _placed(node: Node, owners: Mapping[str, str], around: str) -> Node:
    """The node in its module; what is in a body is in that of the node around it."""
    path = owners.get(node.key, around)
    bodies = tuple(
        msgspec.structs.replace(body, nodes=tuple(_placed(node, {}, path) for node in body.nodes))
        for body in node.bodies
    )
    return msgspec.structs.replace(node, path=path, bodies=bodies)


def _table(inside: list[Part], with_nodes: set[str]) -> tuple[Module, ...]:
    """The modules, the root first: what the user named, what has nodes, and all around these."""
    kept = {""}
    for path in (part.path for part in inside if part.named or part.path in with_nodes):
        kept.update(_upwards(path))
    classes = {part.path: type(part.estimator).__name__ for part in inside}
    paths = ["", *sorted((path for path in kept if path), key=_order(inside))]
    ids = {path: number for number, path in enumerate(paths)}
    params = _params(inside, kept)
    children: dict[str, list[tuple[str, int]]] = {path: [] for path in paths}
    for path in paths[1:]:
        above, _, name = path.rpartition(".")
        children[above].append((name, ids[path]))
    return tuple(
        Module(
            id=ids[path],
            names=(path,),
            bases=(classes.get(path, ""),),
            params=tuple(params.get(path, ())),
            children=tuple(children[path]),
            training=False,
            settings={},
        )
        for path in paths
    )


def _order(inside: list[Part]) -> Callable[[str], list[int]]:
    """Paths as they were found, what is inside behind what is around it."""
    order: dict[str, int] = {}
    for number, part in enumerate(inside):
        for path in _upwards(part.path):
            order.setdefault(path, number)
    return lambda path: [order[above] for above in _upwards(path)]


def _upwards(path: str) -> list[str]:
    """The paths on the way from the root to this one: "a", "a.b", "a.b.c"."""
    words = path.split(".")
    return [".".join(words[:end]) for end in range(1, len(words) + 1)]


def _params(inside: list[Part], kept: set[str]) -> dict[str, list[Parameter]]:
    """The parameters by module, each array once. `inside` names them: "estimators.0.coef_"."""
    numbers: dict[Any, int] = {}
    held: list[Any] = []  # what has a number must not be freed, or its id would be another's

    def number(value: Any) -> int:
        held.append(value)
        key = tuple(map(id, value)) if isinstance(value, tuple) else id(value)
        return numbers.setdefault(key, len(numbers))

    by_path: dict[str, list[Parameter]] = {}
    taken: set[int] = set()
    for part in inside:
        home = part.path
        while home not in kept:
            home = home.rpartition(".")[0]
        prefix = part.path.removeprefix(home).lstrip(".")
        for parameter in of_estimator(part.estimator, number):
            if parameter.storage in taken:
                continue
            taken.add(parameter.storage)
            name = f"{prefix}.{parameter.name}".lstrip(".")
            by_path.setdefault(home, []).append(msgspec.structs.replace(parameter, name=name))
    return by_path
