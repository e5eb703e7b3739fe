"""Whether something is a model of TensorFlow or Keras, told without importing either."""

import os
import sys
from pathlib import Path


def is_model(value: object) -> bool:
    """Whether TensorFlow or Keras made this; asks only what has been imported already."""
    keras, tf = sys.modules.get("keras"), sys.modules.get("tensorflow")
    if keras is not None and hasattr(keras, "Layer") and isinstance(value, keras.Layer):
        return True
    if tf is None or not hasattr(tf, "Module"):
        return False
    functions = tf.types.experimental
    kinds = (
        *(functions.GenericFunction, functions.ConcreteFunction),
        *(tf.Module, tf.Graph, tf.compat.v1.GraphDef),
    )
    return isinstance(value, kinds) or (hasattr(value, "signatures") and _is_loaded(value))


def _is_loaded(value: object) -> bool:
    return type(value).__module__.startswith("tensorflow.python.")


def is_path(target: str) -> bool:
    """Whether a target is a `.keras` file, a frozen graph, or the folder of a SavedModel."""
    return Path(target).suffix in {".keras", ".pb"} or (
        bool(target) and os.path.isfile(os.path.join(target, "saved_model.pb"))
    )
