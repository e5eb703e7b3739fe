"""onnx-tool, as crossflops runs it."""

from crossflops_onnx_tool.adapter import OnnxTool

__all__ = ["OnnxTool"]
