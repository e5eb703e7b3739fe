"""DeepSpeed's flops profiler, as crossflops runs it."""

from crossflops_deepspeed.adapter import Deepspeed, DeepspeedMacs

__all__ = ["Deepspeed", "DeepspeedMacs"]
