"""The functions of PyTorch that tools replace, and how they are put back.

PyTorch may not be imported yet: it is looked up among the loaded modules.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from crossflops.patches.patching import restore_attribute

Own = list[tuple[Any, dict[str, Any]]]  # by owner, what stands in it by name


def owner_attributes() -> Own:
    """Return what stands now in the owners of such functions, where PyTorch has been imported."""
    torch = sys.modules.get("torch")
    owners = () if torch is None else (torch, torch.nn.functional, torch.Tensor, torch.nn.Module)
    return [(owner, dict(vars(owner))) for owner in owners]


def replaceable_functions() -> dict[tuple[int, str], Any]:
    """The functions of PyTorch that tools replace, by the owner's identity and the name."""
    return {
        (id(owner), name): value
        for owner, names in owner_attributes()
        for name, value in names.items()
        if callable(value)
    }


@contextmanager
def restoring_torch_functions() -> Iterator[None]:
    """Functions of PyTorch that a tool replaces within this block are as before after it.

    So is what hides a function that tensors inherit.
    """
    before = owner_attributes()
    try:
        yield
    finally:
        _restore_replacements(before)


@contextmanager
def undone(before: Own) -> Iterator[None]:
    """Within this block functions are as before, and after it as they were when it began."""
    replaced = _restore_replacements(before)
    try:
        yield
    finally:
        for owner, name, value in replaced:
            restore_attribute(owner, name, value)


def _restore_replacements(before: Own) -> list[tuple[Any, str, Any]]:
    """Put back what was replaced, by owner and name with what stood there in its place."""
    replaced = []
    for owner, own in before:
        now = vars(owner)
        if now == own:  # by identity, and so in no time
            continue
        for name, value in _replacement_attributes(owner, own, now):
            replaced.append((owner, name, value))
            if name in own:
                restore_attribute(owner, name, own[name])
            else:
                restore_attribute(owner, name)
    return replaced


def _replacement_attributes(
    owner: Any, own: Mapping[str, Any], now: Mapping[str, Any]
) -> list[tuple[str, Any]]:
    """Return what stands where a function stood, or hides an inherited one."""
    return [
        (name, value)
        for name, value in now.items()
        if value is not own.get(name)
        and (
            callable(own[name])
            if name in own
            else isinstance(owner, type) and hasattr(super(owner, owner), name)
        )
    ]
