"""The choice of PyTorch's own way from a program to ONNX, with which our way is compared."""

import os

REFERENCE = "CROSSFLOPS_REFERENCE_EXPORT"  # the variable that asks for it


def is_reference_export() -> bool:
    """Return True if exports are to use PyTorch's exporter without our caches, by an environment
    variable.
    """
    return bool(os.environ.get(REFERENCE))
