"""Which module of a Flax model an equation belongs to: written into JAX's name stack."""

import functools
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

MARK = "nnx:"
_MARKED = re.compile(rf"{MARK}([^/()]*)")
_PATH = "_crossflops_path"


def paths_of(stack: str) -> list[str]:
    """The paths of all modules in a name stack, outermost first."""
    return _MARKED.findall(stack)


def path_of(stack: str) -> str | None:
    """The path of the innermost module in a name stack, None where there is none.

    "jit(f)/nnx:/vmap(nnx:layers.0)/dot_general" is in "layers.0".
    """
    found = paths_of(stack)
    return found[-1] if found else None


def modules(model: Any) -> list[tuple[str, Any]]:
    """Every module of a Flax NNX model once, by its first path, in the order of attributes.

    The model itself comes first, as "".
    """
    from flax import nnx

    found = {tuple(map(str, path)): one for path, one in nnx.iter_modules(model)}

    def order(path: tuple[str, ...]) -> list[tuple[int, str]]:
        holders = (found.get(path[:end]) for end in range(len(path)))
        return [_place(part, one) for part, one in zip(path, holders, strict=True)]

    return [(".".join(path), found[path]) for path in sorted(found, key=order)]


def _place(name: str, holder: Any) -> tuple[int, str]:
    """Where an attribute or an item stands among others."""
    if name.isdigit():
        return int(name), ""
    names = list(vars(holder)) if holder is not None else []
    return (names.index(name) if name in names else len(names)), name


def marked(model: Any) -> set[type]:
    """Write its path into every module, where transformations of Flax keep it. The classes."""
    classes = set()
    for path, module in modules(model):
        setattr(module, _PATH, path)
        classes.add(type(module))
    return classes


@contextmanager
def entered(classes: Iterable[type]) -> Iterator[None]:
    """While this is open, the methods of these classes run in the scope of their module."""
    with ExitStack() as stack:
        for one in classes:
            for name in _methods(one):
                stack.enter_context(_wrapped(one, name))
        yield


def _methods(kind: type) -> list[str]:
    """`__call__`, and the public methods that the class or its bases below Flax's own define."""
    from flax import nnx

    own = [
        base for base in kind.__mro__ if issubclass(base, nnx.Module) and base is not nnx.Module
    ]
    names = {name for base in own for name, one in vars(base).items() if callable(one)}
    plain = (name for name in names if not name.startswith("_") and name not in vars(nnx.Module))
    return ["__call__", *sorted(plain)] if "__call__" in names else sorted(plain)


@contextmanager
def _wrapped(kind: type, name: str) -> Iterator[None]:
    inherited = name not in vars(kind)
    before = getattr(kind, name)
    if isinstance(vars(kind).get(name), staticmethod | classmethod | type):
        yield
        return
    setattr(kind, name, _scoped(before))
    try:
        yield
    finally:
        if inherited:
            delattr(kind, name)
        else:
            setattr(kind, name, before)


def _scoped(method: Callable[..., Any]) -> Callable[..., Any]:
    import jax

    @functools.wraps(method)
    def scoped(self: Any, *args: Any, **kwargs: Any) -> Any:
        path = getattr(self, _PATH, None)
        if path is None:
            return method(self, *args, **kwargs)
        with jax.named_scope(f"{MARK}{path}"):
            return method(self, *args, **kwargs)

    return scoped
