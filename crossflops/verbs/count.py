"""Make the native count of a model: normalize it, run it if requested, count it, and warn."""

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from crossflops.errors import CrossflopsWarning, InputError, ValuesNeededError
from crossflops.frontends import (
    Recording,
    Source,
    convert_recording,
    framework_title,
    record_model,
    reject_unsupported_no_grad,
    require_frontend,
    require_known_trainable_parameters,
)
from crossflops.frontends.inputs import MADE_UP
from crossflops.frontends.onnx import OnnxFile
from crossflops.ir.graph import Graph, TensorSpec
from crossflops.ir.ledger import CountedNode, Ledger, UncountedNode
from crossflops.ir.measurement import Observation, Run
from crossflops.ir.polynomial import Formulas
from crossflops.ir.profile import ConventionCount, FoldedRow
from crossflops.ir.provenance import FAKE, REAL, WeightsKind
from crossflops.ir.trace import Setting, StepSetting, Trace, View
from crossflops.ir.training import OwnBackwards
from crossflops.ledger.count import count, count_dead, count_nodes_with_their_bodies
from crossflops.ledger.memory import memory_of_graph
from crossflops.report import tables
from crossflops.report.report import PerToken, Report, ThumbRow, TrainingReport
from crossflops.targets.request import Request
from crossflops.targets.target import load_target_function, restoring_imports
from crossflops.threads import record_warnings
from crossflops.verbs.provenance import build_request_record, framework_versions

if TYPE_CHECKING:
    from crossflops.ir.training import Steps
    from crossflops.rules.prediction import Prediction
    from crossflops.rules.rule import Convention

# One run fills in what shapes do not tell: of a file with `--observe`, of a converted model.

_Answer = TypeVar("_Answer")
Progress = Callable[[str], None]
_UNASKED = 120.0  # seconds for a run that was not asked for: a loop need not end
_WRITES_DETACHED = (
    "the model overwrites a detached tensor in place; gradients of fully overwritten values "
    "are not counted"
)
_RUNS_DEAD = (
    "{} of these MACs are inside activation checkpoints; recomputing them, and the backward "
    "pass of reentrant checkpoints through them, is not counted"
)
_DEAD_UNKNOWN = (
    "{} nodes whose work is unknown are ignored, because no output depends on them; "
    "the first is {!r}: {}"
)
_OBSERVABLE = (
    "the output sizes of node {} depend on values, so nodes after it are not counted; --observe "
    "reads the sizes from one run in onnxruntime"
)
_NAMED = 3  # modules in a warning
_DRAWS = "the file draws random numbers without a seed: sizes can differ in another run"


def request_with_observed_sizes(request: Request) -> tuple[Request, Run]:
    """Run an ONNX file once; return (request with the sizes of that run, record of the run).

    The values of its inputs are those of the request's file, where it has one.

    Raises InputError unless it is about an ONNX file, and what `bench.processes.observe` raises.
    """
    file = request.source().model if request.is_file else None
    if not isinstance(file, OnnxFile):
        raise InputError(
            "--observe can be used only with an ONNX file",
            "leave out --observe; a PyTorch model is always run when it is exported",
        )
    from crossflops.bench.processes import observe_file_run
    from crossflops.targets.batch_arrays import arrays_of_inputs

    run = observe_file_run(file.path, file.specs, dict(file.dims), request.inputs_file)
    specs = tuple(TensorSpec(name, value.dtype, value.shape) for name, value in run.inputs.items())
    settled = msgspec.structs.replace(file, dims={}, specs=specs, seen=run)
    values = request.inputs_file or MADE_UP
    if request.inputs_file and len(run.inputs) > len(arrays_of_inputs(request.inputs_file)):
        values = f"{request.inputs_file}, {MADE_UP}"
    request = msgspec.structs.replace(request, given=Source(settled, (), {}), dims={})
    return request, Run(run.runtime, values, (_DRAWS,) if run.draws else ())


