"""Which installed distribution an import really comes from."""

import base64
import hashlib
import importlib.util
from collections.abc import Sequence
from importlib.metadata import Distribution, PackageNotFoundError, PackagePath, distribution
from pathlib import Path

from crossflops.errors import MissingExtraError


def owner(package: str, candidates: Sequence[str]) -> Distribution:
    """The distribution among `candidates` whose files `import package` runs.

    Two distributions may install the same package, and the later one overwrites the earlier
    without a word from pip: both are then listed as installed. So the files on disk are held
    against the hashes in the distributions' records. `candidates` starts with the one that is
    wanted, which a message names. The package is not imported.

    Raises MissingExtraError when none is installed, or when it cannot be told whose they are.
    """
    wanted = candidates[0]
    folder = _folder(package)
    found = [one for one in map(_installed, candidates) if one is not None]
    if folder is None or not found:
        raise MissingExtraError(f"{wanted} is not installed", f"pip install {wanted}")
    intact = [one for one in found if _owns(one, folder)]
    if len(intact) == 1:
        return intact[0]
    if len(found) == 1:
        return found[0]  # no record to hold against, as in an editable installation
    names = " and ".join(one.name for one in found)
    raise MissingExtraError(
        f"{names} both install the package {package}, and it cannot be told whose it is now",
        f"pip uninstall {names.replace(' and ', ' ')}, then pip install {wanted}",
    )


def _folder(package: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).resolve().parent


def _installed(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def _owns(candidate: Distribution, folder: Path) -> bool:
    files = [
        (recorded, path)
        for recorded in candidate.files or ()
        if recorded.suffix == ".py"
        and (path := Path(str(candidate.locate_file(recorded))).resolve()).is_relative_to(folder)
    ]
    return bool(files) and all(_is_as_recorded(recorded, path) for recorded, path in files)


def _is_as_recorded(recorded: PackagePath, path: Path) -> bool:
    if recorded.hash is None or not path.is_file():
        return False
    digest = hashlib.new(recorded.hash.mode, path.read_bytes()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == recorded.hash.value
