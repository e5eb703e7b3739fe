"""Hooks that do nothing, where a tool puts its own: they switch PyTorch's fused paths off."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from crossflops.core.trace import Setting

if TYPE_CHECKING:
    from torch import nn


@contextmanager
def hooks(model: "nn.Module", setting: Setting) -> Iterator[None]:
    """Forward hooks on the modules that the setting names, until the context is left."""
    found: dict[bool | str, Iterable[Any]] = {
        False: (),
        True: model.modules(),
        "children": model.children(),
    }
    handles = [one.register_forward_hook(lambda *_: None) for one in found[setting.hooked]]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
