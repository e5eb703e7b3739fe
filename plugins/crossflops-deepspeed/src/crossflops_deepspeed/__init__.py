"""Run DeepSpeed's flops profiler for crossflops."""

from crossflops_deepspeed.adapter import Deepspeed, DeepspeedMacs

__all__ = ["Deepspeed", "DeepspeedMacs"]
