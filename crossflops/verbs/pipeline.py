"""Count a pipeline: models that run one after the other, as a TOML file lists them.

Each part is a table, with a target and how often it runs. Its other keys are those of a budget in
crossflops.toml. The paths of its target and of its inputs begin at the folder of the file. The
working folder of the process stays as it is, because other threads may use it::

    [[part]]
    name = "text encoder"
    target = "encoder.onnx"

    [[part]]
    name = "unet"
    target = "unet.py:build"
    times = 50
    arguments = {width = 320}
    inputs = ["2x4x64x64", "2", "2x77x768"]
"""

import contextlib
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from crossflops.errors import CrossflopsError, CrossflopsWarning, InputError, nearest_name_hint
from crossflops.frontends import library_of_target
from crossflops.frontends.named import SIZES
from crossflops.plugins.elsewhere import read_config_text
from crossflops.report.pipeline import CountedPart, pipeline_report
from crossflops.report.report import PipelinePart, Report
from crossflops.targets import is_pipeline
from crossflops.targets.option_forms import FORMS, check_option_type, with_config_keys
from crossflops.targets.request import Request, drop_unused_request_options
from crossflops.targets.target import restoring_imports
from crossflops.threads import record_warnings
from crossflops.verbs.count import Progress, collecting_warnings, native_count
from crossflops.verbs.provenance import build_request_record, framework_versions

_TABLE = "part"
_NAME = r"[\w-]+"  # of a model of a library, without its prefix
_CONFIGS = (".json", ".gguf")  # files that a library takes instead of a name
_KEYS = ("target", "name", "times", *FORMS)
_HINT = (
    'write a table [[part]] for each model, with a line target = "model.onnx" and, for 50 runs, '
    "times = 50"
)
_FOR_PARTS = frozenset(
    ("--input", "--inputs", "--arg", "--dim", "--trips", "--branch", *SIZES.values())
)


class _Part(msgspec.Struct, frozen=True):
    """A part as its file describes it; `options` build its request."""

    name: str
    target: str
    times: int
    options: dict[str, Any]

    @property
    def target_and_arguments(self) -> tuple[str, str]:
        """The target and the arguments of its callable, which distinguish models."""
        return self.target, repr(sorted(self.options.get("arguments", {}).items()))


@restoring_imports()
def count_pipeline(request: Request, on_progress: Progress = lambda _: None) -> Report:
    """Return the report of a pipeline: the sum over all runs of its parts. `on_progress` gets a
    line about each part.

    Raises InputError for a file that is no list of parts, and for options that do not apply. What
    counting a part raises has the name of the part in front.
    """
    _refuse_pipeline_options(request)
    file = Path(str(request.target))
    parts = _read_parts(file)
    sys.path.append(
        str(file.parent.resolve())
    )  # of modules next to it; `restoring_imports` ends it
    with collecting_warnings() as sentences:
        counted = _count_parts(parts, request, file.parent, on_progress)
    report = pipeline_report(file.name, counted)
    typed: dict[str, Any] = {}
    made_with: dict[str, str] = {}
    for _, own in counted:
        made_with |= own.made_with or {}
    return msgspec.structs.replace(
        report,
        setting=request.setting,
        request=build_request_record("count", request, report.model, typed),
        made_with=made_with or framework_versions(True),
        warnings=tuple(sentences),
    )


def _refuse_pipeline_options(request: Request) -> None:
    """Raise InputError for options that have no effect on a pipeline, or belong to a part."""
    options: dict[str, object] = {
        "--input": request.specs, "--inputs": request.inputs_file, "--arg": request.arguments,
        "--dim": request.dims, "--trips": request.trips, "--branch": request.branches,
        "--vary": request.vary, "--observe": request.observe, "--as": request.as_,
        "--weights": request.weights, "--train": request.train, "--frozen": request.frozen,
        "--trainable": request.trainable, "--loss": request.loss,
        "--optimizer": request.optimizer, "--shapes": request.shapes, "--prompt": request.prompt,
        "--generate": request.generate, "--cache-dtype": request.cache_dtype,
        "--images": request.images,
        "--draft": request.draft, "--draft-tokens": request.draft_tokens,
        "--acceptance": request.acceptance,
        **{SIZES[name]: size for name, size in request.sizes.items()},
    }  # fmt: skip
    for flag, value in options.items():
        if value:
            raise InputError(
                f"{flag} cannot be combined with a pipeline, which is counted part by part",
                "write it into the table of a part" if flag in _FOR_PARTS else f"leave out {flag}",
            )


# The file.


def _read_parts(file: Path) -> list[_Part]:
    """Return the parts that a file lists. Raises InputError for anything else."""
    import tomllib

    try:
        content = tomllib.loads(read_config_text(file))
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}", _HINT) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(
            f"{file} is not a valid TOML file: {error}", "correct it at that place"
        ) from error
    for key in content:
        if key != _TABLE:
            raise InputError(
                f"unknown key {key} in {file}, which may have only [[{_TABLE}]] tables",
                f"write [[{_TABLE}]] instead of it, or remove it",
            )
    rows = content.get(_TABLE)
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise InputError(f"{file} has no [[{_TABLE}]] table", _HINT)
    parts = [_parse_part(row, f"part {number} of {file}") for number, row in enumerate(rows, 1)]
    _refuse_equal_names(parts, file)
    return parts