def run_model_bytes(data: bytes, feeds: Mapping[str, Any]) -> Observation:
    """Run an ONNX model on the arrays in `feeds`, by input name (random values for others); return
    the observed shapes and values.

    Raises what `bench.processes.observe` raises.
    """
    import tempfile
    import zipfile

    import numpy as np

    from crossflops.bench.processes import observe_file_run

    with tempfile.TemporaryDirectory(prefix="crossflops-") as folder:
        model, inputs = Path(folder, "model.onnx"), Path(folder, "inputs.npz")
        model.write_bytes(data)
        with zipfile.ZipFile(inputs, "w") as archive:
            for name, array in feeds.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, np.asanyarray(array), allow_pickle=False)
        provided = str(inputs) if feeds else None
        return observe_file_run(str(model), inputs_file=provided, seconds=_UNASKED)


# A model normalized and counted in the modes that conventions need.


class CountedModel(msgspec.Struct, frozen=True):
    """A model that was normalized and counted in one mode.

    `program` is the ONNX model (of onnx_ir) that the graph was read from; None of a file. `run`
    is there where the values of its inputs decided about it, or a run was found to differ.
    """

    graph: Graph
    trace: Trace
    ledger: Ledger
    program: Any = None
    run: Run | None = None
    weights: WeightsKind | None = None


class ModelBuild:
    """The model of a request, built once for all counts and questions.

    It is built without numbers where shapes are enough, and once more with them where it turns
    out to need some.
    """

    def __init__(self, request: Request, *, is_run: bool = False) -> None:
        """Record the request; build nothing yet.

        Args:
            request: the model.
            is_run: whether runs of it are watched, which need values where nothing is said.
        """
        self._request = request
        self._source: Source | None = None
        self._reason = ""  # why it has values where it should have none
        self._has_values = (
            request.weights == REAL
            or request.given is not None
            or request.is_file
            or (is_run and request.weights is None)
        )

    def count(self, setting: Setting, views: Sequence[Setting] = ()) -> CountedModel:
        """Return the count of the model in a setting; `views` are settings in which its real runs
        are observed.
        """
        return self.compute_with_values_if_needed(
            lambda source: self._count_and_record_weights(source, setting, views)
        )

    def compute_with_values_if_needed(
        self, compute: Callable[[Source], _Answer], need: str = "the model needs its weights"
    ) -> _Answer:
        """Return the result of `compute` for the built model; if that needs values of weights, the
        model is built again with them.

        Raises InputError where it needs values, and the request is to have none; the message
        begins with `need`.
        """
        try:
            return compute(self._build_source())
        except ValuesNeededError as error:
            if self._has_values:
                raise
            if self._request.weights == FAKE:
                raise InputError(
                    f"{need}, which --weights fake does not make: {error.reason}", error.hint
                ) from None
            self._reason = error.reason
        self._source, self._has_values = None, True
        return compute(self._build_source())

    def _build_source(self) -> Source:
        """Return the built model; it is built at the first call, with or without values of its
        weights.
        """
        if self._source is None:
            if self._has_values:
                self._source = self._request.source()
            else:
                from crossflops.targets.weights import build_without_values  # of no file

                self._source = build_without_values(self._request.source, self._request.weights)
        return self._source

    def _count_and_record_weights(
        self, source: Source, setting: Setting, views: Sequence[Setting]
    ) -> CountedModel:
        """Return the count of the model in a setting, with a record of which values its weights
        had.
        """
        request = self._request
        reject_unsupported_no_grad(source, setting)
        if request.weights is not None and request.given is None and not source.weights:
            raise InputError(
                f"--weights has no effect on {request.target}: counting it reads no values",
                "leave out --weights",
            )
        native = count_source(source, setting, views)
        if request.given is not None or not source.weights:
            return native
        kind = WeightsKind(source.weights, self._reason)
        return msgspec.structs.replace(native, weights=kind)


def count_source(source: Source, setting: Setting, observed: Sequence[Setting]) -> CountedModel:
    """Return the count of a model in a setting; `observed` are settings in which its real runs are
    observed.
    """
    return count_recording(record_model(source, setting, observed))


def count_recording(
    recording: Recording, complete_graph: Callable[[Graph], Graph] | None = None
) -> CountedModel:
    """Return the count of a recorded model: it is converted to a graph, which `complete_graph` may
    change before it is counted.
    """
    model, graph, trace = convert_recording(recording, run_model_bytes)
    if complete_graph is not None:
        graph = complete_graph(graph)
    run = None
    if trace.runtime or trace.notes:
        run = Run(trace.runtime, recording.source.values, trace.notes)
    return CountedModel(graph, trace, count(graph), model, run)


