"""`crossflops compare`, and the questions that a comparison answers, at once or from its file."""

from collections.abc import Sequence
from typing import Any

import click

from crossflops.cli.options import (
    HOW,
    MODEL,
    OUTPUT,
    PYTHON,
    SIZES,
    STRICT,
    TARGET,
    TRAIN,
    UNIT,
    WEIGHTS_OF_TOOLS,
    Group,
    Positive,
    check_picture_file,
    command_options,
    option_group,
    pop_input_options,
    pop_request,
    pop_size_options,
    reject_options,
    reject_page_options_with_json,
    verb,
)
from crossflops.cli.output import (
    print_to_stderr,
    showing_progress,
    write_comparison_picture,
    write_verb_result,
)
from crossflops.errors import InputError
from crossflops.ir.profile import Failure, Profile
from crossflops.plugins.discovery import plugin_install_command
from crossflops.render.pages.places import TOP, ComparisonView
from crossflops.report.comparison import Against
from crossflops.report.report import Report

DOCTOR = "see `crossflops doctor`"
NO_ANSWER = 3

# What may be asked of a comparison, now or of the file that one was written to.

QUESTIONS: Group = option_group(
    "Questions about the report",
    click.option("--between", nargs=2, metavar="TOOL TOOL",
                 help="Explain the difference between two tools."),
    click.option("--consensus", is_flag=True,
                 help="Recommend a number to publish, as a sentence to cite."),
    click.option("--module", metavar="PATH",
                 help="Show only this module and the modules in it, such as layer1.0."),
)  # fmt: skip


def pop_report_questions(fields: dict[str, Any]) -> dict[str, Any]:
    """Remove the values of --between, --module and --consensus from `fields`, and return them by
    name.
    """
    return {name: fields.pop(name) for name in ("between", "module", "consensus")}


def has_unanswered_comparison(report: Report, between: tuple[str, str] | None) -> bool:
    """Return whether a tool that --between names has failed; print a message for each
    such tool.
    """
    profiles = report.profiles or ()
    sides: list[tuple[Sequence[Profile | Failure], Sequence[str]]] = [(profiles, between or ())]
    if between and isinstance(report.against, Against):
        sides = [(profiles, between[:1]), (report.against.profiles, between[1:])]
    failed = [
        answer
        for answers, tools in sides
        for answer in answers
        if isinstance(answer, Failure) and answer.tool in tools
    ]
    for failure in failed:
        print_to_stderr(
            f"cannot contrast {' and '.join(between or ())}: {failure.tool} failed "
            f"({failure.stage}): {failure.message}"
        )
    return bool(failed)


# Formulas over the architecture of a language model.

FORMULAS: Group = option_group(
    "Formulas over an architecture",
    click.option("--llm", is_flag=True,
                 help="For a language model of transformers: show the results of the formulas "
                      "of papers and training frameworks in one table, and explain each "
                      "difference by its causes. No tool is run."),
    click.option("--as", "as_", multiple=True, metavar="ID[@EDITION]",
                 help="Use only this formula, such as palm or torchtitan@0.2.0. Repeatable."),
)  # fmt: skip
_NO_FORMULA = (
    "tools", "no_tools", "onnx", "memory", "weights", "train", "frozen", "trainable", "loss",
    "between", "consensus", "module", "teach_tools", "top", "python", "unit", "plot", "against",
    "against_inputs", "against_inputs_file", "against_arguments", "against_dims",
    "against_trips", "against_branches",
)  # fmt: skip


