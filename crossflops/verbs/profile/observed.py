"""Count a step as it was observed: every call, and the backward passes through it."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from crossflops.errors import CrossflopsError, InputError
from crossflops.ir.graph import TensorSpec
from crossflops.ir.trace import Setting, StepSetting
from crossflops.ir.training import NO_STEP, Steps, TrainingStep, Unknown
from crossflops.ledger.training.weights import RequestedWeights, TrainedWeights
from crossflops.ledger.training.work import count_training_step
from crossflops.profiling.passes import (
    BackwardPass,
    CallKind,
    ModelCall,
    call_signature,
    group_equal_calls,
    inputs_without_autograd,
)
from crossflops.profiling.watch import Watch, preserving_random_state, without_wrappers
from crossflops.report import tables
from crossflops.report.profile import BesideProfile
from crossflops.report.report import Report
from crossflops.targets.request import Request
from crossflops.verbs.count import (
    CountedModel,
    custom_autograd_work_of_source,
    mark_unused_outputs,
    native_count,
)
from crossflops.verbs.efficiency.work import with_convention_explanations
from crossflops.verbs.profile.account import (
    CountPart,
    OuterModule,
    StepCount,
    training_work_of_count,
)

if TYPE_CHECKING:
    from crossflops.ir.training import OwnBackwards

_FIRST_ORDER = (
    "the gradients that autograd.grad requested differ from those of the observed backward pass"
)
_OUTPUTS = (
    "a backward pass started from some outputs of {}, but it is unknown from which; it is "
    "counted as if it started from all outputs"
)
_INPUTS = (
    "some inputs of {} have gradients, but it is unknown which; these gradients are not counted"
)


def count_observed_step(model: Any, watch: Watch, conventions: str | tuple[str, ...]) -> StepCount:
    """Return the count of an observed step, with one part for each kind of call of the model; the
    random state is kept.
    """
    counter = _CallCounter(conventions)
    inner = without_wrappers(model)
    with preserving_random_state():
        own = [call for call in watch.calls if call.path is not None]
        parts = [
            counter.count_call_kind(kind)
            for kind in group_equal_calls(own)
            if not kind.call.is_transformed
        ]
        additional = tuple(
            counter.other_module_profile(
                module, [call for call in watch.calls if call.module is module]
            )
            for module in watch.beside
        )
    parts.sort(key=lambda part: (part.is_again, not part.has_backward))  # the first is shown
    if not parts:
        raise CrossflopsError(
            "every call of the model ran inside a torch.func transform, which is not supported",
            "profile a step that calls the model directly",
        )
    return StepCount(
        parts=tuple(parts),
        beside=additional,
        outer=_enclosing_modules(inner, [part.path for part in parts]),
        order=tuple(path for path, _ in inner.named_modules()),
        warnings=(
            *counter.doubts,
            *_sentences_on_uncounted_work(watch.calls),
            *_stray_product_warnings(watch.products),
        ),
    )


def _enclosing_modules(model: Any, paths: Iterable[str]) -> tuple[OuterModule, ...]:
    """Return path, class and number of parameters of each module that encloses one of the paths
    and is not called itself.
    """
    enclosing = dict.fromkeys(above for path in paths for above in _enclosing_paths(path))
    return tuple(
        OuterModule(
            path=path,
            class_=type(model.get_submodule(path)).__name__,
            params=sum(weight.numel() for weight in model.get_submodule(path).parameters()),
        )
        for path in sorted(enclosing, key=lambda path: path.count("."))
        if path not in paths
    )


def _enclosing_paths(path: str) -> Iterator[str]:
    """Yield the paths of all ancestors of a module, the nearest first and "" (the model) last."""
    while path:
        path = path.rpartition(".")[0]
        yield path


def _sentences_on_uncounted_work(calls: Iterable[ModelCall]) -> Iterator[str]:
    """Yield one sentence for each kind of work in the calls that is not counted."""
    numbers: dict[tuple[str, str], int] = {}
    for call in calls:
        for why in call.passes.beside:
            key = _module_path_or_class(call), why
            numbers[key] = numbers.get(key, 0) + 1
    for (name, why), number in numbers.items():
        times = f", in {number} calls" if number > 1 else ""
        yield f"{name}: {why}{times}: not counted"


def _stray_product_warnings(products: Iterable[tuple[str, int]]) -> Iterator[str]:
    """Yield one warning if a backward pass had matrix products outside of all modules of the
    step.
    """
    named = ", ".join(f"{number} x {name}" for name, number in products)
    if named:
        yield (
            "a backward pass ran through products outside of all modules of this step "
            f"({named}); these products are not counted"
        )


def _module_path_or_class(call: ModelCall) -> str:
    """Return the path of the called module, or its class name if it is the model itself."""
    return call.path or type(call.module).__name__


class _CallCounter:
    """Counts calls of an observed step, equal ones once; `doubts` are warnings about what could
    not be decided.
    """

    def __init__(self, conventions: str | tuple[str, ...]) -> None:
        self._as = conventions
        self._known: dict[Any, tuple[Report, CountedModel, Request]] = {}
        self._graphs: dict[str, Any] = {}
        self.doubts: dict[str, None] = {}

    def count_call_kind(self, kind: CallKind) -> CountPart:
        """Return the count of one kind of call: its forward pass, its backward passes, and how
        often it ran.
        """
        call = kind.call
        with _setting_trainable_parameters(call.module, call.trained):
            report, native, request = self._count_call(call)
            exact = self._count_all_backward_passes(call, native, request)
        return CountPart(
            report=tables.with_training(report, native.ledger, exact, ()),
            times=kind.times,
            path=call.path or "",
            has_backward=bool(call.passes.passes),
            is_again=call.is_again,
            finished=call.finished,
        )

    def other_module_profile(self, module: Any, calls: list[ModelCall]) -> BesideProfile:
        """Return the training work of a module outside of the model over these calls, or why it is
        unknown.
        """
        params = sum(weight.numel() for weight in module.parameters())
        row = BesideProfile(class_=type(module).__name__, params=params, calls=len(calls))
        try:
            parts = tuple(map(self.count_call_kind, group_equal_calls(calls)))
        except CrossflopsError as error:
            return msgspec.structs.replace(row, reason=error.message)
        return msgspec.structs.replace(
            row, training=training_work_of_count(StepCount(parts=parts))
        )

    def _count_call(self, call: ModelCall) -> tuple[Report, CountedModel, Request]:
        """Return (report, counted model, request) for a call; calls with equal inputs are counted
        once.
        """
        key = id(call.module), call.training, call.trained, call_signature(call)
        if key not in self._known:
            setting = Setting(training=call.training)
            provided = inputs_without_autograd(call)
            conventions = self._as if call.path == "" else ()
            request = Request.from_arguments(
                call.module, provided, setting=setting, as_=conventions or None, train=True
            )
            report, native = native_count(request)
            self._known[key] = (
                with_convention_explanations(report, native, setting),
                native,
                request,
            )
        return self._known[key]

    def _count_all_backward_passes(
        self, call: ModelCall, native: CountedModel, request: Request
    ) -> Steps:
        """Return the training work of all backward passes through a call, by node."""
        work: dict[str, TrainingStep] = {}
        unknown: dict[str, Unknown] = {}
        updated: dict[str, TensorSpec] = {}
        for backward, times in call.passes.passes:
            seen = self._count_backward_pass(call, native, request, backward)
            for key, step in seen.by_key.items():
                work[key] = work.get(key, NO_STEP) + step * times
            unknown |= {row.key: row for row in seen.unknown}
            updated |= {spec.name: spec for spec in seen.updated}
        return Steps(work, tuple(unknown.values()), tuple(updated.values()))

    def _count_backward_pass(
        self, call: ModelCall, native: CountedModel, request: Request, backward: BackwardPass
    ) -> Steps:
        """Return the training work of one backward pass through a call, by node."""
        native, step = self._sever_unused_outputs(call, native, backward)
        inputs = self._inputs_with_gradient(call, native, backward.inputs)
        graph = msgspec.structs.replace(native.graph, starts={**native.graph.starts, **inputs})
        own: OwnBackwards = _FIRST_ORDER
        if graph.functions and backward.weights is None and not inputs:
            setting = msgspec.structs.replace(request.setting, step=step)
            own = custom_autograd_work_of_source(native, request.source(values=False), setting)
        weights = TrainedWeights(native.trace, (), ())
        if backward.weights is not None:
            weights = RequestedWeights(native.trace, backward.weights)
        return count_training_step(graph, weights, own=own if graph.functions else ())

    def _sever_unused_outputs(
        self, call: ModelCall, native: CountedModel, backward: BackwardPass
    ) -> tuple[CountedModel, StepSetting]:
        """Return (count without the outputs that the backward pass did not use, setting of the
        step that says so).
        """
        if not backward.missed:
            return native, StepSetting()
        reached = tuple(index not in backward.missed for index in range(call.outputs))
        try:
            return mark_unused_outputs(native, reached), StepSetting(reached=reached)
        except InputError:
            self.doubts[_OUTPUTS.format(_module_path_or_class(call))] = None
            return native, StepSetting()

    def _inputs_with_gradient(
        self, call: ModelCall, native: CountedModel, indices: tuple[int, ...]
    ) -> Mapping[str, bool]:
        """Return {name of a graph input: True} for the inputs whose gradient the backward pass
        computed.
        """
        if not indices:
            return {}
        shapes, specs = call_signature(call)[0], native.graph.inputs
        if [shape for shape, _ in shapes] != [spec.shape for spec in specs]:
            self.doubts[_INPUTS.format(_module_path_or_class(call))] = None
            return {}
        return {specs[index].name: True for index in indices}


@contextmanager
def _setting_trainable_parameters(module: Any, trained: tuple[bool, ...]) -> Iterator[None]:
    """Set requires_grad of the module's parameters, within the block, to the values in
    `trained`.
    """
    changed = [
        (weight, was)
        for weight, was in zip(module.parameters(), trained, strict=False)
        if weight.requires_grad != was
    ]
    try:
        for weight, was in changed:
            weight.requires_grad_(was)
        yield
    finally:
        for weight, was in changed:
            weight.requires_grad_(not was)
