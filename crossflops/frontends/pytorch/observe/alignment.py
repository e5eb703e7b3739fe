"""The alignment of observed operators with the calls of the export whose work they do.

Both go through the same modules, in the same order. Within one call of a module (and where
functions are told apart in both runs, of a function) the first
product of the one is the first product of the other. What is left over on both sides (a cell and
the products that it became, a fused kernel and all that it swallowed) belongs together.
"""

import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from crossflops.frontends.pytorch.record.entry_points import recording_entry_points
from crossflops.frontends.pytorch.record.modules import ModuleIndex
from crossflops.frontends.pytorch.record.recorder import ROOT, Frame, Recorder, short_target_name
from crossflops.ir.graph import TensorSpec
from crossflops.ir.trace import NESTED, Call, Kernel, Scalar, Setting, View
from crossflops.ir.training import (
    gradient_call_key,
    rerun_call_key,
    rerun_stop_call_key,
    score_rerun_key,
)

if TYPE_CHECKING:
    from torch import nn

# What a real run of a model showed, before it is set beside the calls of the export.

RUN = "(run)"  # stands for the run itself, in which nothing else may be seen


# In a step also what a custom function's own backward pass runs, and what a checkpoint begins to
# run again and stops in.
Phase: TypeAlias = Literal["forward", "gradients", "own", "rerun", "begun"]
BRANCH = "branch"  # the setting of an operator that stands in a branch of a condition


class WatchedCall(msgspec.Struct):
    """An operator that ran: `frames` are the keys of the enclosing calls, innermost first.

    `inside` are the operators that it called itself. Tensors and settings have the names of the
    operator's schema where it is known, otherwise their indices. `sequence` is the number of its
    autograd node, or of the node that ran it where it computes gradients; -1 where there is none.
    """

    target: str
    frames: tuple[str, ...] = ()
    settings: dict[str, Scalar] = {}
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    inside: list["WatchedCall"] = []
    phase: Phase = "forward"
    sequence: int = -1


def enclosing_keys_of_frames(recorder: Recorder) -> list[tuple[str, ...]]:
    """Return for each frame of the recorder its key and the keys of all frames that enclose it,
    innermost first.
    """
    by_key: dict[str | None, tuple[str, ...]] = {None: ()}
    for frame in recorder.frames:
        by_key[frame.key] = (frame.key, *by_key[frame.parent])
    return [by_key[frame.key] for frame in recorder.frames]


_CONDITION = "cond"  # torch.cond, as an operator of an exported program
FindEnclosingCall = Callable[[str | None, dict[str, Call]], str]


def align_observed_calls(
    seen: Sequence[WatchedCall], calls: Sequence[Call], view: View, functions: Container[str]
) -> tuple[Call, ...]:
    """Return the operators of a run as calls, each with the keys of the exported calls whose work
    it does.

    `functions` are the keys of the calls of custom autograd functions.
    """
    by_key = {call.key: call for call in calls}
    root = next(call.key for call in calls if call.parent is None)
    forward = [call for call in seen if call.phase == "forward"]
    owners = [_innermost_exported_call(call.frames, by_key) or root for call in forward]
    enclosing = (
        _innermost_module_or_function if view.level == "dispatch" else _innermost_module_call
    )
    indices = [enclosing(key, by_key) for key in owners]
    ran = [call.key for call in calls if call.level == "operator" and _appears_in_view(call, view)]
    work = _match_operators_to_calls(
        [_name_for_matching(call) for call in forward], indices, ran, by_key, enclosing
    )
    belonging = list(zip(forward, owners, work, strict=True))
    names: Counter[str] = Counter()
    watched_calls: list[Call] = []
    # An event begins before its operator makes a node: the last that tells its number made it.
    makers = belonging[::-1] if view.level == "event" else belonging
    together = _function_operator_groups(calls, by_key, functions)
    for observed, owner, keys in [
        *belonging,
        *_match_backward_calls(seen, makers, root, together),
    ]:
        known = [by_key[key] for key in keys if key in by_key]
        live = not known or any(call.live for call in known)
        like = Call(
            key="",
            parent=owner,
            level=view.level,
            target="",
            module=by_key[owner].module,
            live=live,
            stored=not live and any(call.stored for call in known),
            setting=view.id,
            of=keys,
        )
        watched_calls.extend(_convert_watched_call(observed, like, names))
    return tuple(watched_calls)


_Belonging: TypeAlias = tuple[
    WatchedCall, str, tuple[str, ...]
]  # its home, and whose work it does


