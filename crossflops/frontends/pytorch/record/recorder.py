"""The calls of a running model, as one list linked to their nodes."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import get_ident
from typing import TYPE_CHECKING, Any

import msgspec

from crossflops.frontends.pytorch.load.tensors import (
    list_argument_names,
    plain_arguments_by_name,
    to_exportable_result,
    torch_tensor_specs,
    torch_value_kind,
)
from crossflops.frontends.pytorch.record.modules import ModuleIndex
from crossflops.ir.graph import Checkpoint, Graph, TensorSpec
from crossflops.ir.trace import Call, Module, Scalar

if TYPE_CHECKING:
    from torch import nn


ROOT = "(model)"


CUSTOM = "torch.autograd.Function.apply"
# mul_, and what += and the like call, but not __int__, __index__ and __invert__
_IN_PLACE = re.compile(r"[a-z]\w*[a-z0-9]_|__i(?!nt_|ndex_|nvert_)\w+__")


class Frame(msgspec.Struct):
    """A call of a module or a function that is running or has run.

    The key names the call by its location, so two runs of the same model give equal keys.
    """

    key: str
    parent: str | None
    level: str
    target: str
    module: int
    via: str
    ordinal: int
    settings: dict[str, Scalar]
    inputs: tuple[TensorSpec, ...]
    arity: int
    keywords: int
    outputs: tuple[TensorSpec, ...] = ()
    returns: str = ""
    lists: tuple[str, ...] = ()
    grad: bool = True
    checkpoint: Checkpoint | None = None
    arguments: dict[str, Scalar] = {}


class AppliedFunction(msgspec.Struct, frozen=True):
    """A custom autograd function that a model applied: its class, its frame, and the parameters
    among its arguments.

    `name` is that of the class in its `module`. `parameters` are their specs by the index of the
    argument, with all names of the parameter.
    """

    name: str
    frame: str
    parameters: Mapping[int, tuple[TensorSpec, ...]]
    module: str = ""


class Recorder:
    """A recorder of a model's calls: the stack of running frames, and all frames in the order in
    which they began.

    `around` is entered for each frame, with its number: the export uses it to mark traced nodes. A
    `bare` recorder keeps the tree alone: it reads no shape, which a tracer would trace, and leaves
    the model's result unchanged.
    """

    def __init__(
        self,
        index: ModuleIndex,
        running_context: Callable[[int], Any] | None = None,
        without_wrappers: bool = False,
    ) -> None:
        """Start without frames; `running_context` gives a context for each frame number."""
        self.index = index
        self.bare = without_wrappers
        self.frames: list[Frame] = []
        self.stack: list[Frame] = []
        self.muted = 0
        self._is_inside = False  # whether the innermost frame is a primitive that is running
        self._modes = 0  # how many modes for functions of torch are set up around the model
        self._entered: list[int] = []  # how many there were at the beginning of each frame
        self._graded = True
        self.autocast = False  # whether anything ran under it
        self.checkpoints = 0  # how often torch.utils.checkpoint ran something
        self.checkpoint: Checkpoint | None = None  # the one that is running
        self.checkpoint_by_number: dict[int, Checkpoint] = {}
        self.chosen = False  # whether a checkpoint around what is running has a policy
        self.policies: dict[int, Any] = {}  # what a checkpoint saves, by its number
        self.applied: list[AppliedFunction] = []  # custom functions, but those within another one
        self.in_function = False
        self.applied_by_name: Any = None  # the one that the replaced `Function.apply` applies
        self.derives = ""  # by which function the model derives something while it runs
        self.writes_detached = False  # whether a detached tensor was changed in place
        self.turned: set[str] = set()  # parameters whose gradients the model turns on or off
        self._detached: list[Any] = []  # kept, so that no other object gets the identity of one
        self.generators: list[Any] = []  # states of generators other than PyTorch's, as they drew
        self._thread = get_ident()  # what another thread calls meanwhile is not the model's
        self._around = running_context
        self._entering: int | None = None
        self._seen: Counter[str] = Counter()

    @property
    def is_recording(self) -> bool:
        """True if code of the model runs in this thread and its calls are to be recorded.

        Code that PyTorch's compiler traces (the branches of torch.cond) runs later, or never. That
        is checked first: the compiler cannot trace the check of the thread.
        """
        if _is_traced_by_compiler() or get_ident() != self._thread:
            return False
        if not self.stack or self.muted:
            return False
        return not self._is_inside or self._is_in_function_mode_of_model()

    def _is_in_function_mode_of_model(self) -> bool:
        """Return True if a TorchFunctionMode that the model has set handles the innermost frame.

        PyTorch passes it the function that the class has by the name: a tool that replaced
        `Tensor.mul` sees it here, once for every such mode, also where `x * y` was called. Modes
        are off the stack while they handle a call, and those of the model are above all others.
        """
        return self._modes <= _function_mode_count() < self._entered[-1]

    @contextmanager
    def resuming_recording_of_model_code(self) -> Iterator[None]:
        """Record calls inside the block again, with the outermost frame of the model as their
        parent.
        """
        self.stack.append(self.frames[0])
        self._entered.append(_function_mode_count())
        try:
            yield
        finally:
            self._entered.pop()
            self.stack.pop()

    @contextmanager
    def muting_recorder(self) -> Iterator[None]:
        """Record no calls inside the block."""
        self.muted += 1
        try:
            yield
        finally:
            self.muted -= 1

    @contextmanager
    def recording_function_modes_only(self) -> Iterator[None]:
        """Record no calls inside the block, except those that a TorchFunctionMode of the model
        makes.
        """
        outer, self._is_inside = self._is_inside, True
        try:
            yield
        finally:
            self._is_inside = outer

    def run_module_call(
        self, module: "nn.Module", run: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        """Run the `__call__` of a module, recorded as a call, and return its result."""
        if _is_traced_by_compiler():
            return run(module, *args, **kwargs)
        # What calls the model (the export's wrapper) is no part of it.
        is_outside = not self.muted and not self._is_inside and get_ident() == self._thread
        begins = self.index.is_root(module) and is_outside
        if not (self.is_recording or begins):
            return run(module, *args, **kwargs)
        row = self.index.row(module)
        self._entering = row.id
        return self._run_module_in_frame(
            row, "call", lambda: run(module, *args, **kwargs), args, kwargs
        )

    def run_module_forward(
        self, module: "nn.Module", run: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        """Run the `forward` of a module and return its result; record it as a call unless
        `__call__` called it.
        """
        if not self.is_recording:
            return run(module, *args, **kwargs)
        row = self.index.row(module)
        entered, self._entering = self._entering == row.id, None
        inside = next((f.module for f in reversed(self.stack) if f.level == "module"), None)
        if entered or inside == row.id:
            return run(module, *args, **kwargs)
        return self._run_module_in_frame(
            row, "forward", lambda: run(module, *args, **kwargs), args, kwargs
        )

    def _is_detached(self, tensor: Any) -> bool:
        """Return True if this very tensor object is a result of `detach` that was recorded."""
        return any(tensor is other for other in self._detached)

    def run_function(
        self, name: str, via: str, run: Callable[[], Any], args: Any, kwargs: Mapping[str, Any]
    ) -> Any:
        """Run a torch function, recorded as a call, and return its result; a function inside one
        of the same name is not recorded.

        Custom autograd functions, which share one name, are always separate: a reentrant
        checkpoint is one, which may call another. So are entries by a mode of the model's own.
        """
        if not self.is_recording:
            return run()
        if self.stack[-1].target == name != CUSTOM and not self._is_in_function_mode_of_model():
            return run()
        if _is_in_place(name) and args and self._is_detached(args[0]):
            self.writes_detached = True
        parent = self.stack[-1]
        key, ordinal = self._unique_frame_key(f"{parent.key}/{short_target_name(name)}")
        result = self._run_in_frame(
            Frame(
                key=key,
                ordinal=ordinal,
                parent=parent.key,
                level="function",
                target=name,
                module=parent.module,
                via="mode" if via == "attribute" and self._is_in_function_mode_of_model() else via,
                settings={} if self.bare else plain_arguments_by_name(args, kwargs),
                lists=() if self.bare else list_argument_names(args, kwargs),
                inputs=self._input_specs(args, kwargs),
                arity=len(args),
                keywords=len(kwargs),
            ),
            run,
        )
        if short_target_name(name) == "Tensor.detach":
            self._detached.append(result)
        return result

    def run_operator(
        self, name: str, run: Callable[[], Any], args: Any, kwargs: Mapping[str, Any]
    ) -> Any:
        """Run an operator, recorded as a frame, and return its result; calls of its Python kernel
        are below it.
        """
        parent = self.stack[-1]
        key, ordinal = self._unique_frame_key(f"{parent.key}/{name}")
        frame = Frame(
            key=key,
            ordinal=ordinal,
            parent=parent.key,
            level="operator",
            target=name,
            module=parent.module,
            via="",
            settings={},
            inputs=(),
            arity=len(args),
            keywords=len(kwargs),
        )
        return self._run_in_frame(frame, run)

    def _run_module_in_frame(
        self, row: Module, via: str, run: Callable[[], Any], args: Any, kwargs: Any
    ) -> Any:
        """Run the call of a module in a new frame, and return its result."""
        parent = self.stack[-1].key if self.stack else None
        here = row.names[0] if row.names else f"{parent}/{short_target_name(row.bases[0])}"
        key, ordinal = self._unique_frame_key(here or ROOT)
        return self._run_in_frame(
            Frame(
                key=key,
                ordinal=ordinal,
                parent=parent,
                level="module",
                target=row.bases[0],
                module=row.id,
                via=via,
                settings={},
                inputs=self._input_specs(args, kwargs),
                arity=len(args),
                keywords=len(kwargs),
                arguments={} if self.bare else plain_arguments_by_name(args, kwargs),
            ),
            run,
        )

    def _run_in_frame(self, frame: Frame, run: Callable[[], Any]) -> Any:
        """Run a call in this frame and return its result; record gradient mode, checkpoint and
        outputs in the frame.
        """
        self.autocast |= _is_autocast_enabled()
        frame.grad = self.are_gradients_on()
        frame.checkpoint = self.checkpoint
        number = len(self.frames)
        if not self.stack:
            self._modes = _function_mode_count()
        self.frames.append(frame)
        self.stack.append(frame)
        self._entered.append(_function_mode_count())
        outer, self._is_inside = self._is_inside, False
        try:
            if self._around is None:
                result = run()
            else:
                with self._around(number):
                    result = run()
        finally:
            self._is_inside = outer
            self._entered.pop()
            self.stack.pop()
        if self.bare:
            return result
        with self.muting_recorder():
            frame.outputs = tuple(torch_tensor_specs(result))
            frame.returns = torch_value_kind(result) if frame.level == "module" else ""
            return result if self.stack else to_exportable_result(result)

    def are_gradients_on(self) -> bool:
        """Return True if gradients are on for the code that runs now; always True if they are off
        for the whole model.

        They are off in the forward pass of a custom autograd function, which has its own backward:
        calls in it have gradients where the function itself has.
        """
        import torch

        if not self.stack:
            self._graded = torch.is_grad_enabled()
            return True
        parent = self.stack[-1]
        custom = sum(frame.target == CUSTOM for frame in self.stack)
        enclosing = self.checkpoint
        while enclosing is not None:  # a reentrant one is a custom function, too
            custom -= enclosing.kind == "reentrant"
            enclosing = enclosing.around
        if custom > 0:
            return parent.grad
        return torch.is_grad_enabled() or not self._graded

    def _input_specs(self, args: Any, kwargs: Mapping[str, Any]) -> tuple[TensorSpec, ...]:
        """Return the specs of the tensors among a call's arguments; () for a `bare` recorder."""
        return (
            ()
            if self.bare
            else (*torch_tensor_specs(tuple(args)), *torch_tensor_specs(dict(kwargs)))
        )

    def _unique_frame_key(self, name: str) -> tuple[str, int]:
        """Return a unique key (`name`, for the second call `name@2`) and the number of the
        call.
        """
        self._seen[name] += 1
        ordinal = self._seen[name]
        return (name if ordinal == 1 else f"{name}@{ordinal}"), ordinal


