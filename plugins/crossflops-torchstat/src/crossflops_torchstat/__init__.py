"""Adapters of torchstat's columns."""

from crossflops_torchstat.adapter import Flops, MAdd, MemRead, MemWrite

__all__ = ["Flops", "MAdd", "MemRead", "MemWrite"]
