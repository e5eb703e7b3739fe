"""Run onnx-tool for crossflops."""

from crossflops_onnx_tool.adapter import OnnxTool

__all__ = ["OnnxTool"]
