"""Find the module of each equation of a Flax model (NNX and linen), by name scopes."""

import functools
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import msgspec

from crossflops.frontends.converted import plain_layer_settings
from crossflops.ir.trace import Module, Parameter, Scalar
from crossflops.patches import inventory
from crossflops.patches.patching import patching_attribute

MARK = "nnx:"
_MARKED = re.compile(rf"{MARK}([^/()]*)")
# Between the path of a module and the number of a call of it after the first one. XLA cuts names
# off at "@", which comes before a function in names of TensorFlow.
_AGAIN = "~"
_PATH = "_crossflops_path"


def module_calls_in_stack(stack: str) -> list[str]:
    """Return the names of all calls of modules in a name stack, outermost first: the path of the
    module, and "~2" for its second call.
    """
    return _MARKED.findall(stack)


def module_path_of_call(name: str) -> str:
    """Return the path of the module in the name of a call of it.

    >>> module_path_of_call("layers.0~2")
    'layers.0'
    """
    return name.partition(_AGAIN)[0]


def module_paths_in_stack(stack: str) -> list[str]:
    """Return the paths of all modules in a name stack, outermost first."""
    return list(map(module_path_of_call, module_calls_in_stack(stack)))


class ModuleCalls:
    """The calls of modules while a model is traced, each by the path of its module and a number,
    and the plain arguments of each.
    """

    def __init__(self) -> None:
        """Begin with no calls."""
        self.arguments: dict[str, dict[str, Scalar]] = {}
        self._count: Counter[str] = Counter()
        self._running: dict[str, str] = {}  # by path: the call that is running

    def clear_calls(self) -> None:
        """Forget all calls, before a new trace."""
        self.arguments.clear()
        self._count.clear()
        self._running.clear()

    @contextmanager
    def call_scope(self, path: str, name: str, args: Any, kwargs: Any) -> Iterator[None]:
        """Run a method of a module in a name scope with the name of its call.

        A method that another one of the same module calls is part of that call.
        """
        import jax

        call, is_outermost = self._running.get(path, path), path not in self._running
        if is_outermost and name != "setup":  # flax.linen sets a module up when it is first used
            self._count[path] += 1
            number = self._count[path]
            call = path if number == 1 else f"{path}{_AGAIN}{number}"
            self._running[path] = call
            self.arguments[call] = _plain_arguments(args, kwargs)
        try:
            with jax.named_scope(f"{MARK}{call}"):
                yield
        finally:
            if is_outermost:
                self._running.pop(path, None)


def innermost_module_path(stack: str) -> str | None:
    """Return the path of the innermost module in a name stack, or None.

    "jit(f)/nnx:/vmap(nnx:layers.0)/dot_general" is in "layers.0".
    """
    paths = module_paths_in_stack(stack)
    return paths[-1] if paths else None


def _plain_arguments(args: Iterable[Any], kwargs: Mapping[str, Any]) -> dict[str, Scalar]:
    """Return the arguments that are plain values or lists of them, by position (as text) or
    keyword.
    """
    named = {**{str(index): value for index, value in enumerate(args)}, **kwargs}
    plain: dict[str, Scalar] = {}
    for name, value in named.items():
        items = value if isinstance(value, tuple | list) else [value]
        if all(isinstance(item, bool | int | float | str) for item in items):
            plain[name] = list(items) if isinstance(value, tuple | list) else value
    return plain


def flax_modules(model: Any) -> list[tuple[str, Any]]:
    """Return (path, module) of each module of an NNX model, in the order of attributes.

    The model itself comes first, as "".
    """
    from flax import nnx

    by_path = {tuple(map(str, path)): module for path, module in nnx.iter_modules(model)}

    def path_sort_key(path: tuple[str, ...]) -> list[tuple[int, str]]:
        """Return a sort key of a module path: the position of each part in its parent."""
        holders = (by_path.get(path[:end]) for end in range(len(path)))
        return [
            _attribute_position(part, holder) for part, holder in zip(path, holders, strict=True)
        ]

    return [(".".join(path), by_path[path]) for path in sorted(by_path, key=path_sort_key)]


def _attribute_position(name: str, holder: Any) -> tuple[int, str]:
    """Return a sort key for an attribute: its number, or its position in its object."""
    if name.isdigit():
        return int(name), ""
    names = list(vars(holder)) if holder is not None else []
    return (names.index(name) if name in names else len(names)), name


def mark_module_paths(model: Any) -> set[type]:
    """Write its path into each module, in place; return the classes of the modules."""
    classes = set()
    for path, module in flax_modules(model):
        patching_attribute(module, _PATH, path, inventory.PATHS).patch_permanently()
        classes.add(type(module))
    return classes


@contextmanager
def entering_module_scopes(classes: Iterable[type], calls: ModuleCalls) -> Iterator[None]:
    """Return a context in which methods of these classes run in their module's name scope, and in
    which `calls` gets their calls.
    """
    calls.clear_calls()
    with ExitStack() as stack:
        for kind in classes:
            for name in _scope_methods(kind):
                stack.enter_context(_wrapping_method(kind, name, calls))
        yield


def _scope_methods(kind: type) -> list[str]:
    """Return the names of the methods of a class to run in a name scope."""
    from flax import nnx

    own = [
        base for base in kind.__mro__ if issubclass(base, nnx.Module) and base is not nnx.Module
    ]
    names = {name for base in own for name, member in vars(base).items() if callable(member)}
    plain = (name for name in names if not name.startswith("_") and name not in vars(nnx.Module))
    return ["__call__", *sorted(plain)] if "__call__" in names else sorted(plain)


