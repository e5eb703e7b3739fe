"""Predict the number of every convention for one model at one input, from one recorded run."""

import json
from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING

import msgspec

from crossflops.errors import CrossflopsError, InputError
from crossflops.ir.formula_account import FormulaReport
from crossflops.ir.ledger import UncountedNode
from crossflops.ir.profile import ConventionCount
from crossflops.ir.reconciliation import Reconciliation
from crossflops.ir.trace import Setting
from crossflops.reconcile.formulas import reconcile_formulas
from crossflops.report.model_numbers import (
    PER_TOKEN,
    CauseAmount,
    ConventionNumber,
    ModelNumbers,
)
from crossflops.report.readings import native_numbers
from crossflops.rules.prediction import PredictionError, predict
from crossflops.targets.request import Request
from crossflops.targets.target import alternative_target_arguments, restoring_imports
from crossflops.tools.registry import all_conventions, conventions_from_texts
from crossflops.verbs.count import (
    CountedModel,
    ModelBuild,
    count_by_convention,
    mode_counter,
    predict_from_graph_nodes,
    views_to_observe,
)
from crossflops.verbs.formulas import TOKEN_IDS, read_source_architecture
from crossflops.verbs.provenance import framework_versions

if TYPE_CHECKING:
    from crossflops.rules.rule import Convention


def choose_conventions(texts: Sequence[str]) -> list["Convention"]:
    """Return the conventions that the texts name; without texts, all editions of all conventions
    that are not formulas over a config.

    Raises UnknownNameError for a convention that there is not, InputError for a formula.
    """
    if not texts:
        return [known for known in all_conventions() if known.formula is None]
    chosen = conventions_from_texts(texts)
    for convention in chosen:
        if convention.formula is not None:
            raise InputError(
                f"--as {convention.tool}: a formula over the config of a language model is not a "
                "number of a forward pass",
                "use `crossflops compare hf:config.json --llm`",
            )
    return chosen


def choose_conventions_and_formulas(texts: Sequence[str]) -> list["Convention"]:
    """Return the conventions and formulas that the texts name; without texts, all of them.

    Raises UnknownNameError for one that there is not.
    """
    return conventions_from_texts(texts) if texts else list(all_conventions())


def with_alternative_arguments(request: Request) -> Iterator[tuple[Request, str]]:
    """Yield the request with other arguments with which a library builds its model for weights,
    and these as words of a command line.
    """
    if request.target is None or request.is_file or request.arguments:
        return
    for arguments in alternative_target_arguments(request.target):
        words = " ".join(f"--arg {name}={json.dumps(value)}" for name, value in arguments.items())
        yield msgspec.structs.replace(request, arguments=dict(arguments)), words


@restoring_imports()
def predict_model_numbers(request: Request, conventions: Sequence["Convention"]) -> ModelNumbers:
    """Return the number that each fitting convention gives for the model, with the causes of its
    difference; the model is counted once.

    Formulas over the config of a language model have a number for a model of token ids. A
    convention that cannot count the model is among the `refused`. The weights have values only if
    the model reads them: large models would otherwise need minutes and memory.

    Raises what counting raises.
    """
    formulas = [convention for convention in conventions if convention.formula is not None]
    conventions = [convention for convention in conventions if convention.formula is None]
    request.refuse_unused_options()
    setting = request.setting
    watched = views_to_observe(conventions, setting) if not request.is_file else []
    build = ModelBuild(request, is_run=False)
    mode = mode_counter(build, setting, watched)
    native = mode(setting.training)
    numbers: list[ConventionNumber] = []
    refused: dict[str, str] = {}
    for convention in _conventions_of_framework(conventions, native):
        own = mode(convention.setting(setting).training)
        try:
            fold = count_by_convention(convention, own, setting)
            numbers.append(_convention_number(convention, own, native, setting, fold))
        except (InputError, PredictionError) as error:
            refused[f"{convention.tool}@{convention.edition}"] = error.message
    totals = native.ledger.total
    tokens = token_count(native)
    if formulas and tokens:
        try:
            answers = _evaluate_formulas(formulas, build, native)
        except InputError as error:  # an encoder, for example
            refused["formulas"] = error.message
        else:
            numbers += formula_numbers(answers, formulas)
            refused |= {
                f"{account.tool}@{account.edition}": account.obstacle
                for account in answers.accounts
                if account.obstacle
            }
    return ModelNumbers(
        target=request.target or native.graph.name,
        inputs=tuple(
            "x".join(map(str, spec.shape or ())) or "scalar" for spec in native.graph.inputs
        ),
        numbers=(
            *native_numbers(totals.macs, totals.flops, native.graph.params, tokens),
            *numbers,
        ),
        macs=totals.macs,
        flops=totals.flops,
        params=native.graph.params,
        uncounted=sum(isinstance(count, UncountedNode) for count in native.ledger.counts),
        refused=refused,
        made_with=framework_versions(request.is_file),
    )


