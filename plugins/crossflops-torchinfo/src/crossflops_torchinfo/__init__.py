"""Run torchinfo for crossflops."""

from crossflops_torchinfo.adapter import Torchinfo

__all__ = ["Torchinfo"]
