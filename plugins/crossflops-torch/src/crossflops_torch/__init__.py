"""PyTorch's own counters, as crossflops runs them."""

from crossflops_torch.adapter import TorchFlopCounter
from crossflops_torch.profiler import TorchProfiler

__all__ = ["TorchFlopCounter", "TorchProfiler"]
