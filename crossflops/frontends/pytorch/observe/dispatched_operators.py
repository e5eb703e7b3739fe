"""The operators that a real run dispatches, as the dispatch modes of ptflops and PyTorch see them.

Composites are gone there (`aten.linear` is `aten.addmm`, or `aten.mm` and `aten.add`), except in
inference mode, where PyTorch's own mode takes them apart by itself. What a kernel calls inside is
not seen. Of a `torch.cond` PyTorch's own mode runs both branches.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from crossflops.frontends.pytorch.load.tensors import plain_arguments_by_name, torch_tensor_specs
from crossflops.frontends.pytorch.observe.alignment import (
    BRANCH,
    RUN,
    Phase,
    WatchedCall,
    enclosing_keys_of_frames,
    keeping_empty_hooks,
)
from crossflops.frontends.pytorch.observe.training_step import run_torch_training_step
from crossflops.frontends.pytorch.record.custom_functions import (
    CustomFunctionObserver,
    is_reentrant_checkpoint,
    observing_custom_functions,
)
from crossflops.frontends.pytorch.record.entry_points import recording_entry_points
from crossflops.frontends.pytorch.record.modules import ModuleIndex
from crossflops.frontends.pytorch.record.recorder import Recorder
from crossflops.ir.graph import TensorSpec
from crossflops.ir.trace import Scalar, Setting

if TYPE_CHECKING:
    from torch import nn


# What multiplies and adds up, or stands for it: products, convolutions and fused kernels.
_WORK = (
    "aten.mm.", "aten.matmul.", "aten.addmm", "aten._addmm", "aten.bmm.", "aten.baddbmm",
    "aten.addbmm", "aten.mv.", "aten.addmv", "aten.dot.", "aten.vdot.", "aten._trilinear",
    "aten._int_mm",
    "aten._scaled_mm", "aten._grouped_mm", "aten.convolution.", "aten._convolution",
    "aten.convolution_backward.",
    "aten._scaled_dot_product_", "aten._native_multi_head_attention",
    "aten._transformer_encoder_layer_fwd", "aten.mkldnn_rnn_layer", "aten._thnn_fused_",
)  # fmt: skip


# The setting of an operator that a composite one, seen by itself, is composed of.
COMPOSED = "composed"
OperatorsWithFlops = list[tuple[WatchedCall, int]]  # with what PyTorch's own mode counts for it


def observe_dispatched_calls(
    model: "nn.Module", args: tuple[Any, ...], kwargs: Mapping[str, Any], setting: Setting
) -> list[WatchedCall]:
    """Run the model; return the operators that multiply and add and that PyTorch dispatched, in
    order, with their tensors.

    The first entry is the run itself. The run may change the model (buffers in training mode):
    pass a copy.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import flop_registry

    recorder = Recorder(ModuleIndex(model), without_wrappers=True)

    class DispatchRecorder(TorchDispatchMode):
        """A dispatch mode that keeps dispatched operators, and the parts of composites."""

        supports_higher_order_operators = True
        depth = branches = 0

        def __init__(self) -> None:
            """Start with no operators found."""
            super().__init__()
            self.found: OperatorsWithFlops = []

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            """Return an operator's result, and note it with its FLOPs by PyTorch's own counter."""
            if func is torch.ops.higher_order.cond:
                return self.run_both_cond_branches(*args)
            result = self.run_composite_parts(func, args, kwargs or {})
            if result is NotImplemented:
                result = func(*args, **(kwargs or {}))
            if str(func).startswith(_WORK):
                facts = plain_arguments_by_name(args, kwargs or {})
                facts |= {COMPOSED: bool(self.depth), BRANCH: bool(self.branches)}
                weigh = flop_registry.get(func._overloadpacket, lambda *_, **__: 0)
                weight = weigh(*args, **(kwargs or {}), out_val=result)
                seen = _record_of_dispatched_operator(func, args, result, recorder, facts)
                seen.phase, seen.sequence = _phase_and_autograd_node(functions)
                self.found.append((seen, weight))
            return result

        def run_both_cond_branches(
            self, condition: Any, if_true: Any, if_false: Any, operands: Any
        ) -> Any:
            """Run both branches of a `cond`, keep the operators that PyTorch's own counter would
            count, and return the result of the first branch.

            It counts either branch in a copy of its tables, and merges these by the larger number
            for each operator. The copies share the tables that existed before: their numbers are
            the sum, once an operator was counted before the condition.
            """
            before = self.found
            adds = any(weight for _, weight in before)
            self.branches += 1
            with self:
                self.found = first = before if adds else []
                result = if_true(*operands)
                self.found = second = before if adds else []
                if_false(*operands)
            self.branches -= 1
            self.found = (
                before if adds else [*before, *_operators_of_larger_branch_by_name(first, second)]
            )
            return result

        def run_composite_parts(self, func: Any, args: Any, kwargs: Any) -> Any:
            """Run the operators of which a composite operator consists, and return the result;
            NotImplemented for another operator.
            """
            if not isinstance(func, torch._ops.OpOverload) or not _is_composite(func):
                return NotImplemented
            self.depth += 1
            try:
                with self:
                    return func.decompose(*args, **kwargs)
            finally:
                self.depth -= 1

    record = recording_entry_points(recorder, with_captured=False)
    mode, functions = DispatchRecorder(), CustomFunctionObserver()
    with (
        keeping_empty_hooks(model, setting),
        torch.set_grad_enabled(setting.grad),
        record,
        observing_custom_functions(functions),
        mode,
    ):
        run_torch_training_step(
            model, args, kwargs, setting, recorder.resuming_recording_of_model_code
        )
    return [WatchedCall(RUN), *(seen for seen, _ in mode.found)]


