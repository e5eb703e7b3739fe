"""calflops, as crossflops runs it."""

from crossflops_calflops.adapter import Calflops, CalflopsMacs

__all__ = ["Calflops", "CalflopsMacs"]
