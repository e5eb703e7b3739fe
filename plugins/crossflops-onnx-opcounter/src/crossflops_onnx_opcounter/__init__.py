"""Run onnx_opcounter for crossflops."""

from crossflops_onnx_opcounter.adapter import OnnxOpcounter

__all__ = ["OnnxOpcounter"]
