"""Whose work a rate is about: a model's native count, a tool's, one that is given, or a rule's."""

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import msgspec
from msgspec.structs import replace

from crossflops.errors import InputError
from crossflops.hardware.rates import numerators
from crossflops.hardware.rates.numerators import (
    Numerator,
    Transfer,
    by_tool,
    folded,
    given,
    native,
    of_loads,
    quantity,
)
from crossflops.hardware.rates.question import Question
from crossflops.hardware.rates.terms import pieces, whole
from crossflops.hardware.roofline.traffic import BITS, Formats, loads, storage
from crossflops.ir.graph import Graph
from crossflops.ir.roofline import Load
from crossflops.ir.trace import Setting
from crossflops.ledger.count import count_whole
from crossflops.reconcile import reconcile
from crossflops.report.report import Report
from crossflops.rules.prediction import predict
from crossflops.tools.registry import find
from crossflops.verbs.count import Counted

Progress = Callable[[str], None]


class Studied(msgspec.Struct, frozen=True, kw_only=True):
    """Whose MACs, the report that they are from, and the model as it was counted, if it was.

    `examples` are those of the pass that was counted, `tokens` those of one example.
    """

    numerators: tuple[Numerator, ...]
    report: Report | None = None
    counted: Counted | None = None
    examples: int = 1
    tokens: int | None = None
    params: int | None = None
    transfer: Transfer | None = None


def studied(
    question: Question,
    target: Any,
    inputs: Any,
    how: Mapping[str, Any],
    on_progress: Progress | None,
    *,
    only_count: bool = False,
    memory: dict[bool, Studied],
) -> Studied:
    """The numerators of a question. With `only_count` no tool runs.

    `memory` keeps what a model came to, for questions that differ only in what was measured.
    """
    params = None if question.language.params is None else quantity(question.language.params)
    if target is None:
        return _without_model(question, params)
    if only_count not in memory:
        memory[only_count] = _of_model(question, target, inputs, how, on_progress, only_count)
    return _by_example(question, memory[only_count], params)


def _of_model(
    question: Question,
    target: Any,
    inputs: Any,
    how: Mapping[str, Any],
    on_progress: Progress | None,
    only_count: bool,
) -> Studied:
    """What the model comes to, by itself or by tools, for the pass that its inputs say."""
    work = question.work
    if work.compare and not only_count:
        from crossflops.verbs import api

        tools = work.tools or None
        compared = api.compare(target, inputs, tools=tools, on_progress=on_progress, **how)
        return Studied(numerators=by_tool(compared), report=compared)
    from crossflops.verbs import count as counting

    report, counted = counting.native_count(target, inputs, as_=work.as_, **how)
    numerators = (folded(report) if work.as_ else native(report),)
    if work.as_:
        report = _explained(report, counted, how.get("setting", Setting()))
    return Studied(numerators=numerators, report=report, counted=counted)


def _explained(report: Report, counted: Counted, setting: Setting) -> Report:
    """The report with every reason why the convention differs from the native count.

    Left out of nodes, and where the convention is about another mode than was counted.
    """
    if report.as_ is None or report.as_.sees == "node" or not counted.trace.calls:
        return report
    convention = find(report.as_.tool, report.as_.edition)
    if convention.setting(setting).training != setting.training:
        return report
    prediction = predict(convention, counted.trace, setting, counted.ledger)
    found = reconcile(prediction, counted.trace, counted.ledger)
    return replace(report, reconciliations=(found,))


def _without_model(question: Question, params: int | None) -> Studied:
    work = question.work
    if work.macs is None and work.pass_macs is None:
        return Studied(
            numerators=(numerators.by_sizes(question.language),),
            tokens=numerators.tokens(question.language),
            params=params,
            transfer=numerators.transfer(question.language),
        )
    return Studied(numerators=(_given(question, None),), params=params)


def _given(question: Question, report: Report | None) -> Numerator:
    """MACs from elsewhere: of an example, or of a pass over a batch."""
    work, batch = question.work, question.speed.batch or 1
    if work.macs is not None:
        return given(quantity(work.macs), report)
    assert work.pass_macs is not None
    each = Fraction(quantity(work.pass_macs), batch)
    found = given(round(each), report)
    note = f"the MACs are those of a pass over {batch} examples"
    return replace(found, pieces=whole(each), notes=(note, *found.notes))


def _loads(question: Question, graph: Graph) -> tuple[Load, ...]:
    """What a pass moves at least, in the precision that ran where its width is known."""
    asked = question.precisions.precision
    formats = Formats(activations=asked) if storage(asked) in BITS else Formats()
    return loads(graph, count_whole(graph), "fused-ideal", formats)


def _by_example(question: Question, found: Studied, params: int | None) -> Studied:
    """The same for one example, where the pass that was counted had a batch of them."""
    report = found.report
    assert report is not None
    examples = _examples(question, report)
    found = replace(
        found,
        examples=examples,
        tokens=_tokens(report),
        params=report.params if params is None else params,
    )
    if question.work.macs is not None or question.work.pass_macs is not None:
        return replace(found, numerators=(_given(question, report),))
    numerators = tuple(_divided(one, examples, question) for one in found.numerators)
    counted = found.counted
    if counted is None:
        return replace(found, numerators=numerators)
    transfer = of_loads(_loads(question, counted.graph), examples)
    if not question.work.as_:
        asked = question.training
        split = pieces(
            counted.graph,
            counted.ledger,
            examples=examples,
            frozen=asked.frozen,
            trainable=asked.trainable,
        )
        numerators = tuple(replace(one, pieces=split or one.split) for one in numerators)
    return replace(found, numerators=numerators, transfer=transfer)


def _divided(one: Numerator, examples: int, question: Question) -> Numerator:
    if question.speed.batch is None:
        return one
    note = f"counted with a batch of {examples}"
    if question.speed.batch != examples:
        note += f", for one of {question.speed.batch}"
    each = Fraction(one.macs, examples)
    warnings = tuple(text for text in one.warnings if "first dimension" not in text)
    notes = (note, *(text for text in one.notes if not text.startswith("one example is")))
    return replace(one, macs=round(each), pieces=whole(each), notes=notes, warnings=warnings)


def _examples(question: Question, report: Report) -> int:
    """The examples of the pass that was counted: 1, or all of the batch that was asked for."""
    batch = question.speed.batch
    if batch is None:
        return 1
    first = next((one.shape[0] for one in report.model.inputs if one.shape), 1)
    if first not in (1, batch):
        raise InputError(
            f"the first input has {first} rows, and --batch is {batch}",
            f"count the model with a first dimension of 1 or {batch}",
        )
    return first


def _tokens(report: Report) -> int | None:
    """Tokens of one example: the second dimension of the first input of integers [B, T]."""
    for one in report.model.inputs:
        if one.dtype.startswith("int") and len(one.shape) == 2:
            return one.shape[1]
    return None
