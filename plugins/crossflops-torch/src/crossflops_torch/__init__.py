"""Run PyTorch's own counters for crossflops."""

from crossflops_torch.adapter import TorchFlopCounter
from crossflops_torch.profiler import TorchProfiler

__all__ = ["TorchFlopCounter", "TorchProfiler"]
