"""The options that verbs share, the request that they come to, and the help that shows them.

A group is a tuple of options; a command has `@options(...)` over it, with groups and its own.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click

from crossflops.cli.supervision import limit
from crossflops.errors import CrossflopsError, InputError, UnknownNameError
from crossflops.ir.graph import DIGITS
from crossflops.limits import TIMEOUT

if TYPE_CHECKING:
    from crossflops.render.pages.view import Viewed
    from crossflops.report.report import Report
    from crossflops.report.view import By
    from crossflops.targets.request import Request

V = TypeVar("V")
Function = TypeVar("Function", bound=Callable[..., Any])
Decorator: TypeAlias = Callable[[Any], Any]
Group: TypeAlias = tuple[Decorator, ...]


# The help of a verb: those options first that matter first, the others in named groups, and an
# example that runs.

FIRST = "What matters first"
OTHERS = "Others"
_TITLES: dict[click.Parameter, str] = {}  # of options, which are as long here as the program


def option_group(title: str, *decorators: Decorator) -> Group:
    """These options, under this heading in the help of every verb that has them."""
    return tuple(_option_title_decorator(title, decorator) for decorator in decorators)


def _option_title_decorator(title: str, decorator: Decorator) -> Decorator:
    def decorate(function: Any) -> Any:
        decorated = decorator(function)
        _TITLES[decorated.__click_params__[-1]] = title  # click.option puts what it makes there
        return decorated

    return decorate


class Verb(click.Command):
    """A command with its options in groups. `first` are flags, `example` a line to type."""

    def __init__(
        self, *args: Any, first: Sequence[str] = (), example: str = "", **fields: Any
    ) -> None:
        super().__init__(*args, **fields)
        self.first = tuple(first)
        self.example = example

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The groups in the order in which their options stand on the command."""
        groups: dict[str, list[tuple[str, str]]] = {FIRST: []} if self.first else {}
        for param in sorted(self.get_params(ctx), key=self._place):
            record = param.get_help_record(ctx)
            if record is not None:
                groups.setdefault(self._heading(param), []).append(record)
        for heading in sorted(groups, key=lambda heading: heading == OTHERS):
            with formatter.section(heading):
                formatter.write_dl(groups[heading])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The example."""
        if self.example:
            with formatter.section("Example"):
                formatter.write(f"{' ' * formatter.current_indent}{self.example}\n")

    def _place(self, param: click.Parameter) -> int:
        """The place among the first options; behind them all for any other."""
        indices = [self.first.index(flag) for flag in param.opts if flag in self.first]
        return min(indices, default=len(self.first))

    def _heading(self, param: click.Parameter) -> str:
        first = self._place(param) < len(self.first)
        return FIRST if first else _TITLES.get(param, OTHERS)


def verb(name: str, *, example: str, first: Sequence[str] = ()) -> Callable[[Any], Verb]:
    """Makes a function the verb of this name."""
    return click.command(name, cls=Verb, example=example, first=first)


# What decorates a verb, and the options.


def command_options(*decorators: Decorator) -> Callable[[Function], Function]:
    """These options and arguments on a command, in this order in its help."""

    def decorate(function: Function) -> Function:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


class Positive(click.FloatRange):
    """A number above zero: `nan` is none. `inf` is one where `most` says what it comes to."""

    def __init__(self, most: float | None = None) -> None:
        super().__init__(min=0, min_open=True)
        self._most = most

    def convert(self, value: Any, *others: Any) -> Any:
        """The number. Fails as click does."""
        number = super().convert(value, *others)
        if math.isnan(number) or (math.isinf(number) and self._most is None):
            return self.fail(f"{value} is no number to count with.", *others)
        return number if self._most is None else min(number, self._most)


_LONGEST = 1e6  # seconds, eleven days: a system's own clocks take no infinity


# Which options were typed, and which of them have something to change.

_ON_EVERY_WAY = ("as_json", "file", "debug")


def command_line_options() -> dict[str, str]:
    """Return the options of the command line, each with its longest flag."""
    context = click.get_current_context()
    source = click.core.ParameterSource.COMMANDLINE
    return {
        param.name: max(param.opts, key=len)
        for param in context.command.params
        if isinstance(param, click.Option)
        and param.name is not None
        and context.get_parameter_source(param.name) is source
    }


def reject_options_except(names: Collection[str], reason: str, hint: str) -> None:
    """Refuse every option that was typed and is not among these. Raises InputError."""
    reject_options(command_line_options().keys() - {*names, *_ON_EVERY_WAY}, reason, hint)


def reject_options(names: Collection[str], reason: str, hint: str) -> None:
    """Refuse these options where they were typed. Raises InputError."""
    for name, flag in command_line_options().items():
        if name in names:
            raise InputError(f"{flag} changes nothing: {reason}", hint)


def refuse_timeout(*requests: "Request") -> None:
    """Refuse --timeout where only files are read, which takes no converter and no run."""
    if all(request.is_file for request in requests):
        reject_options(
            ("timeout",), "no converter, no tool and no run takes part in this", "leave it out"
        )


def refuse_without_page(fields: Mapping[str, Any], *names: str) -> None:
    """Refuse options that shape a page where JSON alone is written. Raises InputError."""
    if writes_json(fields):
        reject_options(
            names,
            "it shapes a page, and JSON has all of it",
            "leave it out, or write a page instead of JSON",
        )


def writes_json(fields: Mapping[str, Any]) -> bool:
    """Return whether JSON is written, and no page."""
    file = fields["file"]
    if file is None:
        return bool(fields["as_json"])
    from crossflops.render.formats import suffix

    return suffix(file) == ".json"


# TARGET and everything that says how to build and run it: `request` takes their values.

TARGET = click.argument("target")
BUILT = "The model and how it is built"
MODEL: Group = option_group(
    BUILT,
    click.option("--input", "inputs", multiple=True, metavar="[NAME=]SHAPE[:DTYPE]",
                 help="An input, such as 1x3x224x224 or input_ids=1x128:int64. Repeat for "
                      "several."),
    click.option("--inputs", "inputs_file", metavar="FILE.npz",
                 help="Real values for the inputs."),
    click.option("--arg", "arguments", multiple=True, metavar="KEY=JSON",
                 help="A keyword argument for the callable, such as weights=null. Repeatable."),
    click.option("--dim", "dims", multiple=True, metavar="NAME=N",
                 help="The size of a named dimension of an ONNX file. Repeatable."),
    click.option("--trips", "trips", multiple=True, metavar="NODE=N",
                 help="How often a Loop of an ONNX file runs, where the file does not say. "
                      "Repeatable."),
    click.option("--branch", "branches", multiple=True, metavar="NODE=then|else|sum",
                 help="Which branch of an If of an ONNX file counts; the larger one unless "
                      "said. Repeatable."),
    click.option("--no-grad", is_flag=True, help="Run without gradients (totals may differ)."),
    click.option("--train-mode", is_flag=True, help="Run in train() instead of eval()."),
    click.option("--allow-pickle", is_flag=True, help="Load pickles: these can run any code."),
    click.option("--timeout", type=Positive(most=_LONGEST), default=TIMEOUT, show_default=True,
                 metavar="SECONDS",
                 help="How long a converter may take, a tool may build the model, and a run may "
                      "last."),
)  # fmt: skip


# Sizes of the usual input of a model by name: their values are a field of the request.

_SIZE = click.IntRange(1)
_USUAL_INPUT = "The usual input of a model by name"
IMAGE_SIZE: Group = option_group(
    _USUAL_INPUT,
    click.option("--image-size", type=_SIZE, metavar="N",
                 help="Pixels along each side of its images."),
)  # fmt: skip
SEQ: Group = option_group(
    _USUAL_INPUT,
    click.option("--seq", type=_SIZE, metavar="N", help="Tokens in that input."),
)  # fmt: skip
SIZES: Group = option_group(
    _USUAL_INPUT,
    click.option("--batch", type=_SIZE, metavar="N",
                 help="Examples in the usual input of a model by name, such as timm:NAME."),
    *SEQ,
    *IMAGE_SIZE,
)  # fmt: skip


def pop_size_options(fields: dict[str, Any]) -> dict[str, int]:
    """The sizes that SIZES gives, taken out of a command's keyword arguments."""
    provided = {name: fields.pop(name) for name in ("batch", "seq", "image_size")}
    return {name: size for name, size in provided.items() if size is not None}


