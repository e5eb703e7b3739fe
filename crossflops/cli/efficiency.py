"""`crossflops efficiency`. Its flags stand in groups, a tuple for each group of fields.

A new group is a struct in `crossflops.hardware.rates.question`, a tuple of options here, and its
name in `@options`; what it asks for is put into the answer in
`crossflops.verbs.efficiency.rate`, and shown by a block of `crossflops.render.pages.efficiency`.
"""

from typing import Any

import click

from crossflops.cli.options import (
    IMAGE_SIZE,
    MODEL,
    OUTPUT,
    Group,
    check_picture_file,
    command_options,
    option_group,
    pop_model_options,
    reject_options,
    reject_timeout_without_tools,
    verb,
)
from crossflops.cli.output import (
    print_to_stderr,
    showing_progress,
    write_roofline_picture,
    write_verb_result,
)
from crossflops.hardware.rates.question import Question
from crossflops.ir.profile import Failure
from crossflops.report.efficiency import Efficiency, EfficiencyReport, MovedBytes, TimedStep

_POSITIVE = click.FloatRange(min=0, min_open=True)
_COUNT = click.IntRange(1)

# The peak: `crossflops.hardware.rates.question.PeakSelection`, and `Precisions` that ran.

PEAK: Group = option_group(
    "The device and its peak",
    click.option("--precision", metavar="P", default="",
                 help="The precision of the run: fp16, bf16, tf32, fp32, fp64, int8 ..., or "
                      "graph for the types stored in the model."),
    click.option("--precision-of", multiple=True, metavar="PATTERN=P",
                 help="A different precision for some operators, nodes or modules: Conv=tf32. "
                      "Repeatable."),
    click.option("--mix", multiple=True, metavar="P=SHARE",
                 help="The share of the work in a precision, such as bf16=0.5. Repeatable; "
                      "shares add up to 1."),
    click.option("--device", metavar="D",
                 help="A device of the catalogue, by its id or the name its driver prints; "
                      "`measured` is this machine."),
    click.option("--catalogue", metavar="FILE.toml",
                 help="A TOML file with more devices, in addition to those of crossflops.toml."),
    click.option("--peak-tflops", multiple=True, metavar="[P=]X",
                 help="The dense peak of the device in TFLOP/s, for all precisions or, as "
                      "bf16=X, for one. Repeatable."),
    click.option("--bandwidth", type=_POSITIVE, metavar="X", help="The memory bandwidth of the "
                                                                  "device in GB/s."),
)  # fmt: skip


# How much of attention counts: the fields of `crossflops.hardware.rates.question.Causality`.

ATTENTION: Group = option_group(
    "Attention",
    click.option("--causal", type=click.Choice(["full", "half"]), default="full",
                 show_default=True,
                 help="Count all attention scores, or only the half that a causal mask keeps. "
                      "The result shows both."),
    click.option("--window", type=_COUNT, metavar="W", help="Number of keys in the sliding "
                                                            "window of attention."),
)  # fmt: skip


# A transformer by its sizes: the fields of `crossflops.hardware.rates.question.Language`.

_SIZES = (
    ("--layers", "L", "Number of layers with attention."),
    ("--hidden", "H", "Width of attention: heads x head dimension."),
    ("--heads", "H", "Number of heads; use with --head-dim instead of --hidden."),
    ("--head-dim", "Q", "Dimension of one head."),
    ("--kv-heads", "N", "Number of key and value heads, if fewer than --heads."),
    (
        "--seq",
        "T",
        "Tokens in one sequence; for a model given by name, the tokens of its default input.",
    ),
    (
        "--context",
        "T",
        "Tokens in the cache, for decoding one token at a time; only for a transformer given "
        "by its sizes.",
    ),
)


LANGUAGE: Group = option_group(
    "A transformer given by its sizes",
    click.option("--params", metavar="N",
                 help="Number of parameters in matrix products, such as 540.35G. Needs no "
                      "TARGET."),
    *(
        click.option(flag, type=_COUNT, metavar=letter, help=meaning)
        for flag, letter, meaning in _SIZES
    ),
    click.option("--param-bytes", type=_POSITIVE, default=2, metavar="X",
                 help="Bytes per parameter."),
    click.option("--cache-bytes", type=_POSITIVE, default=2, metavar="X",
                 help="Bytes per element of the key and value cache."),
)  # fmt: skip


# Generated text: the fields of `crossflops.hardware.rates.question.Generation`.