def _compare_formulas(fields: dict[str, Any], strict: bool, formula_texts: tuple[str, ...]) -> int:
    """Run `compare --llm` or `--as FORMULA`: print what formulas give for a language model; return
    the exit status.
    """
    from crossflops.verbs.compare.formulas import compare_with_formulas

    flag = "--as" if formula_texts else "--llm"
    reject_options(
        _NO_FORMULA, f"{flag} runs no tool", f"leave out {{option}}, or leave out {flag}"
    )
    requested = pop_request(fields, sizes=pop_size_options(fields))
    with showing_progress(f"counting {requested.target}"):
        report = compare_with_formulas(requested, formula_texts)
    fields = {name: fields[name] for name in ("as_json", "file", "unit") if name in fields}
    write_verb_result(report, **fields)
    accounts = report.llm.accounts if report.llm else ()
    left = [account for account in accounts if account.residual]
    if strict and (left or report.uncounted):
        broken = [
            f"{account.tool}@{account.edition} leaves a residual of {account.residual}"
            for account in left
        ]
        broken += [f"{len(report.uncounted)} nodes are not counted"] if report.uncounted else []
        print_to_stderr(f"strict: {'; '.join(broken)}")
        return 1
    return 0


# A second model, and how to build and run it where that is not said already.

_LIKE = "instead of the value given for TARGET."
_AGAINST: Group = option_group(
    "A second model",
    click.option("--against", "against", metavar="TARGET",
                 help="Compare with a second model: differences per layer, then per tool. "
                      "Options not given for it are taken from the first model; the image "
                      "layout is adapted."),
    click.option("--against-input", "against_inputs", multiple=True,
                 metavar="[NAME=]SHAPE[:DTYPE]",
                 help=f"An input of the second model, {_LIKE}"),
    click.option("--against-inputs", "against_inputs_file", metavar="FILE.npz",
                 help=f"Values of its inputs, {_LIKE}"),
    click.option("--against-arg", "against_arguments", multiple=True, metavar="KEY=JSON",
                 help=f"An argument of its callable, {_LIKE}"),
    click.option("--against-dim", "against_dims", multiple=True, metavar="NAME=N",
                 help=f"A dimension of its ONNX file, {_LIKE}"),
    click.option("--against-trips", "against_trips", multiple=True, metavar="NODE=N",
                 help=f"The number of iterations of a Loop of its file, {_LIKE}"),
    click.option("--against-branch", "against_branches", multiple=True,
                 metavar="NODE=then|else|sum",
                 help=f"Which branch of an If of its file is counted, {_LIKE}"),
)  # fmt: skip


def _pop_second_model_options(fields: dict[str, Any]) -> dict[str, Any]:
    """Remove the options of the second model (--against) from `fields`, and return them as
    arguments of a comparison.

    Raises InputError for an option of a second model that there is not.
    """
    target = fields.pop("against")
    stray = next((name for name in HOW if fields[f"against_{name}"]), None)
    if target is None and stray is not None:
        flag = HOW[stray].replace("--", "--against-")
        raise InputError(f"{flag} requires a second model", "add --against TARGET")
    provided = {
        name: value for name, value in pop_input_options(fields, "against_").items() if value
    }
    return {"against": target, "against_options": provided}


_OF_TOOLS = (
    "tools", "onnx", "memory", "between", "consensus", "python", "top", "teach_tools",
)  # fmt: skip