def _parse_part(row: Mapping[str, Any], where: str) -> _Part:
    """Return the part that a table describes; raise InputError, naming `where`, for a wrong
    entry.
    """
    options = dict(row)
    target, times = options.pop("target", None), options.pop("times", 1)
    if not isinstance(target, str) or not target:
        raise InputError(
            f"target of {where} must be text: the path or name of a model",
            'write target = "model.onnx"',
        )
    name = options.pop("name", target)
    if not isinstance(name, str) or not name.strip():
        raise InputError(f"name of {where} must be text", 'write name = "decoder"')
    if not isinstance(times, int) or isinstance(times, bool) or times < 1:
        raise InputError(
            f"times of {where} must be a whole number above zero, got {times!r}",
            "write times = 50",
        )
    for option, value in options.items():
        if option not in FORMS:
            raise InputError(
                f"unknown key {option} in {where}",
                nearest_name_hint(option, _KEYS, f"allowed: {', '.join(_KEYS)}"),
            )
        check_option_type(option, value, f"{option} of {where}", in_toml=True)
    if is_pipeline(target):
        raise InputError(
            f"{where} is a pipeline itself: {target}", "write its parts into this file"
        )
    return _Part(name, target, times, options)


def _refuse_equal_names(parts: Sequence[_Part], file: Path) -> None:
    """Raise InputError if two parts have one name."""
    names = [part.name for part in parts]
    for name in names:
        if names.count(name) > 1:
            raise InputError(
                f"{file} has two parts with the name {name!r}",
                'give each a name: name = "first pass"',
            )


# The parts.


def _count_parts(
    parts: Sequence[_Part], request: Request, folder: Path, on_progress: Progress
) -> list[CountedPart]:
    """Return the parts with their reports; the options of the request hold for each that has a use
    for them. Relative paths of the parts are those in the folder.
    """
    shared = {"setting": request.setting, "allow_pickle": request.allow_pickle}
    requests = []
    for part in parts:
        with naming_part_in_messages(part.name):
            options = dict(part.options)
            if "inputs_file" in options:
                options["inputs_file"] = str(folder / options["inputs_file"])
            target = target_in_folder(part.target, folder)
            requests.append(Request.from_arguments(target, **options, **shared))
    first: dict[tuple[str, str], str] = {}
    counted = []
    for part, own in zip(parts, drop_unused_request_options(requests), strict=True):
        with naming_part_in_messages(part.name):
            on_progress(f"counting {part.name}")
            report = native_count(own)[0]
        earlier = first.setdefault(part.target_and_arguments, part.name)
        weights_of = earlier if earlier != part.name else ""
        counted.append(CountedPart(_part_row(part, report, weights_of), report))
    return counted


def target_in_folder(target: str, folder: Path) -> str:
    """Return the target of a part with the path in it, if it has one, in this folder.

    >>> for target in ("a.onnx", "unet.py:build", "hf:sub/config.json", "resnet50", "timm:vit",
    ...                "package.module:build", "/models/a.onnx"):
    ...     print(target_in_folder(target, Path("parts")))
    parts/a.onnx
    parts/unet.py:build
    hf:parts/sub/config.json
    resnet50
    timm:vit
    package.module:build
    /models/a.onnx
    """
    prefix, colon, rest = target.partition(":")
    if colon and rest and library_of_target(target) is not None:
        is_path = Path(rest).suffix in _CONFIGS or (folder / rest).exists()
        return f"{prefix}:{folder / rest}" if is_path else target
    if colon:
        return str(folder / target) if target.rpartition(":")[0].endswith(".py") else target
    is_name = re.fullmatch(_NAME, target) and not (folder / target).exists()
    return target if is_name else str(folder / target)


def _part_row(part: _Part, report: Report, weights_of: str) -> PipelinePart:
    """Return the row of a part, from the report of one of its runs."""
    totals = report.totals
    return PipelinePart(
        name=part.name,
        target=part.target,
        times=part.times,
        inputs=report.request.inputs if report.request else (),
        macs=totals.macs,
        flops=totals.flops,
        bytes_read=totals.bytes_read,
        bytes_written=totals.bytes_written,
        params=totals.params,
        uncounted=len(report.uncounted),
        weights_of=weights_of,
    )


@contextlib.contextmanager
def naming_part_in_messages(name: str) -> Iterator[None]:
    """Return a context in which warnings and errors begin with the name of a part."""
    recorded: list[warnings.WarningMessage] = []
    try:
        with record_warnings(CrossflopsWarning) as recorded:
            yield
    except CrossflopsError as error:
        error.message, error.hint = f"{name}: {error.message}", with_config_keys(error.hint)
        error.args = (error.message, *error.args[1:])
        raise
    finally:
        for warning in recorded:
            warnings.warn(f"{name}: {warning.message}", CrossflopsWarning, stacklevel=3)
