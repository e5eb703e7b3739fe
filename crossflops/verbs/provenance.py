"""Record the request and the versions of a result, for every verb."""

import contextlib
import functools
import os
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from crossflops.frontends import FRONTENDS
from crossflops.frontends.inputs import input_option_text
from crossflops.ir.ledger import ModelInfo
from crossflops.ir.provenance import RequestRecord
from crossflops.targets.request import Request

AWAY = "..."  # stands for the folders of a file that lies elsewhere
_ROOTS = ("/", "~", "./", "\\\\")  # how a path begins that tells of this machine


def framework_versions(is_file: bool) -> dict[str, str]:
    """Return {distribution: version} of crossflops and, unless the model is a file, of the
    imported frameworks.
    """
    names = ["crossflops"]
    if not is_file:
        known = (pair for frontend in FRONTENDS for pair in frontend.versions)
        names += [name for module, name in known if module in sys.modules]
    folders = tuple(sys.path)
    return {name: text for name in names if (text := distribution_version(name, folders))}


@functools.lru_cache(maxsize=64)
def distribution_version(name: str, folders: tuple[str, ...]) -> str:
    """Return the version of an installed distribution, "" if it is not installed; it is cached.

    The name of its folder says it. `importlib.metadata`, whose import takes a tenth of the time of
    a small count, is asked where no folder does.
    """
    requested = name.replace("-", "_").casefold()
    for index in folders:
        with contextlib.suppress(OSError):
            for folder in os.listdir(index or "."):
                if folder.endswith((".dist-info", ".egg-info")):
                    whose, _, version = folder.rpartition(".")[0].partition("-")
                    if whose.casefold() == requested:
                        return version or _metadata_version(name)
    return _metadata_version(name)


def _metadata_version(name: str) -> str:
    """Return the version of an installed distribution from its metadata, "" if it is not
    installed.
    """
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def non_default_options(options: Struct, exclude: Collection[str] = ()) -> dict[str, Any]:
    """Return {option: value} for the options that differ from their defaults, without those in
    `exclude`.
    """
    usual = asdict(type(options)())
    return {
        name: value
        for name, value in asdict(options).items()
        if name not in exclude and value is not usual[name] and value != usual[name]
    }


def build_request_record(
    verb: str, request: Request, model: ModelInfo, flags: Mapping[str, Any]
) -> RequestRecord:
    """Return the record of a request for a report: verb, target, inputs and options.

    Where no inputs were given they are those of the model.
    """
    setting = request.setting
    axes = {name: n for name, n in request.axis_sizes.items() if name not in request.sizes}
    model_flags = {
        "no_grad": None if setting.grad else True,
        "train_mode": setting.training or None,
        "allow_pickle": request.allow_pickle or None,
        "weights": request.weights,
        "inputs": request.inputs_file,
        "dims": {**request.dims, **request.named_sizes, **axes} or None,
        "trips": request.trips or None,
        "branches": request.branches or None,
        **request.sizes,
    }
    return RequestRecord(
        verb=verb,
        target=_model_class_name(request)
        if request.target is None
        else with_relative_paths(request.target),
        typed=request.target is not None,
        arguments=_to_json_value(request.arguments),
        inputs=request.named_inputs
        or tuple(map(input_option_text, request.specs or model.inputs)),
        flags=_flags_with_values({**model_flags, **flags}),
    )


def with_verb_and_options(verb: str, flags: Mapping[str, Any], record: object) -> RequestRecord:
    """Return a copy of `record`, the record of a count, for another verb and with these options
    added; a new record if `record` is not one.

    Without a model the target is "", and the work was given.
    """
    if not isinstance(record, RequestRecord):
        return RequestRecord(verb=verb, target="", typed=False, flags=_flags_with_values(flags))
    return replace(record, verb=verb, flags={**record.flags, **_flags_with_values(flags)})


def with_relative_paths(text: str) -> str:
    """Return a target text with its paths relative to the current folder; paths outside of it are
    cut to their last part.

    >>> names = ("./a/model.onnx", "torchvision.models:resnet50", "/x/y.py:f")
    >>> tuple(map(with_relative_paths, names))
    ('a/model.onnx', 'torchvision.models:resnet50', '.../y.py:f')
    """
    return text if "://" in text else ":".join(map(_relative_path, text.split(":")))


def _relative_path(path: str) -> str:
    """Return the path relative to the current folder; outside of it, only its last part after a
    marker.
    """
    if not path.startswith(_ROOTS) and ".." not in Path(path).parts:
        return path
    absolute = Path(os.path.abspath(Path(path).expanduser()))
    folder = Path.cwd()
    if absolute.is_relative_to(folder):
        return absolute.relative_to(folder).as_posix()
    return f"{AWAY}/{absolute.name}"


def _model_class_name(request: Request) -> str:
    """Return the full name of the class of a given model, or of a given function."""
    assert request.given is not None
    return _full_name(request.given.model)


def _full_name(value: Any) -> str:
    """Return "module.name" of a class or function, or of the class of another object."""
    kind = value if hasattr(value, "__qualname__") else type(value)
    return f"{kind.__module__}.{kind.__qualname__}"


def _flags_with_values(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return {option: value} for the options that have a value, with values that JSON can hold."""
    provided = {name.rstrip("_"): value for name, value in flags.items() if value is not None}
    return {name: _to_json_value(value) for name, value in provided.items()}


def _to_json_value(value: Any) -> Any:
    """Return a value that JSON can hold: paths become relative, and other objects the name of
    their class.
    """
    match value:
        case None | bool() | int() | float():
            return value
        case str() | Path():
            return with_relative_paths(str(value))
        case Mapping():
            return {str(key): _to_json_value(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_to_json_value(item) for item in value]
    return _full_name(value)