def token_count(counted: CountedModel) -> int:
    """Return the number of token ids in the inputs of a counted model; 0 if it takes none."""
    shapes = [spec.shape for spec in counted.graph.inputs if spec.name == TOKEN_IDS]
    return prod(shapes[0]) if shapes and shapes[0] is not None and len(shapes[0]) == 2 else 0


def _evaluate_formulas(
    formulas: Sequence["Convention"], build: ModelBuild, native: CountedModel
) -> FormulaReport:
    """Return the numbers of formulas for a language model; raise InputError for another model."""
    architecture = build.compute_with_values_if_needed(read_source_architecture)
    [shape] = [spec.shape for spec in native.graph.inputs if spec.name == TOKEN_IDS]
    sequences, tokens = shape or (1, 1)
    macs = native.ledger.total.macs
    return reconcile_formulas(formulas, architecture, tokens, sequences, macs)


def formula_numbers(
    answers: FormulaReport, formulas: Sequence["Convention"]
) -> Iterator[ConventionNumber]:
    """Yield the numbers of each formula, for one token and for all."""
    for convention, account in zip(formulas, answers.accounts, strict=True):
        if account.obstacle:
            continue
        per_token = ConventionNumber(
            tool=account.tool,
            edition=account.edition,
            unit=f"FLOPs{PER_TOKEN}",
            per_mac=convention.unit,
            total=answers.per_token(account.theirs),
            causes=tuple(
                CauseAmount(step.cause, answers.per_token(int(step.amount)))
                for step in account.explanations
                if step.amount
            ),
        )
        yield per_token
        yield msgspec.structs.replace(per_token, unit="FLOPs", total=account.theirs, causes=())


def _conventions_of_framework(
    conventions: Iterable["Convention"], native: CountedModel
) -> list["Convention"]:
    """Return the conventions that count models of this model's framework, or graph nodes."""
    framework = native.trace.framework if native.trace.calls else ""
    return [
        convention
        for convention in conventions
        if convention.sees == "node" or (framework and convention.framework == framework)
    ]


def _convention_number(
    convention: "Convention",
    own: CountedModel,
    native: CountedModel,
    setting: Setting,
    fold: ConventionCount,
) -> ConventionNumber:
    """Return the number of one convention for the model, with the causes that lead to it from the
    native count.
    """
    return ConventionNumber(
        tool=convention.tool,
        edition=convention.edition,
        unit=convention.printed_as,
        per_mac=convention.unit,
        total=fold.total,
        is_tool=bool(convention.verified),
        causes=_cause_amounts(convention, own, native, setting),
    )


def _cause_amounts(
    convention: "Convention", own: CountedModel, native: CountedModel, setting: Setting
) -> tuple[CauseAmount, ...]:
    """Return the amount of each cause in a convention's number, in the unit of the convention; ()
    if they cannot be found.
    """
    from crossflops.reconcile.walk import reconcile

    try:
        prediction = (
            predict_from_graph_nodes(convention, own)
            if convention.sees == "node"
            else predict(convention, own.trace, setting, own.ledger)
        )
        account: Reconciliation = reconcile(prediction, own.trace, own.ledger, base=native.ledger)
    except CrossflopsError:  # the number stands without an account
        return ()
    return tuple(
        CauseAmount(
            step.cause,
            step.amount + ((convention.unit or 1) - 1) * (step.macs or 0),
        )
        for step in account.explanations
        if step.amount
    )
