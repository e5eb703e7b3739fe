"""`pkg.module:callable`, `path/file.py:callable`, `timm:NAME` -> a model."""

import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from crossflops.errors import MissingExtraError, TargetError
from crossflops.normalize import pickled
from crossflops.normalize.torchvision import mended

_HINT = "write pkg.module:callable or path/file.py:callable, called to get the model"


def build(
    target: str, arguments: Mapping[str, object], allow_pickle: bool = False
) -> tuple[Any, Any]:
    """The model of a target, and the inputs where the callable gives them as well (else None).

    This runs the code that the target names. Raises TargetError or MissingExtraError.
    """
    if Path(target).suffix in pickled.SUFFIXES:
        with _imports_of_the_caller():
            return pickled.unpickled(Path(target), allow_pickle), None
    if target.startswith("timm:"):
        return _timm(target.removeprefix("timm:"), arguments), None
    place, colon, name = target.rpartition(":")
    if not colon or not place or not name:
        raise _unreadable(target)
    with _imports_of_the_caller():
        found = _attribute(_module(place), name, target)
        model = found if _is_model(found) else _call(found, arguments, target)
    if isinstance(model, tuple) and len(model) == 2:
        return model
    return model, None


def _unreadable(target: str) -> TargetError:
    path = Path(target)
    if path.suffix and not path.exists():
        return TargetError(f"there is no file {target}", _HINT)
    return TargetError(f"cannot tell what the target {target!r} is", _HINT)


def _module(place: str) -> ModuleType:
    if place.endswith(".py"):
        return _file(Path(place))
    try:
        return mended(lambda: importlib.import_module(place))
    except ModuleNotFoundError as error:
        missing = error.name or place
        if place == missing or place.startswith(f"{missing}."):
            raise TargetError(
                f"there is no module {missing}", f"install it, or {_HINT}"
            ) from error
        raise TargetError(f"{place} needs {missing}", f"pip install {missing}") from error
    except (Exception, SystemExit) as error:
        raise TargetError(
            f"importing {place} failed: {type(error).__name__}: {error}",
            f'see what python -c "import {place}" says',
        ) from error


def _file(path: Path) -> ModuleType:
    if not path.is_file():
        raise TargetError(f"there is no file {path}", _HINT)
    # Registered under its own name, so that what it defines can be pickled and inspected.
    name = f"crossflops_target_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TargetError(f"{path} is no Python file", _HINT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.append(str(path.parent.resolve()))
    run = functools.partial(spec.loader.exec_module, module)
    try:
        mended(run)
    except (Exception, SystemExit) as error:
        raise TargetError(
            f"running {path} failed: {type(error).__name__}: {error}",
            f"see what python {path} says",
        ) from error
    return module


def _attribute(module: ModuleType, name: str, target: str) -> Any:
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise TargetError(
                f"{target.rpartition(':')[0]} has no {name!r}",
                f"check the part after the colon in {target}",
            )
        found = getattr(found, part)
    return found


def _is_model(found: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(found, torch.nn.Module)


def _call(found: Callable[..., Any], arguments: Mapping[str, object], target: str) -> Any:
    if not callable(found):
        raise TargetError(f"{target} is a {type(found).__name__}, not a callable", _HINT)
    try:
        return found(**arguments)
    except (Exception, SystemExit) as error:
        raise TargetError(
            f"{target} raised {type(error).__name__}: {error}",
            "give the arguments that it needs with --arg name=value",
        ) from error


def _timm(name: str, arguments: Mapping[str, object]) -> Any:
    try:
        timm = mended(lambda: importlib.import_module("timm"))
    except ImportError as error:
        raise MissingExtraError("timm is not installed", "pip install timm") from error
    try:
        return timm.create_model(name, pretrained=False, **arguments)
    except Exception as error:
        raise TargetError(
            f"timm cannot make {name!r}: {error}", "see timm.list_models()"
        ) from error


@contextmanager
def _imports_of_the_caller() -> Iterator[None]:
    """Modules in the working folder can be imported, but never stand before installed ones.

    A folder called `torch` or `jax` there would else break every framework.
    """
    here = str(Path.cwd())
    added = here not in sys.path
    if added:
        sys.path.append(here)
    yield
