"""Find formulas of a user: in files, in imported modules, in installed distributions.

A formula of a file holds for one request, and is read afresh for each; one that a module registers
when it is imported holds for the process. Distributions bring theirs by the entry-point group
`crossflops.operators`, and the package itself has those of well-known kernels: both are read when
an operator is met that has no rule. One's own go over those of the package.
"""

import importlib
import importlib.util
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from crossflops.errors import (
    CrossflopsError,
    CrossflopsWarning,
    FormulaError,
    error_location,
    error_words,
)
from crossflops.ir.graph import Op
from crossflops.ir.provenance import FormulaOrigin
from crossflops.operators.formula import Formula, FormulaRegistry, operator_rule_of_formula
from crossflops.operators.rule import TORCH, OperatorRule

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "crossflops.operators"
KERNELS = "crossflops.operators.kernels"  # the formulas that the package brings
_OWN = "crossflops.operators."
_SHIPPED: Literal["crossflops"] = "crossflops"
# Before the name of a target of `jax.ffi.ffi_call`, and of a kernel of Pallas.
CODE_CALLS = ("ffi_call.", "pallas_call.")
_FILE_MODULE = "crossflops_formulas_"


class FormulaState:
    """The formulas of this process: those that modules registered, and those of the request.

    Each registry is a value; this says which ones are in force.
    """

    def __init__(self) -> None:
        self.imported = FormulaRegistry()
        self.shipped = FormulaRegistry()
        self.requested = FormulaRegistry()
        self.places: tuple[str, ...] = ()
        self.reading: dict[str, FormulaRegistry] = {}  # by module of a file that is being read
        self.broken: dict[str, str] = {}  # by distribution: why its formulas cannot be read
        self.is_complete = False  # whether distributions and kernels have been read
        self.in_force = FormulaRegistry()

    def update_formulas_in_force(self) -> None:
        """Compute which formulas are in force. Raises FormulaError if two are about the same
        operator.
        """
        registry = self.imported
        for formula in self.requested:
            registry = registry.add(formula)
        self.in_force = registry
        find_formula.cache_clear()


STATE = FormulaState()


# What the decorator does.


def add_formula(formula: Formula) -> None:
    """Add a formula to the registry of the source that is being read. Raises FormulaError if two
    contradict.
    """
    module = formula.function.__module__
    if module in STATE.reading:
        STATE.reading[module] = STATE.reading[module].add(formula)
    elif formula.origin.kind == "crossflops":
        STATE.shipped = STATE.shipped.add(formula)
        find_formula.cache_clear()
    else:
        before = STATE.imported
        STATE.imported = before.add(formula)
        try:
            STATE.update_formulas_in_force()
        except FormulaError:
            STATE.imported = before
            raise


def origin_of_function(function: Callable[..., Any]) -> FormulaOrigin:
    """Return where the formula of this function comes from: file, module or crossflops, with a
    digest of the source.
    """
    import hashlib
    import inspect

    module = function.__module__
    source = inspect.getsourcefile(function) if hasattr(function, "__code__") else None
    data = _source_bytes(function, source)
    digest = hashlib.sha256(data).hexdigest()
    if module in STATE.reading:
        return FormulaOrigin(kind="file", name=_relative_path(source or module), digest=digest)
    if module.startswith(_OWN):
        return FormulaOrigin(
            kind="crossflops",
            name="crossflops",
            version=_crossflops_version(),
            digest=digest,
        )
    return FormulaOrigin(kind="module", name=module, digest=digest)


def _source_bytes(function: Callable[..., Any], file: str | None) -> bytes:
    """Return the bytes of the source file of a function; if there is none, those of its own source
    or code.
    """
    import inspect

    if file and Path(file).is_file():
        return Path(file).read_bytes()
    try:
        return inspect.getsource(function).encode()
    except (OSError, TypeError):
        code = getattr(function, "__code__", None)
        return code.co_code if code is not None else repr(function).encode()


def _relative_path(file: str) -> str:
    """Return the path of a file relative to the current folder if it is inside it, else
    unchanged.
    """
    path = Path(file)
    with_folder = os.path.relpath(path) if path.is_absolute() else file
    return str(path) if with_folder.startswith("..") else with_folder


