"""Run torchstat for crossflops; each column of its table is one tool."""

from crossflops_torchstat.adapter import Flops, MAdd, MemRead, MemWrite

__all__ = ["Flops", "MAdd", "MemRead", "MemWrite"]