def request(fields: dict[str, Any], **others: Any) -> "Request":
    """The request that TARGET and MODEL come to, taken out of a command's keyword arguments.

    `others` are fields of the request that the command has options for. Raises InputError.
    """
    from crossflops.targets.request import Request

    return Request.from_arguments(fields.pop("target"), **pop_model_options(fields), **others)


def pop_model_options(fields: dict[str, Any]) -> dict[str, Any]:
    """Remove the model's options from `fields`; return them for `Request.from_arguments`."""
    from crossflops.ir.trace import Setting

    limit(fields.pop("timeout"))
    setting = Setting(grad=not fields.pop("no_grad"), training=fields.pop("train_mode"))
    return {**how(fields), "setting": setting, "allow_pickle": fields.pop("allow_pickle")}


def how(fields: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Inputs, arguments and sizes, of options whose names begin with `prefix`, read."""
    flag = f"--{prefix}".replace("_", "-")
    texts = {name: fields.pop(f"{prefix}{name}") for name in HOW}
    return {
        "inputs": tuple(texts["inputs"]),
        "inputs_file": texts["inputs_file"],
        "arguments": _unique_option_pairs("--arg", map(argument, texts["arguments"])),
        "dims": _unique_option_pairs(
            f"{flag}dim", (parse_name_number(f"{flag}dim", text) for text in texts["dims"])
        ),
        "trips": _unique_option_pairs(
            f"{flag}trips", (parse_name_number(f"{flag}trips", text) for text in texts["trips"])
        ),
        "branches": _unique_option_pairs("--branch", map(branch, texts["branches"])),
    }


HOW = {  # the flags that may be given for a second model, too
    "inputs": "--input",
    "inputs_file": "--inputs",
    "arguments": "--arg",
    "dims": "--dim",
    "trips": "--trips",
    "branches": "--branch",
}


def _unique_option_pairs(option: str, pairs: Iterable[tuple[str, V]]) -> dict[str, V]:
    """Pairs by name. Raises InputError where a name is given two values."""
    named: dict[str, V] = {}
    for name, value in pairs:
        if name in named and named[name] != value:
            raise InputError(f"{option} {name} has two values", f"give {option} {name}=... once")
        named[name] = value
    return named


def parse_name_number(option: str, text: str) -> tuple[str, int]:
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
    """KEY=JSON as a pair, the value read. Raises InputError.

    The name of a type (bfloat16) needs no quotes.
    """
    import json

    from crossflops.frontends.inputs import DTYPES

    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise InputError(f"--arg {text!r} is not KEY=JSON", "write for example --arg weights=null")
    if value.removeprefix("torch.") in DTYPES:
        return name, value
    try:
        return name, json.loads(value)
    except ValueError:
        quoted = f"--arg '{name}={json.dumps(value)}'"
        hint = f"null, true, 3, [1, 2]; a text stands in quotes: {quoted}"
        raise InputError(f"the value of --arg {text!r} is not JSON", hint) from None


(WEIGHTS,) = option_group(
    BUILT,
    click.option("--weights", type=click.Choice(["real", "fake"]),
                 help="Build a target of PyTorch with numbers in its weights, or without. The "
                      "default: without, where no size and no path depends on a value."),
)  # fmt: skip


(WEIGHTS_OF_TOOLS,) = option_group(
    BUILT,
    click.option("--weights", type=click.Choice(["real", "fake"]),
                 help="Build a target of PyTorch with numbers in its weights, or without: tools "
                      "that look at shapes alone run on it, and the others are named. The "
                      "default: without, where the weights take more than 1 GiB."),
)  # fmt: skip


TRAIN: Group = option_group(
    "A training step",
    click.option("--train", is_flag=True,
                 help="Also count a training step: forward, gradients of inputs, gradients of "
                      "weights, and what is run again. The mode stays eval() without "
                      "--train-mode."),
    click.option("--frozen", multiple=True, metavar="PATTERN",
                 help="Parameters, or modules around them, that are not trained, such as "
                      "'layer1*'. Repeatable."),
    click.option("--trainable", multiple=True, metavar="PATTERN",
                 help="Parameters, or modules around them, that are trained: goes over --frozen "
                      "and over what the model says. Repeatable."),
    click.option("--loss", default="", metavar="FILE.py:CALLABLE",
                 help="A function of what a model returns, in place of the sum of all float "
                      "outputs: outputs that miss it have no gradient."),
)  # fmt: skip
OPTIMIZER: Group = option_group(
    "A training step",
    click.option("--optimizer", default="", metavar="NAME[,KEY=VALUE]",
                 help="Also the step of an optimizer, apart: sgd, momentum, adam, adamw, "
                      "adafactor or lamb, with options such as "
                      "adamw,weight_decay=0.1,clip_norm=1 (0 switches one off)."),
)  # fmt: skip


def picture(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """The file of a picture, refused before the work begins if it cannot be made."""
    if value is not None:
        from crossflops.render.figures.files import possible

        possible(Path(value).suffix)
        writable(Path(value))
    return value


def _destination(ctx: click.Context, param: click.Parameter, value: str | None) -> Path | None:
    """The file, refused before the work begins if it cannot be written."""
    if value is None:
        return None
    from crossflops.render.formats import FORMATS, suffix

    path = Path(value)
    if suffix(path) not in FORMATS:
        end = f"the suffix {suffix(path)!r}" if path.suffix else "no suffix"
        raise UnknownNameError(
            f"{value} has {end}, which names no format", f"formats are {', '.join(FORMATS)}"
        )
    return writable(path)


def writable(path: Path, example: str = "name") -> Path:
    """The path, where there is a folder for it. Raises CrossflopsError."""
    if not path.parent.is_dir():
        raise CrossflopsError(f"there is no folder {path.parent}", f"mkdir -p {path.parent}")
    if path.is_dir():
        raise CrossflopsError(
            f"{path} is a folder", f"give a file in it, such as {path / example}"
        )
    return path


OUTPUT: Group = option_group(
    "Output",
    click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else."),
    click.option("-o", "--output", "file", callback=_destination, metavar="FILE",
                 help="Write to FILE instead, in the format of its suffix: .json, .md, .html, "
                      ".txt, .tex, .csv ..."),
)  # fmt: skip
UNIT = click.option(
    "--unit",
    type=click.Choice(["macs", "flops"]),
    default="macs",
    show_default=True,
    help="Which of them orders and fills the tables.",
)
STRICT = click.option(
    "--strict", is_flag=True, help="Exit with 1 when a node is uncounted or a residual is left."
)


def _interpreters(
    ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]
) -> dict[str, str]:
    from crossflops.plugins.elsewhere import parse_interpreters

    return parse_interpreters(texts)


PYTHON = click.option(
    "--python",
    multiple=True,
    metavar="TOOL=INTERPRETER",
    callback=_interpreters,
    help="The Python (or the folder of a venv) that runs a tool, which then need not be "
    "installed here. Repeatable; goes over [python] in crossflops.toml.",
)


# One table of a report, for `apply_view_options`.

SHOWN = "One table of the report"
VIEW: Group = option_group(
    SHOWN,
    click.option("--by", type=click.Choice(["op", "module", "node", "type"]),
                 help="One table: by ONNX operator, by module (a tree, each with all beneath "
                      "it), by graph node, or by type, which is the class of the innermost "
                      "module around a node."),
    click.option("--top", type=click.IntRange(1), metavar="N", help="Only the N largest rows."),
    click.option("--depth", type=click.IntRange(0), metavar="N",
                 help="Only N levels of the module tree; implies --by module."),
)  # fmt: skip


def apply_view_options(report: "Report", fields: dict[str, Any], unit: str) -> "Report | Viewed":
    """The table that VIEW asks for, taken out of the arguments; else the report."""
    by: By | None = fields.pop("by")
    top, depth = fields.pop("top"), fields.pop("depth")
    if by is top is depth is None:
        return report
    from crossflops.render.pages.view import Viewed
    from crossflops.report.view import view

    if by is None:
        by = "op" if depth is None else "module"
    return Viewed(report, view(report, by, top, depth, unit))