def _function_mode_count() -> int:
    """Return the number of active TorchFunctionModes."""
    from torch._C import _len_torch_function_stack

    return int(_len_torch_function_stack())


def _is_autocast_enabled() -> bool:
    """Return True if autocast is enabled on the CPU."""
    import torch

    return bool(torch.is_autocast_enabled("cpu"))


def _is_traced_by_compiler() -> bool:
    """Return True if PyTorch's compiler is tracing the code that runs."""
    import torch

    return bool(torch.compiler.is_dynamo_compiling())


def _is_in_place(name: str) -> bool:
    """Return True if the name of a function, such as "Tensor.mul_", says that it changes its
    tensor in place.
    """
    method = short_target_name(name).removeprefix("Tensor.")
    return method == "__setitem__" or _IN_PLACE.fullmatch(method) is not None


def short_target_name(name: str) -> str:
    """Return the short name of a function or class, such as "F.conv2d" or "Linear"; another name
    as it is.
    """
    for prefix, replacement in (("torch.nn.functional.", "F."), ("torch.Tensor.", "Tensor.")):
        if name.startswith(prefix):
            return replacement + name.removeprefix(prefix)
    return name.rpartition(".")[2] if "torch.nn.modules" in name else name


# Frames and operators as one list of calls, and the calls linked to the nodes they became.


