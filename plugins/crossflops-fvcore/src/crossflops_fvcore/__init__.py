"""fvcore, as crossflops runs it."""

from crossflops_fvcore.adapter import Fvcore

__all__ = ["Fvcore"]
