"""Turn a JAX function or a Flax module into an ONNX graph, calls and a module table.

That table has the modules of Flax NNX, or a function alone.
"""

import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np

from crossflops.errors import CrossflopsWarning
from crossflops.frontends.converted import plain_layer_settings, require_weights_fit_in_file
from crossflops.frontends.decided import Runnable
from crossflops.frontends.frontend import Run, Source
from crossflops.frontends.jax.convert.converter import onnx_input_name
from crossflops.frontends.jax.kinds import is_flax_module, is_linen_module
from crossflops.frontends.jax.passes import PIPELINE, TO_BYTES, TO_FILE, JaxConversion
from crossflops.frontends.jax.record.function import (
    FROZEN,
    Pure,
    random_key_to_words,
    to_pure_function,
)
from crossflops.frontends.jax.record.scopes import flax_modules, linen_module_rows
from crossflops.ir.graph import Graph
from crossflops.ir.trace import Module, Parameter, Setting, Trace


def jax_module_rows(model: Any, name: str, pure: Pure, training: bool) -> tuple[Module, ...]:
    """Return the module table of a model, the root first; each module object once.

    Modules of flax.linen are those that ran. The parameters of a function are the float arrays
    that it closes over, not those that it makes or that it is given.
    """
    if not is_flax_module(model):
        stored = pure.weights if isinstance(pure.weights, Mapping) else {}
        # of Keras no module but the root is known, which has all
        variables = {} if FROZEN in stored else stored.get("params", {})
        return linen_module_rows(_root_module(name, pure), pure.called, variables)
    layers = list(flax_modules(model))
    ids = {path: number for number, (path, _) in enumerate(layers)}
    below: dict[str, list[tuple[str, int]]] = {}
    for path, number in ids.items():
        if path:
            enclosing = path.rpartition(".")[0]
            while enclosing not in ids:
                enclosing = enclosing.rpartition(".")[0]
            child = path.removeprefix(f"{enclosing}.") if enclosing else path
            below.setdefault(enclosing, []).append((child, number))
    storages: dict[int, int] = {}
    return tuple(
        Module(
            id=number,
            names=(path,),
            bases=tuple(f"{c.__module__}.{c.__qualname__}" for c in type(module).__mro__[:-1]),
            params=_own_parameters(module, storages),
            children=tuple(below.get(path, ())),
            training=training,
            settings=plain_layer_settings(vars(module).items()),
        )
        for number, (path, module) in enumerate(layers)
    )


def _root_module(name: str, pure: Pure) -> Module:
    """Return the root module, with all float parameters of the model."""
    import jax.numpy as jnp

    # those of flax.linen and Keras
    kinds = pure.weights if isinstance(pure.weights, Mapping) else {}
    others = tuple(f"{kind}." for kind in kinds if kind not in ("params", FROZEN))
    frozen = kinds.get(FROZEN, {})
    params = tuple(
        Parameter(stored, tuple(array.shape), number, array.dtype.name, stored not in frozen)
        for number, (stored, array) in enumerate(pure.held)
        if jnp.issubdtype(array.dtype, jnp.inexact)
        and array.ndim
        and not stored.startswith(others)
    )
    return Module(
        id=0, names=("",), bases=(name,), params=params, children=(), training=False, settings={}
    )


def _own_parameters(module: Any, storages: dict[int, int]) -> tuple[Parameter, ...]:
    """Return the parameters (nnx.Param) of a Flax module itself, without its submodules'."""
    from flax import nnx

    parameters = []
    for name, variable in vars(module).items():
        if isinstance(variable, nnx.Param):
            storage = storages.setdefault(id(variable), len(storages))
            parameters.append(Parameter(name, tuple(variable.shape), storage, variable.dtype.name))
    return tuple(parameters)


class TraceableModel(msgspec.Struct, frozen=True):
    """A model as a function of arrays that JAX can trace, with its module table."""

    name: str
    pure: Pure
    modules: tuple[Module, ...]
    setting: Setting


