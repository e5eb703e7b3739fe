"""Options that several verbs share, the request that they build, and their --help.

A group is a tuple of options; a command has `@options(...)` over it, with groups and its own.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click

from crossflops.cli.supervision import set_converter_timeout
from crossflops.errors import CrossflopsError, InputError, UnknownNameError
from crossflops.files import is_configured
from crossflops.ir.graph import DIGITS
from crossflops.limits import TIMEOUT

if TYPE_CHECKING:
    from crossflops.render.pages.view import ReportTable
    from crossflops.report.report import Report
    from crossflops.report.view import By
    from crossflops.targets.request import Request

V = TypeVar("V")
Function = TypeVar("Function", bound=Callable[..., Any])
Decorator: TypeAlias = Callable[[Any], Any]
Group: TypeAlias = tuple[Decorator, ...]


# The help of a verb: those options first that matter first, the others in named groups, and an
# example that runs.

FIRST = "Main options"
OTHERS = "Others"
_TITLES: dict[click.Parameter, str] = {}  # of options, which are as long here as the program


def option_group(title: str, *decorators: Decorator) -> Group:
    """Return these option decorators such that --help lists the options under `title`."""
    return tuple(_option_title_decorator(title, decorator) for decorator in decorators)


def _option_title_decorator(title: str, decorator: Decorator) -> Decorator:
    """Return an option decorator that also records the title under which --help lists
    the option.
    """

    def add_titled_option(function: Any) -> Any:
        """Add the option to a command's function, and record the title under which --help lists
        it.
        """
        decorated = decorator(function)
        _TITLES[decorated.__click_params__[-1]] = title  # click.option puts what it makes there
        return decorated

    return add_titled_option


class Verb(click.Command):
    """A command with its options in groups. `first` are flags, `example` a line to type."""

    def __init__(
        self, *args: Any, first: Sequence[str] = (), example: str = "", **fields: Any
    ) -> None:
        super().__init__(*args, **fields)
        self.first = tuple(first)
        self.example = example

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of the verb into --help, in groups with titles."""
        groups: dict[str, list[tuple[str, str]]] = {FIRST: []} if self.first else {}
        for param in sorted(self.get_params(ctx), key=self._help_sort_key):
            record = param.get_help_record(ctx)
            if record is not None:
                groups.setdefault(self._help_group_title(param), []).append(record)
        for heading in sorted(groups, key=lambda heading: heading == OTHERS):
            with formatter.section(heading):
                formatter.write_dl(groups[heading])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the example command line of the verb into --help."""
        if self.example:
            with formatter.section("Example"):
                formatter.write(f"{' ' * formatter.current_indent}{self.example}\n")

    def _help_sort_key(self, param: click.Parameter) -> int:
        """Return the sort key of an option in --help: its position among the first options, or
        their number for others.
        """
        indices = [self.first.index(flag) for flag in param.opts if flag in self.first]
        return min(indices, default=len(self.first))

    def _help_group_title(self, param: click.Parameter) -> str:
        """Return the title under which --help lists an option."""
        first = self._help_sort_key(param) < len(self.first)
        return FIRST if first else _TITLES.get(param, OTHERS)


def verb(name: str, *, example: str, first: Sequence[str] = ()) -> Callable[[Any], Verb]:
    """Return a decorator that turns a function into a command; --help shows its example, and the
    options `first` before others.
    """
    return click.command(name, cls=Verb, example=example, first=first)


# What decorates a verb, and the options.


def command_options(*decorators: Decorator) -> Callable[[Function], Function]:
    """Return a decorator that adds these options and arguments to a command."""

    def add_options_to_command(function: Function) -> Function:
        """Add the options and arguments to the function of a command."""
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return add_options_to_command


class Positive(click.FloatRange):
    """A number above zero, not `nan`. `inf` is allowed if `most` says how it is capped."""

    def __init__(self, most: float | None = None) -> None:
        super().__init__(min=0, min_open=True)
        self._most = most

    def convert(self, value: Any, *others: Any) -> Any:
        """Return the text of an option as a positive number, at most `most`; fail if it is not
        one.
        """
        number = super().convert(value, *others)
        if math.isnan(number) or (math.isinf(number) and self._most is None):
            return self.fail(f"must be a finite positive number, got {value}.", *others)
        return number if self._most is None else min(number, self._most)


_LONGEST = 1e6  # seconds, eleven days: a system's own clocks take no infinity


# Which options were typed, and which of them have something to change.

_ON_EVERY_WAY = ("as_json", "file", "debug")


def command_line_options() -> dict[str, str]:
    """Return the options that were given on the command line: the longest flag by
    parameter name.
    """
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
    """Raise InputError if an option was given that is not among these names."""
    reject_options(command_line_options().keys() - {*names, *_ON_EVERY_WAY}, reason, hint)


def reject_options(names: Collection[str], reason: str, hint: str) -> None:
    """Raise InputError if one of the options with these names was given.

    The text "{option}" in the hint is replaced by that option.
    """
    for name, flag in command_line_options().items():
        if name in names:
            raise InputError(
                f"{flag} has no effect here: {reason}", hint.replace("{option}", flag)
            )


def reject_timeout_without_tools(*requests: "Request") -> None:
    """Raise InputError if --timeout was given although all models are ONNX files, which are only
    read.
    """
    if all(request.is_file for request in requests):
        reject_options(("timeout",), "only files are read", "leave out {option}")


def reject_page_options_with_json(fields: Mapping[str, Any], *names: str) -> None:
    """Raise InputError if JSON is written and one of these options, which select parts of a page,
    was given.
    """
    if writes_json(fields):
        reject_options(
            names,
            "it selects parts of a page, but JSON always contains everything",
            "leave out {option}, or write a page instead of JSON",
        )


def writes_json(fields: Mapping[str, Any]) -> bool:
    """Return whether the result is written as JSON and not as a page."""
    file = fields["file"]
    if file is None:
        return bool(fields["as_json"])
    from crossflops.render.formats import format_suffix

    return format_suffix(file) == ".json"


# TARGET and everything that says how to build and run it: `pop_request` takes their values.

TARGET = click.argument("target")
BUILT = "The model and how it is built"


def _use_formulas(ctx: click.Context, param: click.Parameter, files: tuple[str, ...]) -> None:
    """Put the formulas of these files, and of the configuration, in force while the verb runs."""
    if ctx.resilient_parsing:
        return
    sources = files
    if is_configured("formulas"):
        from crossflops.plugins.formula_files import formulas_of_configuration

        sources = (*formulas_of_configuration(), *files)
    if sources:
        from crossflops.operators.formula_sources import using_formulas

        ctx.with_resource(using_formulas(sources))


(FORMULAS,) = option_group(
    BUILT,
    click.option("--formulas", multiple=True, metavar="FILE.py", callback=_use_formulas,
                 expose_value=False,
                 help="A Python file with your own formulas for operators that are not counted; "
                      "its code is run. Repeatable. The formulas of crossflops.toml are used, "
                      "too."),
)  # fmt: skip
MODEL: Group = option_group(
    BUILT,
    click.option("--input", "inputs", multiple=True, metavar="[NAME=]SHAPE[:DTYPE]",
                 help="An input, such as 1x3x224x224 or input_ids=1x128:int64. Repeatable."),
    click.option("--inputs", "inputs_file", metavar="FILE.npz",
                 help="A file with real values for the inputs; or file.py:function, which returns "
                      "a batch."),
    click.option("--arg", "arguments", multiple=True, metavar="KEY=JSON",
                 help="A keyword argument for the callable, with a JSON value, such as "
                      "weights=null. Repeatable."),
    click.option("--dim", "dims", multiple=True, metavar="NAME=N",
                 help="The size of a named dimension of an ONNX file, or of a name in a shape of "
                      "--input. Repeatable."),
    click.option("--trips", "trips", multiple=True, metavar="NODE=N",
                 help="The number of iterations of a Loop of an ONNX file, if the file does "
                      "not fix it. Repeatable."),
    click.option("--branch", "branches", multiple=True, metavar="NODE=then|else|sum",
                 help="Which branch of an If of an ONNX file is counted. Default: the larger "
                      "one. Repeatable."),
    click.option("--no-grad", is_flag=True, help="Run without gradients (this can change "
                                                 "totals)."),
    click.option("--train-mode", is_flag=True, help="Run the model in train() mode instead of "
                                                    "eval()."),
    click.option("--allow-pickle", is_flag=True, help="Allow loading pickle files, which can "
                                                      "run any code."),
    FORMULAS,
    click.option("--timeout", type=Positive(most=_LONGEST), default=TIMEOUT, show_default=True,
                 metavar="SECONDS",
                 help="Maximum time of a conversion, of building the model in a tool's "
                      "process, and of a run."),
)  # fmt: skip


# Sizes of the usual input of a model by name: their values are a field of the request.

_SIZE = click.IntRange(1)
_USUAL_INPUT = "The default input of a model given by name"
IMAGE_SIZE: Group = option_group(
    _USUAL_INPUT,
    click.option("--image-size", type=_SIZE, metavar="N",
                 help="Image size in pixels, for each side."),
)  # fmt: skip
SEQ: Group = option_group(
    _USUAL_INPUT,
    click.option("--seq", type=_SIZE, metavar="N", help="Number of tokens in that input."),
)  # fmt: skip
SIZES: Group = option_group(
    _USUAL_INPUT,
    click.option("--batch", type=_SIZE, metavar="N",
                 help="Number of examples in the default input of a model given by name, such "
                      "as timm:NAME."),
    *SEQ,
    *IMAGE_SIZE,
)  # fmt: skip


def pop_size_options(fields: dict[str, Any]) -> dict[str, int]:
    """Remove --batch, --seq and --image-size from `fields`, and return those that were given, by
    name.
    """
    provided = {name: fields.pop(name) for name in ("batch", "seq", "image_size")}
    return {name: size for name, size in provided.items() if size is not None}


def pop_request(fields: dict[str, Any], **others: Any) -> "Request":
    """Return the request for a model, built from its target and its options, which are removed
    from `fields`.

    `others` are fields of the request that the command has options for. Raises InputError.
    """
    from crossflops.targets.request import Request

    return Request.from_arguments(fields.pop("target"), **pop_model_options(fields), **others)


def pop_model_options(fields: dict[str, Any]) -> dict[str, Any]:
    """Remove the options about the model from `fields`, and return them as arguments of
    a request.
    """
    from crossflops.ir.trace import Setting

    set_converter_timeout(fields.pop("timeout"))
    setting = Setting(grad=not fields.pop("no_grad"), training=fields.pop("train_mode"))
    return {
        **pop_input_options(fields),
        "setting": setting,
        "allow_pickle": fields.pop("allow_pickle"),
    }


def pop_input_options(fields: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Remove the options about inputs and sizes from `fields`, and return their parsed values;
    `prefix` begins their names.
    """
    flag = f"--{prefix}".replace("_", "-")
    texts = {name: fields.pop(f"{prefix}{name}") for name in HOW}
    return {
        "inputs": tuple(texts["inputs"]),
        "inputs_file": texts["inputs_file"],
        "arguments": _unique_option_pairs("--arg", map(parse_json_argument, texts["arguments"])),
        "dims": _unique_option_pairs(
            f"{flag}dim", (parse_name_number(f"{flag}dim", text) for text in texts["dims"])
        ),
        "trips": _unique_option_pairs(
            f"{flag}trips", (parse_name_number(f"{flag}trips", text) for text in texts["trips"])
        ),
        "branches": _unique_option_pairs("--branch", map(parse_branch_choice, texts["branches"])),
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
    """Return the values by name. Raises InputError if a name is given twice with
    different values.
    """
    named: dict[str, V] = {}
    for name, value in pairs:
        if name in named and named[name] != value:
            raise InputError(
                f"{option} {name} is given twice with different values",
                f"give {option} {name}=... once",
            )
        named[name] = value
    return named


def parse_name_number(option: str, text: str) -> tuple[str, int]:
    """Return (NAME, N) from a text NAME=N. Raises InputError."""
    name, equals, value = text.rpartition("=")
    example = f"{option} {'Loop_1' if option == '--trips' else 'batch'}=8"
    if not equals or not name or not (value.isascii() and value.isdigit()):
        raise InputError(
            f"{option} must be NAME=N, got {text!r}", f"write, for example, {example}"
        )
    if len(value) > DIGITS:
        raise InputError(
            f"{option} {name}=... has a number with {len(value)} digits, which is too many",
            f"write at most {DIGITS}",
        )
    return name, int(value)


def parse_branch_choice(text: str) -> tuple[str, str]:
    """Return (NODE, branch) from a text NODE=then, NODE=else or NODE=sum. Raises InputError."""
    name, _, value = text.rpartition("=")
    if not name or value not in ("then", "else", "sum"):
        raise InputError(
            f"--branch must be NODE=then|else|sum, got {text!r}",
            "write, for example, --branch If_3=else",
        )
    return name, value


def parse_json_argument(text: str) -> tuple[str, object]:
    """Return (KEY, value) from a text KEY=JSON. Raises InputError.

    The name of a type (bfloat16) needs no quotes.
    """
    import json

    from crossflops.frontends.inputs import DTYPES

    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise InputError(
            f"--arg must be KEY=JSON, got {text!r}", "write, for example, --arg weights=null"
        )
    if value.removeprefix("torch.") in DTYPES:
        return name, value
    try:
        return name, json.loads(value)
    except ValueError:
        quoted = f"--arg '{name}={json.dumps(value)}'"
        hint = f"write null, true, 3 or [1, 2]; put text in quotes: {quoted}"
        raise InputError(f"the value of --arg {text!r} is not valid JSON", hint) from None


(WEIGHTS,) = option_group(
    BUILT,
    click.option("--weights", type=click.Choice(["real", "fake"]),
                 help="Whether a PyTorch target is built with values in its weights (real) or "
                      "with shapes only (fake). Default: fake, unless a size or a code path "
                      "depends on values."),
)  # fmt: skip


(WEIGHTS_OF_TOOLS,) = option_group(
    BUILT,
    click.option("--weights", type=click.Choice(["real", "fake"]),
                 help="Whether a PyTorch target is built with values in its weights (real) or "
                      "with shapes only (fake). With fake, tools that need values are skipped "
                      "and listed. Default: fake if the weights take more than 1 GiB."),
)  # fmt: skip


TRAIN: Group = option_group(
    "A training step",
    click.option("--train", is_flag=True,
                 help="Also count a training step: forward pass, gradients of inputs, "
                      "gradients of weights, and recomputed work. The model stays in eval() "
                      "mode unless --train-mode is given."),
    click.option("--frozen", multiple=True, metavar="PATTERN",
                 help="Parameters or modules that are not trained, such as 'layer1*'. "
                      "Repeatable."),
    click.option("--trainable", multiple=True, metavar="PATTERN",
                 help="Parameters or modules that are trained. Overrides --frozen and the "
                      "model's requires_grad. Repeatable."),
    click.option("--loss", default="", metavar="FILE.py:CALLABLE",
                 help="A function that computes the loss from the model's output, instead of "
                      "the sum of all float outputs. Outputs it does not use have no gradient."),
)  # fmt: skip
OPTIMIZER: Group = option_group(
    "A training step",
    click.option("--optimizer", default="", metavar="NAME[,KEY=VALUE]",
                 help="Also count the optimizer step, separately: sgd, momentum, adam, adamw, "
                      "adafactor or lamb, with options such as "
                      "adamw,weight_decay=0.1,clip_norm=1 (0 disables an option)."),
)  # fmt: skip


def check_picture_file(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> str | None:
    """Return the file name of a picture unchanged; raise an error if its format is unknown or it
    cannot be written.
    """
    if value is not None:
        from crossflops.render.figures.files import require_picture_suffix

        require_picture_suffix(Path(value).suffix)
        check_writable_path(Path(value))
    return value


def _check_output_file(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> Path | None:
    """Return the path of the output file, or None; raise an error if its format is unknown or it
    cannot be written.
    """
    if value is None:
        return None
    from crossflops.render.formats import PARQUET, file_suffixes, format_suffix

    path = Path(value)
    if format_suffix(path) not in file_suffixes():
        raise UnknownNameError(
            f"{value} has the suffix {format_suffix(path)!r}, which is not a known format"
            if path.suffix
            else f"{value} has no suffix, which would give the format",
            f"choose one of {', '.join(file_suffixes())}",
        )
    if format_suffix(path) == PARQUET:
        from crossflops.render.parquet import require_pyarrow

        require_pyarrow()
    return check_writable_path(path)


def check_writable_path(path: Path, example: str = "name") -> Path:
    """Return the path of a file to write. Raises CrossflopsError if its folder does not exist or
    it is itself a folder.
    """
    if not path.parent.is_dir():
        raise CrossflopsError(f"folder {path.parent} does not exist", f"mkdir -p {path.parent}")
    if path.is_dir():
        raise CrossflopsError(
            f"{path} is a folder", f"give the path of a file in it, such as {path / example}"
        )
    return path


OUTPUT: Group = option_group(
    "Output",
    click.option("--json", "as_json", is_flag=True, help="Print only JSON."),
    click.option("-o", "--output", "file", callback=_check_output_file, metavar="FILE",
                 help="Write the result to FILE, in the format of its suffix: .json, .md, "
                      ".html, .txt, .tex, .csv ..."),
)  # fmt: skip
UNIT = click.option(
    "--unit",
    type=click.Choice(["macs", "flops"]),
    default="macs",
    show_default=True,
    help="The quantity that the tables show and are sorted by.",
)
STRICT = click.option(
    "--strict",
    is_flag=True,
    help="Exit with status 1 if a node is uncounted or a residual is not 0.",
)


def _parse_tool_interpreters(
    ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]
) -> dict[str, str]:
    """Return the Python interpreter by tool id, from the texts TOOL=INTERPRETER of --python."""
    from crossflops.plugins.elsewhere import parse_interpreters

    return parse_interpreters(texts)


PYTHON = click.option(
    "--python",
    multiple=True,
    metavar="TOOL=INTERPRETER",
    callback=_parse_tool_interpreters,
    help="Run a tool with this Python interpreter (or virtual environment folder); the tool "
    "then need not be installed in this environment. Repeatable. Overrides [python] in "
    "crossflops.toml.",
)


# One table of a report, for `apply_view_options`.

SHOWN = "Show one table of the report"
VIEW: Group = option_group(
    SHOWN,
    click.option("--by", type=click.Choice(["op", "module", "node", "type"]),
                 help="Show one table: by ONNX operator, by module (a tree; each row includes "
                      "its submodules), by graph node, or by type (the class of the innermost "
                      "module of each node)."),
    click.option("--top", type=click.IntRange(1), metavar="N", help="Show only the N largest "
                                                                    "rows."),
    click.option("--depth", type=click.IntRange(0), metavar="N",
                 help="Show only N levels of the module tree. Implies --by module."),
)  # fmt: skip


def apply_view_options(
    report: "Report", fields: dict[str, Any], unit: str
) -> "Report | ReportTable":
    """Return the table of the report that --by, --top and --depth select, or the whole report if
    none is given.
    """
    by: By | None = fields.pop("by")
    top, depth = fields.pop("top"), fields.pop("depth")
    if by is top is depth is None:
        return report
    from crossflops.render.pages.view import ReportTable
    from crossflops.report.view import view

    if by is None:
        by = "op" if depth is None else "module"
    return ReportTable(report, view(report, by, top, depth, unit))