def write_onnx_program(counted: CountedModel, path: Path, hint: str) -> None:
    """Write the ONNX model from which the graph was read to `path`; raise InputError, with this
    hint, if there is none.
    """
    if isinstance(counted.program, bytes):
        from crossflops.export.program import save_with_uniform_weights

        save_with_uniform_weights(counted.program, path, hint)
        return
    if counted.program is None:
        raise InputError("the graph of this model cannot be written as an ONNX file yet", hint)
    from crossflops.export.program import save_program

    save_program(counted.program, path, {})


def views_to_observe(conventions: Iterable["Convention"], setting: Setting) -> list[View]:
    """Return the views that these conventions need, each once: settings in which a real run is
    observed, and on which level.
    """
    return sorted(
        {view for convention in conventions if (view := convention.view(setting))},
        key=lambda view: (view.id, view.level),
    )


def build_count_report(counted: CountedModel, folds: Iterable[ConventionCount] = ()) -> Report:
    """Return the report of a count, with its memory use and the totals of tool conventions."""
    memory = memory_of_graph(counted.graph, counted.ledger)
    report = tables.report_from_ledger(
        counted.graph, counted.trace, counted.ledger, tuple(folds), memory
    )
    return msgspec.structs.replace(
        report,
        totals=msgspec.structs.replace(report.totals, dead_macs=_dead_macs(counted)),
        observed=counted.run or UNSET,
        weights=counted.weights or UNSET,
    )


def _is_pytorch_trace(trace: Trace) -> bool:
    """Return whether the trace is of a PyTorch model with recorded calls."""
    return trace.framework == "torch" and bool(trace.calls)


def _is_onnx_file(counted: CountedModel) -> bool:
    """Return whether the counted model is an ONNX file: it has neither an exported program nor
    recorded calls.
    """
    return counted.program is None and not counted.trace.calls


def _dead_macs(counted: CountedModel) -> int | UnsetType:
    """Return the MACs on which no output depends; UNSET if they cannot be known for this
    framework.
    """
    if _is_pytorch_trace(counted.trace):
        return sum(_dead_macs_by_module(counted).values())
    if not _is_onnx_file(counted):
        return UNSET
    dead = count_dead(counted.graph)
    return sum(row.cost.macs for row in dead if isinstance(row, CountedNode))


def _warn_of_dead_nodes(graph: Graph) -> None:
    """Warn if an ONNX file has nodes on which no output depends."""
    dead = count_dead(graph)
    for kind, unit in (("macs", "MACs"), ("flops", "FLOPs")):
        amounts = {
            f"node {counted.node.key!r}": amount
            for counted in dead
            if isinstance(counted, CountedNode) and (amount := getattr(counted.cost, kind))
        }
        if amounts:
            warnings.warn(
                _dead_work_message(amounts, unit, "nodes"), CrossflopsWarning, stacklevel=3
            )
            break
    unknown = [counted for counted in dead if isinstance(counted, UncountedNode)]
    if unknown:
        first = unknown[0]
        sentence = _DEAD_UNKNOWN.format(len(unknown), first.node.key, first.reason)
        warnings.warn(sentence, CrossflopsWarning, stacklevel=3)


def _dead_macs_by_module(
    counted: CountedModel, with_recomputation: bool = False
) -> dict[str, int]:
    """Return {module path: MACs of its operators on which no output depends}.

    Of an operator that has no node, and of one of whose parts some have none, those of the parts,
    where they are known. What reaches an output by empty tensors alone has no node either. With
    `with_recomputation` only those in a checkpoint, which may run them again, and back with
    gradients of zeros.
    """
    from crossflops.frontends.converted import all_nested_nodes
    from crossflops.tools.contractions import exact_operator_macs

    there = {node.call for node in all_nested_nodes(counted.graph.nodes)}
    there |= counted.graph.whole_calls
    trace = counted.trace
    parts = [
        (part, amount) for part in trace.dropped if (amount := exact_operator_macs(part, trace))
    ]
    separate = {part.parent for part, _ in parts}
    full = (
        call
        for call in counted.trace.calls
        if call.level == "operator" and call.key not in there and call.key not in separate
    )
    dead: Counter[str] = Counter()
    for call, amount in (*parts, *((call, exact_operator_macs(call, trace)) for call in full)):
        if call.checkpoint or not with_recomputation:
            dead[trace.modules[call.module].path] += amount
    return {path: amount for path, amount in dead.items() if amount}


