"""The options that verbs share, and what they come to."""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from crossflops.cli.output import say
from crossflops.cli.supervision import limit
from crossflops.errors import CrossflopsError, InputError, UnknownNameError
from crossflops.ir.profile import Failure, Profile
from crossflops.ir.tensor import DIGITS
from crossflops.ir.trace import Setting
from crossflops.render.pages.places import TOP
from crossflops.report.comparison import Against
from crossflops.report.report import Report

if TYPE_CHECKING:
    from crossflops.render.pages.view import Viewed
    from crossflops.report.view import By


Function = TypeVar("Function", bound=Callable[..., Any])


class Positive(click.FloatRange):
    """A number above zero: `nan` is none. `inf` is one where `most` says what it comes to."""

    def __init__(self, most: float | None = None) -> None:
        super().__init__(min=0, min_open=True)
        self._most = most

    def convert(self, value: Any, *others: Any) -> Any:
        """The number. Fails as click does."""
        found = super().convert(value, *others)
        if math.isnan(found) or (math.isinf(found) and self._most is None):
            return self.fail(f"{value} is no number to count with.", *others)
        return found if self._most is None else min(found, self._most)


_LONGEST = 1e6  # seconds, eleven days: a system's own clocks take no infinity


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """Which model, on which inputs, in which setting."""

    target: str
    inputs: tuple[str, ...]
    inputs_file: str | None
    arguments: dict[str, object]
    setting: Setting
    allow_pickle: bool
    dims: dict[str, int]
    trips: dict[str, int]
    branches: dict[str, str]
    timeout: float

    @property
    def keywords(self) -> dict[str, Any]:
        """As the verbs of the pipeline take it, beside the target."""
        fields = msgspec.structs.asdict(self)
        del fields["target"], fields["timeout"]
        return fields


def model_options(function: Function, required: bool = True) -> Function:
    """TARGET and everything that says how to build and run it, for `request` to take."""
    return stacked(
        function,
        click.argument("target", required=required),
        click.option(
            "--input",
            "inputs",
            multiple=True,
            metavar="[NAME=]SHAPE[:DTYPE]",
            help="An input, such as 1x3x224x224 or input_ids=1x128:int64. Repeat for several.",
        ),
        click.option(
            "--inputs", "inputs_file", metavar="FILE.npz", help="Real values for the inputs."
        ),
        click.option(
            "--arg",
            "arguments",
            multiple=True,
            metavar="KEY=JSON",
            help="A keyword argument for the callable, such as weights=null. Repeatable.",
        ),
        click.option(
            "--dim",
            "dims",
            multiple=True,
            metavar="NAME=N",
            help="The size of a named dimension of an ONNX file. Repeatable.",
        ),
        click.option(
            "--trips",
            "trips",
            multiple=True,
            metavar="NODE=N",
            help="How often a Loop of an ONNX file runs, where the file does not say. Repeatable.",
        ),
        click.option(
            "--branch",
            "branches",
            multiple=True,
            metavar="NODE=then|else|sum",
            help="Which branch of an If of an ONNX file counts; the larger one unless said. "
            "Repeatable.",
        ),
        click.option("--no-grad", is_flag=True, help="Run without gradients (totals may differ)."),
        click.option("--train-mode", is_flag=True, help="Run in train() instead of eval()."),
        click.option("--allow-pickle", is_flag=True, help="Load pickles: these can run any code."),
        click.option(
            "--timeout",
            type=Positive(most=_LONGEST),
            default=300.0,
            show_default=True,
            metavar="SECONDS",
            help="How long a converter may take, a tool may build the model, and a run may last.",
        ),
    )


def request(fields: dict[str, Any]) -> Request:
    """The values of `model_options`, taken out of a command's keyword arguments."""
    timeout = fields.pop("timeout")
    limit(timeout)
    return Request(
        timeout=timeout,
        target=fields.pop("target"),
        inputs=tuple(fields.pop("inputs")),
        inputs_file=fields.pop("inputs_file"),
        arguments=dict(map(argument, fields.pop("arguments"))),
        setting=Setting(grad=not fields.pop("no_grad"), training=fields.pop("train_mode")),
        allow_pickle=fields.pop("allow_pickle"),
        dims=dict(numbered("--dim", text) for text in fields.pop("dims")),
        trips=dict(numbered("--trips", text) for text in fields.pop("trips")),
        branches=dict(map(branch, fields.pop("branches"))),
    )


def output_options(function: Function) -> Function:
    """`--json` and `-o`, as keywords `as_json` and `file`."""
    return stacked(
        function,
        click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else."),
        click.option(
            "-o",
            "--output",
            "file",
            callback=_destination,
            metavar="FILE",
            help="Write to FILE instead: .json, .md, .txt, .csv or .json.gz picks the format.",
        ),
    )


