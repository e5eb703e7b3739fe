"""Find the work that a rate is about: a model's native count, a tool's count, a given number, or a
formula of sizes.
"""

from collections.abc import Callable
from fractions import Fraction

import msgspec
from msgspec.structs import replace

from crossflops.errors import InputError
from crossflops.frontends import knows_trainable_parameters, require_known_trainable_parameters
from crossflops.hardware.expert_reads import describe_experts
from crossflops.hardware.rates import numerators
from crossflops.hardware.rates.numerators import (
    Numerator,
    Transfer,
    convention_numerators,
    external_numerator,
    native_numerator,
    numerators_by_tool,
    parse_count,
    transfer_from_loads,
)
from crossflops.hardware.rates.question import Question, TrainingOptions
from crossflops.hardware.rates.terms import pieces_of_graph, single_piece
from crossflops.hardware.step_traffic import BITS, Formats, node_loads, storage_precision
from crossflops.ir.graph import Graph
from crossflops.ir.roofline import Load
from crossflops.ir.trace import Setting
from crossflops.ir.training import OptimizerStep, OwnBackwards, Steps
from crossflops.ledger.count import count_nodes_with_their_bodies
from crossflops.reconcile.walk import reconcile
from crossflops.report.report import Report
from crossflops.rules.prediction import predict
from crossflops.targets.request import Request
from crossflops.tools.registry import find_convention
from crossflops.verbs import count
from crossflops.verbs.count import CountedModel

Progress = Callable[[str], None]


class WorkStudy(msgspec.Struct, frozen=True, kw_only=True):
    """The source of the MACs, their report, and the counted model if there is one.

    `own` are backward passes of its custom functions. `examples` are those of the pass that was
    counted, `tokens` those of one example. `warnings`
    are about the exact step of training.
    """

    numerators: tuple[Numerator, ...]
    report: Report | None = None
    counted: CountedModel | None = None
    own: OwnBackwards = ()
    examples: int = 1
    tokens: int | None = None
    params: int | None = None
    transfer: Transfer | None = None
    optimizer: OptimizerStep | None = None
    warnings: tuple[str, ...] = ()


def study_work(
    question: Question,
    request: Request | None,
    on_progress: Progress,
    *,
    only_count: bool = False,
    known_studies: dict[bool, WorkStudy],
) -> WorkStudy:
    """Return the MACs of one example that the question is about, and what is known of their model;
    with `only_count` no tool runs.

    `known_studies` keeps the work of a model, {is only counted: work}, for questions that
    differ only in what was measured.
    """
    params = None if question.language.params is None else parse_count(question.language.params)
    if request is None:
        return _study_without_model(question, params)
    if only_count not in known_studies:
        known_studies[only_count] = _study_model(question, request, on_progress, only_count)
    return _to_single_example(question, known_studies[only_count], params)


def _study_model(
    question: Question, request: Request, on_progress: Progress, only_count: bool
) -> WorkStudy:
    """Return the MACs of a model by its native count, by conventions or by tools, as the question
    requests.
    """
    work = question.work
    if work.compare and not only_count:
        from crossflops.verbs.compare import compare

        comparison = compare.Comparison(tools=work.tools or None)
        report = compare.compare_with_tools(request, comparison, on_progress)
        return WorkStudy(numerators=numerators_by_tool(report), report=report)
    as_counted = replace(request, as_=work.as_ or ())
    build = count.make_model_build(as_counted)
    report, counted = count.native_count(as_counted, build)
    own: OwnBackwards = ()
    if (training := question.training).train:
        patterns = {"frozen": training.frozen, "trainable": training.trainable}
        request = replace(request, loss=training.loss or "", **patterns)
        counted = (
            count.mark_outputs_outside_loss(counted, request, build) if training.loss else counted
        )
        own = count.custom_autograd_work_in_step(counted, request, build)
    numerators: tuple[Numerator, ...] = (native_numerator(report),)
    if work.as_:
        numerators = convention_numerators(report, question.training.train)
        several = len(numerators) > 1 or report.llm
        numerators = (native_numerator(report), *numerators) if several else numerators
    if work.as_:
        report = with_convention_explanations(report, counted, request.setting)
    return WorkStudy(numerators=numerators, report=report, counted=counted, own=own)


def with_convention_explanations(
    report: Report, counted: CountedModel, setting: Setting
) -> Report:
    """Return a copy of the report with the causes by which the total of each convention differs
    from the native MACs.

    Left out of nodes, and where the convention is about another mode than was counted.
    """
    accounts = []
    for fold in report.folds if counted.trace.calls else ():
        convention = find_convention(fold.tool, fold.edition)
        same = convention.setting(setting).training == setting.training
        if fold.sees not in ("node", "architecture") and same:
            prediction = predict(convention, counted.trace, setting, counted.ledger)
            accounts.append(reconcile(prediction, counted.trace, counted.ledger))
    return replace(report, reconciliations=tuple(accounts)) if accounts else report


def _study_without_model(question: Question, params: int | None) -> WorkStudy:
    """Return the work of a question without a model: from given MACs, or from the sizes of a
    language model.
    """
    work, training = question.work, question.training
    thrice = training.train and training.train_multiplier is None
    if work.macs is None and work.pass_macs is None:
        return WorkStudy(
            numerators=(numerators.numerator_from_sizes(question.language, thrice),),
            tokens=numerators.language_token_count(question.language),
            params=params,
            transfer=numerators.decoding_transfer(question.language),
        )
    return WorkStudy(numerators=(_numerator_from_options(question),), params=params)