GENERATION: Group = option_group(
    "Generated text",
    click.option("--prompt", type=_COUNT, metavar="N",
                 help="Rate a language model while it generates text: the prefill of a prompt "
                      "of N tokens, and decoding with a cache. Needs --generate. --batch is the "
                      "number of requests."),
    click.option("--generate", type=_COUNT, metavar="N",
                 help="Number of new tokens of each request. Needs --prompt."),
    click.option("--images", type=_COUNT, metavar="N",
                 help="Number of images in each prompt of a vision-language model, in "
                      "addition to the tokens of --prompt. --image-size is their side."),
    click.option("--draft", metavar="TARGET", default="",
                 help="Rate speculative decoding with this draft model, another config. Needs "
                      "--prompt, --draft-tokens and --acceptance."),
    click.option("--draft-tokens", type=_COUNT, metavar="N",
                 help="Number of tokens that the draft model proposes in a round."),
    click.option("--acceptance", metavar="N|P%", default="",
                 help="How many of them are accepted on average, such as 2.5, or the chance of "
                      "each one, such as 80%."),
    click.option("--workload", metavar="FILE.json",
                 help="Read the prompt, the new tokens and the model from a file written by "
                      "`crossflops count --prompt P --generate G -o FILE.json`. Needs no "
                      "TARGET."),
    click.option("--cache-dtype", metavar="P", default="",
                 help="The precision of the key and value cache, such as fp8. Default: the same "
                      "as --precision."),
    click.option("--prefill-tokens-per-second", metavar="R",
                 help="The measured speed of the prefill, in prompt tokens of all requests."),
    click.option("--decode-tokens-per-second", metavar="R",
                 help="The measured speed of decoding, in new tokens of all requests. "
                      "--tokens-per-second is the speed of both phases together."),
)  # fmt: skip


# The devices of a run: the fields of `crossflops.hardware.rates.question.Parallel`.

PARALLEL: Group = option_group(
    "Several devices",
    click.option("--devices", type=_COUNT, metavar="N", help="Number of devices in total: dp "
                                                             "x tp x pp."),
    click.option("--dp", type=_COUNT, metavar="N", help="Number of data parallel replicas, "
                                                        "each with its own examples."),
    click.option("--tp", "--tensor-parallel", "tp", type=_COUNT, default=1, metavar="N",
                 help="Number of devices that share one layer (tensor parallel)."),
    click.option("--pp", type=_COUNT, default=1, metavar="N", help="Number of pipeline stages."),
)  # fmt: skip


# The roofline: the fields of `crossflops.hardware.rates.question.Roof`.

ROOF: Group = option_group(
    "The roofline",
    click.option("--roofline", is_flag=True,
                 help="Add a roofline: for each node, the longer of its compute time and its "
                      "memory time."),
    click.option("--bytes", "bytes_",
                 type=click.Choice(["unfused", "weights-once", "fused-ideal"]),
                 help="Which bytes are counted: the inputs and outputs of each node (the "
                      "default); weights and caches once; or weights and caches once, and the "
                      "inputs and outputs of the model. Implies --roofline."),
    click.option("--bytes-per-example", metavar="N",
                 help="Bytes moved per example, such as 459M, instead of counting them."),
    click.option("--what-if", multiple=True, metavar="KEY=VALUE[,...]",
                 help="Add a roofline with another batch, precision, weights, cache, device "
                      "or bytes, such as batch=64 or weights=fp8,cache=fp8. Repeatable."),
    click.option("--bench", metavar="FILE.json",
                 help="Add the measurements of a file written by `crossflops bench -o "
                      "FILE.json`, kernel by kernel."),
    click.option("--plot", callback=check_picture_file, metavar="FILE",
                 help="Draw the roofline to this file, .svg or .png."),
)  # fmt: skip


# What was measured: the fields of `crossflops.hardware.rates.question.Speed`.