@verb(
    "compare",
    example="crossflops compare model.onnx -o report.html",
    first=("--input", "--tool", "--against", "--strict", "-o"),
)
@command_options(
    TARGET,
    *MODEL,
    *SIZES,
    *_AGAINST,
    click.option("--tool", "tools", multiple=True, metavar="ID",
                 help="A tool to run. Repeatable. Default: every installed tool that accepts "
                      "the model."),
    click.option("--no-tools", is_flag=True, help="Run no tool: with --against, compare only "
                                                  "the models."),
    click.option("--onnx", metavar="FILE",
                 help="The file for tools that read ONNX files, instead of the normalized "
                      "model."),
    click.option("--memory", type=Positive(), metavar="GIB",
                 help="Maximum address space of each tool. Default: the memory of the machine."),
    WEIGHTS_OF_TOOLS,
    *TRAIN,
    *QUESTIONS,
    click.option("--teach-tools", is_flag=True,
                 help="Give the formulas of --formulas to the tools, by each tool's own "
                      "mechanism (thop, fvcore, torch-flop-counter, ptflops)."),
    *FORMULAS,
    click.option("--top", type=click.IntRange(0), default=TOP, show_default=True, metavar="N",
                 help="Number of modules to show, those where the tools disagree most."),
    PYTHON,
    STRICT,
    UNIT,
    click.option("--plot", callback=check_picture_file, metavar="FILE",
                 help="Draw a waterfall for each tool, as .svg or .png. If the file name "
                      "begins with bars, draw the totals of all tools."),
    *OUTPUT,
)  # fmt: skip
def compare(
    tools: tuple[str, ...],
    no_tools: bool,
    onnx: str | None,
    memory: float | None,
    python: dict[str, str],
    top: int,
    strict: bool,
    plot: str | None,
    teach_tools: bool,
    llm: bool,
    as_: tuple[str, ...],
    **fields: Any,
) -> int:
    """Run other counters on a model, and explain every difference."""
    from crossflops.verbs.compare import compare as compare_verb

    if llm and as_:
        raise InputError(
            "--llm selects all formulas and cannot be combined with --as, which selects some",
            "leave out one of the two",
        )
    if llm or as_:
        return _compare_formulas(fields, strict, as_)

    reject_page_options_with_json(fields, "top", "unit")
    if no_tools:
        reject_options(
            _OF_TOOLS, "--tool cannot be combined with --no-tools", "leave out one of the two"
        )
        if fields["against"] is None:
            reject_options(
                ("unit",),
                "it applies to the table of modules, which is not shown without tools",
                "use `crossflops count`",
            )
    comparison = compare_verb.Comparison(
        tools=() if no_tools else tools or None,
        onnx=onnx,
        timeout=fields["timeout"],
        memory=None if memory is None else round(memory * 2**30),
        python=python,
        teach_tools=teach_tools,
        **pop_report_questions(fields),
        **_pop_second_model_options(fields),
    )
    named = {
        name: fields.pop(name) for name in ("weights", "train", "frozen", "trainable", "loss")
    }
    model = pop_request(fields, sizes=pop_size_options(fields), **named)
    with showing_progress(f"comparing {model.target}") as on_progress:
        report = compare_verb.compare_with_tools(
            model, comparison, on_progress, on_progress.pausing_display
        )
    write_verb_result(ComparisonView(report, top) if report.profiles else report, **fields)
    if plot is not None:
        write_comparison_picture(report, plot)
    if has_unanswered_comparison(report, comparison.between):
        return NO_ANSWER
    return _comparison_exit_status(report, strict, no_tools)


def _comparison_exit_status(report: Report, strict: bool, alone: bool) -> int:
    """Return the exit status of `compare`: 3 if every tool failed, 1 for a residual or an
    uncounted node with --strict, else 0.
    """
    other = report.against if isinstance(report.against, Against) else None
    profiles = (*(report.profiles or ()), *(other.profiles if other else ()))
    if not profiles and not alone and not report.training:  # else a warning names those left out
        print_to_stderr(
            f"no tool is installed. To install tools: {plugin_install_command() or DOCTOR}"
        )
    elif profiles and all(isinstance(answer, Failure) for answer in profiles):
        print_to_stderr("every tool failed")
        return NO_ANSWER
    left = [(tool, residual) for tool, residual in report.residuals.items() if residual]
    left += (
        [(answer.tool, answer.residual) for answer in other.reconciliations if answer.residual]
        if other
        else []
    )
    missing = len(report.uncounted) + (other.alignment.uncounted[1] if other else 0)
    if strict and (left or missing):
        broken = [f"{tool} has a residual of {residual}" for tool, residual in left]
        broken += [f"{missing} nodes are not counted"] if missing else []
        print_to_stderr(f"strict: {'; '.join(broken)}")
        return 1
    return 0
