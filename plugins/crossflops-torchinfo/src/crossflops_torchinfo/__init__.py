"""torchinfo, as crossflops runs it."""

from crossflops_torchinfo.adapter import Torchinfo

__all__ = ["Torchinfo"]
