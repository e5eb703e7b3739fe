"""Replace an attribute of another library for a block, and restore it after the block.

The process has one set of attributes: who patches holds `threads.counting_one_at_a_time`, as every
verb does, or wraps so that other threads are served as before.
"""

from collections.abc import Mapping, MutableMapping
from typing import Any, NamedTuple, Self

from crossflops.errors import PatchError

_ABSENT: Any = object()
ANY = "*"  # in the place of a name: the attributes are found when the patch is made


class Patch(NamedTuple):
    """A declaration of replaced attributes, with the reason.

    `place` is a module, or a module and a class of it ("torch._ops:OpOverload"); `verified` are
    the releases of the library with which it was tried. `is_added` means that the attributes may
    be absent and are then added; `is_optional` that the caller checks for them and continues
    without. `in_text` is False where the source of the library does not define them: they are
    written in C++, or made at run time.
    """

    library: str
    place: str
    names: tuple[str, ...]
    why: str
    verified: str
    is_added: bool = False
    is_optional: bool = False
    in_text: bool = True


def patching_attribute(
    owner: Any, name: str, value: Any, declared: Patch, *, leave_foreign: bool = False
) -> "_Attribute":
    """Return a context manager that sets `owner.name` to `value`, and restores it at its end.

    With `leave_foreign`, the exit keeps a value that other code has set meanwhile. Entering raises
    PatchError where the installed release has no such attribute.
    """
    if name not in declared.names and ANY not in declared.names:
        raise ValueError(f"{name} is none of the names that are declared for {declared.place}")
    return _Attribute(owner, name, value, declared, leave_foreign)


def patching_attributes(owner: Any, values: Mapping[str, Any], declared: Patch) -> "_Attributes":
    """Return a context manager that replaces several attributes of `owner`, and restores them."""
    return _Attributes(owner, dict(values), declared)


def patching_items(
    owner: MutableMapping[Any, Any], items: Mapping[Any, Any], declared: Patch
) -> "_Items":
    """Return a context manager that sets items in a dict of a library, and restores them."""
    return _Items(owner, dict(items), declared)


def original_attribute(owner: Any, name: str, declared: Patch) -> Any:
    """Return the current value of the attribute to patch. Raises PatchError if it is missing."""
    value = getattr(owner, name, _ABSENT)
    if value is _ABSENT:
        raise missing_target_error(declared, name)
    return value


def patch_owner(declared: Patch) -> Any:
    """Return the module or class whose attribute a patch replaces. Raises PatchError."""
    from importlib import import_module

    module, _, path = declared.place.partition(":")
    try:
        owner: Any = import_module(module)
        for name in path.split(".") if path else ():
            owner = getattr(owner, name)
    except (ModuleNotFoundError, AttributeError) as error:
        absent = error.name or "" if isinstance(error, ModuleNotFoundError) else module
        is_target = f"{module}.".startswith(f"{absent}.") and "." in absent
        if isinstance(error, ModuleNotFoundError) and not is_target:
            raise  # the library itself, or what it needs
        raise missing_target_error(declared) from error
    return owner


def missing_target_error(declared: Patch, name: str = "") -> PatchError:
    """Return the PatchError for a target that the installed release does not have."""
    target = ".".join(filter(None, (declared.place.replace(":", "."), name)))
    installed = _library_version_text(declared.library)
    return PatchError(
        f"{target}, which crossflops replaces, is not in {declared.library} {installed}",
        f"install a release that it was verified with: {declared.verified}; "
        "`crossflops doctor` lists every such attribute",
    )


def restore_attribute(owner: Any, name: str, content: Any = _ABSENT) -> None:
    """Set an attribute back to what `own_content` returned before; delete it if it had nothing."""
    if content is _ABSENT:
        delattr(owner, name)
    else:
        setattr(owner, name, content)


def own_content(owner: Any, name: str) -> Any:
    """Return what an owner itself stores under a name (no descriptor is called), or `_ABSENT`."""
    return getattr(owner, "__dict__", {}).get(name, _ABSENT)


def _library_version_text(library: str) -> str:
    """Return the installed version of a library, or "as it is installed" if it is unknown."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(library)
    except PackageNotFoundError:
        return "as it is installed"


class _Attribute:
    """A context manager for one replaced attribute, which `patch_permanently` leaves replaced."""

    def __init__(
        self, owner: Any, name: str, value: Any, declared: Patch, leave_foreign: bool
    ) -> None:
        self._owner, self._name, self._value = owner, name, value
        self._declared, self._leave_foreign = declared, leave_foreign
        self._before: Any = _ABSENT

    def __enter__(self) -> Self:
        """Replace the attribute. Raises PatchError if the library lacks it."""
        owner, name = self._owner, self._name
        self._before = own_content(owner, name)
        is_there = self._before is not _ABSENT or self._declared.is_added or hasattr(owner, name)
        if not is_there:
            raise missing_target_error(self._declared, name)
        setattr(owner, name, self._value)
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the attribute."""
        self.undo()

    def undo(self) -> None:
        """Restore the attribute; with `leave_foreign`, only if it still has the patched value."""
        if self._leave_foreign and own_content(self._owner, self._name) is not self._value:
            return
        restore_attribute(self._owner, self._name, self._before)

    def patch_permanently(self) -> None:
        """Replace the attribute and never restore it."""
        self.__enter__()


class _Attributes:
    """A context manager that replaces all attributes, or none if one of them cannot be."""

    def __init__(self, owner: Any, values: dict[str, Any], declared: Patch) -> None:
        names = () if ANY in declared.names else values.keys() - set(declared.names)
        if names:
            raise ValueError(f"{names} are not declared for {declared.place}")
        self._owner, self._values, self._declared = owner, values, declared
        self._before: dict[str, Any] = {}

    def __enter__(self) -> Self:
        """Replace all attributes, or none and raise PatchError if the library lacks one."""
        try:
            for name, value in self._values.items():
                before = own_content(self._owner, name)
                if before is _ABSENT and not hasattr(self._owner, name):
                    raise missing_target_error(self._declared, name)
                setattr(self._owner, name, value)
                self._before[name] = before
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Restore all attributes."""
        for name in reversed(self._before):
            restore_attribute(self._owner, name, self._before[name])
        self._before = {}


class _Items:
    def __init__(
        self, table: MutableMapping[Any, Any], items: dict[Any, Any], declared: Patch
    ) -> None:
        self._table, self._items, self._declared = table, items, declared
        self._before: dict[Any, Any] = {}

    def __enter__(self) -> Self:
        """Replace the items of the table. Raises PatchError if the library lacks the table."""
        if self._table is None:
            raise missing_target_error(self._declared, self._declared.names[0])
        self._before = {key: self._table[key] for key in self._items if key in self._table}
        self._table.update(self._items)
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the items of the table."""
        for key in reversed(self._items):
            if key in self._before:
                self._table[key] = self._before[key]
            else:
                self._table.pop(key, None)
