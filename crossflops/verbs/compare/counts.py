"""Hold the native counts of a comparison: the model in every mode that a tool needs, and its ONNX
file.
"""

from collections.abc import Iterator, Mapping
from functools import partial

import msgspec

from crossflops.frontends import Source
from crossflops.ir.profile import Failure
from crossflops.ir.provenance import FAKE, WeightsKind
from crossflops.ir.trace import Setting, StepSetting, View
from crossflops.ir.training import OwnBackwards, Steps
from crossflops.ledger.step import extend_by_training_step
from crossflops.reconcile.parameters import Stock
from crossflops.rules.prediction import keep_shapes_of_graph
from crossflops.rules.rule import Convention
from crossflops.verbs.compare.failures import catch_tool_failure
from crossflops.verbs.compare.tool_file import ToolInputFile
from crossflops.verbs.count import (
    CountedModel,
    count_exact_training_step,
    count_source,
    custom_autograd_work_of_source,
    mark_unused_outputs,
    views_to_observe,
)


class TrainingCounts(msgspec.Struct, frozen=True):
    """A counted model with its training step: `forward` pass, `exact` step, and `whole`, which is
    both together.

    The graph of `forward` is severed from outputs that the loss misses; the calls and the ledger
    of `whole` are those of the step.
    """

    forward: CountedModel
    exact: Steps
    whole: CountedModel

    @classmethod
    def from_step_setting(
        cls, native: CountedModel, step: StepSetting, own: OwnBackwards = ()
    ) -> "TrainingCounts":
        """Return the count of a model's training step; raise InputError if frozen or trainable
        parameters do not exist.
        """
        forward = mark_unused_outputs(native, step.reached) if step.reached else native
        exact = count_exact_training_step(forward, step.frozen, step.trainable, own)
        trace, ledger = extend_by_training_step(native.trace, native.ledger, exact)
        full = msgspec.structs.replace(forward, trace=trace, ledger=ledger)
        return cls(forward, exact, full)


class ModelCounts(msgspec.Struct, frozen=True):
    """A model counted in every mode that a tool needs, in the form that each tool gets.

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
    steps: dict[bool, TrainingCounts] = {}

    def count_of_tool_run(self, tool: str, training: bool) -> CountedModel:
        """Return the count, in train or eval mode, of the model that this tool runs: the model
        itself or a rebuilt one.
        """
        return self.rebuilt.get(tool, self.counted)[training]

    def count_compared_with_tool(
        self, tool: str, convention: Convention, setting: Setting
    ) -> CountedModel | Failure:
        """Return the count with which a tool is compared: of the ONNX file, of the model in the
        tool's mode, or of the training step.
        """
        training = convention.setting(setting).training
        if self.steps and convention.step == "runs":
            return self.steps[training].whole
        if convention.sees != "node" or self.file is None:
            return self.count_of_tool_run(tool, training)
        if convention.shapes is keep_shapes_of_graph and self.inferred is not None:
            return self.inferred
        return self.file

    def without_programs(self) -> "ModelCounts":
        """Return a copy without the exported ONNX models, so that the memory of their weights can
        be freed.
        """

        def without_program(model: CountedModel) -> CountedModel:
            """Return a copy of the counted model without its exported program."""
            return msgspec.structs.replace(model, program=None)

        return msgspec.structs.replace(
            self,
            counted={mode: without_program(model) for mode, model in self.counted.items()},
            file=self.file and without_program(self.file),
            inferred=without_program(self.inferred)
            if isinstance(self.inferred, CountedModel)
            else self.inferred,
            steps={
                mode: msgspec.structs.replace(
                    step, forward=without_program(step.forward), whole=without_program(step.whole)
                )
                for mode, step in self.steps.items()
            },
        )


def settings_with_runs_to_observe(
    setting: Setting, conventions: Mapping[str, Convention]
) -> Iterator[tuple[Setting, list[View]]]:
    """Yield (setting, runs to observe in it) for each mode, train or eval, that a tool needs; the
    requested mode first.
    """
    training = {setting.training} | {
        convention.setting(setting).training for convention in conventions.values()
    }
    views = views_to_observe(conventions.values(), setting)
    for mode in sorted(training, key=lambda mode: mode != setting.training):
        yield (
            msgspec.structs.replace(setting, training=mode),
            [view for view in views if view.training == mode],
        )


def count_by_training_mode(
    source: Source, setting: Setting, conventions: Mapping[str, Convention]
) -> dict[bool, CountedModel]:
    """Return {is in train mode: count of the model} for each mode that a tool needs."""
    return {
        mode.training: count_source(source, mode, views)
        for mode, views in settings_with_runs_to_observe(setting, conventions)
    }


def collect_counts(
    source: Source,
    setting: Setting,
    counts: Mapping[bool, CountedModel],
    conventions: Mapping[str, Convention],
    file: ToolInputFile | None = None,
    reason: str = "",
) -> ModelCounts:
    """Return all counts of a comparison: the model in each mode, its training step if requested,
    and its ONNX file.

    The file is written where only its bytes tell the shapes in it, and otherwise later; of a model
    without values not at all.

    Args:
        source: the model.
        setting: the one that was asked for.
        counts: the model in every mode that a tool needs, by training mode.
        conventions: those of the tools, by tool.
        file: what tools of graph nodes are given, None where there are none.
        reason: why a model has values where it should have none.
    """
    by_mode = dict(counts)
    if source.weights:
        kind = WeightsKind(source.weights, reason)
        by_mode = {
            mode: msgspec.structs.replace(native, weights=kind) for mode, native in by_mode.items()
        }
    if setting.step:
        steps = {}
        for mode, native in by_mode.items():
            own = custom_autograd_work_of_source(
                native, source, msgspec.structs.replace(setting, training=mode)
            )
            steps[mode] = TrainingCounts.from_step_setting(native, setting.step, own)
        return ModelCounts(by_mode, steps=steps)
    if file is None or source.weights == FAKE:
        return ModelCounts(by_mode)
    in_file = file.count_file(by_mode[setting.training], setting)
    inferred: CountedModel | Failure | None = None
    if any(convention.shapes is keep_shapes_of_graph for convention in conventions.values()):
        inferred = catch_tool_failure("", "predict", partial(_with_inferred_shapes, file, in_file))
    stock = catch_tool_failure("", "account", partial(file.tensors_in_file, in_file))
    return ModelCounts(by_mode, in_file, inferred, stock)


def _with_inferred_shapes(file: ToolInputFile, in_file: CountedModel) -> CountedModel:
    """Return a copy of the counted ONNX file with the shapes that onnx.shape_inference finds."""
    return msgspec.structs.replace(in_file, graph=file.graph_with_inferred_shapes(in_file))
