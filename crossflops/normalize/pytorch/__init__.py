"""A PyTorch model -> a faithful ONNX graph and the trace of what was called."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from crossflops.core.graph import Graph
from crossflops.core.trace import Call, Setting, Trace
from crossflops.errors import InputError, NormalizeError
from crossflops.normalize.pytorch.entry_points import recorded
from crossflops.normalize.pytorch.exporter import to_onnx
from crossflops.normalize.pytorch.graph import to_graph
from crossflops.normalize.pytorch.kernels import fused_kernels, swallowed
from crossflops.normalize.pytorch.modules import ModuleIndex, parameter_count
from crossflops.normalize.pytorch.operators import MARK, operator_calls
from crossflops.normalize.pytorch.recorder import Frame, Recorder
from crossflops.normalize.pytorch.simplify import simplify
from crossflops.normalize.pytorch.untouched import compiler_tables, fresh, generators, quiet

if TYPE_CHECKING:
    from torch import nn


class Recording(msgspec.Struct, frozen=True):
    """One run of a model under export: the program, its operators by node name, and the trace."""

    program: Any
    operators: dict[str, Call]
    trace: Trace


def normalize(
    model: "nn.Module",
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    setting: Setting,
    observed: Sequence[Setting] = (),
) -> tuple[Graph, Trace]:
    """The graph and the trace of a model run on these inputs.

    For every setting in `observed` the model is also run for real, to see which calls collapse
    into fused kernels there. The caller's model, its mode, the inputs and the random state are
    untouched.

    Raises InputError when the model raises on these inputs, NormalizeError when it cannot be
    exported.
    """
    recording = record(model, args, kwargs, setting, observed)
    trace = recording.trace
    with quiet():
        program = to_onnx(recording.program)
        simplify(program)
    paths = {call.key: trace.modules[call.module].path for call in trace.calls}
    graph = to_graph(
        program,
        type(model).__name__,
        recording.operators,
        paths,
        parameter_count(trace.modules),
    )
    return graph, msgspec.structs.replace(trace, calls=_link(trace.calls, graph))


def record(
    model: "nn.Module",
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    setting: Setting,
    observed: Sequence[Setting] = (),
) -> Recording:
    """Only the run of the model, without its ONNX graph: all that a prediction needs."""
    compiler_tables()
    with generators(), quiet():
        index = ModuleIndex(own := duplicate(model).train(setting.training))
        recorder = Recorder(index, around=_marked)
        program = _export(own, args, kwargs, setting, recorder)
        operators = operator_calls(program, recorder.frames)
        calls = _tree(recorder.frames, operators)
        calls = _observe(model, args, kwargs, observed, calls)
    return Recording(program, operators, Trace(calls=calls, modules=index.rows, setting=setting))


def duplicate(model: "nn.Module") -> "nn.Module":
    """A copy of its own, parameters too: a forward may write into them.

    Shared are only tensors that were computed from others (weight_norm keeps such), which Python
    cannot copy and every run computes anew.
    """
    import torch

    held = (value for module in model.modules() for value in vars(module).values())
    derived = (value for value in held if isinstance(value, torch.Tensor) and not value.is_leaf)
    shared = {id(tensor): tensor for tensor in derived}
    try:
        return copy.deepcopy(model, memo=dict(shared))
    except Exception as error:
        raise NormalizeError(
            f"the model cannot be copied: {error}",
            "pass it as a target (file.py:callable), so that it can be built afresh",
        ) from error


def _export(
    model: "nn.Module",
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    setting: Setting,
    recorder: Recorder,
) -> Any:
    import torch
    from torch.fx.traceback import preserve_node_meta

    try:
        with preserve_node_meta(), torch.set_grad_enabled(True), recorded(recorder):
            return torch.export.export(model, args, dict(kwargs), strict=False)
    except Exception as error:
        # Told apart by asking the model itself: does it run on these inputs at all?
        _must_run(model, args, kwargs, setting)
        raise NormalizeError(
            f"torch.export cannot trace the model: {error}",
            "control flow that depends on values cannot be exported: write its path out",
        ) from error


def _must_run(
    model: "nn.Module", args: tuple[Any, ...], kwargs: Mapping[str, Any], setting: Setting
) -> None:
    import torch

    args, kwargs = fresh(args, kwargs)
    try:
        with torch.set_grad_enabled(setting.grad):
            model(*args, **kwargs)
    except Exception as error:
        raise InputError(
            f"the model raised on these inputs: {type(error).__name__}: {error}",
            "check the number, the shapes and the types of --input",
        ) from error


@contextmanager
def _marked(number: int) -> Iterator[None]:
    from torch.fx.traceback import annotate

    with annotate({MARK: number}):
        yield


def _tree(frames: list[Frame], operators: dict[str, Call]) -> tuple[Call, ...]:
    """Frames and operators as one list, parents first. Functions that contain no operator go."""
    by_parent: dict[str, list[Call]] = {}
    for call in operators.values():
        by_parent.setdefault(call.parent or "", []).append(call)
    wanted = _with_operators(frames, by_parent)
    found: list[Call] = []
    for frame in frames:
        if frame.storey == "module" or frame.key in wanted:
            found.append(_call(frame))
            found.extend(by_parent.get(frame.key, ()))
    return tuple(found)


def _with_operators(frames: list[Frame], by_parent: dict[str, list[Call]]) -> set[str]:
    parents = {frame.key: frame.parent for frame in frames}
    found: set[str] = set()
    for key in by_parent:
        around: str | None = key
        while around is not None and around not in found:
            found.add(around)
            around = parents[around]
    return found


def _call(frame: Frame) -> Call:
    return msgspec.convert(
        {field: getattr(frame, field) for field in frame.__struct_fields__},
        Call,
        from_attributes=True,
    )


def _observe(
    model: "nn.Module",
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    observed: Sequence[Setting],
    calls: tuple[Call, ...],
) -> tuple[Call, ...]:
    for setting in observed:
        own = duplicate(model).train(setting.training)
        try:
            kernels = fused_kernels(own, *fresh(args, kwargs), setting)
        except Exception as error:
            raise InputError(
                f"the model raised when run ({setting.id}): {type(error).__name__}: {error}",
                "check the number, the shapes and the types of --input",
            ) from error
        fused = swallowed(kernels, calls)
        calls = tuple(
            msgspec.structs.replace(call, fused={**call.fused, setting.id: fused[call.key]})
            if call.key in fused
            else call
            for call in calls
        )
    return calls


def _link(calls: tuple[Call, ...], graph: Graph) -> tuple[Call, ...]:
    nodes: dict[str, list[str]] = {}
    for node in graph.nodes:
        nodes.setdefault(node.call, []).append(node.key)
    return tuple(
        msgspec.structs.replace(call, nodes=tuple(nodes[call.key])) if call.key in nodes else call
        for call in calls
    )
