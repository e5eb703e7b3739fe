"""The plugin of crossflops for TensorFlow's profiler."""

from crossflops_tensorflow.adapter import TensorFlowProfiler

__all__ = ["TensorFlowProfiler"]
