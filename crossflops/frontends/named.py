"""Build a model that a library knows by name, such as `timm:resnet50`, with its default input.

A framework lists its libraries (`Frontend.model_libraries`); each is one object with the prefix of
its targets. Names are read from the library's source files: a misspelt name and a bare one
(`resnet50`) cost no import of a framework.
"""

import functools
import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import msgspec

from crossflops.errors import (
    CrossflopsError,
    MissingExtraError,
    TargetError,
    error_location,
    nearest_name_hint,
    unreadable_file_error,
)
from crossflops.ir.graph import TensorSpec

_NEAREST = 3  # names that a hint offers
SIZES = {"batch": "--batch", "seq": "--seq", "image_size": "--image-size"}


class NamedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model that was built by its name, with its default inputs and without trained weights.

    `specs` is its usual input, () where the library documents none, and `origin` the place in the
    library. `values` are those of inputs whose values matter, as nested lists by name. `sizes` are
    the keys of SIZES that change this input. `notes` are sentences for the report.
    """

    model: Any
    specs: tuple[TensorSpec, ...] = ()
    values: Mapping[str, Any] = {}
    origin: str = ""
    sizes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Library(Protocol):
    """A library of named models: a target is `prefix:NAME`, and `package` must be importable.

    `names_models` says whether it has names of its own, which may be typed without the prefix. One
    whose names are files has their `suffix`, and needs no prefix. Nor does a folder that has the
    library's `config` in it. `listing` is Python code that prints all names, "" without one.
    """

    prefix: str
    package: str
    names_models: bool = True
    suffix: str = ""
    config: str = ""
    listing: str = ""

    def model_names(self) -> Sequence[str]:
        """Return the known names; () if the library lists none, or is not installed. Nothing is
        imported.
        """
        return ()

    def alternative_arguments(self, name: str) -> Sequence[Mapping[str, object]]:
        """Return arguments with which the library itself builds this model for some of its
        weights, other than by default; () if there are none.
        """
        return ()

    def make_model(
        self, name: str, arguments: Mapping[str, object], sizes: Mapping[str, int]
    ) -> NamedModel:
        """Build and return the model of this name; `arguments` go to its builder, `sizes` (such as
        batch) fix the shape of its input.
        """


def unknown_model_error(library: Library, name: str, known: Sequence[str]) -> TargetError:
    """Return the error for a name that is not among a library's models, with the nearest names and
    the command that lists all.
    """
    return TargetError(
        f"{library.package} has no model {name!r}", _unknown_model_hint(library, name, known)
    )


def _unknown_model_hint(library: Library, name: str, known: Sequence[str]) -> str:
    """Return a hint with the known names most like `name`; with the command that lists all names
    if none of them is close.
    """
    from difflib import get_close_matches  # most runs name nothing wrong

    nearest = get_close_matches(name.casefold(), known, n=_NEAREST, cutoff=0)
    listed = f'; to list all names: python -c "{library.listing}"' if library.listing else ""
    return nearest_name_hint(name, known, f"the nearest names are {', '.join(nearest)}{listed}")


def make_library_model(
    library: Library, target: str, arguments: Mapping[str, object], sizes: Mapping[str, int]
) -> NamedModel:
    """Return the model of a target such as `timm:resnet50`, which has this library's prefix.

    Raises MissingExtraError, and TargetError for an unknown name, with similar names, or for any
    error of the library.
    """
    name = target.removeprefix(f"{library.prefix}:")
    try:
        named = library.make_model(name, arguments, sizes)
    except CrossflopsError:
        raise
    except PermissionError as error:
        raise unreadable_file_error(error.filename or name, error) from error
    except ImportError as error:
        if (missing := _missing_package_error(library, name, error)) is None:
            raise
        raise missing from error
    except Exception as error:
        raise TargetError(
            f"{library.package} cannot build the model {name!r}: {error}{error_location(error)}",
            "check the name of the model, and the arguments of --arg"
            if not (known := library.model_names())
            else "check the arguments of --arg, --batch, --seq and --image-size"
            if name.partition(".")[0] in known
            else _unknown_model_hint(library, name, known),
        ) from error
    strays = [SIZES[size] for size in sizes if size not in named.sizes]
    if strays and named.specs:
        fitting = " and ".join(SIZES[size] for size in named.sizes)
        raise TargetError(
            f"{strays[0]} has no effect on the input of {target}",
            f"use {fitting} for its input" if fitting else f"leave out {strays[0]}",
        )
    return named


def _missing_package_error(
    library: Library, name: str, error: ImportError
) -> CrossflopsError | None:
    """Return the error for a package that is not installed, or None if the cause is another."""
    package = (error.name or "").partition(".")[0]
    if package == library.package:
        return MissingExtraError(f"{package} is not installed", f"pip install {package}")
    if isinstance(error, ModuleNotFoundError) and package:
        return MissingExtraError(
            f"{library.prefix}:{name} needs {package}, which is not installed",
            f"pip install {package}",
        )
    if "requires the" in (error_text := str(error).strip().partition("\n")[0]):  # of transformers
        return MissingExtraError(
            f"{library.prefix}:{name} needs a package that is not installed: {error_text}",
            "install the package that the message names",
        )
    return None


@functools.cache
def names_in_package_sources(package: str, folder: str, pattern: str) -> tuple[str, ...]:
    """Return the sorted names that match `pattern` in the source files of a package.

    `folder` is in the package and is searched recursively. () where the package or folder is
    missing.
    """
    try:
        spec = find_spec(package)
    except ValueError:
        return ()
    names: set[str] = set()
    for index in (spec.submodule_search_locations or ()) if spec else ():
        for file in Path(index, folder).rglob("*.py"):
            names.update(re.findall(pattern, file.read_text("utf-8", "replace"), re.MULTILINE))
    return tuple(sorted(names))


def image_input_spec(
    name: str, channels: int, height: int, width: int, sizes: Mapping[str, int]
) -> TensorSpec:
    """Return the spec of an image input, channels first; `sizes` may replace batch and height.

    >>> image_input_spec("x", 3, 224, 224, {"batch": 8, "image_size": 64}).shape
    (8, 3, 64, 64)
    """
    side = sizes.get("image_size")
    area = (side, side) if side else (height, width)
    return TensorSpec(name, "float32", (sizes.get("batch", 1), channels, *area), "input")
