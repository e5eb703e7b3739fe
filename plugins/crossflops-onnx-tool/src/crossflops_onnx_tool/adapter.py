"""Runs onnx-tool (PyPI `onnx-tool`, github.com/ThanatosShinji/onnx-tool)."""

import importlib
import warnings
from pathlib import Path
from typing import Any

from crossflops.ir.profile import Entry, Profile
from crossflops.ir.trace import Setting
from crossflops.plugins.adapter import exact, installed


class OnnxTool:
    """Takes the steps of `onnx_tool.model_profile` on an ONNX file, and reads the graph."""

    name = "onnx-tool"
    convention = "onnx-tool"
    distribution = "onnx-tool"

    def version(self) -> str:
        """The version of onnx-tool."""
        return installed(self.distribution)

    def load(self) -> None:
        """Import onnx_tool."""
        self.version()
        importlib.import_module("onnx_tool")

    def accepts(self, model: object) -> bool:
        """The path of a file."""
        return isinstance(model, Path)

    def profile(
        self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], setting: Setting
    ) -> Profile:
        """The total, the parameters, and the amount of every node by its name."""
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
