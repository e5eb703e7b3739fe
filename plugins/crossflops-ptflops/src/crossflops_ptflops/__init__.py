"""Run ptflops for crossflops; its two backends are two tools."""

from crossflops_ptflops.adapter import PtflopsAten, PtflopsPytorch

__all__ = ["PtflopsAten", "PtflopsPytorch"]
