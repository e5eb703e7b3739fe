"""Recognize TensorFlow and Keras models without importing either."""

import os
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

_PACKAGES, _OTHERS = {"tensorflow", "keras"}, {"jax", "jaxlib", "flax"}
_EMPTY = CellType()  # of a name that has no value yet
_FILES = {".keras", ".h5", ".hdf5", ".pb"}


def is_tensorflow_model(value: object) -> bool:
    """Return whether a value is a model, layer or function of TensorFlow or Keras."""
    keras, tf = sys.modules.get("keras"), sys.modules.get("tensorflow")
    if keras is not None and hasattr(keras, "Layer") and isinstance(value, keras.Layer):
        return bool(keras.backend.backend() == "tensorflow")
    if tf is None or not hasattr(tf, "Module"):
        return False
    functions = tf.types.experimental
    kinds = (
        *(functions.GenericFunction, functions.ConcreteFunction),
        *(tf.Module, tf.Graph, tf.compat.v1.GraphDef),
    )
    return isinstance(value, kinds) or (
        hasattr(value, "signatures") and _is_loaded_saved_model(value)
    )


def is_plain_tensor_function(value: object, inputs: Any) -> bool:
    """Return whether a value is a plain function of TensorFlow tensors, by inputs or its code.

    This is decided by its inputs, or otherwise by the names in its code: modules, and values of
    their types.
    """
    function = value.func if isinstance(value, partial) else value
    if "tensorflow" not in sys.modules or not isinstance(function, FunctionType):
        return False
    provided = {_top_level_package(stored) for stored in _leaf_values(inputs)}
    if provided & (_PACKAGES | _OTHERS):
        return bool(provided & _PACKAGES)
    named = {_top_level_package(stored) for stored in _function_references(function, set())}
    return bool(named & _PACKAGES) and not named & _OTHERS


def is_tensor_function_without_keras(value: object) -> bool:
    """Return whether a value is a plain function of tensors (no Keras), by the names it uses."""
    function = value.func if isinstance(value, partial) else value
    if not isinstance(function, FunctionType) or "keras" in _code_names(function.__code__):
        return False
    return is_plain_tensor_function(function, ())


def _function_references(function: FunctionType, known: set[FunctionType]) -> Iterator[Any]:
    """Yield the objects that a function refers to: globals, closure values and annotations."""
    known.add(function)
    cells = [cell.cell_contents for cell in function.__closure__ or () if cell != _EMPTY]
    names = set(_code_names(function.__code__)) & function.__globals__.keys()
    read = [*cells, *(function.__globals__[name] for name in names)]
    for stored in (*read, *function.__annotations__.values()):
        own = isinstance(stored, FunctionType) and stored.__globals__ is function.__globals__
        if own and stored not in known:
            yield from _function_references(stored, known)
        yield from _leaf_values(stored)


def _code_names(code: CodeType) -> Iterator[str]:
    """Yield the names in a code object, also in its inner functions."""
    yield from code.co_names
    for stored in code.co_consts:
        if isinstance(stored, CodeType):
            yield from _code_names(stored)


def _leaf_values(value: Any, depth: int = 4) -> Iterator[Any]:
    """Yield the values in nested mappings and sequences, down to `depth` levels."""
    if depth and isinstance(value, Mapping | list | tuple):
        for stored in value.values() if isinstance(value, Mapping) else value:
            yield from _leaf_values(stored, depth - 1)
    else:
        yield value


def _top_level_package(value: Any) -> str:
    """Return the top-level package of a module, class or function, or of a value's type."""
    if isinstance(value, ModuleType):
        return value.__name__.partition(".")[0]
    owner = value if isinstance(value, type) or hasattr(value, "__qualname__") else type(value)
    return str(owner.__module__).partition(".")[0]


def _is_loaded_saved_model(value: object) -> bool:
    """Return whether a value's class is TensorFlow's own, as of a loaded SavedModel."""
    return type(value).__module__.startswith("tensorflow.python.")


def split_path_and_signature(target: str) -> tuple[Path, str]:
    """Return a target's path, and the SavedModel signature after its colon ("" if none)."""
    folder, colon, signature = target.rpartition(":")
    if colon and not os.path.exists(target) and _is_saved_model_folder(folder):
        return Path(folder), signature
    return Path(target), ""


def is_tensorflow_file(target: str) -> bool:
    """Return whether a target is a file of Keras or TensorFlow, or a SavedModel folder."""
    path = split_path_and_signature(target)[0]
    return path.suffix in _FILES or (bool(target) and _is_saved_model_folder(str(path)))


def _is_saved_model_folder(path: str) -> bool:
    """Return whether a path is a SavedModel folder."""
    return bool(path) and os.path.isfile(os.path.join(path, "saved_model.pb"))