def _phase_and_autograd_node(functions: CustomFunctionObserver) -> tuple[Phase, int]:
    """Return the phase of the training step in which an operator runs, and the number of its
    autograd node.

    That is the last one that was made, of the operator itself or of the enclosing function, or the
    one that runs. There gradients are off, except in a checkpoint's recomputation, and in a custom
    function's own backward pass.
    """
    import torch

    library: Any = torch
    if functions.node is not None:
        return "own", functions.node._sequence_nr()
    node = library._C._current_autograd_node()
    if node is not None and not torch.is_grad_enabled():
        return "gradients", node._sequence_nr()
    last = functions.applied
    if last is None:
        last = library.autograd._get_sequence_nr() - 1
    return "forward" if node is None else "rerun", last


def _operators_of_larger_branch_by_name(
    first: OperatorsWithFlops, second: OperatorsWithFlops
) -> OperatorsWithFlops:
    """Return the operators of two branches: for each operator name, those of the branch that has
    more FLOPs of that name.
    """
    sums: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for total, branch in zip(sums, (first, second), strict=True):
        for seen, weight in branch:
            total[_name_without_overload(seen)] += weight
    wins = {name for name in sums[1] if sums[1][name] > sums[0][name]}
    return [
        *(call for call in first if _name_without_overload(call[0]) not in wins),
        *(call for call in second if _name_without_overload(call[0]) in wins),
    ]


def _name_without_overload(seen: WatchedCall) -> str:
    """Return the name of an operator without its overload."""
    return seen.target.rpartition(".")[0]


def _record_of_dispatched_operator(
    func: Any, args: Any, result: Any, recorder: Recorder, facts: dict[str, Scalar]
) -> WatchedCall:
    """Return the record of an operator call: name, enclosing frames, settings `facts` and
    tensors.
    """
    return WatchedCall(
        target=str(func),
        frames=tuple(frame.key for frame in reversed(recorder.stack)),
        settings=facts,
        inputs=tuple(torch_tensor_specs(tuple(args))),
        outputs=tuple(torch_tensor_specs(result)),
    )


def _is_composite(func: Any) -> bool:
    """Return True if PyTorch defines the operator only as a composition of other operators."""
    return str(func).startswith("aten.") and func._can_decompose()