def _node_with_open_sizes(counted: CountedModel) -> str:
    """Return the name and operator of the first node whose result shape depends on values, as a
    text; "" if there is none.

    All that is not counted behind it waits for its sizes.
    """
    from crossflops.frontends.converted import all_nested_nodes

    for node in all_nested_nodes(counted.graph.nodes):
        known = all(spec is None or spec.shape is not None for spec in node.inputs)
        open_ = any(spec is not None and spec.shape is None for spec in node.outputs)
        if not node.op.domain and not node.bodies and known and open_ and not node.objection:
            return f"{node.key!r} ({node.op})"
    return ""


def _dead_work_message(
    dead: Mapping[str, int], unit: str = "MACs", parts_noun: str = "modules"
) -> str:
    """Return the warning that says how much work has no effect on an output, and in which modules
    or nodes it is.
    """
    largest = sorted(dead, key=lambda path: -dead[path])[:_NAMED]
    where = ", ".join(f"{dead[path]} in {path or 'the model itself'}" for path in largest)
    more = f", and in {len(dead) - _NAMED} more {parts_noun}" if len(dead) > _NAMED else ""
    total = sum(dead.values())
    return f"no output depends on {total} {unit}; they are not in the totals: {where}{more}"


# A count as a tool's convention folds it into its number, without the tool.


def count_by_convention(
    convention: "Convention", counted: CountedModel, setting: Setting
) -> ConventionCount:
    """Return the total that a tool's convention gives for the model, and its amount for each call
    or node.
    """
    if convention.formula is not None:
        raise InputError(
            f"{convention.tool} is a formula over the config of a language model, but this model "
            "has no such config",
            f"use `crossflops count hf:config.json --as {convention.tool}`",
        )
    if convention.sees == "node":
        return _count_graph_nodes_by_convention(convention, counted)
    of_framework = counted.trace.calls or counted.program is not None
    if of_framework and convention.framework != counted.trace.framework:
        own = framework_title(counted.trace.framework)
        raise InputError(
            f"the convention {convention.tool} is for models of "
            f"{framework_title(convention.framework)}, but this model is from {own}",
            f"choose a convention for models of {own}, or one for any framework (exact-2k-1)",
        )
    if not counted.trace.calls:
        raise InputError(
            f"{convention.tool} counts calls of modules and functions, but a file does not "
            "record these",
            "give the model as file.py:callable",
        )
    from crossflops.rules.prediction import predict

    prediction = predict(convention, counted.trace, setting, counted.ledger)
    left = prediction.amounts_divided_by_batch()
    rows = [
        FoldedRow(booking.call, booking.path, amount)
        for booking, amount in zip(prediction.bookings, left, strict=True)
        if amount
    ]
    if rounded := int(prediction.total) - sum(left):
        rows.append(FoldedRow("", "", rounded))
    return ConventionCount(
        tool=convention.tool,
        edition=convention.edition,
        total=prediction.total,
        assumed=any(call.assumed for call in counted.trace.calls),
        sees=convention.sees,
        rows=tuple(rows),
    )


def predict_from_graph_nodes(convention: "Convention", counted: CountedModel) -> "Prediction":
    """Return the prediction of a tool's convention for the nodes of the graph.

    Raises PredictionError where the tool itself would fail.
    """
    from crossflops.rules.prediction import predict_nodes

    if convention.opens:
        return predict_nodes(convention, counted.graph, counted.ledger)
    graph = counted.graph.with_all_nodes_of_file
    return predict_nodes(convention, graph, count_nodes_with_their_bodies(graph))


def _count_graph_nodes_by_convention(
    convention: "Convention", counted: CountedModel
) -> ConventionCount:
    """Return the total that a convention of graph nodes gives, and its amount for each node."""
    prediction = predict_from_graph_nodes(convention, counted)
    amounts: dict[tuple[str, str], int] = {}
    for booking in prediction.bookings:
        index = booking.call, booking.path
        amounts[index] = amounts.get(index, 0) + prediction.amount_in_tool_unit(booking)
    return ConventionCount(
        tool=convention.tool,
        edition=convention.edition,
        total=sum(amounts.values()),
        assumed=False,
        sees="node",
        rows=tuple(FoldedRow(*index, amount) for index, amount in amounts.items() if amount),
        uncounted=tuple(prediction.unknown),
    )


