"""thop, as crossflops runs it."""

from crossflops_thop.adapter import Thop

__all__ = ["Thop"]
