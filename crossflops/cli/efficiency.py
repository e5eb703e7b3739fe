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
    command_options,
    option_group,
    picture,
    pop_model_options,
    refuse_timeout,
    verb,
)
from crossflops.cli.output import deliver, keep_roofline, progress, say
from crossflops.hardware.rates.question import Question
from crossflops.ir.profile import Failure
from crossflops.report.efficiency import Efficiency, EfficiencyReport, MovedBytes, TimedStep

_POSITIVE = click.FloatRange(min=0, min_open=True)
_COUNT = click.IntRange(1)

# The peak: `crossflops.hardware.rates.question.WhichPeak`, and `Precisions` that ran.

PEAK: Group = option_group(
    "The device and its peak",
    click.option("--precision", metavar="P", default="",
                 help="What ran: fp16, bf16, tf32, fp32, fp64, int8 ..., or graph: as it is "
                      "stored."),
    click.option("--precision-of", multiple=True, metavar="PATTERN=P",
                 help="Another precision for some operators, nodes or modules: Conv=tf32. "
                      "Repeatable."),
    click.option("--mix", multiple=True, metavar="P=SHARE",
                 help="Shares of the work by precision: bf16=0.5, fp8=0.5. Repeatable."),
    click.option("--device", metavar="D",
                 help="A device of the catalogue, as its driver prints it; `measured` is this "
                      "machine."),
    click.option("--catalogue", metavar="FILE.toml",
                 help="Devices of your own, beside those of crossflops.toml."),
    click.option("--peak-tflops", multiple=True, metavar="[P=]X",
                 help="The dense peak in TFLOP/s of any other device, or of one precision. "
                      "Repeatable."),
    click.option("--bandwidth", type=_POSITIVE, metavar="X", help="The memory bandwidth in GB/s."),
)  # fmt: skip


# How much of attention counts: the fields of `crossflops.hardware.rates.question.Causality`.

ATTENTION: Group = option_group(
    "Attention",
    click.option("--causal", type=click.Choice(["full", "half"]), default="full",
                 show_default=True,
                 help="The whole square of attention, or what a causal mask leaves; both are "
                      "printed."),
    click.option("--window", type=_COUNT, metavar="W", help="Keys in a sliding window."),
)  # fmt: skip


# A transformer by its sizes: the fields of `crossflops.hardware.rates.question.Language`.

_SIZES = (
    ("--layers", "L", "Layers with attention."),
    ("--hidden", "H", "Width of attention, which is heads x depth."),
    ("--heads", "H", "Heads, with --head-dim instead of --hidden."),
    ("--head-dim", "Q", "Depth of a head."),
    ("--kv-heads", "N", "Heads of keys and values, where they are fewer."),
    ("--seq", "T", "Tokens of a sequence; of a model by name those of its usual input."),
    (
        "--context",
        "T",
        "Tokens in the cache, when one token after the other is decoded: by sizes.",
    ),
)


LANGUAGE: Group = option_group(
    "A transformer by its sizes",
    click.option("--params", metavar="N",
                 help="Parameters in products, such as 540.35G; with sizes it needs no TARGET."),
    *(
        click.option(flag, type=_COUNT, metavar=letter, help=meaning)
        for flag, letter, meaning in _SIZES
    ),
    click.option("--param-bytes", type=_POSITIVE, default=2, metavar="X",
                 help="Bytes of a parameter."),
    click.option("--cache-bytes", type=_POSITIVE, default=2, metavar="X",
                 help="Of a cached element."),
)  # fmt: skip


# The devices of a run: the fields of `crossflops.hardware.rates.question.Parallel`.

PARALLEL: Group = option_group(
    "Several devices",
    click.option("--devices", type=_COUNT, metavar="N", help="All of them: dp x tp x pp."),
    click.option("--dp", type=_COUNT, metavar="N", help="Replicas, each with its examples."),
    click.option("--tp", type=_COUNT, default=1, metavar="N", help="Devices to a layer."),
    click.option("--pp", type=_COUNT, default=1, metavar="N", help="Stages of a pipeline."),
)  # fmt: skip


# The roofline: the fields of `crossflops.hardware.rates.question.Roof`.

