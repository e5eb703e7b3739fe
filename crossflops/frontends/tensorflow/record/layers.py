"""Build the module table of a TensorFlow model, and find the layer of each operation."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from crossflops.frontends.converted import plain_layer_settings
from crossflops.frontends.onnx.modules import build_module_table, place_from_name
from crossflops.ir.trace import Module, Parameter
from crossflops.patches import inventory
from crossflops.patches.patching import original_attribute, patching_attribute

# Which Keras layer opened which name scope: seen while the model is traced, not guessed.

Row = TypeVar("Row")
_CALLS = ("StatefulPartitionedCall", "PartitionedCall")


@contextmanager
def recording_scopes(scopes: dict[str, Any]) -> Iterator[None]:
    """Return a context that adds to `scopes` the layer that opened each name scope.

    keras/src/layers/layer.py: `Layer.__call__` enters `backend.name_scope(name, caller=self)`;
    TensorFlow makes the name unique in its graph, so the scope is read from there.
    """
    if "keras" not in sys.modules:
        yield
        return
    from keras.src.backend.tensorflow.core import name_scope
    from tensorflow.compat.v1 import get_default_graph

    enter = original_attribute(name_scope, "__enter__", inventory.NAME_SCOPES)

    def enter_name_scope_and_record_layer(self: Any) -> Any:
        """Enter a name scope, record the layer that opened it, and return the scope's name."""
        entered_scope = enter(self)
        if self.caller is not None:
            scopes.setdefault(get_default_graph().get_name_scope(), self.caller)
        return entered_scope

    with patching_attribute(
        name_scope, "__enter__", enter_name_scope_and_record_layer, inventory.NAME_SCOPES
    ):
        yield


def innermost_scope(name: str, scopes: Mapping[str, Row]) -> str | None:
    """Return the innermost of these name scopes that an operation is in, or None.

    The names in an inlined function or the body of a loop follow those of its caller, and repeat
    them or begin anew: "lstm/while/body/_1/lstm/while/cell/MatMul" is in "lstm/while/cell".
    """
    parts = name.split("/")[:-1]
    innermost: str | None = None
    begin = 0
    while begin < len(parts):
        scope, end = _longest_scope(parts, begin, scopes)
        called = not begin or parts[begin - 1].startswith(_CALLS)
        if scope is not None and (
            called or innermost is None or scope.startswith(f"{innermost}/")
        ):
            innermost, begin = scope, end
        else:
            begin += 1
    return innermost


def _longest_scope(
    parts: list[str], begin: int, scopes: Mapping[str, Row]
) -> tuple[str | None, int]:
    """Return (longest scope that starts at part `begin`, end of it), or (None, begin + 1)."""
    for end in range(len(parts), begin, -1):
        scope = "/".join(parts[begin:end])
        if scope in scopes:
            return scope, end
    return None, begin + 1


RECURRENT = "RNN cell"
# Layers whose elementwise operations are known by the layer's name.
KINDS = {
    **{
        name: name
        for name in (
            *("BatchNormalization", "LayerNormalization"),
            *("GroupNormalization", "RMSNormalization"),
        )
    },
    **dict.fromkeys(("LSTMCell", "GRUCell", "SimpleRNNCell"), RECURRENT),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), RECURRENT),  # operators of ONNX
}


class LayerScope(NamedTuple):
    """The name scope of a layer ("" of the model) and the id of its module."""

    scope: str
    module: int


class LayerTable:
    """The modules of a model (`rows`), and which module each operation belongs to."""

    rows: tuple[Module, ...]
    weights: dict[int, str]  # names of parameters by the ids of variables of TensorFlow

    def layer_kind(self, module: int, name: str) -> str:
        """Return the kind of a normalization or recurrent module, such as "RNN cell", or "".

        It is that of the module's class or of a base class.
        """
        names = (base.rpartition(".")[2] for base in self.rows[module].bases)
        return next((KINDS[name] for name in names if name in KINDS), "")

    def operation_scope(self, name: str) -> LayerScope:
        """Return (name scope, module id) of the layer that an operation is in."""
        raise NotImplementedError

    def parent_scope(self, scope: str) -> LayerScope:
        """Return (name scope, module id) of the layer around a layer's name scope."""
        raise NotImplementedError


