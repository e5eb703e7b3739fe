"""What stands around operators and is no function of torch: a tool may see it, or not see into it.

A custom autograd function and a scripted function are one opaque call to whoever traces with
torch.jit; under `torch.vmap` Python sees one example of many; what a hook does is no part of the
module's forward. einops.einsum calls torch.einsum: a tool may replace both.
"""

import functools
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from crossflops.normalize.pytorch.recorder import Recorder

APPLY = "torch.autograd.Function.apply"
SCRIPTED = "torch.jit.ScriptFunction.__call__"
VMAP = "torch.vmap"
EINOPS = "einops.einsum"

_HOOKS = {
    "_forward_pre_hooks": "torch.nn.Module.pre_hook",
    "_forward_hooks": "torch.nn.Module.hook",
}


def wrap_enclosures(undo: ExitStack, recorder: Recorder) -> None:
    """Record them as calls of the function storey, until `undo` is closed."""
    import torch
    from torch._functorch import apis

    function = torch.autograd.Function
    apply = vars(function)["apply"]
    undo.callback(setattr, function, "apply", apply)
    # by name, since mypy lets nobody assign to a method
    setattr(function, "apply", classmethod(_wrapped(recorder, APPLY, apply.__func__)))  # noqa: B010
    scripted: Any = torch.jit.ScriptFunction
    for owner, attribute, name in (
        (apis, "vmap_impl", VMAP),
        (scripted, "__call__", SCRIPTED),
    ):
        original = getattr(owner, attribute)
        undo.callback(setattr, owner, attribute, original)
        wrapper = _wrapped(recorder, name, original, compiled=name == SCRIPTED)
        setattr(owner, attribute, wrapper)
    einops: Any = sys.modules.get("einops")
    if hasattr(einops, "einsum"):
        original = einops.einsum
        undo.callback(setattr, einops, "einsum", original)
        setattr(einops, "einsum", _wrapped(recorder, EINOPS, original))  # noqa: B010
    _wrap_hooks(undo, recorder)


def _wrap_hooks(undo: ExitStack, recorder: Recorder) -> None:
    for module in recorder.index.objects:
        for kind, name in _HOOKS.items():
            hooks = getattr(module, kind)
            for key, hook in list(hooks.items()):
                undo.callback(hooks.__setitem__, key, hook)
                hooks[key] = _wrapped(recorder, name, hook, via="hook")


def _wrapped(
    recorder: Recorder,
    name: str,
    function: Callable[..., Any],
    via: str = "attribute",
    compiled: bool = False,
) -> Callable[..., Any]:
    def muffled(*args: Any, **kwargs: Any) -> Any:
        # The export runs the Python that it was compiled from, which nobody else does.
        with recorder.muffled():
            return function(*args, **kwargs)

    inner = muffled if compiled else function

    @functools.wraps(function, assigned=("__name__", "__doc__"), updated=())
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not recorder.recording:
            return function(*args, **kwargs)
        return recorder.function(name, via, lambda: inner(*args, **kwargs), args, kwargs)

    return wrapper
