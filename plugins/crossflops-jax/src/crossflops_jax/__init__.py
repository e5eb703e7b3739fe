"""Run XLA's cost analysis for crossflops."""

from crossflops_jax.adapter import CompiledProgram, LoweredProgram

__all__ = ["CompiledProgram", "LoweredProgram"]