@contextmanager
def _wrapping_method(kind: type, name: str, calls: ModuleCalls) -> Iterator[None]:
    """Return a context in which a method of a Flax class runs in its module's name scope."""
    before = getattr(kind, name)
    if isinstance(vars(kind).get(name), staticmethod | classmethod | type):
        yield
        return
    with patching_attribute(kind, name, _with_module_scope(before, name, calls), inventory.SCOPES):
        yield


def _with_module_scope(
    method: Callable[..., Any], name: str, calls: ModuleCalls
) -> Callable[..., Any]:
    """Return the method of this name, run in a name scope with the path of its module."""

    @functools.wraps(method)
    def call_in_scope(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Run the method in a name scope with the path of its module, if it has one."""
        path = getattr(self, _PATH, None)
        if path is None:
            return method(self, *args, **kwargs)
        with calls.call_scope(path, name, args, kwargs):
            return method(self, *args, **kwargs)

    return call_in_scope


# The modules of flax.linen: told as they are called, since before that there are none.

_OWN = ("parent", "name")  # fields of every module of flax.linen


class CalledModules:
    """The linen modules that were called, by path: their classes and settings.

    A function that applies several models is not supported: their paths could be those of any.
    """

    def __init__(self) -> None:
        """Begin with no called modules."""
        self.classes: dict[str, type] = {}
        self.settings: dict[str, dict[str, Scalar]] = {}
        self.several = False
        self.calls = ModuleCalls()
        self._scope: Any = None

    def clear_calls(self) -> None:
        """Forget which model was called, before a new trace."""
        self._scope = None
        self.calls.clear_calls()

    def record_call(self, module: Any) -> str:
        """Record the call of a linen module, and return its path."""
        path = ".".join(module.path)
        if type(module.scope).__name__ == "TestScope":
            return path  # flax/linen/module.py: a copy, of which only the fields are wanted
        if not path:
            self.several |= self._scope not in (None, module.scope)
            self._scope = module.scope
        self.classes.setdefault(path, type(module))
        self.settings.setdefault(path, _linen_settings(module))
        return path


@contextmanager
def entering_linen_scopes(called: CalledModules) -> Iterator[None]:
    """Return a context in which methods of linen modules run in their module's name scope."""
    called.clear_calls()
    linen = sys.modules.get("flax.linen")
    if linen is None or not hasattr(linen, "intercept_methods"):
        yield
        return

    def run_in_linen_scope(method: Any, args: Any, kwargs: Any, context: Any) -> Any:
        """Run a linen method in a name scope with its module's path, which is recorded."""
        path = called.record_call(context.module)
        with called.calls.call_scope(path, context.method_name, args, kwargs):
            return method(*args, **kwargs)

    with linen.intercept_methods(run_in_linen_scope):
        yield


def linen_module_rows(
    root: Module, called: CalledModules, variables: Mapping[str, Any]
) -> tuple[Module, ...]:
    """Return the module table of a linen model: the root and the modules that were called.

    Variables are nested by path: {"layer": {"kernel": ...}}.
    """
    if called.several or not called.classes:
        return (root,)
    paths = ["", *(path for path in called.classes if path)]
    ids = {path: number for number, path in enumerate(paths)}
    stored = _linen_parameters(variables, paths)
    below: dict[str, list[tuple[str, int]]] = {path: [] for path in paths}
    for path in paths[1:]:
        enclosing = _longest_known_parent(path, ids)
        below[enclosing].append((path.removeprefix(enclosing).lstrip("."), ids[path]))
    rows = [
        Module(
            id=ids[path],
            names=(path,),
            bases=_class_and_base_names(called.classes[path])
            if path in called.classes
            else root.bases,
            params=tuple(stored.get(path, ())) if stored else (),
            children=tuple(below[path]),
            training=root.training,
            settings=called.settings.get(path, {}),
        )
        for path in paths
    ]
    if not variables:  # a function, which holds what it closes over itself
        rows[0] = msgspec.structs.replace(root, children=rows[0].children)
    return tuple(rows)


def _linen_parameters(
    variables: Mapping[str, Any], paths: list[str]
) -> dict[str, list[Parameter]]:
    """Return the float parameters of linen modules, by module path."""
    import jax
    import jax.numpy as jnp

    by_module: dict[str, list[Parameter]] = {}
    leaves = jax.tree_util.tree_flatten_with_path(variables)[0]
    for number, (keys, leaf) in enumerate(leaves):
        name = jax.tree_util.keystr(keys, simple=True, separator=".")
        owner = _longest_known_parent(name, paths)
        if jnp.issubdtype(leaf.dtype, jnp.inexact):
            own = Parameter(
                name.removeprefix(owner).lstrip("."), tuple(leaf.shape), number, leaf.dtype.name
            )
            by_module.setdefault(owner, []).append(own)
    return by_module


def _longest_known_parent(path: str, known: Any) -> str:
    """Return the longest of the known module paths that encloses a path, or ""."""
    enclosing = path.rpartition(".")[0]
    while enclosing not in known:
        enclosing = enclosing.rpartition(".")[0]
    return enclosing


def _class_and_base_names(kind: type) -> tuple[str, ...]:
    """Return the full names of a class and its bases, without `object`."""
    return tuple(f"{base.__module__}.{base.__qualname__}" for base in kind.__mro__[:-1])


def _linen_settings(module: Any) -> dict[str, Scalar]:
    """Return the fields of a linen module that are plain values, by name."""
    fields = getattr(module, "__dataclass_fields__", ())
    return plain_layer_settings(((name, getattr(module, name, None)) for name in fields), _OWN)