def _numerator_from_options(question: Question) -> Numerator:
    """Return the MACs of one example that --macs or --pass-macs gives."""
    work, batch = question.work, question.speed.batch or 1
    if work.macs is not None:
        return external_numerator(parse_count(work.macs))
    assert work.pass_macs is not None
    per_example = Fraction(parse_count(work.pass_macs), batch)
    return replace(external_numerator(round(per_example)), pieces=single_piece(per_example))


def _node_loads(question: Question, graph: Graph, scale: Fraction) -> tuple[Load, ...]:
    """Return the work and the least memory traffic of each node, for a pass that is scaled by
    `scale`.

    In the precision that ran, where its width is known.
    """
    precision = question.precisions.precision
    formats = Formats(activations=precision) if storage_precision(precision) in BITS else Formats()
    return node_loads(graph, count_nodes_with_their_bodies(graph), "fused-ideal", formats, scale)


def _to_single_example(
    question: Question, studied_pass: WorkStudy, params: int | None
) -> WorkStudy:
    """Return the work of one example, from the work of a counted pass over a batch."""
    report = studied_pass.report
    assert report is not None
    examples = _examples_per_pass(question, report)
    studied_pass = replace(
        studied_pass,
        examples=examples,
        tokens=_sequence_length(report),
        params=report.params if params is None else params,
    )
    if question.work.macs is not None or question.work.pass_macs is not None:
        return replace(studied_pass, numerators=(_numerator_from_options(question),))
    numerators = tuple(
        _divide_by_examples(numerator, examples, question) for numerator in studied_pass.numerators
    )
    counted = studied_pass.counted
    if counted is None:
        return replace(studied_pass, numerators=numerators)
    scale = Fraction(question.speed.batch or examples, examples)
    transfer = transfer_from_loads(
        _node_loads(question, counted.graph, scale),
        examples,
        describe_experts(counted.graph, scale),
    )
    exact: Steps | None = None
    left: tuple[str, ...] = ()
    if question.training.train:
        exact, left = _exact_step_with_warnings(question.training, counted, studied_pass.own)
    if not question.work.as_:
        split = pieces_of_graph(counted.graph, counted.ledger, examples=examples, exact=exact)
        numerators = tuple(
            replace(numerator, pieces=split or numerator.work_pieces) for numerator in numerators
        )
        studied_pass = replace(studied_pass, warnings=left)
    step = _optimizer_step_work(question.length.optimizer, counted, exact)
    return replace(studied_pass, numerators=numerators, transfer=transfer, optimizer=step)


def _optimizer_step_work(
    name: str, counted: CountedModel, exact: Steps | None
) -> OptimizerStep | None:
    """Return the work of one step of the named optimizer; None if no optimizer is named.

    `exact` is None if the framework does not say which parameters are trained. Raises InputError
    then.
    """
    if not name:
        return None
    if exact is None:
        try:
            require_known_trainable_parameters(counted.trace)
        except InputError as error:
            raise InputError(
                "it is unknown which parameters of the model are trained, so the work of "
                f"{name} cannot be counted",
                f"leave out --optimizer, or {error.hint}",
            ) from error
    assert exact is not None
    from crossflops.ledger.optimizer import optimizer_step

    return optimizer_step(name, counted.trace, exact)


def _exact_step_with_warnings(
    training: TrainingOptions, counted: CountedModel, own: OwnBackwards
) -> tuple[Steps | None, tuple[str, ...]]:
    """Return (exact work of the training step, warnings about it); None instead of the work if 3 x
    forward has to be used.
    """
    patterns = training.frozen or training.trainable
    chosen = training.backward == "graph" or patterns or training.loss
    if not chosen and not knows_trainable_parameters(counted.trace):
        multiple = "the exact training step of such a model is unknown, so 3 x forward is used"
        return None, () if training.backward else (multiple,)
    exact = count.count_exact_training_step(counted, training.frozen, training.trainable, own)
    return exact, _missing_backward_warnings(exact) if training.has_graph_passes else ()


def _missing_backward_warnings(exact: Steps) -> tuple[str, ...]:
    """Return a tuple with one warning that names the backward passes without a count, () if there
    are none.
    """
    if not exact.unknown:
        return ()
    names = ", ".join(unknown.key for unknown in exact.unknown[:3])
    more = f" and {len(exact.unknown) - 3} more" if len(exact.unknown) > 3 else ""
    return (
        f"the backward passes of {names}{more} are not counted, so the work is a lower bound; "
        "see `crossflops count --train` for the reasons",
    )


def _divide_by_examples(numerator: Numerator, examples: int, question: Question) -> Numerator:
    """Return the MACs of one example: the counted MACs divided by `examples` if the question has a
    batch, else unchanged.
    """
    if question.speed.batch is None:
        return numerator
    per_example = Fraction(numerator.macs, examples)
    return replace(numerator, macs=round(per_example), pieces=single_piece(per_example))


def _examples_per_pass(question: Question, report: Report) -> int:
    """Return the number of examples in the counted pass: 1 without --batch, else the first
    dimension of the first input.
    """
    batch = question.speed.batch
    if batch is None:
        return 1
    first = next((spec.shape[0] for spec in report.model.inputs if spec.shape), 1)
    if first not in (1, batch):
        raise InputError(
            f"--batch is {batch}, but the first input has {first} rows",
            f"give --input with a first dimension of 1 or {batch}",
        )
    return first


def _sequence_length(report: Report) -> int | None:
    """Return the second dimension of the first integer input with two dimensions; None if there is
    none.
    """
    for spec in report.model.inputs:
        if spec.dtype.startswith("int") and len(spec.shape) == 2:
            return spec.shape[1]
    return None
