"""onnx-tool 1.0.1. In: the nodes of an ONNX graph. Out: its rules, and the shapes that it infers.

`rules` are what it counts, `shapes` and `operators` what it infers. May import `ir`, `rules`.
"""

from crossflops.tools.onnx_tool.rules import CONVENTIONS

__all__ = ["CONVENTIONS"]