def _function_operator_groups(
    calls: Sequence[Call], by_key: Mapping[str, Call], functions: Container[str]
) -> dict[str, tuple[str, ...]]:
    """Return for each operator in a custom autograd function, by its key, the keys of all
    operators in that function.
    """
    inside: dict[str, list[str]] = defaultdict(list)
    for call in calls:
        enclosing = call.parent
        while enclosing is not None and enclosing not in functions:
            enclosing = by_key[enclosing].parent
        if enclosing is not None and call.level == "operator":
            inside[enclosing].append(call.key)
    return {key: tuple(keys) for keys in inside.values() for key in keys}


def _match_backward_calls(
    observed: Sequence[WatchedCall],
    forward: Sequence[_Belonging],
    root: str,
    function_groups: Mapping[str, tuple[str, ...]],
) -> Iterator[_Belonging]:
    """Yield (operator, its parent call, keys of forward calls) for each backward operator of a
    training step that was observed.

    A gradient is matched by the autograd node that the forward pass made for the first operator
    with this number, or for a custom function whose operators are grouped in `function_groups`; an
    operator that a checkpoint recomputes is matched by its name, sizes and module, in order.
    """
    made: dict[int, list[_Belonging]] = defaultdict(list)
    waiting: dict[tuple[object, ...], deque[_Belonging]] = defaultdict(deque)
    for belonging in forward:
        for number in _autograd_sequence_numbers(belonging[0]):
            made[number].append(belonging)
        waiting[_recomputed_call_key(belonging[0])].append(belonging)
    for call in observed:
        if call.phase in ("rerun", "begun"):
            similar = waiting[_recomputed_call_key(call)]
            _, owner, keys = similar[0] if similar else (call, root, ())
            similar.rotate(-1)  # a checkpoint in another one runs again once more
            for number in _autograd_sequence_numbers(call):
                made[number].append((call, owner, keys))
            name = rerun_stop_call_key if call.phase == "begun" else rerun_call_key
            yield call, owner, tuple(map(name, keys))
        elif call.phase in ("gradients", "own"):
            makers = next(
                (made[number] for number in _autograd_sequence_numbers(call) if number in made), []
            )
            owner = makers[0][1] if makers else root
            keys = tuple(key for _, _, work in makers for key in work)
            all_of_it = call.phase == "own" or _is_fused_gradient(call)
            if call.phase == "own":
                keys = tuple(
                    dict.fromkeys(at for key in keys for at in function_groups.get(key, (key,)))
                )
            again = map(score_rerun_key, keys) if all_of_it else ()
            yield call, owner, (*map(gradient_call_key, keys), *again)


def _autograd_sequence_numbers(call: WatchedCall) -> list[int]:
    """Return the numbers of the autograd nodes of an operator and of those inside it, each
    once.
    """
    below = [number for inner in call.inside for number in _autograd_sequence_numbers(inner)]
    return list(dict.fromkeys(number for number in (call.sequence, *below) if number >= 0))


def _recomputed_call_key(call: WatchedCall) -> tuple[object, ...]:
    """Return a key that a recomputed call and its original have in common: name, module and
    shapes.
    """
    index = _module_path_of_call_key(call.frames[0]) if call.frames else ""
    return call.target, index, tuple(spec.shape for spec in call.inputs)


def _is_fused_gradient(call: WatchedCall) -> bool:
    """Return True if the call is, or contains, the backward pass of a fused attention."""
    fused = "_scaled_dot_product_" in call.target and "_backward" in call.target
    return fused or any(map(_is_fused_gradient, call.inside))


def _convert_watched_call(
    observed: WatchedCall, like: Call, names: Counter[str]
) -> Iterator[Call]:
    """Yield an observed operator as a call with a unique key and the other fields of `like`, then
    the operators inside it.
    """
    name = f"{like.parent}/{short_target_name(observed.target)}"
    names[name] += 1
    call = msgspec.structs.replace(
        like,
        key=f"{name}@{names[name]} ({like.level}, {like.setting})",
        target=observed.target,
        ordinal=names[name],
        settings=observed.settings,
        inputs=observed.inputs,
        outputs=observed.outputs,
    )
    yield call
    for inner in observed.inside:
        yield from _convert_watched_call(
            inner, msgspec.structs.replace(like, parent=call.key), names
        )


def _innermost_exported_call(frames: tuple[str, ...], by_key: dict[str, Call]) -> str | None:
    """Return the key of the innermost enclosing frame that is a call of the export; None if there
    is none.
    """
    return next((key for key in frames if key in by_key), None)