# The warnings about a model, kept for its report.

_PACKAGE = str(Path(__file__).parents[1])


@contextmanager
def collecting_warnings() -> Iterator[list[str]]:
    """Yield a list that gets the texts of all CrossflopsWarnings of the block; afterwards each
    warning is shown once.

    They are heard whatever is filtered, and shown as always, then.
    """
    sentences: list[str] = []
    recorded: list[warnings.WarningMessage] = []
    try:
        with record_warnings(CrossflopsWarning) as recorded:
            yield sentences
    finally:
        for warning in recorded:
            _issue_warning_once(warning, sentences)


def _issue_warning_once(warning: warnings.WarningMessage, sentences: list[str]) -> None:
    """Show a warning and add its text to `sentences`, unless its text is already in there."""
    sentence = str(warning.message)
    if sentence in sentences:
        return
    sentences.append(sentence)
    # a filter by module means the package; a warning about a file bears the file's name
    module = "crossflops" if warning.filename.startswith(_PACKAGE) else warning.filename
    warnings.warn_explicit(sentence, warning.category, warning.filename, warning.lineno, module)


def make_model_build(request: Request) -> ModelBuild:
    """Return the builder of the requested model; it builds with values of weights if a convention
    needs a real run.
    """
    return ModelBuild(
        request, is_run=bool(views_to_observe(_request_conventions(request), request.setting))
    )


def count_target(request: Request, on_progress: Progress = lambda _: None) -> Report:
    """Return the report of a request about one model, or about a pipeline of several;
    `on_progress` gets a line about each count of many.

    Raises what `native_count` raises.
    """
    if request.is_pipeline:
        from crossflops.verbs.pipeline import count_pipeline

        return count_pipeline(request, on_progress)
    return native_count(request, on_progress=on_progress)[0]


@restoring_imports()
def native_count(
    request: Request, build: ModelBuild | None = None, on_progress: Progress = lambda _: None
) -> tuple[Report, CountedModel]:
    """Return (report, counted model) of a request, with everything that it requests: conventions,
    training step, workload.

    `build` is the model of the request, where the caller has more to ask of it. `on_progress` gets
    a line about each size of --vary.

    Raises UnknownNameError for a convention that there is not, InputError for weights that there
    are not, and what reading the model raises.
    """
    reject_training_options(request)
    request.refuse_unused_options()
    if request.prompt is not None or request.generate is not None:
        from crossflops.verbs.workload import count_generation

        return count_generation(request)
    _refuse_generation_options(request)
    conventions = _request_conventions(request)
    with collecting_warnings() as sentences, checking_formula_matches() as warn_of_unmatched:
        settled, formulas, run = _request_with_known_sizes(request, on_progress)
        if build is None or settled is not request:
            build = make_model_build(settled)
        report, native = _count_report(build, settled.setting, conventions)
        if isinstance(formulas, Formulas):
            from crossflops.verbs.vary import check_formulas_of_tables

            check_formulas_of_tables(formulas, report.totals)
        if _is_pytorch_trace(native.trace) and (dead := _dead_macs_by_module(native)):
            warnings.warn(_dead_work_message(dead), CrossflopsWarning, stacklevel=2)
            if request.train and (inside := _dead_macs_by_module(native, with_recomputation=True)):
                sentence = _RUNS_DEAD.format(sum(inside.values()))
                warnings.warn(sentence, CrossflopsWarning, stacklevel=2)
        if request.is_file:
            _warn_of_dead_nodes(native.graph)
        if request.is_file and not request.observe and (sizes := _node_with_open_sizes(native)):
            warnings.warn(_OBSERVABLE.format(sizes), CrossflopsWarning, stacklevel=2)
        if request.train:
            towards_loss = (
                mark_outputs_outside_loss(native, request, build) if request.loss else native
            )
            own = custom_autograd_work_in_step(towards_loss, settled, build)
            exact = count_exact_training_step(towards_loss, request.frozen, request.trainable, own)
            report = with_training(report, towards_loss, exact, request.optimizer)
        if request.shapes:
            from crossflops.report.view import with_shapes

            report = with_shapes(report, native.graph, native.trace)
        warn_of_unmatched(native)
    typed = {
        "vary": request.vary_texts or None,
        "observe": request.observe or None,
        "as_": request.as_ or None,
        **training_option_values(request),
        "optimizer": request.optimizer or None,
        "shapes": request.shapes or None,
    }
    report = msgspec.structs.replace(
        report,
        formulas=formulas,
        per_token=PerToken.from_totals(report.model.inputs, report.totals) or UNSET,
        observed=report.observed if run is UNSET else run,
        request=build_request_record("count", request, report.model, typed),
        made_with=framework_versions(request.is_file),
        warnings=(*report.warnings, *sentences),
    )
    return report, native


