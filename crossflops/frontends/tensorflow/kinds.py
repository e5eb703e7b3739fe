"""Whether something is a model of TensorFlow or Keras, told without importing either."""

import os
import sys
from pathlib import Path

_FILES = {".keras", ".h5", ".hdf5", ".pb", ".tflite"}


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


def split(target: str) -> tuple[Path, str]:
    """The path of a target, and the signature behind a colon after the folder of a SavedModel."""
    folder, colon, signature = target.rpartition(":")
    if colon and not os.path.exists(target) and _is_folder(folder):
        return Path(folder), signature
    return Path(target), ""


def is_path(target: str) -> bool:
    """Whether a target is a file of Keras or TensorFlow, or the folder of a SavedModel."""
    path = split(target)[0]
    return path.suffix in _FILES or (bool(target) and _is_folder(str(path)))


def _is_folder(path: str) -> bool:
    return bool(path) and os.path.isfile(os.path.join(path, "saved_model.pb"))
