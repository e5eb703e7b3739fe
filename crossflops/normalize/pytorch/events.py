"""The operators of a real run as PyTorch reports them: its RecordFunction events.

Every operator that Python or C++ calls through the dispatcher is one, a composite and what it
calls beneath alike. A dispatch mode does not do: it sees no composite and nothing inside a kernel,
and under one some composites take another path (`aten::linear` adds its bias with `aten::add`).
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from crossflops.core.tensor import TensorSpec
from crossflops.core.trace import Setting
from crossflops.normalize.pytorch.entry_points import recorded
from crossflops.normalize.pytorch.modules import ModuleIndex
from crossflops.normalize.pytorch.recorder import Recorder
from crossflops.normalize.pytorch.seen import RUN, Seen, chains

if TYPE_CHECKING:
    from torch import nn

_MARK = "crossflops:"
REPEATED = "repeated"  # of an operator: whether another of its name called it and nothing else


def events(
    model: "nn.Module", args: tuple[Any, ...], kwargs: Mapping[str, Any], setting: Setting
) -> list[Seen]:
    """The operators that Python called, in order, each with those that it called itself.

    The first stands for the run itself.

    `aten::add` with a number calls `aten::add` with a tensor: the inner one is marked as repeated.

    Inputs have their shapes; what is no tensor has the shape (), and no type is reported.
    The model may be changed by the run (buffers in training mode): pass a copy.
    """
    import torch
    from torch import autograd

    recorder = Recorder(ModuleIndex(model), around=_marked, bare=True)
    legacy: Any = autograd
    config = legacy.ProfilerConfig(
        legacy.ProfilerState.CPU,
        True,  # shapes; neither memory, stacks, operations nor modules
        *(False,) * 4,
        torch._C._profiler._ExperimentalConfig(),
    )
    with torch.set_grad_enabled(setting.grad), recorded(recorder, captured=False):
        legacy._enable_profiler_legacy(config)
        try:
            model(*args, **kwargs)
        finally:
            threads = legacy._disable_profiler_legacy()
    frames = chains(recorder)
    return [Seen(RUN), *(seen for thread in threads for seen in _tree(thread, frames))]


@contextmanager
def _marked(number: int) -> Iterator[None]:
    import torch

    with torch._C._profiler._RecordFunctionFast(f"{_MARK}{number}"):
        yield


def _tree(thread: list[Any], frames: list[tuple[str, ...]]) -> list[Seen]:
    """The outermost operators of a thread. Events come as "push" and "pop", in order."""
    found: list[Seen] = []
    open_: list[int | Seen] = []
    for event in thread:
        if event.kind() == "pop":
            open_.pop()
        if event.kind() != "push":
            continue
        name = str(event.name())
        if name.startswith(_MARK):
            open_.append(int(name.removeprefix(_MARK)))
            continue
        around = open_[-1] if open_ else None
        seen = Seen(name, inputs=_specs(event.shapes()), inside=[])
        if isinstance(around, Seen):
            around.inside.append(seen)
        else:
            seen.frames = () if around is None else frames[around]
            found.append(seen)
        open_.append(seen)
    _mark_repeated(found)
    return found


def _mark_repeated(seen: list[Seen], around: str | None = None) -> None:
    for one in seen:
        one.settings = {REPEATED: len(seen) == 1 and one.target == around}
        _mark_repeated(one.inside, one.target)


def _specs(shapes: list[list[int]]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(str(at), "", tuple(shape)) for at, shape in enumerate(shapes))