@contextmanager
def checking_formula_matches() -> Iterator[Callable[[CountedModel], None]]:
    """Yield a function that issues a warning if formulas that the request names match no call of a
    counted model; those that count a call inside the block are known to match one.
    """
    sources: Any = sys.modules.get("crossflops.operators.formula_sources")
    if sources is None or not sources.formulas_of_request():
        yield lambda native: None
        return
    from crossflops.operators.formula import recording_used_formula_names
    from crossflops.verbs.unmatched_formulas import formula_mismatch_messages

    with recording_used_formula_names() as used:

        def warn_of_unmatched_formulas(native: CountedModel) -> None:
            """Issue a warning for formulas of the request that match no call of this model."""
            for message in formula_mismatch_messages(native.graph, native.trace, used):
                warnings.warn(message, CrossflopsWarning, stacklevel=2)

        yield warn_of_unmatched_formulas


def _refuse_generation_options(request: Request) -> None:
    """Raise InputError for options of generated text where one pass is counted."""
    options: dict[str, object] = {
        "--images": request.images,
        "--cache-dtype": request.cache_dtype,
        "--draft": request.draft,
        "--draft-tokens": request.draft_tokens,
        "--acceptance": request.acceptance,
    }
    for flag, value in options.items():
        if value:
            raise InputError(
                f"{flag} requires --prompt and --generate: one pass without a cache is counted",
                f"add --prompt N --generate N, or leave out {flag}",
            )


def training_option_values(request: Request) -> dict[str, Any]:
    """Return {name: value} of the training options in a request; the value is None for an option
    that is not given.
    """
    return {
        "train": request.train or None,
        "frozen": request.frozen or None,
        "trainable": request.trainable or None,
        "loss": loss_function_name(request.loss) or None,
    }


def loss_function_name(loss: str | Callable[..., Any]) -> str:
    """Return the name of a loss function, or of the class of a callable object, as text."""
    if isinstance(loss, str):
        return loss
    return str(getattr(loss, "__qualname__", type(loss).__qualname__))


def reject_training_options(request: Request) -> None:
    """Raise InputError for training options without --train or with --no-grad, UnknownNameError
    for an unknown optimizer.
    """
    if not request.train and (request.frozen or request.trainable):
        which = "--frozen" if request.frozen else "--trainable"
        raise InputError(f"{which} requires --train", "add --train")
    if request.train and not request.setting.grad:
        raise InputError(
            "--train needs gradients and cannot be combined with --no-grad",
            "leave out --no-grad, or leave out --train",
        )
    if not request.train and request.loss:
        raise InputError("--loss requires --train", "add --train")
    if request.optimizer:
        if not request.train:
            raise InputError("--optimizer requires --train", "add --train")
        from crossflops.ledger.optimizer import parse_optimizer as optimizer_asked

        optimizer_asked(request.optimizer)  # before a model is built


def count_exact_training_step(
    native: CountedModel, frozen: Iterable[str], trainable: Iterable[str], own: OwnBackwards = ()
) -> "Steps":
    """Return the exact work of a training step, for each node of a counted model.

    `own` are the backward passes of its functions: see `crossflops.ledger.training.work`.

    Raises InputError for a pattern of no weight, and where its trace does not say what is trained.
    """
    from crossflops.ledger.training.weights import TrainedWeights
    from crossflops.ledger.training.work import count_training_step

    require_known_trainable_parameters(native.trace, trainable)
    weights = TrainedWeights(native.trace, frozen, trainable)
    exact = count_training_step(native.graph, weights, own=own)
    weights.check_patterns_match_weights(native.graph)
    return exact


