"""ptflops, as crossflops runs it: two backends, two tools."""

from crossflops_ptflops.adapter import PtflopsAten, PtflopsPytorch

__all__ = ["PtflopsAten", "PtflopsPytorch"]
