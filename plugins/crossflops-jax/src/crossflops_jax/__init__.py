"""The plugin of crossflops for XLA's cost analysis."""

from crossflops_jax.adapter import CompiledProgram, LoweredProgram

__all__ = ["CompiledProgram", "LoweredProgram"]
