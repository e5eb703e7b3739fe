"""Run fvcore for crossflops."""

from crossflops_fvcore.adapter import Fvcore

__all__ = ["Fvcore"]
