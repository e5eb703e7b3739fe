"""The calls inside custom operators whose kernel is Python, seen in a real run of the model.

An export runs the fake kernel of an operator that torch.library registered, and holds the operator
as one call. A tool that replaces functions, or hooks modules, counts what the real kernel calls.
So the model is run once for real, and the calls of each body go beneath its operator.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from crossflops.frontends.pytorch.load.fakes import weights_kind
from crossflops.frontends.pytorch.load.model import copy_inputs, using_model_copy_for_one_run
from crossflops.frontends.pytorch.observe.alignment import keeping_empty_hooks
from crossflops.frontends.pytorch.record.entry_points import recording_entry_points
from crossflops.frontends.pytorch.record.modules import ModuleIndex
from crossflops.frontends.pytorch.record.operators import OWN
from crossflops.frontends.pytorch.record.recorder import Frame, Recorder, to_trace_call
from crossflops.frontends.seeds import seeding_random_generators
from crossflops.ir.provenance import REAL
from crossflops.ir.trace import Call, Setting
from crossflops.patches import inventory
from crossflops.patches.patching import Patch, patching_attribute

if TYPE_CHECKING:
    from torch import nn


def with_custom_operator_marks(calls: Sequence[Call]) -> tuple[Call, ...]:
    """Return the calls with two flags set at operators: custom (of torch.library) and
    composite.
    """
    import torch

    defined: Any = torch.library
    names = {name.replace("::", ".") for name in defined._defs}
    return tuple(
        replace(
            call,
            custom=_name_without_overload(call.target) in names,
            composite=_is_decomposed(call.target),
        )
        if call.level == "operator" and not call.target.startswith(OWN)
        else call
        for call in calls
    )


def _is_decomposed(target: str) -> bool:
    """Return True if PyTorch runs the operator `target` as a composition of other operators."""
    import torch

    library: Any = torch._C
    namespace, _, rest = target.partition(".")
    name, _, overload = rest.partition(".")
    full = f"{namespace}::{name}" + (f".{overload}" if overload != "default" else "")
    try:
        return bool(
            library._dispatch_has_kernel_for_dispatch_key(full, "CompositeImplicitAutograd")
        )
    except RuntimeError:  # a node that is no operator of the dispatcher
        return False


def _name_without_overload(target: str) -> str:
    """Return the name of an operator without its overload, such as "cases.linear"."""
    return ".".join(target.split(".")[:2])


def with_operator_bodies(
    calls: tuple[Call, ...],
    model: "nn.Module",
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    setting: Setting,
) -> tuple[Call, ...]:
    """Return the calls, and behind each custom operator the calls that its kernel makes in a real
    run.

    Fake tensors run no body, not even for a tool.
    """
    custom = [call for call in calls if call.custom]
    if not custom or weights_kind(model, args, kwargs) != REAL:
        return calls
    try:
        with (
            seeding_random_generators(),
            using_model_copy_for_one_run(model, setting.training) as own,
        ):
            recorder = _record_operator_run(own, *copy_inputs(args, kwargs), setting)
    except Exception:  # so it does for the tool, whose failure it is
        return calls
    inside: dict[str, list[Call]] = defaultdict(list)
    for operator, call in _body_calls(recorder, calls, custom):
        inside[operator].append(call)
    return tuple(item for call in calls for item in (call, *inside.get(call.key, ())))


def _record_operator_run(
    model: "nn.Module", args: Any, kwargs: Mapping[str, Any], setting: Setting
) -> Recorder:
    """Run the model once; return the recorder, in which calls of custom operators are frames,
    too.
    """
    import torch

    recorder = Recorder(ModuleIndex(model))
    record = recording_entry_points(recorder, with_captured=False)
    with (
        keeping_empty_hooks(model, setting),
        torch.set_grad_enabled(setting.grad),
        record,
        _recording_foreign_operators(recorder),
    ):
        model(*args, **kwargs)
    return recorder


@contextmanager
def _recording_foreign_operators(recorder: Recorder) -> Iterator[None]:
    """Record the calls, inside the block, of operators that are not PyTorch's own."""
    import torch

    kinds: tuple[tuple[Any, Patch], ...] = (
        (torch._ops.OpOverload, inventory.OPERATOR_CALLS),
        (torch._ops.OpOverloadPacket, inventory.PACKET_CALLS),
    )
    with ExitStack() as undo:
        for kind, declared in kinds:
            recording = _operator_call_with_recording(recorder, kind.__call__)
            undo.enter_context(patching_attribute(kind, "__call__", recording, declared))
        yield


def _operator_call_with_recording(
    recorder: Recorder, call: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a replacement of an operator's `__call__` that records calls of custom operators."""

    def call_operator_and_record_custom(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call an operator and return its result; record the call if the operator is custom."""
        name = str(self)
        if not recorder.is_recording or name.startswith(OWN):
            return call(self, *args, **kwargs)
        return recorder.run_operator(name, lambda: call(self, *args, **kwargs), args, kwargs)

    return call_operator_and_record_custom


def _body_calls(
    recorder: Recorder, calls: Sequence[Call], custom: Sequence[Call]
) -> Iterator[tuple[str, Call]]:
    """Yield (key of the custom operator, call) for each call that the body of a custom operator
    makes.

    Within one call of a module the first operator of a name is the first in the export, too.
    """
    by_key = {call.key: call for call in calls}
    waiting: dict[tuple[str, str], deque[Call]] = defaultdict(deque)
    for call in custom:
        waiting[
            _nearest_module_call(call.parent, by_key), _name_without_overload(call.target)
        ].append(call)
    frames = {frame.key: frame for frame in recorder.frames}
    owners: dict[str, tuple[Call, str]] = {}  # by frame: the operator, and the call that it became
    for frame in recorder.frames:
        enclosing = owners.get(frame.parent or "")
        if enclosing is None:
            index = (
                _nearest_module_call(frame.parent, frames),
                _name_without_overload(frame.target),
            )
            if frame.level == "operator" and waiting[index]:
                operator = waiting[index].popleft()
                owners[frame.key] = operator, operator.key
        elif _is_hidden_from_tools(frame, recorder):
            owners[frame.key] = enclosing
        else:
            call = _body_operator_call(frame, *enclosing, recorder)
            owners[frame.key] = enclosing[0], call.key
            yield enclosing[0].key, call


def _nearest_module_call(key: str | None, by_key: Mapping[str, Call] | Mapping[str, Frame]) -> str:
    """Return `key` if it is a module call, else the key of the innermost module call that encloses
    it; "" if none.
    """
    while key is not None and by_key[key].level != "module":
        key = by_key[key].parent
    return key or ""


def _is_hidden_from_tools(frame: Frame, recorder: Recorder) -> bool:
    """Return True if a tool does not show the frame: it is an operator, or a module outside of the
    model.
    """
    unnamed = not recorder.index.module_descriptions[frame.module].names
    return frame.level == "operator" or (frame.level == "module" and unnamed)


def _body_operator_call(frame: Frame, operator: Call, parent: str, recorder: Recorder) -> Call:
    """Return the frame of a call in a custom operator's body as a call with the parent
    `parent`.
    """
    named = recorder.index.module_descriptions[frame.module].names
    return replace(
        to_trace_call(frame),
        key=f"{frame.key} ({operator.target})",
        parent=parent,
        module=frame.module if named else operator.module,
        live=operator.live,
        stored=operator.stored,
        grad=operator.grad,
        checkpoint=operator.checkpoint,
    )