class KerasLayers(LayerTable):
    """The layers of a Keras model, and the name scopes in which each of them ran."""

    def __init__(self, model: Any, scopes: Mapping[str, Any]) -> None:
        """Take a Keras model, and the layers by the name scopes that they opened."""
        self.weights = {}
        self._storages: dict[int, int] = {}
        self._ids: dict[int, int] = {}
        self._paths: dict[int, str] = {}
        layers = list(self._note_paths_and_yield_layers(model, ""))
        self.rows = tuple(self._layer_module(layer) for layer in layers)
        self._scopes = {
            scope: self._ids[id(layer)]
            for scope, layer in scopes.items()
            if id(layer) in self._ids
        }

    def operation_scope(self, name: str) -> LayerScope:
        """Return (name scope, module id) of the innermost layer around an operation."""
        scope = innermost_scope(name, self._scopes)
        return LayerScope("", 0) if scope is None else LayerScope(scope, self._scopes[scope])

    def parent_scope(self, scope: str) -> LayerScope:
        """Return (name scope, module id) of the layer around a layer's name scope."""
        return self.operation_scope(scope)

    def _note_paths_and_yield_layers(self, layer: Any, path: str) -> Iterable[Any]:
        """Yield a layer and all layers in it, without repetitions; note their paths."""
        if id(layer) in self._ids:
            return
        self._ids[id(layer)] = len(self._ids)
        self._paths[id(layer)] = path
        yield layer
        for name, child in _child_layers(layer):
            yield from self._note_paths_and_yield_layers(child, f"{path}.{name}" if path else name)

    def _layer_module(self, layer: Any) -> Module:
        """Return the module of a layer: its path, classes, parameters and children."""
        path = self._paths[id(layer)]
        below = f"{path}." if path else ""
        children = (
            (name, self._ids[id(child)])
            for name, child in _child_layers(layer)
            if self._paths[id(child)] == f"{below}{name}"
        )
        return Module(
            id=self._ids[id(layer)],
            names=(path,),
            bases=tuple(f"{c.__module__}.{c.__qualname__}" for c in type(layer).__mro__[:-1]),
            params=tuple(
                self._parameter_of_variable(below, weight) for weight in _layer_weights(layer)
            ),
            children=tuple(children),
            training=False,
            settings=plain_layer_settings(vars(layer).items(), ("name", "built")),
        )

    def _parameter_of_variable(self, prefix: str, variable: Any) -> Parameter:
        """Return the parameter of a layer's variable; a shared variable has one storage number."""
        self.weights.setdefault(id(variable.value), f"{prefix}{variable.name}")
        storage = self._storages.setdefault(id(variable), len(self._storages))
        shape = tuple(map(int, variable.shape))
        return Parameter(
            variable.name, shape, storage, str(variable.dtype), bool(variable.trainable)
        )


def _child_layers(layer: Any) -> list[tuple[str, Any]]:
    """Return (unique name without dots, layer) for each direct child of a layer."""
    by_name: dict[str, Any] = {}
    for child in layer._flatten_layers(include_self=False, recursive=False):
        name = child.name.replace(".", "_")
        while name in by_name and by_name[name] is not child:
            name += "_again"
        by_name[name] = child
    return list(by_name.items())


def _layer_weights(layer: Any) -> list[Any]:
    """Return the variables of a layer itself that are parameters.

    Moving averages and the seeds of random layers are not parameters. A quantized layer stores its
    trained weights as whole numbers, with their scales.
    """
    quantized = getattr(layer, "quantization_mode", None) is not None
    return [*layer._trainable_variables, *(layer._non_trainable_variables if quantized else ())]


class NamedLayers(LayerTable):
    """The modules that operation names show, for a model that is not of Keras."""

    def __init__(self, names: Iterable[str], root: str) -> None:
        """Build the module table from the scopes in operation names; `root` names the model."""
        indices = [place_from_name(name) for name in names]
        self.weights = {}
        self.rows = build_module_table(indices, root)
        self._ids = {row.path: row.id for row in self.rows}

    def operation_scope(self, name: str) -> LayerScope:
        """Return (path, id) of the module of an operation, taken from its name."""
        path = place_from_name(name).innermost_module_path
        while path not in self._ids:
            path = path.rpartition(".")[0]
        return LayerScope(path, self._ids[path])

    def parent_scope(self, scope: str) -> LayerScope:
        """Return (path, id) of the module around the module with the path `scope`."""
        path = scope.rpartition(".")[0]
        return LayerScope(path, self._ids[path])


def function_variables(function: Any) -> list[Any]:
    """Return the trainable variables of a function; if there are none, its float variables."""
    by_id = {id(variable): variable for variable in function.variables}
    trained = [weight for weight in by_id.values() if weight.trainable]
    return trained or [weight for weight in by_id.values() if weight.dtype.is_floating]
