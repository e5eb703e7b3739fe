"""Run calflops for crossflops."""

from crossflops_calflops.adapter import Calflops, CalflopsMacs

__all__ = ["Calflops", "CalflopsMacs"]
