"""`crossflops profile`."""

from typing import Any

import click
from msgspec.structs import replace

from crossflops.cli.options import (
    MODEL,
    OUTPUT,
    SIZES,
    TARGET,
    Positive,
    command_options,
    pop_request,
    pop_size_options,
    reject_options,
    reject_options_except,
    reject_page_options_with_json,
    verb,
    writes_json,
)
from crossflops.cli.output import print_to_stderr, showing_progress, write_verb_result
from crossflops.errors import CrossflopsError, InputError
from crossflops.render.pages.profile import ProfileView
from crossflops.report.profile import ShownDepth, TrainingProfile

A_CHECK_FAILED = 1
_POSITIVE = Positive()


@verb(
    "profile",
    example="crossflops profile model.onnx --fwd-ms 1.2 --bwd-ms 2.5 --peak-tflops 1",
    first=("--input", "--depth", "--top", "--device", "-o"),
)
@command_options(
    TARGET,
    click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[ARG]..."),
    click.option("--step", type=click.IntRange(1), default=5, show_default=True, metavar="N",
                 help="For a script: the number of the optimizer step to profile."),
    *MODEL,
    *SIZES,
    click.option("--as", "as_", multiple=True, metavar="ID[@EDITION]",
                 help="Also count the step by this convention, such as deepspeed@2021, and "
                      "explain the difference. Repeatable."),
    click.option("--tool", "tools", multiple=True, metavar="ID",
                 help="Also run this tool, such as deepspeed-macs, on the forward pass, and "
                      "explain the difference. Repeatable."),
    click.option("--frozen", multiple=True, metavar="PATTERN",
                 help="With --fwd-ms: parameters or modules that were not trained, such as "
                      "'layer1*'. Repeatable."),
    click.option("--depth", type=click.IntRange(-1), default=-1, show_default=True, metavar="N",
                 help="Levels of modules to show; -1 for all."),
    click.option("--top", type=click.IntRange(1), default=3, show_default=True, metavar="N",
                 help="Number of modules to show at each level."),
    click.option("--no-detail", is_flag=True, help="Do not show the module tree."),
    click.option("--optimizer", default="adamw", show_default=True, metavar="NAME",
                 help="A class of torch.optim, such as adamw or sgd, or none."),
    click.option("--threads", type=click.IntRange(1), metavar="N",
                 help="Threads per operator. Default: OMP_NUM_THREADS, else the CPUs of this "
                      "process."),
    click.option("--seconds", type=_POSITIVE, default=3.0, show_default=True, metavar="X",
                 help="Maximum time of the warm-up, and again of the timing."),
    click.option("--device", metavar="NAME", help="The device whose peak the rates are "
                                                  "divided by."),
    click.option("--precision", metavar="P", help="The precision of the run, such as fp16."),
    click.option("--peak-tflops", multiple=True, metavar="[P=]X",
                 help="The peak in TFLOP/s, for all precisions or, as bf16=X, for one. "
                      "Repeatable."),
    click.option("--fwd-ms", type=_POSITIVE, metavar="X",
                 help="The time of a forward pass that was measured elsewhere. Nothing is run."),
    click.option("--bwd-ms", type=_POSITIVE, metavar="X", help="The measured time of the "
                                                               "backward pass."),
    click.option("--step-ms", type=_POSITIVE, metavar="X", help="The measured time of the "
                                                                "optimizer step."),
    *OUTPUT,
)  # fmt: skip
def profile(words: tuple[str, ...], as_json: bool, file: Any, **fields: Any) -> int:
    """Train a PyTorch model for some steps and show the work and time of each module.

    If the times are given by --fwd-ms and others, nothing is run, and TARGET may be any model.
    `crossflops profile -- python train.py ...` runs a script unchanged and profiles one of its
    steps; the exit status is that of the script.

    The result has the latencies of the forward pass, the backward pass and the optimizer step,
    each with its exact count; the largest modules of each level; and all modules as a tree. The
    model runs in this process. Exit status 1 means that a module was faster than the peak, which
    is impossible.
    """
    if words:
        return _profile_script((fields.pop("target"), *words), as_json, file, fields)
    from crossflops.bench.timing import BenchLimits
    from crossflops.profiling.run import Recipe
    from crossflops.verbs.profile import profile as profile_verb
    from crossflops.verbs.profile.account import RatedAgainst

    fields.pop("step")
    reject_options(
        ("step",),
        "it selects a step of a script",
        "leave out {option}, or give a script: -- python FILE.py",
    )
    reject_page_options_with_json({"as_json": as_json, "file": file}, *_OF_THE_PAGE)
    choice = _pop_profile_depth(fields)
    against = RatedAgainst(
        device=fields.pop("device"),
        precision=fields.pop("precision"),
        peak_tflops=fields.pop("peak_tflops"),
    )
    provided = profile_verb.GivenTimes(
        **{name: fields.pop(name) for name in ("fwd_ms", "bwd_ms", "step_ms")}
    )
    if provided.has_times:
        reject_options(
            _OF_RUNS,
            "--fwd-ms gives the times, so nothing is run",
            "leave out {option}, or leave out --fwd-ms",
        )
    limits = BenchLimits(warmup=10, runs=20, fewest=2, seconds=fields.pop("seconds"))
    recipe = Recipe(optimizer=fields.pop("optimizer"), limits=limits)
    threads, tools = fields.pop("threads"), fields.pop("tools")
    counted = {name: fields.pop(name) for name in ("as_", "frozen")}
    requested = pop_request(fields, sizes=pop_size_options(fields), train=True, **counted)
    config = profile_verb.ProfileConditions(
        recipe=recipe, against=against, given=provided, threads=threads, tools=tools
    )
    with showing_progress(f"profiling {requested.target}") as on_progress:
        content = profile_verb.profile_training(requested, config, on_progress)
    write_verb_result(
        _limit_profile_modules(content, choice, as_json, file), as_json=as_json, file=file
    )
    return A_CHECK_FAILED if content.errors else 0