ROOF: Group = option_group(
    "The roofline",
    click.option("--roofline", is_flag=True,
                 help="What the device allows, node by node: the longer of work and bytes."),
    click.option("--bytes", "bytes_",
                 type=click.Choice(["unfused", "weights-once", "fused-ideal"]),
                 help="What is moved: by every node (the default), weights and caches once, or "
                      "these with the inputs and outputs of the model. Implies --roofline."),
    click.option("--bytes-per-example", metavar="N",
                 help="Bytes that a run moves for one example, such as 459M, instead of "
                      "counting them."),
    click.option("--what-if", multiple=True, metavar="KEY=VALUE[,...]",
                 help="The same with another batch, precision, weights, cache, device or bytes, "
                      "such as batch=64 or weights=fp8,cache=fp8. Repeatable."),
    click.option("--bench", metavar="FILE.json",
                 help="What `crossflops bench -o FILE.json` measured, kernel by kernel."),
    click.option("--plot", callback=picture, metavar="FILE",
                 help="Draw the roofline: .svg or .png."),
)  # fmt: skip


# What was measured: the fields of `crossflops.hardware.rates.question.Speed`.

SPEED: Group = option_group(
    "What was measured",
    click.option("--examples-per-second", metavar="R",
                 help="The measured speed, such as 1325 or 2.6k: of all devices together, where "
                      "--devices or --dp say that there are several."),
    click.option("--tokens-per-second", metavar="R", help="Or in tokens, such as 2.6M."),
    click.option("--latency-ms", type=_POSITIVE, metavar="T",
                 help="The time of a forward pass over --batch examples; with --train of a "
                      "step."),
    click.option("--fwd-ms", type=_POSITIVE, metavar="T", help="Of a forward pass alone."),
    click.option("--bwd-ms", type=_POSITIVE, metavar="T", help="Of the backward pass."),
    click.option("--step-ms", type=_POSITIVE, metavar="T", help="Of the optimizer's step."),
    click.option("--batch", type=_COUNT, metavar="B",
                 help="Examples of one (micro-)batch on one replica of the model."),
    click.option("--tokens", type=_COUNT, metavar="N", help="Tokens of one example."),
    click.option("--runs", metavar="FILE.csv",
                 help="A table of runs: columns device, precision, batch, rate, or as the flags "
                      "say."),
    click.option("--times", metavar="FILE.csv",
                 help="Forward times of modules: columns module and ms, and macs without a "
                      "TARGET."),
    click.option("--per-device/--all-devices", default=None,
                 help="The rate is that of each of several devices, or of all of them together, "
                      "which is the default."),
)  # fmt: skip


# What runs besides the forward pass: the fields of `hardware.rates.question.Training`.

TRAINING: Group = option_group(
    "Training",
    click.option("--train", is_flag=True,
                 help="Training: the exact count of a step of the TARGET, as `count --train` has "
                      "it; without a TARGET three passes instead of one."),
    click.option("--train-multiplier", metavar="X",
                 help="So many passes instead of three, such as 2.5."),
    click.option("--backward", type=click.Choice(["flat", "graph"]),
                 help="Three passes for everything, or for each node its exact count, which is "
                      "the default with a TARGET."),
    click.option("--frozen", multiple=True, metavar="PATTERN",
                 help="Modules or parameters that are not trained: 'layer1*'. Repeatable."),
    click.option("--trainable", multiple=True, metavar="PATTERN",
                 help="What of the --frozen is trained all the same: '*lora*'. Repeatable."),
    click.option("--loss", default="", metavar="FILE.py:CALLABLE",
                 help="A function of what the model returns, as in `count --train`."),
    click.option("--recompute", metavar="none|full|attention|F", default="none", show_default=True,
                 help="What of the forward pass is done again in the backward one: it is in the "
                      "HFU."),
    click.option("--flash", is_flag=True,
                 help="Attention recomputes its scores in the backward pass."),
    click.option("--accumulate", type=_COUNT, default=1, metavar="N",
                 help="Micro-batches of one step."),
)  # fmt: skip


# A whole run: the fields of `crossflops.hardware.rates.question.RunLength`.