def _innermost_module_call(key: str | None, by_key: dict[str, Call]) -> str:
    """Return `key` if it is a module call, else the key of the innermost module call that encloses
    it; "" if none.
    """
    while key is not None and by_key[key].level != "module":
        key = by_key[key].parent
    return key or ""


def _innermost_module_or_function(key: str | None, by_key: dict[str, Call]) -> str:
    """Return `key` if it is a module or function call, else the key of the innermost one that
    encloses it; "" if none.
    """
    while key is not None and by_key[key].level == "operator":
        key = by_key[key].parent
    return key or ""


def _appears_in_view(call: Call, view: View) -> bool:
    """Return True if a call appears in the view: views of tracers leave out calls without any
    effect.
    """
    return view.level not in {"jit", "traced"} or call.live or call.stored


def _name_for_matching(seen: WatchedCall) -> str:
    """Return the name by which an observed operator is matched: its bare name, or "cond" inside a
    branch.
    """
    return _CONDITION if seen.settings.get(BRANCH) else _bare_operator_name(seen.target)


def _match_operators_to_calls(
    kinds: list[str],
    call_keys: list[str],
    observed_frames: list[str],
    by_key: dict[str, Call],
    enclosing: FindEnclosingCall,
) -> list[tuple[str, ...]]:
    """Return for each observed operator the keys of the exported calls whose work it does."""
    waiting: dict[tuple[str, str], deque[int]] = defaultdict(deque)
    for number, (kind, index) in enumerate(zip(kinds, call_keys, strict=True)):
        waiting[index, kind].append(number)
    work: list[list[str]] = [[] for _ in kinds]
    alone: dict[str, list[str]] = defaultdict(list)
    for key in observed_frames:
        index = enclosing(key, by_key)
        same = waiting[index, _bare_operator_name(by_key[key].target)]
        if same:
            work[same.popleft()].append(key)
        else:
            alone[index].append(key)
    free: dict[str, list[int]] = defaultdict(list)
    for (index, _), numbers in waiting.items():
        free[index].extend(numbers)
    for index, keys in alone.items():
        for number in _nearest_unassigned_operators(index, free, by_key, enclosing):
            work[number].extend(keys)
    return [tuple(keys) for keys in work]


def _nearest_unassigned_operators(
    location: str,
    unassigned: dict[str, list[int]],
    by_key: dict[str, Call],
    enclosing: FindEnclosingCall,
) -> list[int]:
    """Return the numbers of unassigned operators in the call `location`, or in the nearest
    enclosing one that has some.
    """
    while location:
        if unassigned.get(location):
            return unassigned[location]
        location = enclosing(by_key[location].parent, by_key)
    return []


def _bare_operator_name(target: str) -> str:
    """Return an operator's name without namespace and overload; "convolution" for every kind of
    convolution.
    """
    name = target.partition(".")[2] if target.startswith("aten.") else target.rpartition(":")[2]
    name = name.partition(".")[0]
    return "convolution" if re.match(r"_?conv(olution|_?transpose|\dd)", name) else name


# Hooks that do nothing, where a tool puts its own: they switch PyTorch's fused paths off.


def depends_on_hooks(model: "nn.Module") -> bool:
    """Return True if a model has a layer that runs differently when it has hooks.

    In PyTorch itself that is the layer of an encoder: torch/nn/modules/transformer.py.
    """
    from torch import nn

    return any(isinstance(module, nn.TransformerEncoderLayer) for module in model.modules())


