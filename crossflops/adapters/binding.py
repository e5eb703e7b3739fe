"""Inputs of a model in the form that a tool can take: what adapters call."""

from crossflops.core.binding import positional

__all__ = ["positional"]
