"""onnx_opcounter, as crossflops runs it."""

from crossflops_onnx_opcounter.adapter import OnnxOpcounter

__all__ = ["OnnxOpcounter"]
