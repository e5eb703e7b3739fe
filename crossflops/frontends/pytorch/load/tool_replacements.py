"""The functions of PyTorch that tools replace, and ways to restore them.

PyTorch may not be imported yet: it is looked up among the loaded modules.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from crossflops.patches.patching import restore_attribute

AttributesByOwner = list[tuple[Any, dict[str, Any]]]  # by owner, what stands in it by name


def torch_owner_attributes() -> AttributesByOwner:
    """Return (owner, its attributes now) for each torch module and class whose functions tools
    replace; [] without torch.
    """
    torch = sys.modules.get("torch")
    owners = () if torch is None else (torch, torch.nn.functional, torch.Tensor, torch.nn.Module)
    return [(owner, dict(vars(owner))) for owner in owners]


def replaceable_functions() -> dict[tuple[int, str], Any]:
    """Return the functions of PyTorch that tools may replace, by (id of the owner, name)."""
    return {
        (id(owner), name): value
        for owner, names in torch_owner_attributes()
        for name, value in names.items()
        if callable(value)
    }


@contextmanager
def restoring_torch_functions() -> Iterator[None]:
    """Restore the functions of PyTorch that a tool replaces inside the block.

    Attributes that hide an inherited function of tensors are removed as well.
    """
    before = torch_owner_attributes()
    try:
        yield
    finally:
        _restore_and_list_replacements(before)


@contextmanager
def restoring_original_functions(originals: AttributesByOwner) -> Iterator[None]:
    """Restore the functions of `originals` inside the block, and put the replacements back
    afterwards.
    """
    replaced = _restore_and_list_replacements(originals)
    try:
        yield
    finally:
        for owner, name, value in replaced:
            restore_attribute(owner, name, value)


def _restore_and_list_replacements(originals: AttributesByOwner) -> list[tuple[Any, str, Any]]:
    """Restore the replaced functions; return (owner, name, replacement) of each."""
    replaced = []
    for owner, own in originals:
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
    owner: Any, original: Mapping[str, Any], present: Mapping[str, Any]
) -> list[tuple[str, Any]]:
    """Return (name, value) of each attribute in `present` that replaces a function in `original`
    or hides an inherited one.
    """
    return [
        (name, value)
        for name, value in present.items()
        if value is not original.get(name)
        and (
            callable(original[name])
            if name in original
            else isinstance(owner, type) and hasattr(super(owner, owner), name)
        )
    ]
