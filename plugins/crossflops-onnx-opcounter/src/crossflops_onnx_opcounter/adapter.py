"""Run onnx_opcounter (PyPI `onnx-opcounter`, github.com/gmalivenko/onnx-opcounter)."""

import contextlib
import importlib
import shutil
import tempfile
from pathlib import Path
from typing import Any

from crossflops.errors import MissingExtraError
from crossflops.export.onnx_file import data_locations, mapping_onnx_file
from crossflops.ir.profile import Profile
from crossflops.ir.trace import Setting
from crossflops.load import copy_without_large_data
from crossflops.plugins.adapter import exact, installed


class OnnxOpcounter:
    """The adapter of `calculate_macs` and `calculate_params`, which count an ONNX file."""

    name = "onnx-opcounter"
    convention = "onnx-opcounter"
    distribution = "onnx-opcounter"

    def version(self) -> str:
        """Return the version of the installed onnx-opcounter; raise MissingExtraError if it is not
        installed.
        """
        return installed(self.distribution)

    def load(self) -> None:
        """Import onnx_opcounter, and onnxruntime, which it needs but does not declare."""
        self.version()
        try:
            importlib.import_module("onnxruntime")
        except ModuleNotFoundError as problem:
            raise MissingExtraError(
                "onnx_opcounter imports onnxruntime, which is not installed",
                "pip install onnxruntime",
            ) from problem
        importlib.import_module("onnx_opcounter")

    def accepts(self, model: object) -> bool:
        """Return whether the model is given as the path of a file."""
        return isinstance(model, Path)

    def profile(
        self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], setting: Setting
    ) -> Profile:
        """Return what onnx_opcounter prints for an ONNX file: its total of MACs and its number of
        parameters.

        The tool gives no numbers of single nodes.

        It writes a file into the current folder where shape inference fails, so that is a folder
        of its own.
        """
        counter = importlib.import_module("onnx_opcounter")
        path = Path(model).absolute()
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            loaded = _load_onnx_model(path)
            total = counter.calculate_macs(loaded)
            params = counter.calculate_params(loaded)
        return Profile(
            tool=self.name,
            version=self.version(),
            setting=setting,
            total=exact(total),
            printed_as="MACs",
            params=exact(params),
        )


_COPY = "weights.bin"
_LARGE = 100_000_000  # bytes from which on weights stay in a file: the tool holds six copies


def _load_onnx_model(path: Path) -> Any:
    """Return the ONNX model as a ModelProto; large weights are external data in a copy of the file
    in the current folder.

    To the tool and to what it calls they are there like others, and only read where they count.
    """
    onnx = importlib.import_module("onnx")
    if path.stat().st_size < _LARGE:
        return onnx.load(str(path))
    shutil.copyfile(path, _COPY)
    with mapping_onnx_file(_COPY) as data:
        model = onnx.load_from_string(copy_without_large_data(data, _COPY))
    # what has external data already is read from there
    return onnx.load(str(path)) if set(data_locations(model)) - {_COPY} else model