def _pop_profile_depth(fields: dict[str, Any]) -> ShownDepth:
    """Remove --depth, --top and --no-detail from `fields`, and return how much of a profile to
    show.
    """
    detailed = not fields.pop("no_detail")
    return ShownDepth(depth=fields.pop("depth"), top=fields.pop("top"), detailed=detailed)


def _limit_profile_modules(
    result: TrainingProfile, choice: ShownDepth, as_json: bool, file: Any
) -> ProfileView:
    """Return the profile to show; if it is written as JSON, without the modules below the
    requested depth.
    """
    if not writes_json({"as_json": as_json, "file": file}):
        return ProfileView(result, choice)
    depth = choice.depth if choice.detailed else 0
    rows = tuple(row for row in result.modules if depth < 0 or row.depth <= depth)
    return ProfileView(replace(result, modules=rows), choice)


_OF_THE_PAGE = ("top",)
_OF_RUNS = ("seconds", "optimizer", "threads", "timeout")
_OF_SCRIPTS = ("step", "depth", "top", "no_detail", "device", "precision", "peak_tflops", "as_")


def _profile_script(
    command: tuple[str, ...], as_json: bool, file: Any, fields: dict[str, Any]
) -> int:
    """Profile a script and print the result; return the exit status of the script. Raises
    CrossflopsError if no step was profiled.
    """
    from crossflops.training_loops import script

    reject_options_except(
        _OF_SCRIPTS,
        "a script builds and runs its own model",
        "leave out {option}, or give one target",
    )
    reject_page_options_with_json({"as_json": as_json, "file": file}, *_OF_THE_PAGE)
    peaks = fields["peak_tflops"]
    if len(peaks) > 1:
        raise InputError(
            "--peak-tflops can be given only once for a script",
            "give one --peak-tflops, for the precision that the script uses",
        )
    choice = script.StepChoice(
        step=fields["step"],
        device=fields["device"],
        peak_tflops=peaks[0] if peaks else None,
        precision=fields["precision"],
        as_=fields["as_"],
    )
    ended = script.run_script(command, choice, quiet=as_json and file is None)
    if ended.profile is None:
        message = f"no step was profiled: {ended.reason}"
        if ended.status:
            print_to_stderr(f"crossflops: {message}")
            return ended.status
        raise CrossflopsError(
            message,
            "correct what the message names, or give a smaller --step; the script must train with "
            "an optimizer of torch.optim",
        )
    write_verb_result(
        _limit_profile_modules(ended.profile, _pop_profile_depth(fields), as_json, file),
        as_json=as_json,
        file=file,
    )
    return ended.status
