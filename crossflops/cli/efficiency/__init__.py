"""`crossflops efficiency`. Its flags stand in groups, a file for each group of fields.

A new group is a struct in `crossflops.hardware.rates.question`, a file here with a function that
adds its options, and a line in `_GROUPS`; what it asks for is put into the answer in
`crossflops.pipeline.rating.rate`, and shown by a block of `crossflops.render.efficiency`.
"""

from functools import partial
from typing import Any

import click

from crossflops.cli.efficiency import (
    against,
    attention,
    language,
    parallel,
    roof,
    speed,
    training,
    work,
)
from crossflops.cli.options import model_options, output_options, request
from crossflops.cli.output import deliver, keep_roofline, say
from crossflops.cli.progress import progress
from crossflops.core.efficiency import Efficiency, EfficiencyReport, Step
from crossflops.core.profile import Failure
from crossflops.hardware.rates.question import Question

A_CHECK_FAILED = 1
EVERY_TOOL_FAILED = 3
_GROUPS = (
    training,
    speed,
    against,
    work,
    attention,
    parallel,
    language,
    roof,
)


def _grouped(function: Any) -> Any:
    for group in reversed(_GROUPS):
        function = group.options(function)
    return function


@click.command("efficiency")
@partial(model_options, required=False)
@_grouped
@output_options
def command(as_json: bool, file: Any, **fields: Any) -> int:
    """Set a count against a device's peak.

    The required rate is 2 x MACs x 1 (inference) or 3 (training) x examples per second, for one
    device. Without a TARGET the work is given by --macs, or by --params and the sizes of a
    transformer. Exit status 1 says that the rate is above the peak, which no sound measurement is.
    """
    from crossflops.pipeline.rating.rate import rated
    from crossflops.pipeline.rating.tables import rated_runs

    asked = request(fields)
    question = Question.of(**fields)
    doing = "comparing" if question.work.compare else "counting"
    keywords = asked.keywords
    inputs = keywords.pop("inputs")
    with progress(f"{doing} {asked.target or 'by a rule'}") as on_progress:
        rate = rated if question.speed.runs is None else rated_runs
        found = rate(question, asked.target, inputs, how=keywords, on_progress=on_progress)
    for said in found.left_out:
        say(said)
    deliver(found.noun, as_json=as_json, file=file)
    if question.roof.plot is not None:
        keep_roofline(found.noun, question.roof.plot)
    if found.trouble is not None:
        raise found.trouble
    return _status(found.noun)


def _status(noun: EfficiencyReport) -> int:
    profiles = (noun.report.profiles if noun.report else None) or ()
    if noun.report and noun.report.profiles == ():
        say("no tool is installed; see `crossflops doctor`")
    if profiles and all(isinstance(one, Failure) for one in profiles):
        say("every tool failed")
        return EVERY_TOOL_FAILED
    if not any(map(_impossible, noun.efficiency)):
        return 0
    say("error: more than 100 % of a peak is impossible")
    say("hint: the warnings of the result name likely reasons")
    return A_CHECK_FAILED


def _impossible(one: Efficiency) -> bool:
    phases = one.step.phases if isinstance(one.step, Step) else ()
    shares = [one.ratio, one.hfu, *(phase.ratio for phase in phases)]
    shares += [module.ratio for module in one.modules or ()]
    return any(isinstance(share, float) and share > 1 for share in shares)
