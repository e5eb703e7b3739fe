"""torchprofile, as crossflops runs it."""

from crossflops_torchprofile.adapter import Torchprofile

__all__ = ["Torchprofile"]
