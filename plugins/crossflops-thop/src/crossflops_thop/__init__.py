"""Run thop for crossflops."""

from crossflops_thop.adapter import Thop

__all__ = ["Thop"]
