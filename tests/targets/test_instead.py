"""Files and values that cannot be counted are refused in two lines, with what to do instead."""

import builtins
import errno
import io
import os
from pathlib import Path
from typing import Any

import pytest

from crossflops.cli import main
from crossflops.errors import NormalizeError
from crossflops.targets import source_from_object

FILES = {
    ".pte": "is a program of ExecuTorch",
    ".pdmodel": "is a model of PaddlePaddle",
    ".mlmodel": "is a model of Core ML",
    ".engine": "is an engine of TensorRT",
    ".msgpack": "has weights of Flax",
}


@pytest.mark.parametrize("suffix", FILES)
def test_files_of_other_formats_are_named(
    suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the model to count instead."""
    path = tmp_path / f"model{suffix}"
    path.write_bytes(b"content")
    assert main(["count", str(path)]) == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert FILES[suffix] in error
    assert "file.py:callable" in hint or "paddle2onnx" in hint


@pytest.mark.parametrize(
    "suffix",
    [
        *(".json", ".ubj", ".txt", ".cbm", ".xml", ".onnx", ".pkl", ".py:build"),
        pytest.param(".tflite", marks=pytest.mark.tensorflow),  # its reader is an extra
    ],
)
def test_a_file_without_permission_is_named(
    suffix: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever reads it: the operating system refuses, and the message has the file's name."""
    path = tmp_path / f"model{suffix.partition(':')[0]}"
    path.write_bytes(b"content")
    usual = io.open

    def open_with_permissions(file: Any, *args: Any, **kwargs: Any) -> Any:
        if str(file) == str(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return usual(file, *args, **kwargs)

    monkeypatch.setattr(builtins, "open", open_with_permissions)
    monkeypatch.setattr(io, "open", open_with_permissions)
    assert main(["count", f"{tmp_path}/model{suffix}"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"error: cannot read {path}: Permission denied",
        "hint: check the path and the permissions of the file",
    ]


@pytest.mark.parametrize(
    ("module", "name", "advice"),
    [
        ("haiku._src.transform", "Transformed", "model.apply, (params, None, x)"),
        ("torch_geometric.data.data", "Data", "data.x, data.edge_index"),
        ("paddle.nn.layer.layers", "Layer", "paddle.onnx.export"),
    ],
)
def test_values_of_other_libraries_are_named(module: str, name: str, advice: str) -> None:
    """By the module and the class of the value: the library need not be there."""
    kind = type(name, (), {"__module__": module})
    with pytest.raises(NormalizeError) as raised:
        source_from_object(kind(), ())
    assert advice in (raised.value.hint or "")


@pytest.mark.parametrize("prefix", ["ultralytics", "smp", "diffusers", "keras_hub"])
def test_a_library_that_is_missing_is_named(
    prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the line that installs it."""
    assert main(["count", f"{prefix}:some_model"]) == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert error.endswith("is not installed")
    assert "pip install" in hint