@contextmanager
def keeping_empty_hooks(model: "nn.Module", setting: Setting) -> Iterator[None]:
    """Keep empty forward hooks on the modules that the setting names, inside the block."""
    hooked_modules: dict[bool | str, Iterable[Any]] = {
        False: (),
        True: model.modules(),
        "children": model.children(),
    }
    handles = [
        module.register_forward_hook(lambda *_: None) for module in hooked_modules[setting.hooked]
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


# Which calls collapse into a fused kernel when the model really runs under a setting.

# Kernels that do the work of several operators, or that a tool which knows matrix products and
# convolutions has no formula for.
_FUSED = (
    "aten._transformer_encoder_layer_fwd",
    "aten._native_multi_head_attention",
    "aten._scaled_dot_product_",
    "aten.mkldnn_rnn_layer",
    "aten._thnn_fused_",
    "aten._cudnn_rnn",
    "aten._triton_multi_head_attention",
    "aten.mv.",
    "aten.dot.",
)
# Kernels that a module calls in place of its Python code: no function in there is called.
_INSTEAD = ("aten._transformer_encoder_layer_fwd", "aten._native_multi_head_attention")

# Makes a tensor of rows of different lengths of a padding mask: an encoder does on its fast path.
_NESTING = "aten._nested_tensor_from_mask.default"


KernelRun: TypeAlias = tuple[tuple[str, ...], str]  # the frames around a kernel, and its name


def is_fused_kernel(operator: str) -> bool:
    """Return True if a dispatched operator, "aten.name.overload", is a fused kernel."""
    return operator.startswith(_FUSED)


def observe_fused_kernels(
    model: "nn.Module", args: tuple[Any, ...], kwargs: Mapping[str, Any], setting: Setting
) -> list[KernelRun]:
    """Run the model; return (keys of enclosing frames, name) of each fused kernel.

    Modules and functions that handled nested tensors are returned as `NESTED` with their own frame
    alone, and the number of kept positions. The run may change the model (buffers in training
    mode): pass a copy.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    runs: list[KernelRun] = []
    left: dict[str, int] = {}  # by the key of an encoder's frame
    recorder = Recorder(ModuleIndex(model))

    class Kernels(TorchDispatchMode):
        """A dispatch mode that sees calls as the dispatch tools do."""

        supports_higher_order_operators = True

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            """Return an operator's result; note fused kernels and rows of nested tensors."""
            name = str(func)
            if name == _NESTING and recorder.stack:
                left[recorder.stack[-1].key] = int(args[1].sum())
            if is_fused_kernel(name):
                runs.append((tuple(frame.key for frame in reversed(recorder.stack)), name))
            return func(*args, **(kwargs or {}))

    record = recording_entry_points(recorder, with_captured=False)
    with (
        keeping_empty_hooks(model, setting),
        torch.set_grad_enabled(setting.grad),
        record,
        Kernels(),
    ):
        model(*args, **kwargs)
    return [*runs, *_encoder_nested_kernels(recorder, left)]


def _encoder_nested_kernels(recorder: Recorder, remaining: dict[str, int]) -> Iterator[KernelRun]:
    """Yield ((frame key,), "nested:ROWS") for each frame that handled a nested tensor; ROWS is its
    number of rows, or nothing.
    """
    for chain, frame in zip(enclosing_keys_of_frames(recorder), recorder.frames, strict=True):
        if _handles_nested_tensor(frame):
            rows = next((remaining[key] for key in chain if key in remaining), "")
            yield (frame.key,), f"{NESTED}{rows}"


def _handles_nested_tensor(frame: Frame) -> bool:
    """Return True if a module or function call handled a nested tensor, which has no shape."""
    tensors = (*frame.inputs, *frame.outputs)
    return frame.level != "operator" and any(tensor.shape is None for tensor in tensors)


def kernel_summary(kernels: list[KernelRun]) -> tuple[Kernel, ...]:
    """Return for each fused kernel its name, how often it ran, and the modules in which it ran."""
    owners: dict[str, list[str]] = {}
    for frames, name in kernels:
        if not name.startswith(NESTED):
            owners.setdefault(name, []).append(
                _module_path_of_call_key(frames[0]) if frames else ""
            )
    return tuple(
        Kernel(name, len(paths), tuple(dict.fromkeys(paths))) for name, paths in owners.items()
    )


def _module_path_of_call_key(key: str) -> str:
    """Return the path of the module in the key of a call: "a.b" for "a.b@2/F.linear"."""
    path = key.partition("/")[0].partition("@")[0]
    return "" if path == ROOT else path


def kernel_name_by_fused_call(kernels: list[KernelRun], calls: tuple[Call, ...]) -> dict[str, str]:
    """Return for each operator or function call that a fused kernel replaced, by its key, the name
    of the kernel.

    The calls of modules and functions that handled nested tensors have `NESTED`, and the number of
    kept rows.

    A kernel replaces the operators in its innermost enclosing call, and those of functions that
    are not on the way to the kernel. If the export has no such call (it took another path there),
    the next outer one is used.
    """
    parents = {call.key: call.parent for call in calls}
    inside: dict[str, list[Call]] = {}
    for call in calls:
        if call.level != "module":
            enclosing = call.parent
            while enclosing is not None:
                inside.setdefault(enclosing, []).append(call)
                enclosing = parents[enclosing]
    swallowed_by: dict[str, str] = {}
    for frames, kernel in kernels:
        if kernel.startswith(NESTED):
            swallowed_by[frames[0]] = kernel
            continue
        owner = next((key for key in frames if key in inside), None)
        for call in inside.get(owner or "", ()):
            if call.level == "operator" or kernel.startswith(_INSTEAD):
                swallowed_by.setdefault(call.key, kernel)
    return swallowed_by