def frames_and_operators_as_calls(
    frames: list[Frame], operators: dict[str, Call]
) -> tuple[Call, ...]:
    """Return frames and operators as one list of calls, parents first.

    Functions that contain neither an operator nor a module are dropped.
    """
    by_parent: dict[str, list[Call]] = {}
    for call in operators.values():
        by_parent.setdefault(call.parent or "", []).append(call)
    modules = [frame.key for frame in frames if frame.level == "module"]
    requested = _with_enclosing_keys(frames, [*by_parent, *modules])
    calls: list[Call] = []
    for frame in frames:
        if frame.key in requested:
            calls.append(to_trace_call(frame))
            calls.extend(by_parent.get(frame.key, ()))
    return tuple(calls)


def _with_enclosing_keys(frames: list[Frame], keys: list[str]) -> set[str]:
    """Return these keys of frames, and the keys of all frames that enclose them."""
    parents = {frame.key: frame.parent for frame in frames}
    kept: set[str] = set()
    for key in keys:
        enclosing: str | None = key
        while enclosing is not None and enclosing not in kept:
            kept.add(enclosing)
            enclosing = parents[enclosing]
    return kept


def to_trace_call(frame: Frame) -> Call:
    """Return a recorded frame as a call of the trace."""
    return msgspec.convert(
        {field: getattr(frame, field) for field in frame.__struct_fields__},
        Call,
        from_attributes=True,
    )


def with_node_keys(calls: tuple[Call, ...], graph: Graph) -> tuple[Call, ...]:
    """Return the calls, each with the keys of the graph nodes that were made for it."""
    nodes: dict[str, list[str]] = {}
    for node in graph.nodes:
        nodes.setdefault(node.call, []).append(node.key)
    return tuple(
        msgspec.structs.replace(call, nodes=tuple(nodes[call.key])) if call.key in nodes else call
        for call in calls
    )
