"""The modules of flax.linen: told as they are called, since before that there are none."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from crossflops.core.trace import Module, Parameter, Scalar
from crossflops.normalize.jax.scopes import MARK

_OWN = ("parent", "name")  # fields of every module of flax.linen


class Called:
    """The modules by path, parents first, as they were called: their classes and settings.

    Of a function that applies several models nothing is told: their paths are those of any.
    """

    def __init__(self) -> None:
        self.classes: dict[str, type] = {}
        self.settings: dict[str, dict[str, Scalar]] = {}
        self.several = False
        self._scope: Any = None

    def begin(self) -> None:
        """The model is traced anew."""
        self._scope = None

    def note(self, module: Any) -> str:
        """The path of a module that is called."""
        path = ".".join(module.path)
        if type(module.scope).__name__ == "TestScope":
            return path  # flax/linen/module.py: a copy, of which only the fields are wanted
        if not path:
            self.several |= self._scope not in (None, module.scope)
            self._scope = module.scope
        self.classes.setdefault(path, type(module))
        self.settings.setdefault(path, _settings(module))
        return path


@contextmanager
def entered(called: Called) -> Iterator[None]:
    """While this is open, methods of modules of flax.linen run in the scope of their module."""
    linen = sys.modules.get("flax.linen")
    if linen is None or not hasattr(linen, "intercept_methods"):
        yield
        return
    import jax

    called.begin()

    def scoped(method: Any, args: Any, kwargs: Any, context: Any) -> Any:
        with jax.named_scope(f"{MARK}{called.note(context.module)}"):
            return method(*args, **kwargs)

    with linen.intercept_methods(scoped):
        yield


def rows(root: Module, called: Called, variables: Mapping[str, Any]) -> tuple[Module, ...]:
    """The root and all modules that were called in it, with the `variables` that are parameters.

    Variables are nested by path: {"layer": {"kernel": ...}}.
    """
    if called.several or not called.classes:
        return (root,)
    paths = ["", *(path for path in called.classes if path)]
    ids = {path: number for number, path in enumerate(paths)}
    held = _by_module(variables, paths)
    below: dict[str, list[tuple[str, int]]] = {path: [] for path in paths}
    for path in paths[1:]:
        around = _around(path, ids)
        below[around].append((path.removeprefix(around).lstrip("."), ids[path]))
    found = [
        Module(
            id=ids[path],
            names=(path,),
            bases=_bases(called.classes[path]) if path in called.classes else root.bases,
            params=tuple(held.get(path, ())) if held else (),
            children=tuple(below[path]),
            training=root.training,
            settings=called.settings.get(path, {}),
        )
        for path in paths
    ]
    if not variables:  # a function, which holds what it closes over itself
        found[0] = msgspec.structs.replace(root, children=found[0].children)
    return tuple(found)


def _by_module(variables: Mapping[str, Any], paths: list[str]) -> dict[str, list[Parameter]]:
    import jax
    import jax.numpy as jnp

    found: dict[str, list[Parameter]] = {}
    leaves = jax.tree_util.tree_flatten_with_path(variables)[0]
    for number, (keys, one) in enumerate(leaves):
        name = jax.tree_util.keystr(keys, simple=True, separator=".")
        home = _around(name, paths)
        if jnp.issubdtype(one.dtype, jnp.inexact):
            own = Parameter(
                name.removeprefix(home).lstrip("."), tuple(one.shape), number, one.dtype.name
            )
            found.setdefault(home, []).append(own)
    return found


def _around(path: str, known: Any) -> str:
    """The longest path around this one that is known; "" is that of the model."""
    around = path.rpartition(".")[0]
    while around not in known:
        around = around.rpartition(".")[0]
    return around


def _bases(kind: type) -> tuple[str, ...]:
    return tuple(f"{one.__module__}.{one.__qualname__}" for one in kind.__mro__[:-1])


def _settings(module: Any) -> dict[str, Scalar]:
    """The plain fields: features, kernel_size, strides ..."""
    found: dict[str, Scalar] = {}
    for name in getattr(module, "__dataclass_fields__", ()):
        value = getattr(module, name, None)
        if name.startswith("_") or name in _OWN:
            continue
        if isinstance(value, tuple) and all(isinstance(item, int | float) for item in value):
            found[name] = list(value)
        elif value is None or isinstance(value, bool | int | float | str):
            found[name] = value
    return found
