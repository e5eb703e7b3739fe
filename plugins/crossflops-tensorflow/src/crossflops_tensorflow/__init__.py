"""Run TensorFlow's profiler for crossflops."""

from crossflops_tensorflow.adapter import TensorFlowProfiler
from crossflops_tensorflow.run_metadata import RunCount, profile_run

__all__ = ["RunCount", "TensorFlowProfiler", "profile_run"]