SPEED: Group = option_group(
    "Measured speed",
    click.option("--examples-per-second", metavar="R",
                 help="The measured speed, such as 1325 or 2.6k. With --devices or --dp, the "
                      "speed of all devices together."),
    click.option("--tokens-per-second", metavar="R", help="The measured speed in tokens per "
                                                          "second, such as 2.6M."),
    click.option("--latency-ms", type=_POSITIVE, metavar="T",
                 help="The time of one forward pass over --batch examples; with --train, of "
                      "one step."),
    click.option("--fwd-ms", type=_POSITIVE, metavar="T", help="The time of the forward pass "
                                                               "only."),
    click.option("--bwd-ms", type=_POSITIVE, metavar="T", help="The time of the backward pass."),
    click.option("--step-ms", type=_POSITIVE, metavar="T", help="The time of the optimizer "
                                                                "step."),
    click.option("--batch", type=_COUNT, metavar="B",
                 help="Examples in one (micro-)batch on one replica of the model."),
    click.option("--tokens", type=_COUNT, metavar="N", help="Tokens in one example."),
    click.option("--runs", metavar="FILE.csv",
                 help="A CSV table of runs, with the columns device, precision, batch, rate, "
                      "or names of flags."),
    click.option("--times", metavar="FILE.csv",
                 help="A CSV table of forward times of modules, with the columns module and "
                      "ms, and macs if there is no TARGET."),
    click.option("--per-device/--all-devices", default=None,
                 help="Whether the measured rate is per device or of all devices together "
                      "(the default)."),
)  # fmt: skip


# What runs besides the forward pass: the fields of `hardware.rates.question.Training`.

TRAINING: Group = option_group(
    "Training",
    click.option("--train", is_flag=True,
                 help="Rate a training step: the exact count of a step of TARGET, as in "
                      "`count --train`; without a TARGET, three passes instead of one."),
    click.option("--train-multiplier", metavar="X",
                 help="The number of passes of a training step instead of three, such as 2.5."),
    click.option("--backward", type=click.Choice(["flat", "graph"]),
                 help="flat: three passes for every node. graph: the exact count of each node "
                      "(the default with a TARGET)."),
    click.option("--frozen", multiple=True, metavar="PATTERN",
                 help="Modules or parameters that are not trained, such as 'layer1*'. "
                      "Repeatable."),
    click.option("--trainable", multiple=True, metavar="PATTERN",
                 help="Exceptions from --frozen that are trained, such as '*lora*'. "
                      "Repeatable."),
    click.option("--loss", default="", metavar="FILE.py:CALLABLE",
                 help="A function that computes the loss from the model's output, as in "
                      "`count --train`."),
    click.option("--recompute", metavar="none|full|attention|F", default="none", show_default=True,
                 help="The part of the forward pass that the backward pass recomputes. Only the "
                      "HFU counts it."),
    click.option("--flash", is_flag=True,
                 help="The backward pass recomputes the attention scores (FlashAttention)."),
    click.option("--accumulate", type=_COUNT, default=1, metavar="N",
                 help="Number of micro-batches in one step."),
)  # fmt: skip


# A whole run: the fields of `crossflops.hardware.rates.question.RunLength`.

RUN: Group = option_group(
    "A whole run",
    click.option("--run-tokens", metavar="N",
                 help="Add the FLOPs, device-hours and energy of a whole training run of this "
                      "many tokens, such as 15T."),
    click.option("--run-examples", metavar="N", help="The length of that run in examples, "
                                                     "such as 1.28M."),
    click.option("--run-steps", metavar="N", help="The length of that run in steps of --batch "
                                                  "examples."),
    click.option("--mfu", metavar="X",
                 help="The assumed MFU of that run, such as 0.4 or 40%, instead of a measured "
                      "speed. Without the length of a run it is a published MFU for the first "
                      "--as, or for the native count; the speed and the other MFUs are computed "
                      "from it."),
    click.option("--optimizer", default="", metavar="NAME[,KEY=VALUE]",
                 help="Also count the steps of this optimizer: see `count --train`."),
)  # fmt: skip


# Whose count: the fields of `crossflops.hardware.rates.question.WorkSource`.

WORK: Group = option_group(
    "Whose count",
    click.option("--as", "as_", multiple=True, metavar="ID[@EDITION]",
                 help="Use the MACs of this tool, or of this formula over a language model (palm, "
                      "megatron-lm), instead of the native count. Repeatable: one row for each."),
    click.option("--macs", metavar="N",
                 help="MACs per example, such as 4.112G. Needs no TARGET."),
    click.option("--pass-macs", metavar="N",
                 help="MACs of one forward pass over --batch examples."),
    click.option("--compare", is_flag=True, help="Show the result for the number of each "
                                                 "tool, and why the numbers differ."),
    click.option("--tool", "tools", multiple=True, metavar="ID",
                 help="A tool for --compare. Repeatable."),
)  # fmt: skip


A_CHECK_FAILED = 1
EVERY_TOOL_FAILED = 3


