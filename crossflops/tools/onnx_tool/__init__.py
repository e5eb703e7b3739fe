"""onnx-tool 1.0.1: `rules` are what it counts, `shapes` and `operators` what it infers.

In: the nodes of an ONNX graph. Out: its rules, and the shapes that it infers.
May import: tools, rules, ir.
"""

from crossflops.tools.onnx_tool.rules import CONVENTIONS

__all__ = ["CONVENTIONS"]
