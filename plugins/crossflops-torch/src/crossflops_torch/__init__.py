"""PyTorch's own counters, as crossflops runs them."""

from crossflops_torch.adapter import TorchFlopCounter

__all__ = ["TorchFlopCounter"]