def make_jax_program(source: Source, setting: Setting) -> tuple[bytes, Graph, Trace]:
    """Record and convert a model; return its ONNX model as bytes, its graph and its trace."""
    return convert_jax_model(
        source, record_jax_model(source.model, source.args, source.kwargs, setting)
    )


def convert_jax_model(
    source: Source, seen: TraceableModel, views: Sequence[Setting] = (), run: Run | None = None
) -> tuple[bytes, Graph, Trace]:
    """Return the ONNX model of a recorded model as bytes, its graph, and its trace.

    `views` are the programs of XLA that are needed beside the equations. The source's `control`
    names nodes of the ONNX model; its `arrays` are the values of the inputs, where there are any,
    on which `run` runs parts that depend on them.

    Raises InputError where the model does not take these inputs, NormalizeError where it cannot be
    converted.
    """
    made = PIPELINE.run(
        JaxConversion(
            function=seen.pure,
            trace=Trace(
                calls=(),
                modules=seen.modules,
                setting=seen.setting,
                framework="jax",
                loops_alike=True,
            ),
            name=seen.name,
            control=source.control,
            views=views,
            run=run,
            runnable=partial(_runnable_onnx_model, source, seen.setting),
        )
    )
    return made.file, made.current_graph, made.trace


_NO_WEIGHTS = (
    "a module of flax.linen stores no weights; the file contains the weights that its `init` "
    "creates with seed 0"
)


def convert_with_weights(source: Source, setting: Setting) -> tuple[bytes, Graph]:
    """Return the ONNX model with its weights as bytes, and its graph.

    Raises NormalizeError as `make_jax_program` does, InputError for weights that no such file can
    hold.
    """
    import jax

    if is_linen_module(source.model):
        warnings.warn(_NO_WEIGHTS, CrossflopsWarning, stacklevel=2)
    valued = to_pure_function(
        source.model, source.args, source.kwargs, setting.training, valued=True
    )
    weights = jax.tree.leaves(valued.weights)
    require_weights_fit_in_file(sum(array.size * array.dtype.itemsize for array in weights))
    trace = Trace(calls=(), modules=(), setting=setting, framework="jax")
    conversion = JaxConversion(
        function=valued,
        trace=trace,
        name=_jax_model_name(source.model),
        control=source.control,
        to_run=True,
    )
    made = TO_FILE.run(conversion)
    return made.file, made.current_graph


def _runnable_onnx_model(source: Source, setting: Setting) -> Runnable:
    """Return the ONNX model with its weights as bytes, and the values of its inputs by name."""
    import jax

    valued = to_pure_function(
        source.model, source.args, source.kwargs, setting.training, valued=True
    )
    data = TO_BYTES.run(JaxConversion(function=valued)).data
    shapes = jax.tree.leaves((source.args, dict(source.kwargs)))
    provided = shapes if source.arrays is None else jax.tree.leaves(source.arrays)
    pairs = zip(shapes, provided, strict=True)
    values = [value for spec, value in pairs if isinstance(spec, jax.ShapeDtypeStruct)]
    named = zip(map(onnx_input_name, valued.names), values, strict=True)
    feeds = (
        (name, random_key_to_words(array))
        for name, array in named
        if not isinstance(array, jax.ShapeDtypeStruct)
    )
    return data, {name: np.asarray(array) for name, array in feeds}


def record_jax_model(
    model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], setting: Setting
) -> TraceableModel:
    """Return the model as a function of arrays of these shapes, with its module table.

    With its modules that is all that a tool needs. Raises InputError where the model does not take
    these inputs.
    """
    name = _jax_model_name(model)
    pure_model = to_pure_function(model, args, kwargs, setting.training)
    return TraceableModel(
        name, pure_model, jax_module_rows(model, name, pure_model, setting.training), setting
    )


def _jax_model_name(model: Any) -> str:
    """Return the name of a function, or the class name of a model."""
    own = getattr(model, "__name__", None)
    return own if isinstance(own, str) and own.isidentifier() else type(model).__name__
