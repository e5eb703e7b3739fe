"""Run onnx-tool (PyPI `onnx-tool`, github.com/ThanatosShinji/onnx-tool)."""

import importlib
import warnings
from pathlib import Path
from typing import Any

from crossflops.ir.profile import Entry, Profile
from crossflops.ir.trace import Setting
from crossflops.plugins.adapter import exact, installed


class OnnxTool:
    """The adapter of onnx-tool; it takes the steps of `onnx_tool.model_profile` on an ONNX
    file.
    """

    name = "onnx-tool"
    convention = "onnx-tool"
    distribution = "onnx-tool"

    def version(self) -> str:
        """Return the version of the installed onnx-tool; raise MissingExtraError if it is not
        installed.
        """
        return installed(self.distribution)

    def load(self) -> None:
        """Import onnx_tool; raise MissingExtraError if it is not installed."""
        self.version()
        importlib.import_module("onnx_tool")

    def accepts(self, model: object) -> bool:
        """Return whether the model is given as the path of a file."""
        return isinstance(model, Path)

    def profile(
        self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], setting: Setting
    ) -> Profile:
        """Return what onnx-tool prints for an ONNX file: its total of MACs, its number of
        parameters, and the MACs of each node by name.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what it has no rule for makes it raise anyway
            graph = importlib.import_module("onnx_tool").Model(str(model)).graph
            graph.graph_reorder_nodes()
            graph.shape_infer()
            graph.profile()
        return Profile(
            tool=self.name,
            version=self.version(),
            setting=setting,
            total=exact(graph.macs[0]),
            printed_as="MACs",
            params=exact(graph.params),
            entries=tuple(
                Entry(name, exact(node.macs[0])) for name, node in graph.nodemap.items()
            ),
        )