def custom_autograd_work_in_step(
    native: CountedModel, request: Request, build: ModelBuild
) -> OwnBackwards:
    """Return the work of the model's custom autograd functions in the requested training step, ()
    if it has none.

    What the loss of the request misses is severed from its graph.
    """
    if not native.graph.functions:
        return ()
    missed, outputs = native.graph.severed, range(len(native.graph.outputs))
    step = StepSetting(
        frozen=request.frozen,
        trainable=request.trainable,
        reached=tuple(index not in missed for index in outputs) if request.loss else UNSET,
    )
    setting = msgspec.structs.replace(request.setting, step=step)
    return build.compute_with_values_if_needed(
        lambda source: custom_autograd_work_of_source(native, source, setting)
    )


def custom_autograd_work_of_source(
    native: CountedModel, source: Source, setting: Setting
) -> OwnBackwards:
    """Return the work of a model's custom autograd functions in a training step in this setting,
    () if it has none.
    """
    if not native.graph.functions:
        return ()
    return require_frontend(source.model).custom_backward_costs(source, setting)


def mark_outputs_outside_loss(
    native: CountedModel, request: Request, build: ModelBuild
) -> CountedModel:
    """Return a copy of the count in which the outputs that the requested loss does not use are
    marked as unused.

    Raises InputError, TargetError.
    """
    return mark_unused_outputs(native, outputs_reaching_loss(request, build))


def outputs_reaching_loss(request: Request, build: ModelBuild) -> tuple[bool, ...]:
    """Return for each output tensor of the model whether the requested loss depends on it.

    Raises InputError, TargetError.
    """
    loss = load_target_function(request.loss) if isinstance(request.loss, str) else request.loss
    return build.compute_with_values_if_needed(
        lambda source: _source_outputs_reaching_loss(source, loss, request.setting),
        "the loss needs values",
    )


def _source_outputs_reaching_loss(
    source: Source, loss: Callable[..., Any], setting: Setting
) -> tuple[bool, ...]:
    """Return for each output tensor of a built model whether the loss function depends on it."""
    if isinstance(source.model, OnnxFile):
        raise InputError("--loss cannot be used with an ONNX file", "leave out --loss")
    return require_frontend(source.model).loss_reached_outputs(source, loss, setting)


def mark_unused_outputs(native: CountedModel, is_used: Sequence[bool]) -> CountedModel:
    """Return a copy of the count in which the outputs without `is_used` are marked as unused
    by the loss.

    Raises InputError where which they are is not known.
    """
    graph = native.graph
    if len(is_used) != len(graph.outputs):
        raise InputError(
            f"cannot match the tensors that the loss uses: the model returns {len(is_used)} "
            f"tensors and its graph has {len(graph.outputs)} outputs",
            "change the model so that it returns each tensor only once",
        )
    missed = {index for index, is_reached in enumerate(is_used) if not is_reached}
    graph = msgspec.structs.replace(graph, severed=tuple(sorted(missed | {*graph.severed})))
    return msgspec.structs.replace(native, graph=graph)


def with_training(
    report: Report, native: CountedModel, exact: "Steps", optimizer: str = ""
) -> Report:
    """Return a copy of the report with the work of the training step, and of the optimizer if one
    is named.
    """
    from crossflops.ledger.training.rule_of_thumb import exact_step_differences_by_cause

    thumb = (
        ThumbRow(row.cause, row.macs)
        for row in exact_step_differences_by_cause(native.graph, native.trace, exact)
        if row.macs
    )
    if native.trace.writes_detached:
        warnings.warn(_WRITES_DETACHED, CrossflopsWarning, stacklevel=2)
    report = tables.with_training(report, native.ledger, exact, thumb)
    report = _with_rule_of_thumb(report, native)
    if not optimizer:
        return report
    from crossflops.ledger.optimizer import optimizer_step

    assert isinstance(report.training, TrainingReport)
    step = optimizer_step(optimizer, native.trace, exact)
    training = msgspec.structs.replace(report.training, optimizer=step)
    return msgspec.structs.replace(report, training=training)


def _with_rule_of_thumb(report: Report, native: CountedModel) -> Report:
    """Return a copy of the report with the estimate 6 N D of its training step; unchanged if the
    inputs are not tokens.
    """
    from crossflops.ledger.training.rule_of_thumb import rule_of_thumb_macs_and_differences

    per_token = PerToken.from_totals(report.model.inputs, report.totals)
    if per_token is None or not isinstance(report.training, TrainingReport):
        return report
    macs, rows = rule_of_thumb_macs_and_differences(native.graph, native.trace, per_token.tokens)
    training = msgspec.structs.replace(
        report.training,
        six_n_d_macs=macs,
        six_n_d_differences=tuple(ThumbRow(row.cause, row.macs) for row in rows),
    )
    return msgspec.structs.replace(report, training=training)


