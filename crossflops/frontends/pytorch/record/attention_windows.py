"""The window of keys that each attention of a model can see, from its modules or its config.

transformers keeps it as `sliding_window` in the module, by layer where layers differ, or in the
config alone. A query sees so many keys, its own among them.
Source: transformers/masking_utils.py (`sliding_window_overlay`).
"""

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

_NAME = "sliding_window"


def attention_windows(model: "nn.Module") -> Mapping[str, int]:
    """Return for each causal attention module with a sliding window, by its path, the number of
    keys that a query sees.
    """
    return {
        path: window
        for path, module in model.named_modules()
        if "Attention" in type(module).__name__ and (window := _attention_window(module))
    }


def _attention_window(module: Any) -> int:
    """Return the sliding window of an attention module in keys; 0 if it has none."""
    if getattr(module, "is_causal", True) is False:
        return 0
    has_own = hasattr(module, _NAME)
    if not has_own and not _reads_window_from_config(type(module).forward):
        return 0
    window = getattr(module if has_own else getattr(module, "config", None), _NAME, None)
    return window if isinstance(window, int) and not isinstance(window, bool) else 0


def _reads_window_from_config(forward: Any) -> bool:
    """Return True if the code of a `forward` reads the sliding window from the config."""
    code = getattr(inspect.unwrap(forward), "__code__", None)
    return code is not None and _NAME in (*code.co_names, *code.co_consts)