def view_options(function: Function) -> Function:
    """`--by`, `--top` and `--depth`, for `viewed` to take."""
    return stacked(
        function,
        click.option(
            "--by",
            type=click.Choice(["op", "module", "node", "type"]),
            help="One table: by ONNX operator, by module (a tree, each with all beneath it), by "
            "graph node, or by type, which is the class of the innermost module around a node.",
        ),
        click.option(
            "--top", type=click.IntRange(1), metavar="N", help="Only the N largest rows."
        ),
        click.option(
            "--depth",
            type=click.IntRange(0),
            metavar="N",
            help="Only N levels of the module tree; implies --by module.",
        ),
    )


def viewed(report: "Report", fields: dict[str, Any], unit: str) -> "Report | Viewed":
    """The table that `view_options` ask for, taken out of the arguments; else the report."""
    by: By | None = fields.pop("by")
    top, depth = fields.pop("top"), fields.pop("depth")
    if by is top is depth is None:
        return report
    from crossflops.render.pages.view import Viewed
    from crossflops.report.view import view

    if by is None:
        by = "op" if depth is None else "module"
    return Viewed(report, view(report, by, top, depth, unit))


def unit_option(function: Function) -> Function:
    """`--unit`, as keyword `unit`."""
    return stacked(
        function,
        click.option(
            "--unit",
            type=click.Choice(["macs", "flops"]),
            default="macs",
            show_default=True,
            help="Which of them orders and fills the tables.",
        ),
    )


def strict_option(function: Function) -> Function:
    """`--strict`, as keyword `strict`."""
    what = "Exit with 1 when a node is uncounted or a residual is left."
    return stacked(function, click.option("--strict", is_flag=True, help=what))


def stacked(function: Function, *decorators: Callable[[Function], Function]) -> Function:
    """The function under these decorators, the first of them outermost."""
    for decorator in reversed(decorators):
        function = decorator(function)
    return function


def numbered(option: str, text: str) -> tuple[str, int]:
    """NAME=N as a pair. Raises InputError."""
    name, equals, value = text.rpartition("=")
    example = f"{option} {'Loop_1' if option == '--trips' else 'batch'}=8"
    if not equals or not name or not (value.isascii() and value.isdigit()):
        raise InputError(f"{option} {text!r} is not NAME=N", f"write for example {example}")
    if len(value) > DIGITS:
        raise InputError(
            f"{option} {name}=... has a number of {len(value)} digits", f"write at most {DIGITS}"
        )
    return name, int(value)


def branch(text: str) -> tuple[str, str]:
    """NODE=then|else|sum as a pair. Raises InputError."""
    name, _, value = text.rpartition("=")
    if not name or value not in ("then", "else", "sum"):
        raise InputError(
            f"--branch {text!r} is not NODE=then|else|sum", "write for example --branch If_3=else"
        )
    return name, value


def argument(text: str) -> tuple[str, object]:
    """KEY=JSON as a pair, the value read. Raises InputError."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise InputError(f"--arg {text!r} is not KEY=JSON", "write for example --arg weights=null")
    try:
        return name, json.loads(value)
    except ValueError:
        quoted = f"--arg '{name}={json.dumps(value)}'"
        hint = f"null, true, 3, [1, 2]; a text stands in quotes: {quoted}"
        raise InputError(f"the value of --arg {text!r} is not JSON", hint) from None


def picture(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """The file of a picture, refused before the work begins if it cannot be made."""
    if value is not None:
        from crossflops.render.plots import checked, installed

        checked(Path(value).suffix)
        _able(Path(value))
        installed()
    return value


def _destination(ctx: click.Context, param: click.Parameter, value: str | None) -> Path | None:
    """The file, refused before the work begins if it cannot be written."""
    if value is None:
        return None
    from crossflops.render import FORMATS, suffix

    path = Path(value)
    if suffix(path) not in FORMATS:
        end = f"the suffix {suffix(path)!r}" if path.suffix else "no suffix"
        raise UnknownNameError(
            f"{value} has {end}, which names no format", f"formats are {', '.join(FORMATS)}"
        )
    return _able(path)


def _able(path: Path) -> Path:
    """The path, where there is a folder for it."""
    if not path.parent.is_dir():
        raise CrossflopsError(f"there is no folder {path.parent}", f"mkdir -p {path.parent}")
    if path.is_dir():
        raise CrossflopsError(f"{path} is a folder", f"give a file in it, such as {path / 'name'}")
    return path


# The option `--python`.


def python_option(function: Function) -> Function:
    """`--python`, as keyword `python`: interpreter by tool."""
    option = click.option(
        "--python",
        multiple=True,
        metavar="TOOL=INTERPRETER",
        callback=_interpreters,
        help="The Python (or the folder of a venv) that runs a tool, which then need not be "
        "installed here. Repeatable; goes over [python] in crossflops.toml.",
    )
    return option(function)


def _interpreters(
    ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]
) -> dict[str, str]:
    from crossflops.plugins.interpreters import parsed

    return parsed(texts)


# What may be asked of a comparison, now or of the file that one was written to.

NO_ANSWER = 3


def question_options(function: Function) -> Function:
    """`--between`, `--module` and `--consensus`, for `questions` to take."""
    consensus = click.option(
        "--consensus", is_flag=True, help="Which number to publish, in a sentence to cite."
    )
    module = click.option(
        "--module",
        metavar="PATH",
        help="Only this module and what is beneath it, such as layer1.0.",
    )
    between = click.option(
        "--between",
        nargs=2,
        metavar="TOOL TOOL",
        help="Explain why two tools differ from each other.",
    )
    return between(consensus(module(function)))


def top_option(function: Function) -> Function:
    """`--top`, as keyword `top`."""
    return click.option(
        "--top",
        type=click.IntRange(0),
        default=TOP,
        show_default=True,
        metavar="N",
        help="How many modules to show, of those where the tools disagree most.",
    )(function)


def questions(fields: dict[str, Any]) -> dict[str, Any]:
    """The values of `question_options`, taken out of a command's keyword arguments."""
    return {name: fields.pop(name) for name in ("between", "module", "consensus")}