def _request_conventions(request: Request) -> list["Convention"]:
    """Return the tool conventions that the request names by --as."""
    if not request.as_:
        return []
    from crossflops.tools.registry import conventions_from_texts

    return conventions_from_texts([request.as_] if isinstance(request.as_, str) else request.as_)


def mode_counter(
    build: ModelBuild, setting: Setting, views: Sequence[View]
) -> Callable[[bool], CountedModel]:
    """Return a function that returns the count of the model in train or eval mode; each mode is
    counted once.

    Args:
        build: The model.
        setting: The setting of the counts, but for the mode.
        views: The views that conventions need, of either mode.
    """
    modes: dict[bool, CountedModel] = {}

    def count_in_mode_once(training: bool) -> CountedModel:
        """Return the count of the model in train mode if `training` is true, else in eval mode."""
        if training not in modes:
            own_views = [view for view in views if view.training == training]
            own_setting = msgspec.structs.replace(setting, training=training)
            modes[training] = build.count(own_setting, own_views)
        return modes[training]

    return count_in_mode_once


def _count_report(
    build: ModelBuild, setting: Setting, conventions: Sequence["Convention"]
) -> tuple[Report, CountedModel]:
    """Return (report, counted model); the report has the totals of these tool conventions."""
    mode = mode_counter(build, setting, views_to_observe(conventions, setting))
    native = mode(setting.training)

    def count_by_tool_convention(convention: "Convention") -> ConventionCount:
        """Return the total that this tool convention gives for the model."""
        return count_by_convention(convention, mode(convention.setting(setting).training), setting)

    formulas = [convention for convention in conventions if convention.formula is not None]
    if not formulas:
        return build_count_report(
            native, _count_by_each_convention(conventions, count_by_tool_convention)
        ), native
    from crossflops.verbs.formulas import (
        evaluate_formulas,
        formula_convention_counts,
        read_source_architecture,
    )

    architecture = build.compute_with_values_if_needed(read_source_architecture)
    answers = evaluate_formulas(formulas, architecture, build_count_report(native))
    others = [convention for convention in conventions if convention.formula is None]
    folds = [
        *(_count_by_each_convention(others, count_by_tool_convention) if others else ()),
        *formula_convention_counts(answers),
    ]
    order = [(convention.tool, convention.edition) for convention in conventions]
    folds.sort(key=lambda fold: order.index((fold.tool, fold.edition)))
    for obstacle, names in answers.formulas_by_obstacle.items():
        warnings.warn(
            f"no number as {', '.join(names)}: {obstacle}", CrossflopsWarning, stacklevel=2
        )
    return msgspec.structs.replace(build_count_report(native, folds), llm=answers), native


def _count_by_each_convention(
    conventions: Sequence["Convention"],
    count_convention: Callable[["Convention"], ConventionCount],
) -> list[ConventionCount]:
    """Return the totals of the conventions; warn of each that cannot count the model, and raise
    its error if none can.

    Raises InputError where none can.
    """
    folds, refused = [], []
    for convention in conventions:
        try:
            folds.append(count_convention(convention))
        except InputError as error:
            refused.append((convention.tool, error))
    if refused and not folds:
        raise refused[0][1]
    for tool, why in refused:
        warnings.warn(f"no number as {tool}: {why.message}", CrossflopsWarning, stacklevel=2)
    return folds


def _request_with_known_sizes(
    request: Request, on_progress: Progress
) -> tuple[Request, Formulas | UnsetType, Run | UnsetType]:
    """Return (request with all sizes known, polynomials for --vary or UNSET, run for --observe or
    UNSET).
    """
    formulas: Formulas | UnsetType = UNSET
    run: Run | UnsetType = UNSET
    if request.vary:
        from crossflops.verbs.vary import fit_request_polynomials

        formulas = fit_request_polynomials(request, on_progress)
        request = request.with_sizes(formulas.at)
    if request.observe:
        request, run = request_with_observed_sizes(request)
    return request, formulas, run
