"""The module table of a JAX model: the modules of Flax NNX, or a function alone."""

from collections.abc import Mapping
from typing import Any

from crossflops.frontends.converted import plain
from crossflops.frontends.jax import scopes
from crossflops.frontends.jax.kinds import is_module
from crossflops.frontends.jax.model import Pure
from crossflops.frontends.jax.scopes import modules
from crossflops.ir.trace import Module, Parameter


def rows(model: Any, name: str, pure: Pure, training: bool) -> tuple[Module, ...]:
    """One row for every module, each object once, the root first.

    Those of flax.linen are told by what ran. The parameters of a function are the arrays of
    floats that it closes over. What it makes itself is none, nor what it is given.
    """
    if not is_module(model):
        held = pure.weights if isinstance(pure.weights, Mapping) else {}
        return scopes.linen_rows(_root(name, pure), pure.called, held.get("params", {}))
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

    kinds = pure.weights if isinstance(pure.weights, Mapping) else {}  # those of flax.linen
    others = tuple(f"{kind}." for kind in kinds if kind != "params")
    params = tuple(
        Parameter(held, tuple(array.shape), number, array.dtype.name)
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