@verb(
    "efficiency",
    example="crossflops efficiency model.onnx --device a100-sxm4-80gb -"
    "-precision bf16 --latency-ms 2 --batch 1 --roofline",
    first=("--device", "--precision", "--latency-ms", "--batch", "--roofline"),
)
@command_options(
    click.argument("target", required=False),
    *MODEL,
    *IMAGE_SIZE,
    *TRAINING,
    *RUN,
    *SPEED,
    *PEAK,
    *WORK,
    *ATTENTION,
    *PARALLEL,
    *LANGUAGE,
    *GENERATION,
    *ROOF,
    *OUTPUT,
)  # fmt: skip
def efficiency(target: str | None, as_json: bool, file: Any, **fields: Any) -> int:
    """Compare a count with a device's peak.

    The required rate is 2 x MACs x examples per second, for one device. The MACs are those of a
    forward pass; with --train those of the exact step, or of three passes if the MACs are given.
    Without a TARGET the work is given by --macs, or by --params and the sizes of a transformer.
    Exit status 1 means that the rate is above the peak, which is impossible.

    The compute of a whole run:

    \b
    crossflops efficiency hf:config.json --seq 8192 --train --run-tokens 15T \\
        --mfu 0.4 --device h100-sxm --precision bf16 --json
    """
    from crossflops.verbs.efficiency.rate import answer_efficiency, make_efficiency_request

    of_the_model = pop_model_options(fields)
    side = fields.pop("image_size")
    of_the_model["sizes"] = {} if side is None else {"image_size": side}
    named: tuple[str, ...] = fields.pop("as_")
    fields["as_"] = named[0] if len(named) == 1 else named or None
    question = Question.from_fields(**fields)
    model = make_efficiency_request(target, of_the_model.pop("inputs"), of_the_model, question)
    if model is None:
        reject_options(
            ("formulas",), "no model is counted", "leave out {option}, or give a TARGET"
        )
    if not question.work.compare:
        reject_timeout_without_tools(*([] if model is None else [model]))
    doing = "comparing" if question.work.compare else "counting"
    with showing_progress(f"{doing} {target or 'by a rule'}") as on_progress:
        rated = answer_efficiency(question, model, on_progress)
    for line in rated.left_out:
        print_to_stderr(line)
    write_verb_result(rated.noun, as_json=as_json, file=file)
    if question.roof.plot is not None:
        write_roofline_picture(rated.noun, question.roof.plot)
    if rated.trouble is not None:
        raise rated.trouble
    return _efficiency_exit_status(rated.noun)


def _efficiency_exit_status(result: EfficiencyReport) -> int:
    """Return the exit status of `efficiency`: 3 if every tool failed, 1 if a rate exceeds 100 %,
    else 0; print why.
    """
    profiles = (result.report.profiles if result.report else None) or ()
    if result.report and result.report.profiles == ():
        print_to_stderr("no tool is installed; see `crossflops doctor`")
    if profiles and all(isinstance(answer, Failure) for answer in profiles):
        print_to_stderr("every tool failed")
        return EVERY_TOOL_FAILED
    exceeded = [
        limit
        for limit, is_exceeded in (
            (
                "peak",
                any(map(_exceeds_peak, result.efficiency))
                or any((phase.mfu or 0) > 1 for phase in result.phases or ()),
            ),
            (
                "bandwidth",
                any(map(_exceeds_bandwidth, result.efficiency))
                or any((phase.mbu or 0) > 1 for phase in result.phases or ()),
            ),
        )
        if is_exceeded
    ]
    if not exceeded:
        return 0
    print_to_stderr(f"error: more than 100 % of a {' and a '.join(exceeded)} is impossible")
    print_to_stderr("hint: see the warnings of the result for likely reasons")
    return A_CHECK_FAILED


def _exceeds_bandwidth(answer: Efficiency) -> bool:
    """Return whether a run moved more bytes per second than the device's memory bandwidth."""
    return isinstance(answer.moved, MovedBytes) and (answer.moved.mbu or 0) > 1


def _exceeds_peak(answer: Efficiency) -> bool:
    """Return whether a run, or a phase or a module of it, was faster than the device's peak."""
    phases = answer.step.phases if isinstance(answer.step, TimedStep) else ()
    shares = [answer.ratio, answer.hfu, *(phase.ratio for phase in phases)]
    shares += [module.ratio for module in answer.modules or ()]
    return any(isinstance(share, float) and share > 1 for share in shares)
