"""Import the two parts of the onnx package that counting needs, without the rest of it.

`import onnx` takes longer than counting a model of a thousand nodes. Its message classes and its
C++ library are modules of their own, which load in a fifth of that time.

Whoever reads a repeated field of every node takes a slice of it, `node.input[:]`, which is a list:
to go through the field itself ends with an error that protobuf words, and takes twice as long.
"""

import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any, NamedTuple

from crossflops.errors import TargetError
from crossflops.patches import inventory
from crossflops.patches.patching import patching_attribute

_HINT = "the file is damaged or is not an ONNX model; export or copy it again"
# Messages in Python alone, which protobuf imports with all that they need, and uses nothing of
# where its C library is: a twentieth of what a small count does.
_IN_PYTHON = "google.protobuf.internal.python_message"


@functools.cache
def onnx_message_module() -> Any:
    """Return the module with ONNX's message classes (ModelProto, NodeProto ...)."""
    _register_lazy_module(_IN_PYTHON)
    return _import_onnx_submodule("onnx_ml_pb2", (".py",))


@functools.cache
def onnx_cpp_library() -> Any:
    """Return ONNX's C++ library, which has the operator schemas and shape inference."""
    return _import_onnx_submodule("onnx_cpp2py_export", tuple(EXTENSION_SUFFIXES))


def protobuf_decode_error_class() -> type[Exception]:
    """Return the exception class that protobuf raises for bytes that it cannot decode."""
    # protobuf has no types, unless types-protobuf is installed
    from google.protobuf import message  # type: ignore[import-untyped,unused-ignore]

    return message.DecodeError  # type: ignore[no-any-return]


def parse_model_proto(data: bytes) -> Any:
    """Return the ModelProto of these bytes. Raises TargetError if they are not one."""
    try:
        return onnx_message_module().ModelProto.FromString(data)
    except (protobuf_decode_error_class(), RecursionError) as error:
        raise TargetError(f"cannot parse the model: {error}", _HINT) from error


# What the library says of operators, here or in another process that has it.

SCHEMA, NEWEST = "schema", "newest"


class Schema(NamedTuple):
    """An operator's schema: its first version, the fewest and the most inputs, the names of its
    attributes, and whether it has a shape inference of its own, not through a function.
    """

    since: int
    fewest: int
    most: int
    attributes: frozenset[str]
    infers: bool


def look_up_schema_or_version(kind: str, *key: Any) -> Any:
    """Return an operator's schema as a tuple, or a domain's newest version, by ONNX's library.

    The library runs in this process; see `replace_schema_look_up`.
    """
    if kind == NEWEST:
        return int(onnx_cpp_library().defs.schema_version_map().get(*key, (0, 0))[1])
    domain, name, version = key
    try:
        known = onnx_cpp_library().defs.get_schema(name, version, domain)
    except (RuntimeError, TypeError, ValueError, onnx_cpp_library().defs.SchemaError):
        return None
    attributes, infers = frozenset(known.attributes), known.has_type_and_shape_inference_function
    return known.since_version, known.min_input, known.max_input, attributes, bool(infers)


_asked: list[Callable[..., Any]] = [look_up_schema_or_version]  # the last one is


def replace_schema_look_up(other: Callable[..., Any]) -> None:
    """From now on call `other`, which sends a request to another process, instead of
    `look_up_schema_or_version`.
    """
    _asked.append(other)


@functools.cache
def operator_schema(domain: str, name: str, version: int) -> Schema | None:
    """Return an operator's schema in this version of its operator set; None if unknown."""
    known = _asked[-1](SCHEMA, domain, name, version)
    return known and Schema(*known)


def schema_since_version(domain: str, name: str, version: int) -> int:
    """Return the version that introduced an operator's current schema, else `version`."""
    known = operator_schema(domain, name, version)
    return known.since if known else version


def has_own_shape_inference(domain: str, name: str, version: int) -> bool:
    """Return whether ONNX infers shapes of an operator by its own function, not by a body."""
    known = operator_schema(domain, name, version)
    return known is not None and known.infers


@functools.cache
def newest_operator_version(domain: str) -> int:
    """Return the newest known version of the operator set of a domain, 0 if none is known."""
    return int(_asked[-1](NEWEST, domain))


def _register_lazy_module(name: str) -> None:
    """Register a module in sys.modules whose code runs when it is first used."""
    spec = None if name in sys.modules else importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        return
    spec.loader = importlib.util.LazyLoader(spec.loader)
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    package, _, own_name = name.rpartition(".")
    # else Python looks into it for its spec
    patching_attribute(
        sys.modules[package], own_name, module, inventory.ONNX_MODULES
    ).patch_permanently()


def _import_onnx_submodule(name: str, suffixes: tuple[str, ...]) -> Any:
    """Return a module of the onnx package, without importing the package itself.

    It is registered under its own name, so that `import onnx` finds the same one later.
    """
    full = f"onnx.{name}"
    if "onnx" in sys.modules or full in sys.modules:
        return importlib.import_module(full) if "onnx" in sys.modules else sys.modules[full]
    package = importlib.util.find_spec("onnx")
    for folder in (package.submodule_search_locations or ()) if package else ():
        for suffix in suffixes:
            file = Path(folder, name + suffix)
            if file.is_file():
                return _execute_module(full, file)
    return importlib.import_module(full)


def _execute_module(full: str, file: Path) -> Any:
    """Import the module of a file under its full name, and return it."""
    spec = importlib.util.spec_from_file_location(full, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[full] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(full, None)
        raise
    return module