RUN: Group = option_group(
    "A whole run",
    click.option("--run-tokens", metavar="N",
                 help="A whole training run of so many tokens, such as 15T: its FLOPs, its "
                      "device-hours and their energy."),
    click.option("--run-examples", metavar="N", help="Or of so many examples, such as 1.28M."),
    click.option("--run-steps", metavar="N", help="Or of so many steps of --batch examples."),
    click.option("--mfu", metavar="X",
                 help="The share of the peak that the run keeps, such as 0.4 or 40%, instead of a "
                      "measured speed."),
    click.option("--optimizer", default="", metavar="NAME[,KEY=VALUE]",
                 help="Also what the steps of this optimizer take: see `count --train`."),
)  # fmt: skip


# Whose count: the fields of `crossflops.hardware.rates.question.WhoseCount`.

WORK: Group = option_group(
    "Whose count",
    click.option("--as", "as_", metavar="ID[@EDITION]", help="The MACs as this tool counts them."),
    click.option("--macs", metavar="N",
                 help="MACs of one example, such as 4.112G; needs no TARGET."),
    click.option("--pass-macs", metavar="N",
                 help="MACs of one forward pass over the whole --batch."),
    click.option("--compare", is_flag=True, help="By each tool's number, with why they differ."),
    click.option("--tool", "tools", multiple=True, metavar="ID",
                 help="A tool to --compare. Repeatable."),
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
    *ROOF,
    *OUTPUT,
)  # fmt: skip
def efficiency(target: str | None, as_json: bool, file: Any, **fields: Any) -> int:
    """Set a count against a device's peak.

    The required rate is 2 x MACs x examples per second, for one device: the MACs of a forward
    pass, in training those of the exact step, or three passes where the MACs are given. Without a
    TARGET the work is given by --macs, or by --params and the sizes of a transformer. Exit status
    1 says that the rate is above the peak, which no sound measurement is.

    The compute of a whole run:

    \b
    crossflops efficiency hf:config.json --seq 8192 --train --run-tokens 15T \\
        --mfu 0.4 --device h100-sxm --precision bf16 --json
    """
    from crossflops.verbs.efficiency.rate import answer_efficiency, request_of

    of_the_model = pop_model_options(fields)
    side = fields.pop("image_size")
    of_the_model["sizes"] = {} if side is None else {"image_size": side}
    question = Question.from_fields(**fields)
    model = request_of(target, of_the_model.pop("inputs"), of_the_model, question)
    if not question.work.compare:
        refuse_timeout(*([] if model is None else [model]))
    doing = "comparing" if question.work.compare else "counting"
    with progress(f"{doing} {target or 'by a rule'}") as on_progress:
        rated = answer_efficiency(question, model, on_progress)
    for line in rated.left_out:
        say(line)
    deliver(rated.noun, as_json=as_json, file=file)
    if question.roof.plot is not None:
        keep_roofline(rated.noun, question.roof.plot)
    if rated.trouble is not None:
        raise rated.trouble
    return _efficiency_exit_status(rated.noun)


def _efficiency_exit_status(result: EfficiencyReport) -> int:
    profiles = (result.report.profiles if result.report else None) or ()
    if result.report and result.report.profiles == ():
        say("no tool is installed; see `crossflops doctor`")
    if profiles and all(isinstance(answer, Failure) for answer in profiles):
        say("every tool failed")
        return EVERY_TOOL_FAILED
    exceeded = [
        limit
        for limit, is_exceeded in (
            ("peak", any(map(_exceeds_peak, result.efficiency))),
            ("bandwidth", any(map(_exceeds_bandwidth, result.efficiency))),
        )
        if is_exceeded
    ]
    if not exceeded:
        return 0
    say(f"error: more than 100 % of a {' and a '.join(exceeded)} is impossible")
    say("hint: the warnings of the result name likely reasons")
    return A_CHECK_FAILED


def _exceeds_bandwidth(answer: Efficiency) -> bool:
    return isinstance(answer.moved, MovedBytes) and (answer.moved.mbu or 0) > 1


def _exceeds_peak(answer: Efficiency) -> bool:
    phases = answer.step.phases if isinstance(answer.step, TimedStep) else ()
    shares = [answer.ratio, answer.hfu, *(phase.ratio for phase in phases)]
    shares += [module.ratio for module in answer.modules or ()]
    return any(isinstance(share, float) and share > 1 for share in shares)