# The operators of a real run as PyTorch reports them: its RecordFunction events.
#
# Every operator that Python or C++ calls through the dispatcher is one, a composite and what it
# calls beneath alike. A dispatch mode does not do: it sees no composite and nothing inside a
# kernel, and under one some composites take another path (`aten::linear` adds its bias with
# `aten::add`).

_MARK = "crossflops:"
_STOPPED = "crossflops stopped"
_OWN = "crossflops own backward:"
_ENGINE = "autograd::engine::"  # begins the event of a node of autograd that runs
REPEATED = "repeated"  # of an operator: whether another of its name called it and nothing else
TWICE = "twice"  # of an operator: whether it is one that a dispatch mode took, and ran again
_MODE = "PythonDispatchMode"


def observe_operator_events(
    model: "nn.Module", args: tuple[Any, ...], kwargs: Mapping[str, Any], setting: Setting
) -> list[WatchedCall]:
    """Run the model under PyTorch's profiler; return the operators that Python called, with the
    operators inside them.

    The first entry is the run itself.

    `aten::add` with a number calls `aten::add` with a tensor: the inner one is marked as repeated.
    An operator taken by a dispatch mode (that of a checkpoint with a policy) is one event as it is
    called, and one as the mode runs it: both are marked as twice.

    Inputs have their shapes; arguments that are not tensors have the shape (), and no type is
    reported. The run may change the model (buffers in training mode): pass a copy.
    """
    import torch
    from torch import autograd

    recorder = Recorder(
        ModuleIndex(model), running_context=_marking_frame_event, without_wrappers=True
    )
    legacy: Any = autograd
    config = legacy.ProfilerConfig(
        legacy.ProfilerState.CPU,
        True,  # shapes; neither memory, stacks, operations nor modules
        *(False,) * 4,
        torch._C._profiler._ExperimentalConfig(),
    )
    record = recording_entry_points(recorder, with_captured=False)
    with (
        torch.set_grad_enabled(setting.grad),
        record,
        observing_custom_functions(_BackwardMarker()),
        _marking_recompute_stops(),
    ):
        legacy._enable_profiler_legacy(config)
        try:
            run_torch_training_step(
                model, args, kwargs, setting, recorder.resuming_recording_of_model_code
            )
        finally:
            threads = legacy._disable_profiler_legacy()
    frames = enclosing_keys_of_frames(recorder)
    return [
        WatchedCall(RUN),
        *(seen for thread in threads for seen in _operator_event_tree(thread, frames)),
    ]


@contextmanager
def _marking_frame_event(number: int) -> Iterator[None]:
    """Mark in the profile that events inside the block belong to the frame with this number."""
    with _event_marker(f"{_MARK}{number}"):
        yield


@contextmanager
def _marking_recompute_stops() -> Iterator[None]:
    """Mark in the profile, inside the block, where a checkpoint stops its recomputation."""
    from torch.utils import checkpoint

    names: Any = vars(checkpoint)
    usual = names["_StopRecomputationError"]

    class Stop(usual):  # type: ignore[misc, valid-type]
        """A replacement of PyTorch's exception, raised in the midst of an operator."""

        def __init__(self, *args: Any) -> None:
            """Mark in the profile that a run ended early."""
            super().__init__(*args)
            with _event_marker(_STOPPED):
                pass

    names["_StopRecomputationError"] = Stop
    try:
        yield
    finally:
        names["_StopRecomputationError"] = usual


def _event_marker(name: str) -> Any:
    """Return a context that records an event with this name in PyTorch's profiler."""
    import torch

    return torch._C._profiler._RecordFunctionFast(name)


class _BackwardMarker(CustomFunctionObserver):
    """An observer that marks in the profile where a custom function's own backward pass runs."""

    def run_backward(self, node: Any, run: Callable[[], Any]) -> Any:
        """Run a custom function's backward pass and return its result; mark its events in the
        profile.
        """
        if self.node is not None or is_reentrant_checkpoint(node._forward_cls):
            return run()
        with _event_marker(f"{_OWN}{node._sequence_nr()}"):
            return super().run_backward(node, run)

    def read_saved_tensors(self, node: Any, run: Callable[[], Any]) -> Any:
        """Read saved tensors and return them; mark in the profile that operators recomputed for
        this are not of the function.
        """
        with _event_marker(f"{_OWN}{-1}"):
            return super().read_saved_tensors(node, run)


