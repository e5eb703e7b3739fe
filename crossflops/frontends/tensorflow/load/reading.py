"""Read models from files: `.keras`, HDF5, SavedModel folders, frozen graphs."""

import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crossflops.errors import TargetError
from crossflops.frontends.frontend import require_packages
from crossflops.frontends.tensorflow.kinds import split_path_and_signature
from crossflops.frontends.tensorflow.load.function import CHOSEN, require_tensorflow
from crossflops.frontends.tensorflow.load.messages import short_error_text
from crossflops.load import reject_pointer_or_web_page
from crossflops.patches import inventory
from crossflops.patches.patching import patching_attribute

_ALONE = "load it in Python to see the whole traceback"
_AGAIN = "save it again: model.save(FILE.keras), or model.export(FOLDER)"

_UNKNOWN_OPERATION = re.compile(r"Op type not registered '(?P<name>[^']+)'")
_OF_KERAS = (".keras", ".h5", ".hdf5")  # which any backend of Keras reads
_KNOWN = ("keras", "builtins")  # where the classes are that Keras finds by itself


def read_tensorflow_model(target: str, allow_pickle: bool = False) -> Any:
    """Return the model in a Keras file, a SavedModel folder or a frozen graph.

    A `.keras` file may hold Python lambdas as bytes, which run only if pickles are allowed. Raises
    TargetError, MissingExtraError.
    """
    path, signature = split_path_and_signature(target)
    if not path.exists():
        raise TargetError(f"there is no file {path}", "give a .keras file or a SavedModel folder")
    if path.is_file():
        reject_pointer_or_web_page(path)
    if path.suffix not in _OF_KERAS or _keras_backend() == "tensorflow":
        require_tensorflow()
    if path.suffix == ".keras":
        _check_keras_archive(path, allow_pickle)
    try:
        if path.is_dir():
            return _load_saved_model(path, signature)
        return (
            _load_frozen_graph(path)
            if path.suffix == ".pb"
            else _load_keras_model(path, allow_pickle)
        )
    except TargetError:
        raise
    except (Exception, zipfile.BadZipFile) as error:
        if unknown := _UNKNOWN_OPERATION.search(str(error)):
            raise TargetError(
                f"{path} has an operation that TensorFlow does not know: {unknown['name']}",
                "call tf.load_op_library with its library in the file of --formulas",
            ) from error
        own = _custom_class_names(path) if path.suffix == ".keras" else []
        if own:
            raise TargetError(
                f"{path} has layers that Keras does not know: {', '.join(own)}",
                "write a file.py:callable that defines or imports them, and loads the model",
            ) from error
        raise TargetError(
            f"{path} cannot be read: {type(error).__name__}: {short_error_text(error)}",
            _AGAIN if path.is_dir() else _ALONE,
        ) from error


def _keras_backend() -> str:
    """Return the name of Keras's backend. Raises MissingExtraError without Keras."""
    require_packages(("keras",), "read a file of Keras", "tensorflow")
    import keras

    return str(keras.backend.backend())


def _load_saved_model(path: Path, signature: str) -> Any:
    """Return the model of a SavedModel folder, with the chosen signature. Raises TargetError."""
    import tensorflow as tf

    if not (path / "saved_model.pb").stat().st_size:
        raise TargetError(f"{path} is an empty SavedModel", _AGAIN)
    if (
        not (path / "variables").is_dir()
        and b"VarHandleOp" in (path / "saved_model.pb").read_bytes()
    ):
        raise TargetError(f"{path} does not contain its folder `variables`", _AGAIN)
    model = tf.saved_model.load(str(path))
    if signature:
        if signature not in model.signatures:
            named = ", ".join(model.signatures)
            raise TargetError(
                f"{path} has no signature {signature}",
                f"write one of its signatures: {named}"
                if named
                else f"give {path} without a signature: it has none",
            )
        patching_attribute(model, CHOSEN, signature, inventory.SIGNATURE).patch_permanently()
    return model


def _load_frozen_graph(path: Path) -> Any:
    """Return the GraphDef in a file. Raises TargetError if it has no operations."""
    import tensorflow as tf

    graph = tf.compat.v1.GraphDef.FromString(path.read_bytes())
    if not graph.node:
        raise TargetError(
            f"{path} contains no operations", "give a file with a frozen graph (GraphDef)"
        )
    return graph


def _load_keras_model(path: Path, allow_pickle: bool) -> Any:
    """Return the model in a Keras or HDF5 file; code in it runs only with `allow_pickle`."""
    import keras

    return keras.saving.load_model(str(path), compile=False, safe_mode=not allow_pickle)


def _check_keras_archive(path: Path, allow_pickle: bool) -> None:
    """Raise TargetError if a file is no Keras archive, or has code that is not allowed."""
    if not zipfile.is_zipfile(path):
        raise TargetError(f"{path} is not a .keras file, or is incomplete", _AGAIN)
    with zipfile.ZipFile(path) as archive:
        if "config.json" not in archive.namelist():
            raise TargetError(f"{path} contains no Keras model: config.json is missing", _AGAIN)
    if not allow_pickle and any(
        config.get("class_name") == "__lambda__" for config in _keras_config_objects(path)
    ):
        raise TargetError(
            f"{path} contains a Python lambda, which is code",
            "if you trust the file, add --allow-pickle",
        )


def _custom_class_names(path: Path) -> list[str]:
    """Return the names of classes in a Keras file's configuration that Keras does not have."""
    classes = (
        config
        for config in _keras_config_objects(path)
        if not str(config.get("module")).startswith(_KNOWN)
    )
    names = {str(config["class_name"]) for config in classes if "class_name" in config}
    return sorted(name for name in names if not name.startswith("__"))


def _keras_config_objects(path: Path) -> Iterator[dict[str, Any]]:
    """Yield all objects (dicts) in a Keras file's configuration; outer ones first."""
    try:
        with zipfile.ZipFile(path) as archive:
            todo = [json.loads(archive.read("config.json"))]
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        return
    while todo:
        value = todo.pop()
        if isinstance(value, dict):
            yield value
            todo += value.values()
        elif isinstance(value, list):
            todo += value
