"""PyTorch's own way from a program to ONNX, which other ways are compared with."""

import os

REFERENCE = "CROSSFLOPS_REFERENCE_EXPORT"  # the variable that asks for it


def is_reference_export() -> bool:
    """Return whether exports use PyTorch's exporter without our caches and translations."""
    return bool(os.environ.get(REFERENCE))