class _OwnPass(NamedTuple):
    """The backward pass of a custom function, by the number of its autograd node; -1 while it is
    suspended.
    """

    sequence: int


_Open: TypeAlias = int | WatchedCall | _OwnPass


def _operator_event_tree(thread: list[Any], frames: list[tuple[str, ...]]) -> list[WatchedCall]:
    """Return the outermost operators among the profiler events of a thread, each with the
    operators inside it; `frames` are the keys of frames by number.
    """
    tree: list[WatchedCall] = []
    open_: list[_Open] = []
    for event in thread:
        if event.kind() == "pop":
            open_.pop()
        if event.kind() != "push":
            continue
        name = str(event.name())
        if name.startswith(_MARK):
            open_.append(int(name.removeprefix(_MARK)))
            continue
        if name == _STOPPED:
            again = (at for at in open_[::-1] if isinstance(at, WatchedCall))
            stopped = next((call for call in again if call.phase == "rerun"), None)
            if stopped is not None:
                stopped.phase = "begun"
            open_.append(_OwnPass(-1))
            continue
        if name.startswith(_OWN):
            open_.append(_OwnPass(int(name.removeprefix(_OWN))))
            continue
        enclosing = open_[-1] if open_ else None
        passes = (at.sequence for at in open_[::-1] if isinstance(at, _OwnPass))
        own, number = next(passes, -1), event.sequence_nr()
        if number < 0 and not name.startswith(_ENGINE):  # in a function with a gradient of its own
            number = next((at.sequence for at in open_[::-1] if isinstance(at, WatchedCall)), -1)
        seen = WatchedCall(
            name, inputs=_specs_from_shapes(event.shapes()), inside=[], sequence=number
        )
        if isinstance(enclosing, WatchedCall) and (own >= 0 or not name.startswith(_ENGINE)):
            enclosing.inside.append(seen)
        elif own >= 0:
            seen.phase, seen.sequence = "own", own
            tree.append(seen)
        else:
            seen.phase = _event_call_phase(seen, open_, graded=event.sequence_nr() >= 0)
            seen.frames = frames[enclosing] if isinstance(enclosing, int) else ()
            tree.append(seen)
        open_.append(seen)
    _mark_repeated_events(tree)
    return tree


def _event_call_phase(seen: WatchedCall, open_: list[_Open], graded: bool) -> Phase:
    """Return the phase in which an operator event ran: "forward", "gradients" (of the backward
    pass) or "rerun" (by a checkpoint).
    """
    enclosing = (call.target for call in (*open_, seen) if isinstance(call, WatchedCall))
    if not any(target.startswith(_ENGINE) for target in enclosing):
        return "forward"
    return "rerun" if graded else "gradients"


def _mark_repeated_events(
    events: list[WatchedCall], enclosing: str | None = None, taken_by_mode: str | None = None
) -> None:
    """Set two settings of each operator event: True if it only repeats its caller's event, and
    True if a dispatch mode took it and ran it again.
    """
    for call in events:
        runs = [inner.target for at in call.inside if at.target == _MODE for inner in at.inside]
        call.settings = {
            REPEATED: len(events) == 1 and call.target == enclosing,
            TWICE: call.target in (taken_by_mode, *runs),
        }
        _mark_repeated_events(
            call.inside, call.target, enclosing if call.target == _MODE else None
        )


def _specs_from_shapes(shapes: list[list[int]]) -> tuple[TensorSpec, ...]:
    """Return a tensor spec for each shape, named by its position and without a dtype."""
    return tuple(TensorSpec(str(at), "", tuple(shape)) for at, shape in enumerate(shapes))
