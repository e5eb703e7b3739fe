"""Importing torchvision beside a CPU build of torch.

torchvision's wheel declares fake implementations for two operators of its CUDA library when it is
imported. Without that library the operators do not exist, and the import raises "operator
torchvision::nms does not exist". Declaring their schemas is enough for all of
`torchvision.models` but detection.
"""

import sys
from typing import Any

_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_libraries: list[Any] = []  # a library that is collected takes its operators with it


def mends(error: Exception) -> bool:
    """Whether an import failed on torchvision's operators, which are declared now."""
    if not _names_its_operators(error) or _libraries:
        return False
    _declare()
    return True


def _names_its_operators(error: BaseException | None) -> bool:
    """Whether this is the failure, or was raised by it: transformers wraps it in another."""
    while error is not None:
        if isinstance(error, RuntimeError) and "torchvision::" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _declare() -> None:
    import torch

    # What the failed import left behind is half a module.
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    library = torch.library.Library("torchvision", "FRAGMENT")
    for schema in _SCHEMAS:
        library.define(schema)
    _libraries.append(library)
