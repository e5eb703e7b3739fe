"""Run torchprofile for crossflops."""

from crossflops_torchprofile.adapter import Torchprofile

__all__ = ["Torchprofile"]