def unanswered(report: Report, between: tuple[str, str] | None) -> bool:
    """Whether two tools could not be set against each other, since one failed; says so."""
    profiles = report.profiles or ()
    sides: list[tuple[Sequence[Profile | Failure], Sequence[str]]] = [(profiles, between or ())]
    if between and isinstance(report.against, Against):
        sides = [(profiles, between[:1]), (report.against.profiles, between[1:])]
    failed = [
        one
        for found, tools in sides
        for one in found
        if isinstance(one, Failure) and one.tool in tools
    ]
    for one in failed:
        say(
            f"nothing stands between {' and '.join(between or ())}: {one.tool} failed at "
            f"{one.stage}: {one.message}"
        )
    return bool(failed)


# `--against`: a second model, and how to build and run it where that is not said already.

_OPTIONS = {
    "inputs": "--against-input",
    "inputs_file": "--against-inputs",
    "arguments": "--against-arg",
    "dims": "--against-dim",
    "trips": "--against-trips",
    "branches": "--against-branch",
}


def against_options(function: Function) -> Function:
    """A second TARGET, with options like those of the first, for `against` to take."""
    said = "like that of TARGET, which it replaces."
    return stacked(
        function,
        click.option(
            "--against",
            "against",
            metavar="TARGET",
            help="A second model: say what makes it another model, layer by layer, and apart from "
            "that what each tool counts otherwise. It takes the options of the first that are "
            "not given for it, images in the order of axes that it wants.",
        ),
        click.option(
            "--against-input", "against_inputs", multiple=True, metavar="[NAME=]SHAPE[:DTYPE]",
            help=f"An input of the second model, {said}",
        ),
        click.option(
            "--against-inputs", "against_inputs_file", metavar="FILE.npz",
            help=f"Values of its inputs, {said}",
        ),
        click.option(
            "--against-arg", "against_arguments", multiple=True, metavar="KEY=JSON",
            help=f"An argument of its callable, {said}",
        ),
        click.option(
            "--against-dim", "against_dims", multiple=True, metavar="NAME=N",
            help=f"A dimension of its ONNX file, {said}",
        ),
        click.option(
            "--against-trips", "against_trips", multiple=True, metavar="NODE=N",
            help=f"How often a Loop of its file runs, {said}",
        ),
        click.option(
            "--against-branch", "against_branches", multiple=True, metavar="NODE=then|else|sum",
            help=f"Which branch of an If of its file counts, {said}",
        ),
    )  # fmt: skip


def against(fields: dict[str, Any]) -> dict[str, Any]:
    """The values of `against_options` as `pipeline.compare` takes them; nothing without a target.

    Raises InputError for an option of a second model that there is not.
    """
    target = fields.pop("against")
    said = {name: fields.pop(f"against_{name}") for name in _OPTIONS}
    if target is None:
        stray = next((name for name, value in said.items() if value), None)
        if stray is not None:
            raise InputError(
                f"{_OPTIONS[stray]} is about a second model", "name it with --against TARGET"
            )
        return {}
    options: dict[str, Any] = {
        "inputs": tuple(said["inputs"]),
        "inputs_file": said["inputs_file"],
        "arguments": dict(map(argument, said["arguments"])),
        "dims": dict(numbered("--against-dim", text) for text in said["dims"]),
        "trips": dict(numbered("--against-trips", text) for text in said["trips"]),
        "branches": dict(map(branch, said["branches"])),
    }
    given = {name: value for name, value in options.items() if value}
    return {"against": target, "against_options": given}