def _crossflops_version() -> str:
    """Return the version of the installed crossflops; "" if it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("crossflops")
    except PackageNotFoundError:
        return ""


# Files of formulas.


def read_formula_file(location: str) -> FormulaRegistry:
    """Return the formulas of a Python file, which is run.

    Raises FormulaError where there is none, where it raises, and where it has no formula.
    """
    import hashlib

    path = Path(location)
    if not path.is_file():
        raise FormulaError(
            f"the file of formulas {location} does not exist", "give the path of a .py file"
        )
    data = path.read_bytes()
    name = _FILE_MODULE + hashlib.sha256(str(path.resolve()).encode() + data).hexdigest()[:16]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise FormulaError(f"{location} is not a Python file", "give a .py file")
    module = importlib.util.module_from_spec(spec)
    registry = _run_formula_module(location, name, module, spec.loader.exec_module)
    if not registry:
        raise FormulaError(
            f"{location} registers no formula",
            'put @crossflops.operator("namespace::name") over a function',
        )
    return registry


def _run_formula_module(
    location: str, name: str, module: ModuleType, run: Callable[[ModuleType], None]
) -> FormulaRegistry:
    """Run a file of formulas as a module by `run`, and return the formulas that it registered."""
    STATE.reading[name] = FormulaRegistry()
    sys.modules[name] = module  # where `inspect` and `pickle` look for it
    folder = str(Path(location).resolve().parent)
    sys.path.append(folder)
    try:
        run(module)
    except CrossflopsError:
        raise
    except (Exception, SystemExit) as error:  # a script that ends the process
        message = f"{location} cannot be read: {error_words(error)}{error_location(error)}"
        raise FormulaError(message, "correct the file") from error
    finally:
        if folder in sys.path:
            sys.path.remove(folder)
        registry = STATE.reading.pop(name)
    return registry


def read_formula_file_or_module(location: str) -> FormulaRegistry:
    """Return the formulas of a Python file; for a module name, import it and return an empty
    registry, since it registers itself.

    Raises FormulaError.
    """
    if not location.endswith(".py") and all(part.isidentifier() for part in location.split(".")):
        try:
            importlib.import_module(location)
        except CrossflopsError:
            raise
        except Exception as error:
            message = f"module {location} of formulas cannot be imported: {error_words(error)}"
            raise FormulaError(
                message, "give the path of a .py file, or correct the module"
            ) from error
        return FormulaRegistry()  # it stands among what was imported
    return read_formula_file(location)


@contextmanager
def using_formulas(sources: Iterable[str | os.PathLike[str]]) -> Iterator[None]:
    """Put the formulas of these files and modules in force during the block, in addition to those
    in force.

    Raises FormulaError, and where two formulas are about one operator.
    """
    new = tuple(
        location
        for location in dict.fromkeys(os.fspath(location) for location in sources)
        if location not in STATE.places
    )
    if not new:
        yield
        return
    before = STATE.requested, STATE.places
    registry = STATE.requested
    for location in new:
        for formula in read_formula_file_or_module(location):
            registry = registry.add(formula)
    STATE.requested, STATE.places = registry, (*STATE.places, *new)
    try:
        STATE.update_formulas_in_force()
        for formula in STATE.requested:
            reject_counted_operator(formula)
        yield
    finally:
        STATE.requested, STATE.places = before
        STATE.update_formulas_in_force()


def load_formulas_for_process(sources: Iterable[str]) -> None:
    """Put the formulas of these files and modules in force until this process ends."""
    _HELD.enter_context(using_formulas(sources))


_HELD = ExitStack()


def reject_counted_operator(formula: Formula) -> None:
    """Raise FormulaError if the formula is about an operator that crossflops itself counts."""
    from crossflops.operators import full_name_of_counted_operator

    if formula.module:
        return
    if counted := full_name_of_counted_operator(formula.name):
        raise FormulaError(
            f"{formula.text_for_messages} is for an operator that crossflops already counts "
            f"({counted})",
            "remove this formula: formulas are only for operators that are not counted",
        )


# Installed distributions, and the kernels of the package.


def load_kernel_and_plugin_formulas() -> None:
    """Read, at the first call only, the formulas of crossflops' kernels and of installed
    distributions.
    """
    if STATE.is_complete:
        return
    STATE.is_complete = True
    importlib.import_module(KERNELS)
    for point in formula_entry_points():
        _import_formula_entry_point(point)


def formula_entry_points() -> "Sequence[EntryPoint]":
    """Return the entry points of distributions that contain formulas, sorted by name."""
    from importlib.metadata import entry_points

    return sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value))


def _import_formula_entry_point(point: "EntryPoint") -> None:
    """Import the formulas of an installed distribution; issue a warning if that fails."""
    distribution = point.dist
    name = distribution.name if distribution is not None else point.name
    try:
        importlib.import_module(point.module)
    except CrossflopsError:
        raise
    except Exception as error:
        STATE.broken[name] = error_words(error)
        warnings.warn(
            f"the formulas of {name} ({point.value}) cannot be read: {error_words(error)}",
            CrossflopsWarning,
            stacklevel=2,
        )
        return
    version = distribution.version if distribution is not None else ""
    STATE.imported = FormulaRegistry(
        tuple(
            _with_distribution(formula, name, version)
            if _is_defined_in_module(formula, point.module)
            else formula
            for formula in STATE.imported
        )
    )
    STATE.update_formulas_in_force()


def _is_defined_in_module(formula: Formula, module: str) -> bool:
    """Return whether the function of a formula is defined in this module or in a
    submodule of it.
    """
    name = formula.function.__module__
    return name == module or name.startswith(f"{module}.")


def _with_distribution(formula: Formula, name: str, version: str) -> Formula:
    """Return the formula with a distribution, of this name and version, as its origin."""
    origin = msgspec.structs.replace(
        formula.origin, kind="distribution", name=name, version=version
    )
    return msgspec.structs.replace(formula, origin=origin)


# How a node finds its formula.


@lru_cache(maxsize=4096)
def find_formula(domain: str, kind: str) -> Formula | None:
    """Return the formula of an operator: the user's, else the one of crossflops; None if there is
    none. Raises FormulaError if the patterns of two formulas match the operator.
    """
    load_kernel_and_plugin_formulas()
    keys = _formula_keys(domain, kind)
    return STATE.in_force.find_formula(keys) or STATE.shipped.find_formula(keys)


def _formula_keys(domain: str, kind: str) -> tuple[str, ...]:
    """Return the names under which a formula of an operator may be registered, the most specific
    first.

    An operator of PyTorch has a namespace, a name and an overload: "mylib.flash.default". A call
    of `jax.ffi` has the name of its target, one of Pallas that of its kernel: "ffi_call.my_scan".
    """
    if domain == "jax" and kind.startswith(CODE_CALLS):
        primitive, _, called = kind.partition(".")
        return (f"jax.{called}", f"jax.{primitive}")
    if domain != TORCH:
        return (f"{domain}.{kind}",)
    parts = kind.split(".")
    return tuple(".".join(parts[:count]) for count in (3, 2) if len(parts) >= count)


_RULES: dict[int, tuple[Formula, OperatorRule]] = {}  # by identity of the formula, which it holds


def find_formula_rule(op: Op) -> OperatorRule | None:
    """Return the rule made of the formula of an operator (the user's, or of a known kernel), or
    None.
    """
    formula = find_formula(op.domain, op.type)
    if formula is None:
        return None
    if id(formula) not in _RULES:
        _RULES[id(formula)] = formula, operator_rule_of_formula(formula)
    return _RULES[id(formula)][1]


def formulas_in_force() -> tuple[Formula, ...]:
    """Return all formulas of the user, and those of crossflops that no formula of the user
    replaces.
    """
    load_kernel_and_plugin_formulas()
    own = STATE.in_force.by_key
    shipped = (formula for formula in STATE.shipped if formula.key not in own)
    return (*STATE.in_force, *shipped)


def formulas_of_user() -> tuple[Formula, ...]:
    """Return all formulas of the user: of files, imported modules and distributions."""
    load_kernel_and_plugin_formulas()
    return tuple(STATE.in_force)


def formulas_of_request() -> tuple[Formula, ...]:
    """Return the formulas that the request itself names: of its files, and of modules that it
    names.
    """
    imported = (f for f in STATE.imported if f.function.__module__ in STATE.places)
    return (*STATE.requested, *imported)


def formula_locations_for_workers() -> tuple[str, ...]:
    """Return the files and modules that another process must read to have the same formulas.

    Installed ones it finds by itself.
    """
    modules = (
        formula.function.__module__
        for formula in STATE.imported
        if formula.origin.kind == "module"
    )
    importable = (name for name in modules if name != "__main__")
    return tuple(dict.fromkeys((*(str(Path(p).resolve()) if Path(p).is_file() else p
                                  for p in STATE.places), *importable)))  # fmt: skip
