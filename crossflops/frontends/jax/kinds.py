"""Recognize modules of Flax and Equinox, and JAX functions, without importing any."""

import sys
from collections.abc import Mapping
from types import ModuleType

_LIBRARIES = ("jax", "flax", "equinox")


def is_flax_module(value: object) -> bool:
    """Return whether the value is a module of Flax NNX."""
    nnx = sys.modules.get("flax.nnx")
    return nnx is not None and hasattr(nnx, "Module") and isinstance(value, nnx.Module)


def is_linen_module(value: object) -> bool:
    """Return whether the value is a flax.linen module that is not bound to variables."""
    linen = sys.modules.get("flax.linen")
    kind = getattr(linen, "Module", None)
    return kind is not None and isinstance(value, kind) and getattr(value, "scope", None) is None


def is_equinox_module(value: object) -> bool:
    """Return whether the value is a module of Equinox that can be called."""
    equinox = sys.modules.get("equinox")
    kind = getattr(equinox, "Module", None)
    return kind is not None and isinstance(value, kind) and callable(value)


def is_jax_keras_model(value: object) -> bool:
    """Return whether the value is a model of Keras that runs on JAX."""
    keras = sys.modules.get("keras")
    if keras is None or not hasattr(keras, "Layer") or not isinstance(value, keras.Layer):
        return False
    return bool(keras.backend.backend() == "jax")


def is_jax_transformed_function(value: object) -> bool:
    """Return whether the value is a function transformed by JAX, such as by jax.jit.

    Such functions come from `jax.jit` and its like. A plain function is one if its module imports
    JAX and it needs arguments, which the caller checks.
    """
    jax = sys.modules.get("jax")
    return jax is not None and hasattr(value, "lower") and hasattr(value, "__wrapped__")


def is_defined_with_jax(value: object) -> bool:
    """Return whether the module that defines a function imports JAX, Flax or Equinox."""
    names = getattr(value, "__globals__", None)
    if not isinstance(names, Mapping):
        return False
    modules = (name for name in names.values() if isinstance(name, ModuleType))
    return any(module.__name__.partition(".")[0] in _LIBRARIES for module in modules)
