"""Formulas of well-known kernels, against references in plain PyTorch that crossflops counts."""
