"""A comparison's own half: counts and predictions before the tools, the reconciliations after.

Tools that count an ONNX file are given one: which it is, and what is in it, is told here, too.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from crossflops.errors import InputError, ValuesNeededError, print_traceback
from crossflops.frontends import Source
from crossflops.frontends.onnx import OnnxFile
from crossflops.frontends.onnx.inference import as_told, told
from crossflops.frontends.onnx.parameters import held
from crossflops.ir.graph import Graph, Node, TensorSpec
from crossflops.ir.profile import Failure, Profile
from crossflops.ir.provenance import FAKE, WeightsKind
from crossflops.ir.reconciliation import ParamsReconciliation, Reconciliation
from crossflops.ir.trace import Setting, StepSetting, Trace
from crossflops.ir.training import OwnBackwards, Steps
from crossflops.ledger.step import with_step
from crossflops.ledger.training import differences
from crossflops.load import decoded, read
from crossflops.plugins.failures import Stage, failure
from crossflops.reconcile.parameters import Stock, reconcile_parameters, reconcile_stored
from crossflops.reconcile.walk import (
    from_file,
    parameters_from_file,
    reconcile,
    thrice,
    unpredicted,
)
from crossflops.report.report import Report
from crossflops.rules.prediction import (
    Prediction,
    PredictionError,
    WatchError,
    as_given,
    predict,
    predict_nodes,
)
from crossflops.rules.rule import Convention
from crossflops.targets.request import Request
from crossflops.verbs import count
from crossflops.verbs.count import (
    CountedModel,
    counted,
    exact_steps,
    observed,
    own_of,
    seen_by,
    severed,
    write_program,
)

NAME = "model.onnx"


class FileOfTools(msgspec.Struct, frozen=True):
    """The file that tools are given: one that is there, or one that is yet to be written.

    `given` is None where it is the normalized model. `path` is where the tools find it.
    """

    given: OnnxFile | None
    path: Path

    def counted(self, native: CountedModel, setting: Setting) -> CountedModel:
        """The graph in the file, nothing inlined. `native` is the model that is counted."""
        if self.given is None:
            return native
        return counted(Source(self.given, (), {}), setting, ())

    def stock(self, mine: CountedModel) -> Stock:
        """What the file stores. `mine` is the graph in it."""
        model = read(self.given.path) if self.given else mine.program
        if isinstance(model, bytes):
            model = decoded(model)
        nodes = _as_stored(mine.graph.nodes, dict(_inputs(model.graph)))
        weights: dict[str, int] = {}
        for weights_of_node in held(nodes).values():
            weights |= weights_of_node
        return Stock(
            initializers=tuple(_initializers(model)),
            nodes=nodes,
            weights=weights,
            params=mine.graph.params,
        )

    def told(self, mine: CountedModel) -> Graph:
        """The graph of the file with the shapes that onnx.shape_inference alone tells.

        Of a model that was exported these are its own, but for sizes that values decided.
        """
        if self.given is not None:
            shapes = told(self.given.path, self.given.dims, self.given.specs)
        elif any(node.depends_on_inputs for node in mine.graph.nodes):
            self.write(mine)
            shapes = told(str(self.path), {}, ())
        else:
            shapes = None
        return mine.graph if shapes is None else as_told(mine.graph, shapes)

    def write(self, native: CountedModel) -> None:
        """Make sure that the file lies there. Raises CrossflopsError, TargetError, OSError."""
        if self.given is None:
            hint = "convert the model to ONNX, and give the file by --onnx"
            write_program(native, self.path, hint)
        elif self.path != Path(self.given.path):
            from crossflops.export.program import save_bound

            save_bound(self.given, self.path)


def _inputs(graph: Any) -> Iterator[tuple[str, list[str]]]:
    """By the name of each node what it reads, of a GraphProto or of a graph of onnx_ir."""
    if hasattr(graph, "initializers"):
        for node in graph:
            yield node.name or "", [value.name if value else "" for value in node.inputs]
        return
    for node in graph.node:
        yield node.name, list(node.input)
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs) if attribute.HasField("g") else ():
                yield from _inputs(body)


def _as_stored(nodes: tuple[Node, ...], inputs: Mapping[str, list[str]]) -> tuple[Node, ...]:
    """The nodes with the names that the file has for weights which the model calls otherwise."""

    def stored(node: Node) -> Node:
        names = inputs.get(node.key, [])  # a node without a name has another key
        if len(names) != len(node.inputs):
            return node
        specs = tuple(
            spec if spec is None else msgspec.structs.replace(spec, name=name)
            for spec, name in zip(node.inputs, names, strict=True)
        )
        bodies = tuple(
            msgspec.structs.replace(body, nodes=tuple(map(stored, body.nodes)))
            for body in node.bodies
        )
        return msgspec.structs.replace(node, inputs=specs, bodies=bodies)

    return tuple(map(stored, nodes))


def _initializers(model: Any) -> Iterator[TensorSpec]:
    """Of a ModelProto, or of a model of onnx_ir."""
    values = getattr(model.graph, "initializers", None)
    if values is None:
        for initializer in model.graph.initializer:
            yield TensorSpec(initializer.name, "", tuple(initializer.dims), "parameter")
        return
    for name, value in values.items():
        if value.shape is not None:
            yield TensorSpec(name, "", tuple(value.shape.numpy()), "parameter")


def file_of_tools(request: Request, onnx: str | None, scratch: str) -> FileOfTools:
    """What the tools are given: the file of `--onnx`, that of the target, or the normalized model.

    A file whose sizes are bound by the caller is copied with these sizes. Raises InputError.
    """
    if onnx is not None and request.is_file:
        raise InputError(f"{request.target} is an ONNX file already", "leave --onnx out")
    source: Any = request.source().model if request.is_file else None
    if onnx is not None:
        source = OnnxFile(path=onnx)
    if not isinstance(source, OnnxFile):
        return FileOfTools(None, Path(scratch, NAME))
    source = msgspec.structs.replace(source, inlined=False)
    bound = source.dims or source.specs
    return FileOfTools(source, Path(scratch, NAME) if bound else Path(source.path).absolute())


class Unpredicted(msgspec.Struct, frozen=True):
    """Why there is no prediction: should the tool answer, nothing is explained.

    `foreseen` is what the tool should fail on, where it should.
    """

    convention: Convention
    obstacle: str
    foreseen: str = ""


Predicted: TypeAlias = Prediction | Unpredicted | Failure
T = TypeVar("T")


def _guarded(tool: str, stage: Stage, ask: Callable[[], T]) -> T | Failure:
    """Return what is asked about one tool; its Failure where that raises, so the others go on.

    That values are needed concerns the whole comparison, which begins again with some.
    """
    try:
        return ask()
    except ValuesNeededError:
        raise
    except Exception as problem:
        print_traceback(problem)
        return failure(tool, stage, problem)


class Trained(msgspec.Struct, frozen=True):
    """A model with its training step: the `forward` pass, the `exact` step, and both as `whole`.

    The graph of `forward` is severed from outputs that the loss misses; the calls and the ledger
    of `whole` are those of the step.
    """

    forward: CountedModel
    exact: Steps
    whole: CountedModel

    @classmethod
    def of(cls, native: CountedModel, step: StepSetting, own: OwnBackwards = ()) -> "Trained":
        """The step of a model that was counted. Raises InputError."""
        forward = severed(native, step.reached) if step.reached else native
        exact = exact_steps(forward, step.frozen, step.trainable, own)
        trace, ledger = with_step(native.trace, native.ledger, exact)
        whole = msgspec.structs.replace(forward, trace=trace, ledger=ledger)
        return cls(forward, exact, whole)


class Study(msgspec.Struct, frozen=True):
    """A model counted in every mode that a tool needs, as each tool has it before it.

    `counted` is keyed by training mode: a tool may force another than was asked for. `file` is
    what is in the file of the tools that see nodes, `inferred` the same with the shapes that
    onnx.shape_inference alone finds, `stock` what is stored there; None where there are none, a
    Failure where they could not be read.
    `rebuilt` is, by tool, what was rebuilt in the tool's framework from a file or from a model of
    another one, counted in the same way. `steps` are there where a training step is counted, by
    training mode too.
    """

    counted: dict[bool, CountedModel]
    file: CountedModel | None = None
    inferred: CountedModel | Failure | None = None
    stock: Stock | Failure | None = None
    rebuilt: dict[str, dict[bool, CountedModel]] = {}
    steps: dict[bool, Trained] = {}

    def run(self, tool: str, training: bool) -> CountedModel:
        """What a tool that runs a model has before it, in a mode."""
        return self.rebuilt.get(tool, self.counted)[training]

    def seen(self, tool: str, convention: Convention, setting: Setting) -> CountedModel | Failure:
        """Return what a tool counts: the nodes of the file, or the model in its mode."""
        training = convention.setting(setting).training
        if self.steps and convention.step == "runs":
            return self.steps[training].whole
        if convention.sees != "node" or self.file is None:
            return self.run(tool, training)
        if convention.shapes is as_given and self.inferred is not None:
            return self.inferred
        return self.file

    def without_programs(self) -> "Study":
        """Without the ONNX models, whose weights nobody reads once their file is written."""

        def bare(model: CountedModel) -> CountedModel:
            return msgspec.structs.replace(model, program=None)

        return msgspec.structs.replace(
            self,
            counted={mode: bare(model) for mode, model in self.counted.items()},
            file=self.file and bare(self.file),
            inferred=bare(self.inferred)
            if isinstance(self.inferred, CountedModel)
            else self.inferred,
            steps={
                mode: msgspec.structs.replace(
                    step, forward=bare(step.forward), whole=bare(step.whole)
                )
                for mode, step in self.steps.items()
            },
        )


def study(
    source: Source,
    setting: Setting,
    conventions: Mapping[str, Convention],
    file: FileOfTools | None = None,
    reason: str = "",
) -> Study:
    """Count the model in every mode that a tool needs, and the file of the tools that see nodes.

    The file is written where only its bytes tell the shapes in it, and otherwise later; of a model
    without values not at all. `reason` says why a model has some where it should have none.
    """
    modes = by_mode(source, setting, conventions)
    if source.weights:
        kind = WeightsKind(source.weights, reason)
        modes = {
            mode: msgspec.structs.replace(counted, weights=kind) for mode, counted in modes.items()
        }
    if setting.step:
        steps = {}
        for mode, native in modes.items():
            own = own_of(native, lambda: source, msgspec.structs.replace(setting, training=mode))
            steps[mode] = Trained.of(native, setting.step, own)
        return Study(modes, steps=steps)
    if file is None or source.weights == FAKE:
        return Study(modes)
    in_file = file.counted(modes[setting.training], setting)
    inferred: CountedModel | Failure | None = None
    if any(convention.shapes is as_given for convention in conventions.values()):
        inferred = _guarded("", "predict", partial(_inferred, file, in_file))
    stock = _guarded("", "account", partial(file.stock, in_file))
    return Study(modes, in_file, inferred, stock)


def _inferred(file: FileOfTools, in_file: CountedModel) -> CountedModel:
    return msgspec.structs.replace(in_file, graph=file.told(in_file))


def early_predictions(
    trace: Trace, setting: Setting, conventions: Mapping[str, Convention]
) -> dict[str, Predicted]:
    """What those tools should print that see calls, as soon as the calls were recorded.

    None of a tool that forces another mode than that of the trace, of one that sees nodes or
    weighs the cost of calls, and of a training step, in which calls of the backward pass come
    later.
    """
    return {
        tool: _predicted(tool, convention, partial(predict, convention, trace, setting))
        for tool, convention in conventions.items()
        if convention.setting(setting).training == trace.setting.training
        and not (setting.step or convention.sees == "node" or convention.weighs)
    }


def predictions(
    study: Study, setting: Setting, conventions: Mapping[str, Convention]
) -> dict[str, Predicted]:
    """What each tool should print, from what was counted alone."""
    return {
        tool: _predicted(tool, convention, partial(_of_counted, tool, convention, setting, study))
        for tool, convention in conventions.items()
    }


def _of_counted(
    tool: str, convention: Convention, setting: Setting, study: Study
) -> Prediction | Failure:
    mine = study.seen(tool, convention, setting)
    if isinstance(mine, Failure):
        return mine
    if convention.sees == "node":
        return predict_nodes(convention, mine.graph, seen_by(convention, mine))
    return predict(convention, mine.trace, setting, mine.ledger)


def by_mode(
    source: Source, setting: Setting, conventions: Mapping[str, Convention]
) -> dict[bool, CountedModel]:
    """The model counted as it was asked for, and in every mode that a tool forces."""
    modes = {setting.training} | {
        convention.setting(setting).training for convention in conventions.values()
    }
    watched = observed(conventions.values(), setting)
    return {
        training: counted(
            source,
            msgspec.structs.replace(setting, training=training),
            [convention for convention in watched if convention.training == training],
        )
        for training in modes
    }


def _predicted(
    tool: str, convention: Convention, predicted: Callable[[], Prediction | Failure]
) -> Predicted:
    def asked() -> Predicted:
        try:
            return predicted()
        except WatchError as error:
            return Unpredicted(convention, error.message)
        except PredictionError as error:
            obstacle = f"it was predicted to fail: {error.message}"
            return Unpredicted(convention, obstacle, error.message)

    outcome = _guarded(tool, "predict", asked)
    return _of_tool(tool, outcome) if isinstance(outcome, Failure) else outcome


def _of_tool(tool: str, problem: Failure) -> Failure:
    return msgspec.structs.replace(problem, tool=tool)


def report(
    study: Study,
    predictions: Mapping[str, Predicted],
    setting: Setting,
    answers: Mapping[str, Profile | Failure],
) -> Report:
    """What the tools answered, each reconciled with what it was predicted to."""
    native = study.counted[setting.training]
    reconciliations: list[Reconciliation] = []
    profiles: list[Profile | Failure] = []
    for tool, answer in answers.items():
        profile = answer
        if isinstance(answer, Profile):
            explained = _accounted(study, predictions[tool], setting, answer)
            if isinstance(explained, Failure):
                profile = explained
            else:
                profile, reconciliation = explained
                reconciliations.append(reconciliation)
        elif answer.stage == "run":
            profile = _as_foreseen(answer, predictions.get(tool))
        profiles.append(profile)
    counted = count.report(native)
    if study.steps:
        trained = study.steps[setting.training]
        counted = count.with_training(counted, trained.forward, trained.exact)
    return msgspec.structs.replace(
        counted, profiles=tuple(profiles), reconciliations=tuple(reconciliations)
    )


def _as_foreseen(failure: Failure, prediction: Predicted | None) -> Failure:
    """Return a failure of the tool itself with what it was predicted to fail on, if it was."""
    if not isinstance(prediction, Unpredicted) or not prediction.foreseen:
        return failure
    hint = f"as predicted, {prediction.foreseen}: leave the tool out of this model"
    return msgspec.structs.replace(failure, hint=hint)


def _accounted(
    study: Study, prediction: Predicted, wanted: Setting, answer: Profile
) -> tuple[Profile, Reconciliation] | Failure:
    """Return the answer with its account; where either has failed, why, and what was printed."""
    outcome: tuple[Profile, Reconciliation] | Failure
    if isinstance(prediction, Failure):
        outcome = prediction
    else:
        explain = partial(_explained, study, prediction, wanted, answer)
        outcome = _guarded(answer.tool, "account", explain)
    if isinstance(outcome, Failure):
        message = f"it printed {answer.total} {answer.printed_as}: {outcome.message}"
        return msgspec.structs.replace(outcome, tool=answer.tool, message=message)
    return outcome


def _explained(
    study: Study, prediction: Prediction | Unpredicted, wanted: Setting, answer: Profile
) -> tuple[Profile, Reconciliation]:
    """The answer with what is known of its tool, and the way to it from the native count."""
    tool, convention = answer.tool, prediction.convention
    native, setting = study.counted[wanted.training], convention.setting(wanted)
    if convention.sees == "node":
        base = mine = native
        graph = (study.file or study.run(tool, wanted.training)).graph
    else:
        base, mine = study.run(tool, wanted.training), study.run(tool, setting.training)
        graph = base.graph
    profile = msgspec.structs.replace(
        answer,
        digest=graph.digest,
        verified=answer.version in convention.verified,
        kernels=mine.trace.kernels.get(setting.id, UNSET),
    )
    if study.steps:
        reconciliation = _of_step(study, prediction, setting.training, wanted.training, profile)
    else:
        reconciliation = _reconciled(prediction, base, mine, profile)
    params = _parameters(convention, mine, profile, study.stock)
    if base is not native:
        reconciliation = from_file(
            reconciliation, native.ledger, base.ledger, convention.framework
        )
        if not isinstance(params, UnsetType):
            params = parameters_from_file(params, native.graph.params, convention.framework)
    # Several tools may share one convention: a reconciliation is that of the tool.
    return profile, msgspec.structs.replace(reconciliation, tool=tool, params=params)


def _of_step(
    study: Study,
    prediction: Prediction | Unpredicted,
    forced: bool,
    wanted: bool,
    profile: Profile,
) -> Reconciliation:
    """The way to a number for a training step, from the native count of it."""
    native, mine = study.steps[wanted], study.steps[forced]
    if isinstance(prediction, Unpredicted) or prediction.convention.step == "runs":
        return _reconciled(prediction, native.whole, mine.whole, profile)
    forward = reconcile(
        prediction, mine.forward.trace, mine.forward.ledger, base=native.forward.ledger
    )
    counted = native.forward
    rows = differences(counted.graph, counted.trace, native.exact)
    by_cause = {row.cause: row.by_key for row in rows}
    return thrice(forward, counted.trace, counted.ledger, by_cause, profile)


def _reconciled(
    prediction: Prediction | Unpredicted,
    native: CountedModel,
    mine: CountedModel,
    profile: Profile,
) -> Reconciliation:
    if isinstance(prediction, Unpredicted):
        return unpredicted(prediction.convention, native.ledger, profile, prediction.obstacle)
    return reconcile(prediction, mine.trace, mine.ledger, profile, base=native.ledger)


def _parameters(
    convention: Convention,
    counted: CountedModel,
    profile: Profile,
    stock: Stock | Failure | None,
) -> ParamsReconciliation | UnsetType:
    """Why the tool counts other parameters, where it counts any and it is known how."""
    rules, theirs = convention.parameters, profile.params
    if rules is None or theirs is None:
        return UNSET
    if rules.stored and stock is not None:
        if isinstance(stock, Failure):
            raise RuntimeError(stock.message)
        return reconcile_stored(rules, counted.graph.params, stock, theirs)
    if rules.stored or not counted.trace.modules:
        return UNSET
    return reconcile_parameters(rules, counted.trace, theirs)
