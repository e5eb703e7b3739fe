"""Runs onnx_opcounter (PyPI `onnx-opcounter`, github.com/gmalivenko/onnx-opcounter)."""

import contextlib
import importlib
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from crossflops.errors import MissingExtraError
from crossflops.ir.profile import Profile
from crossflops.ir.trace import Setting
from crossflops.plugins.adapter import exact


class OnnxOpcounter:
    """Asks `calculate_macs` and `calculate_params` about an ONNX file."""

    name = "onnx-opcounter"
    convention = "onnx-opcounter"
    distribution = "onnx-opcounter"

    def version(self) -> str:
        """The version of onnx-opcounter."""
        try:
            return version(self.distribution)
        except PackageNotFoundError as problem:
            what = f"{self.distribution} is not installed"
            raise MissingExtraError(what, f"pip install {self.distribution}") from problem

    def load(self) -> None:
        """Import onnx_opcounter and onnxruntime, which it imports without declaring it."""
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
        """The path of a file."""
        return isinstance(model, Path)

    def profile(
        self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], setting: Setting
    ) -> Profile:
        """The total and the parameters; it tells no node apart.

        It writes a file into the current folder where shape inference fails, so that is a folder
        of its own.
        """
        onnx, counter = map(importlib.import_module, ("onnx", "onnx_opcounter"))
        loaded = onnx.load(str(model))
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            total = counter.calculate_macs(loaded)
        return Profile(
            tool=self.name,
            version=self.version(),
            setting=setting,
            total=exact(total),
            printed_as="MACs",
            params=exact(counter.calculate_params(loaded)),
        )
