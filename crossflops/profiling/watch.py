"""The observation of one step of a model by hooks, which time its modules; afterwards the model is
as before.

A module's forward pass is timed by hooks before and after it. Of the backward pass every node of
autograd's graph is timed, and belongs to the module in whose forward pass it was made: hooks on
the tensors of a module would put a node of PyTorch's own around them, on which models that write
in place fail, and would see a gradient only when all others that are added to it are there.

The times are spans within each other, as hooks begin and end them, by a clock that is events on
the stream of a device, or this process's own. Beside the times stand the calls of the step, each
with the backward passes that ran through it, also of modules beside the model.
"""

import gc
import random
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from crossflops.patches import inventory
from crossflops.patches.patching import Patch, patching_attribute
from crossflops.profiling.passes import ModelCall, is_in_func_transform

if TYPE_CHECKING:
    from torch import Tensor, nn


# Spans of time, and clocks.

Mark: TypeAlias = Any  # a point in time, of the clock that made it


class Clock(Protocol):
    """A clock that makes marks of points in time, and gives the seconds between them once the
    device is done.
    """

    waits: bool  # whether a mark is made when the work is done, so that hooks take time from it

    def mark(self) -> Mark:
        """Return a mark of the present point in the device's queue of work."""
        ...

    def wait_for_device(self) -> None:
        """Wait until the device has done all its work."""
        ...

    def seconds_between(self, start: Mark, end: Mark) -> float:
        """Return the seconds between two marks of this clock."""
        ...


class HostClock:
    """A clock of this process, which waits for a separate device at each mark."""

    waits = True

    def __init__(self, device: str = "cpu") -> None:
        import torch

        separate = None if device == "cpu" else getattr(torch, device, None)
        self._wait = getattr(separate, "synchronize", None)

    def mark(self) -> float:
        """Wait for the device; return the seconds of a monotonic clock."""
        self.wait_for_device()
        return time.perf_counter()

    def wait_for_device(self) -> None:
        """Wait until the device has done its work, if it is not the CPU."""
        if self._wait is not None:
            self._wait()

    def seconds_between(self, start: float, end: float) -> float:
        """Return the seconds between two marks of this clock."""
        return end - start


class EventClock:
    """A clock of events on the current stream of a CUDA device, which waits only at the end."""

    waits = False

    def mark(self) -> Any:
        """Return a CUDA event that happens when the work queued so far is done."""
        import torch

        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def wait_for_device(self) -> None:
        """Wait until all CUDA streams have done their work."""
        import torch

        torch.cuda.synchronize()

    def seconds_between(self, start: Any, end: Any) -> float:
        """Return the seconds between two events that have happened."""
        return float(start.elapsed_time(end)) / 1e3


def clock_of(device: str) -> Clock:
    """Return the clock that measures work on a type of device, such as "cuda"."""
    return EventClock() if device == "cuda" else HostClock(device)


Phase: TypeAlias = Literal["forward", "again", "backward"]
"""A module's forward pass, that which a backward pass runs again, or a node of a backward pass."""


class Moment(NamedTuple):
    """A point in time, and the time of hooks in this thread until then."""

    mark: Mark
    spent: float


class Span:
    """The time span of one forward run of a module, or of an autograd node of it in the backward
    pass.
    """

    __slots__ = ("call", "end", "inner", "outer", "path", "phase", "spent", "start", "whole")

    def __init__(self, path: str, phase: Phase, outer: "Span | None") -> None:
        self.call: ModelCall | None = None  # that it is in
        self.path, self.phase, self.outer = path, phase, outer
        self.inner: list[Span] = []
        self.start: Mark = None
        self.end: Mark = None
        self.spent = 0.0
        self.whole = True

    def ancestor_spans(self) -> Iterator["Span"]:
        """Yield the spans that enclose this one, innermost first."""
        span = self.outer
        while span is not None:
            yield span
            span = span.outer


class Spans:
    """The spans of a step, with a stack of its own for every thread.

    What a hook itself takes is no work of a module: `spent` adds it up in each thread, and a span
    leaves out what was spent while it was open, where the clock is this process's own.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.all: list[Span] = []
        self._threads = threading.local()

    @property
    def open_spans(self) -> list[Span]:
        """The spans of this thread that have not ended, outermost first."""
        if not hasattr(self._threads, "open_spans"):
            self._threads.open_spans, self._threads.spent = [], 0.0
        stack: list[Span] = self._threads.open_spans
        return stack

    def current_moment(self) -> Moment:
        """Return the present moment: its mark, and the seconds that hooks of this thread took so
        far.
        """
        stack = self.open_spans  # which begins the count of a thread
        return Moment(self.clock.mark(), self._threads.spent if stack is not None else 0.0)

    def duration_without_hooks(self, start: Moment, end: Moment) -> float:
        """Return the seconds between two moments of one thread, without the time of hooks."""
        took = self.clock.seconds_between(start.mark, end.mark)
        return max(took - (end.spent - start.spent), 0.0) if self.clock.waits else took

    def add_hook_time(self, since: float) -> None:
        """Add the seconds since the host time `since` to the time that hooks took."""
        self._threads.spent += time.perf_counter() - since

    def begin(self, path: str, phase: Phase, since: float) -> Span:
        """Begin a span of a module path inside the innermost open span, and return it; the hook
        that calls this began at host time `since`.
        """
        stack = self.open_spans
        span = Span(path, phase, stack[-1] if stack else None)
        if span.outer is not None:
            span.outer.inner.append(span)
        stack.append(span)
        self.all.append(span)
        self.add_hook_time(since)
        span.spent = -self._threads.spent
        span.start = self.clock.mark()
        return span

    def end(self, span: Span, is_complete: bool = True) -> float:
        """End a span and the open ones inside it; return the host time (seconds) of the end."""
        mark, now = self.clock.mark(), time.perf_counter()
        stack = self.open_spans
        while span in stack:
            last = stack.pop()
            last.end, last.spent = mark, last.spent + self._threads.spent
            last.whole = is_complete and last is span
            if last is span:
                break
        return now

    def seconds(self, span: Span) -> float:
        """Return the seconds of a span without the time of hooks; 0 if it never ended."""
        if span.end is None:
            return 0.0
        took = self.clock.seconds_between(span.start, span.end)
        return max(took - span.spent, 0.0) if self.clock.waits else took


# The hooks.


class ModuleTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The seconds of one module in one step, with all modules in it.

    `graded` are those of its calls that a backward pass ran through. `backward` are the nodes of
    the backward pass that its forward pass made; of them `own` are those that no module within it
    made. `again` is forward work that the backward pass repeated: `repeats` times as a whole,
    `partly` times until an exception ended it, as checkpoints do.
    """

    calls: int = 0
    graded: int = 0
    forward: float = 0.0
    backward: float = 0.0
    own_backward: float = 0.0
    again: float = 0.0
    repeats: int = 0
    partly: int = 0


class StepTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The times of one step: its phases in seconds (None for a missing one), and its modules by
    path.

    `whole` lasts from the start of the watch to its end. `optimizer` are the steps of all
    optimizers, without the closures that they call. `beside` are the modules beside the model, in
    their order, whose time is in no phase. `unseen` are modules whose inside the compiler hides.
    `peak_bytes` is what the device's allocator held at most above what was there.
    """

    whole: float
    forward: float
    backward: float | None
    optimizer: float | None
    modules: dict[str, ModuleTimes]
    beside: tuple[ModuleTimes, ...] = ()
    unseen: tuple[str, ...] = ()
    peak_bytes: int | None = None
    optimizers: tuple[str, ...] = ()


# The beginnings of the names of nodes that multiply matrices.
_PRODUCTS = (
    "Mm", "Addmm", "Bmm", "Baddbmm", "Addbmm", "Mv", "Addmv", "Dot", "Linear", "Convolution",
    "ScaledDot", "Cdist", "EuclideanDist",
)  # fmt: skip
# Where a module keeps its hooks and what is said of them, by their numbers.
_HOOKS = (
    "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs",
    "_forward_hooks", "_forward_hooks_always_called",
)  # fmt: skip
_BESIDE = "\0"  # begins the path of a module beside the model, and its number follows


def without_wrappers(model: "nn.Module") -> "nn.Module":
    """Return the model inside the wrappers torch.compile, DataParallel and
    DistributedDataParallel.
    """
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and type(model).__name__ in ("DataParallel", "DistributedDataParallel"):
            inner = model.module
        if inner is None:
            return model
        model = inner


def _torch_compile_wrapper(model: "nn.Module") -> "nn.Module":
    """Return the torch.compile wrapper of a model if one exists in this process, else the
    model.
    """
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is None or without_wrappers(model) is not model:
        return model
    kind = dynamo.OptimizedModule
    made = (value for value in gc.get_objects() if issubclass(type(value), kind))
    return next((enclosing for enclosing in made if enclosing._orig_mod is model), model)


def model_and_its_inner_models(model: "nn.Module") -> Iterator["nn.Module"]:
    """Yield the model, then each model that the one before wraps, down to the innermost."""
    inner = without_wrappers(model)
    while model is not inner:
        yield model
        model = model._modules.get("_orig_mod") or model.module
    yield inner


def device_of(model: "nn.Module") -> Any:
    """Return the torch.device of the model's first parameter; the CPU if it has none."""
    import torch

    return next((weight.device for weight in model.parameters()), torch.device("cpu"))


class Watch:
    """The observation of one step of a model: `start`, the step, `stop`. It can be used once.

    What the model raises goes to `on_error` first, when the model is as it was.
    """

    def __init__(
        self, model: "nn.Module", on_error: Callable[[BaseException], None] | None = None
    ) -> None:
        device = device_of(model)
        self._on_error = on_error
        self._model, self._device = _torch_compile_wrapper(model), device
        self._spans = Spans(clock_of(device.type))
        self._owner: dict[Any, str] = {}  # of autograd's nodes, which are kept alive by it
        self._hooked: set[Any] = set()  # those of them that a call made
        self._hooks: dict[nn.Module, set[int]] = {}  # the numbers of the hooks on a module
        self._around: Callable[..., Any] | None = None  # the function around the model,
        self._covered: dict[str, Any] = {}  # and the attribute that it covers
        self._threads = threading.local()
        self._pass, self._is_restricted = 0, False  # of the backward pass that runs
        self._undo: list[Callable[[], Any]] = []
        self._backward_depth = 0
        self._phases: dict[str, list[tuple[Moment, Moment]]] = defaultdict(list)
        self._begun = Moment(None, 0.0)
        self._before = 0
        self._optimizers: Counter[str] = Counter()
        self._closures: list[tuple[Moment, Moment]] = []
        self.calls: list[ModelCall] = []
        self.beside: list[nn.Module] = []
        self._outside: dict[Any, None] = {}
        self.products: tuple[tuple[str, int], ...] = ()  # of no call, by autograd's name
        self.unseen: tuple[str, ...] = ()
        self.active = False
        self.failed = False

    # The step.

    def start(self) -> None:
        """Install the hooks of the observation; if that fails, remove them and raise the error."""
        import torch

        self.active = True
        try:
            self._watch_modules()
            self._leave_hooks_out_of_copies()
            self._watch_calls()
            self._watch_backward()
            self._watch_optimizers()
        except BaseException:
            self.remove_hooks()
            raise
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
            self._before = torch.cuda.memory_allocated(self._device)
        self._begun = self._spans.current_moment()

    def remove_hooks(self) -> None:
        """Remove all hooks and patches of the observation; a second call has no effect."""
        self.active = False
        while self._undo:
            self._undo.pop()()
        self._owner.clear()
        self._hooked.clear()
        self._hooks.clear()

    def _remove_hooks_after_error(self, error: BaseException) -> None:
        """Handle an error of the step: remove all hooks, then call `on_error`."""
        self.failed = True
        self.remove_hooks()
        if self._on_error is not None:
            self._on_error(error)

    def stop(self) -> StepTimes:
        """End the observation of the step; return its seconds by phase and by module."""
        import torch

        ended = self._spans.current_moment()
        for call in self.calls:
            call.store_passes()
        names = Counter(type(node).__name__ for node in self._outside)
        self._outside.clear()
        self.products = tuple(names.items())
        self.remove_hooks()
        self._spans.clock.wait_for_device()
        peak = None
        if self._device.type == "cuda":
            peak = torch.cuda.max_memory_allocated(self._device) - self._before
        total, rows = (
            self._spans.duration_without_hooks(self._begun, ended),
            self._times_by_module(),
        )
        numbers = range(len(self.beside))
        additional = tuple(rows.get(f"{_BESIDE}{number}", ModuleTimes()) for number in numbers)
        return StepTimes(
            whole=total,
            forward=sum(map(self._spans.seconds, filter(_is_outermost, self._spans.all))),
            backward=self._phase_seconds_without(
                "backward", sum(row.backward for row in additional)
            ),
            optimizer=self._phase_seconds_without(
                "optimizer", self._total_seconds(self._closures)
            ),
            modules={path: row for path, row in rows.items() if not path.startswith(_BESIDE)},
            beside=additional,
            unseen=self.unseen,
            peak_bytes=peak,
            optimizers=tuple(self._optimizers),
        )

    def _phase_seconds_without(self, phase: str, others: float) -> float | None:
        """Return the seconds of a phase minus `others` (seconds), at least 0; None if the phase
        did not happen.
        """
        spans = self._phases.get(phase)
        return max(self._total_seconds(spans) - others, 0.0) if spans else None

    def _total_seconds(self, spans: Iterable[tuple[Moment, Moment]]) -> float:
        """Return the sum of the seconds of time spans, given as (start, end), without the time of
        hooks.
        """
        return sum(self._spans.duration_without_hooks(start, end) for start, end in spans)

    # Modules.

    def _watch_modules(self) -> None:
        """Add hooks to all modules except those that torch.compile compiles, and store the paths
        of these in `unseen`.
        """
        root, compiled, visited = self._model, [], set()
        self._wrap_root_forward(root)
        inner = without_wrappers(root)
        opaque = inner is not root and getattr(root, "_orig_mod", None) is not None
        opaque = opaque or inner._compiled_call_impl is not None
        if opaque:
            compiled.append("")
        for path, module in inner.named_modules():
            if module is inner or opaque:
                continue
            if any(path.startswith(f"{outer}.") for outer in compiled) or id(module) in visited:
                continue
            visited.add(id(module))
            if module._compiled_call_impl is not None or hasattr(module, "_orig_mod"):
                compiled.append(path)
                if not hasattr(module, "_orig_mod"):
                    continue  # its hooks would be compiled with it
            self._hook_module(module, path)
        self.unseen = tuple(compiled)

    def _hook_module(self, module: "nn.Module", path: str) -> None:
        """Add hooks to a module that time its forward calls under its path."""
        from torch import compiler

        entered: list[tuple[Span, Any]] = []

        def begin_module_span(_: Any, args: Any, kwargs: Any) -> None:
            """Begin the time span of a module's forward call."""
            if compiler.is_compiling():
                return
            since = time.perf_counter()
            if self._current_call is not None or self._backward_depth:
                self._assign_autograd_nodes(self._current_module_path(), args, kwargs)
            span = self._spans.begin(path, self._current_forward_phase(), since)
            span.call = self._current_call
            entered.append((span, sys.exc_info()[1]))

        def end_module_span(_: Any, args: Any, output: Any) -> None:
            """End the time span of a module's forward call, and assign the autograd nodes of its
            output to it.
            """
            if compiler.is_compiling() or not entered:
                return
            span, error = entered.pop()
            since = self._spans.end(span, is_complete=sys.exc_info()[1] is error)
            self._assign_autograd_nodes(path, output)
            self._spans.add_hook_time(since)

        for handle in (
            module.register_forward_pre_hook(begin_module_span, with_kwargs=True),
            module.register_forward_hook(end_module_span, always_call=True),
        ):
            self._hooks.setdefault(module, set()).add(handle.id)
            self._undo.append(handle.remove)

    def _wrap_root_forward(self, root: "nn.Module") -> None:
        """Replace the model's forward by a function that runs it as a recorded and timed call.

        A hook cannot take hooks away when the model raises: PyTorch goes through them just then.
        """
        from torch import compiler

        name = "forward" if root._compiled_call_impl is None else "_compiled_call_impl"
        inside, bound = getattr(root, name), vars(root).get(name)

        def run_and_record_model_forward(*args: Any, **kwargs: Any) -> Any:
            """Run the model's forward, record and time the call, and return its output."""
            if compiler.is_compiling() or not self.active:
                return inside(*args, **kwargs)
            since, enclosing, before = (
                time.perf_counter(),
                self._current_call,
                len(self._spans.all),
            )
            call = None
            is_own = enclosing is None or enclosing.path is None
            if is_own and (not self._backward_depth or self._was_called(without_wrappers(root))):
                call = self._begin_call(without_wrappers(root), "", args, kwargs)
            span = self._spans.begin("", self._current_forward_phase(), since)
            span.call = call
            try:
                output = inside(*args, **kwargs)
            except BaseException as error:
                self._spans.end(span, is_complete=False)
                if not self._backward_depth:
                    self._remove_hooks_after_error(error)
                elif call is not None:
                    self._record_stopped_recomputation(call, before)
                raise
            finally:
                if call is not None:
                    self._threads.call = enclosing
            since = self._spans.end(span)
            self._end_call(call, "", output)
            self._spans.add_hook_time(since)
            return output

        vars(root)[name] = run_and_record_model_forward
        self._around, self._covered = (
            run_and_record_model_forward,
            {} if bound is None else {name: bound},
        )

        def restore_model_forward() -> None:
            """Restore the forward of the model."""
            if vars(root).get(name) is run_and_record_model_forward:
                del vars(root)[name]
                if bound is not None:
                    vars(root)[name] = bound

        self._undo.append(restore_model_forward)

    def _leave_hooks_out_of_copies(self) -> None:
        """Make copies and pickles of modules leave out the hooks of this watch.

        Of a copy the function around the model would run the model, and no file takes a function.
        """
        from torch import nn

        inside, root = nn.Module.__getstate__, self._model

        def module_state_without_hooks(module: nn.Module) -> dict[str, Any]:
            """Return the state of a module for a copy or a pickle, without the hooks of this
            watch.
            """
            state: dict[str, Any] = inside(module)
            native = self._hooks.get(module, ())
            for name in _HOOKS if native else ():
                stored = state[name].items()
                state[name] = type(state[name])((k, hook) for k, hook in stored if k not in native)
            if module is root and state.get("forward") is self._around:
                del state["forward"]
                state |= self._covered
            return state

        self._patch_until_end(
            nn.Module, "__getstate__", module_state_without_hooks, inventory.WATCHED_STATE
        )

    def _patch_until_end(self, owner: Any, name: str, value: Any, declared: Patch) -> None:
        """Replace an attribute until the watch ends; if a script sets it in between, that value
        stays.
        """
        replaced = patching_attribute(owner, name, value, declared, leave_foreign=True)
        replaced.__enter__()
        self._undo.append(replaced.undo)

    # Calls that nothing is around: of the model, of a part of it, of a module beside it.

    @property
    def _current_call(self) -> ModelCall | None:
        """The recorded call that runs in this thread, or None."""
        call: ModelCall | None = getattr(self._threads, "call", None)
        return call

    def _begin_call(
        self, module: "nn.Module", path: str | None, args: Any, kwargs: Any
    ) -> ModelCall:
        """Begin to record a call of a module, and return the record; `path` is "" for the model
        and None for a module that is not in it.
        """
        for tensor in tensors_of_value((args, kwargs)):  # what made them is not of this call
            self._owner.setdefault(tensor.grad_fn, "")
        is_again = self._backward_depth > 0
        call = ModelCall(module, path, args, kwargs, self._autocast_dtype(), is_again)
        self.calls.append(call)
        self._threads.call = call
        return call

    def _was_called(self, module: "nn.Module") -> bool:
        """Return True if an outermost call of the module was recorded."""
        return any(call.module is module for call in self.calls)

    def _end_call(self, call: ModelCall | None, path: str, output: Any) -> None:
        """End the record of a call: assign the autograd nodes of its output to the module at
        `path`.
        """
        enclosing, self._threads.call = (
            self._current_call,
            call if call is not None else self._current_call,
        )
        self._assign_autograd_nodes(path, output)
        self._threads.call = enclosing
        if call is not None:
            call.record_output_gradients(output)

    def _watch_calls(self) -> None:
        """Replace `nn.Module.__call__` to record calls that no recorded call encloses, of
        submodules and of modules outside the model.

        A function around that of all modules, since a hook on all of them is compiled anew.
        """
        from torch import compiler, nn

        inside, indices = nn.Module.__call__, self._module_paths()
        additional: dict[int, tuple[nn.Module, int | None]] = {}

        def run_and_record_outermost_module_call(
            module: nn.Module, *args: Any, **kwargs: Any
        ) -> Any:
            """Call a module and return its output; record the call if no recorded call encloses
            it.
            """
            if compiler.is_compiling() or not self.active or self._current_call:
                return inside(module, *args, **kwargs)
            if self._backward_depth and not self._was_called(without_wrappers(module)):
                return inside(module, *args, **kwargs)
            if module is self._model:  # whose own function is watched
                return inside(module, *args, **kwargs)
            path = indices.get(id(module))
            if path:
                return self._call_submodule(inside, module, path, args, kwargs)
            wrapped = indices.get(id(without_wrappers(module)))
            if wrapped is not None:  # what compiles or copies a part, or the model without it
                return self._time_call(inside, module, wrapped, args, kwargs)
            if id(module) not in additional:
                additional[id(module)] = module, self._number_of_extra_module(module, indices)
            number = additional[id(module)][1]
            if number is None:
                return inside(module, *args, **kwargs)
            return self._time_call(inside, module, f"{_BESIDE}{number}", args, kwargs)

        self._patch_until_end(
            nn.Module, "__call__", run_and_record_outermost_module_call, inventory.WATCHED_CALLS
        )

    def _module_paths(self) -> dict[int, str]:
        """Return the path of each module of the model by its id; "" for the model and its
        wrappers.
        """
        inner = without_wrappers(self._model)
        indices = {id(module): path for path, module in inner.named_modules()}
        return indices | {id(module): "" for module in model_and_its_inner_models(self._model)}

    def _number_of_extra_module(self, module: "nn.Module", indices: dict[int, str]) -> int | None:
        """Register a module outside the model and return its number in `beside`; None if it is not
        to be timed.

        None for one that holds modules of the model, whose other parts are beside it, and for one
        without state, such as a loss, which is the script's own work.
        """
        own = without_wrappers(module)
        if any(id(part) in indices for part in own.modules()):
            return None
        if not any(True for _ in (*own.parameters(), *own.buffers())):
            return None
        self.beside.append(own)
        return len(self.beside) - 1

    def _call_submodule(
        self,
        original_call: Callable[..., Any],
        module: "nn.Module",
        path: str,
        args: Any,
        kwargs: Any,
    ) -> Any:
        """Call a submodule outside of a call of the model, record the call, and return its
        output.
        """
        since = time.perf_counter()
        call = self._begin_call(without_wrappers(module), path, args, kwargs)
        self._spans.add_hook_time(since)
        output = self._call_recorded(original_call, module, call, args, kwargs)
        since = time.perf_counter()
        self._end_call(call, path, output)
        self._spans.add_hook_time(since)
        return output

    def _time_call(
        self,
        original_call: Callable[..., Any],
        module: "nn.Module",
        path: str,
        args: Any,
        kwargs: Any,
    ) -> Any:
        """Call a module that has no hooks, record and time the call as a whole, and return its
        output.
        """
        since = time.perf_counter()
        index = None if path.startswith(_BESIDE) else path
        call = self._begin_call(without_wrappers(module), index, args, kwargs)
        span = self._spans.begin(path, self._current_forward_phase(), since)
        span.call, full = call, False
        try:
            output = self._call_recorded(original_call, module, call, args, kwargs)
            full = True
        finally:
            since = self._spans.end(span, full)
        self._end_call(call, path, output)
        self._spans.add_hook_time(since)
        return output

    def _call_recorded(
        self,
        original_call: Callable[..., Any],
        module: "nn.Module",
        call: ModelCall,
        args: Any,
        kwargs: Any,
    ) -> Any:
        """Call the module and return its output; if it raises, remove the record of the call, or
        mark a recomputation as cut.
        """
        before = len(self._spans.all)
        try:
            return original_call(module, *args, **kwargs)
        except BaseException:
            if call.is_again:
                self._record_stopped_recomputation(call, before)
            else:
                self.calls.remove(call)
            raise
        finally:
            self._threads.call = None

    def _record_stopped_recomputation(self, call: ModelCall, span_count_at_begin: int) -> None:
        """Record that a recomputation of the call was stopped before its end;
        `span_count_at_begin` is the number of spans at its begin.
        """
        begun = [span for span in self._spans.all[span_count_at_begin:] if span.phase == "again"]
        ended = {span.path for span in begun if span.end is not None and span.whole}
        index = f"{call.path}." if call.path else ""
        inside = [path.removeprefix(index) for path in ended if path.startswith(index)]
        is_seen = call.path is not None and call.path not in self.unseen
        call.record_stopped_recomputation(inside if call.path is not None else (), is_seen)

    def _autocast_dtype(self) -> str:
        """Return the dtype of autocast, such as "bfloat16", or "" if it is off."""
        import torch

        kind = self._device.type
        if not torch.is_autocast_enabled(kind):
            return ""
        return str(torch.get_autocast_dtype(kind)).rpartition(".")[2]

    def _current_module_path(self) -> str:
        """Return the path of the module that runs now in this thread, or ""."""
        stack = self._spans.open_spans
        return stack[-1].path if stack else ""

    def _current_forward_phase(self) -> Phase:
        """Return "again" if a backward pass runs now, since it repeats forward work, else
        "forward".
        """
        return "again" if self._backward_depth else "forward"

    # The backward pass.

    def _assign_autograd_nodes(self, path: str, *values: Any) -> None:
        """Assign the autograd nodes that made the tensors in `values` to the module at `path`, if
        they have none yet.
        """
        todo = [
            tensor.grad_fn for tensor in tensors_of_value(values) if tensor.grad_fn is not None
        ]
        call = self._current_call
        while todo:
            node = todo.pop()
            if node in self._owner:
                continue
            self._owner[node] = path
            self._hooked.add(node)
            self._hook_node(node, path, call)
            todo.extend(inner for inner, _ in node.next_functions if inner is not None)

    def _hook_node(self, node: Any, path: str, call: ModelCall | None) -> None:
        """Add hooks to an autograd node that time it under the module at `path` and report it to
        its call.
        """
        running: list[Span] = []

        def begin_node_span(came: Any) -> None:
            """Begin the time span of an autograd node, and report to its call which gradients
            came.
            """
            if self.active:
                since = time.perf_counter()
                if call is not None:
                    call.record_node_begin(self._pass, self._is_restricted, node, came)
                running.append(self._spans.begin(path, "backward", since))

        def end_node_span(went: Any, _: Any) -> None:
            """End the time span of an autograd node, and report to its call which gradients went
            on.
            """
            if running:
                since = self._spans.end(running.pop())
                if call is not None:
                    call.record_node_end(self._pass, node, went)
                self._spans.add_hook_time(since)

        for handle in (node.register_prehook(begin_node_span), node.register_hook(end_node_span)):
            self._undo.append(handle.remove)

    def _hook_second_order_nodes(
        self, made: Iterable["Tensor"], calls: Iterable[ModelCall]
    ) -> None:
        """Add hooks to the autograd nodes that made the gradients `made`, to report a second-order
        backward pass to the calls.
        """
        todo = [tensor.grad_fn for tensor in made if tensor.grad_fn is not None]
        through = tuple(calls)

        def report_second_order_pass(_: Any) -> None:
            """Report to the calls that a second-order backward pass runs through them."""
            for call in through if self.active else ():
                call.record_second_order_pass(self._pass)

        while todo:
            node = todo.pop()
            if node not in self._owner:
                self._owner[node] = ""
                self._hooked.add(node)
                self._undo.append(node.register_prehook(report_second_order_pass).remove)
                todo.extend(inner for inner, _ in node.next_functions if inner is not None)

    def _watch_backward(self) -> None:
        """Replace the function by which torch runs backward passes, to record and time them.

        What a compiler or a transform of torch.func runs to trace a model is no pass of the step.
        """
        from torch import autograd
        from torch._guards import detect_fake_mode

        inside = autograd._engine_run_backward

        def run_and_time_backward_pass(roots: Any, *args: Any, **kwargs: Any) -> Any:
            """Run a backward pass, record its time span, and return its result."""
            if not self.active or is_in_func_transform() or detect_fake_mode(roots) is not None:
                return inside(roots, *args, **kwargs)
            start = self._spans.current_moment()
            self._backward_depth += 1
            if self._backward_depth == 1:
                self._pass, self._is_restricted = self._pass + 1, bool(args[3])
                self._record_product_nodes(roots)
            try:
                result = inside(roots, *args, **kwargs)
            except BaseException as error:
                if self._backward_depth == 1:
                    self._remove_hooks_after_error(error)
                raise
            finally:
                self._backward_depth -= 1
            if not self._backward_depth:
                self._phases["backward"].append((start, self._spans.current_moment()))
                if args[2]:
                    self._assign_gradient_nodes_to_calls(result)
            return result

        self._patch_until_end(
            autograd,
            "_engine_run_backward",
            run_and_time_backward_pass,
            inventory.WATCHED_BACKWARD,
        )

    def _record_product_nodes(self, roots: Iterable[Any]) -> None:
        """Record the autograd nodes of matrix products that are reached from the tensors `roots`
        and belong to no recorded call.
        """
        since = time.perf_counter()
        todo = [getattr(root, "grad_fn", None) for root in roots]
        met = set()
        while todo:
            node = todo.pop()
            if node is None or node in met:
                continue
            met.add(node)
            if node not in self._hooked and type(node).__name__.startswith(_PRODUCTS):
                self._outside[node] = None
            todo.extend(inner for inner, _ in node.next_functions)
        self._spans.add_hook_time(since)

    def _assign_gradient_nodes_to_calls(self, gradients: Any) -> None:
        """Assign the autograd nodes that made these gradients to the calls through which the
        backward pass ran.
        """
        since = time.perf_counter()
        calls = [call for call in self.calls if call.has_pass(self._pass)]
        leaves = [leaf for call in calls for leaf in call.leaves_of_pass(self._pass)]
        made = [
            *tensors_of_value(gradients),
            *(leaf.grad for leaf in leaves if leaf.grad is not None),
        ]
        self._hook_second_order_nodes(made, calls)
        self._spans.add_hook_time(since)

    # The optimizer.

    def _watch_optimizers(self) -> None:
        """Add hooks that time the step of each torch optimizer."""
        from torch.optim import optimizer as torch_optimizer

        begun: list[Moment] = []

        def closure_with_time_record(closure: Callable[[], Any]) -> Callable[[], Any]:
            """Return a function that runs the closure of an optimizer and records its time."""

            def run_and_time_optimizer_closure() -> Any:
                """Run the closure of an optimizer, record its time span, and return its result."""
                start = self._spans.current_moment()
                try:
                    return closure()
                finally:
                    self._closures.append((start, self._spans.current_moment()))

            return run_and_time_optimizer_closure

        def begin_optimizer_span_and_time_closure(_: Any, args: Any, kwargs: Any) -> Any:
            """Begin the time span of an optimizer's step; return its arguments with a timed
            closure, or None if unchanged.
            """
            begun.append(self._spans.current_moment())
            if len(begun) > 1:  # its closure is in the time of that of the outer one
                return None
            if len(args) > 1 and callable(args[1]):
                return (args[0], closure_with_time_record(args[1]), *args[2:]), kwargs
            if callable(kwargs.get("closure")):
                return args, {**kwargs, "closure": closure_with_time_record(kwargs["closure"])}
            return None

        def end_optimizer_span(optimizer: Any, *_: Any) -> None:
            """End the time span of an optimizer's step and count the step by the name of its
            class.
            """
            start = begun.pop() if begun else None
            if start is not None and not begun:  # one may be within another
                self._phases["optimizer"].append((start, self._spans.current_moment()))
                self._optimizers[type(optimizer).__name__] += 1

        for register, hook in (
            (
                torch_optimizer.register_optimizer_step_pre_hook,
                begin_optimizer_span_and_time_closure,
            ),
            (torch_optimizer.register_optimizer_step_post_hook, end_optimizer_span),
        ):
            self._undo.append(register(hook).remove)

    # What was seen.

    def _times_by_module(self) -> dict[str, ModuleTimes]:
        """Return the seconds of the forward and the backward pass and the number of calls, by
        module path.
        """
        sums: dict[str, dict[str, Any]] = defaultdict(lambda: defaultdict(int))
        for span in self._spans.all:
            seconds, counts = self._spans.seconds(span), sums[span.path]
            if span.phase == "backward":
                alone = seconds - sum(map(self._spans.seconds, span.inner))
                counts["own_backward"] += max(alone, 0.0)
                continue
            if any(s.path == span.path and s.phase == span.phase for s in span.ancestor_spans()):
                continue  # within itself: its time is in that of the outer call
            if span.phase == "again":
                counts["again"] += seconds
                counts["repeats" if span.whole else "partly"] += 1
            else:
                counts["forward"] += seconds
                counts["calls"] += 1
                counts["graded"] += span.call is not None and bool(span.call.passes.passes)
        for path, counts in list(sums.items()):
            for outer in (path,) if path.startswith(_BESIDE) else (path, *_ancestor_paths(path)):
                sums[outer]["backward"] += counts["own_backward"]
        return {path: ModuleTimes(**counts) for path, counts in sums.items()}


def _is_outermost(span: Span) -> bool:
    """Return True if the span is a forward call in the model that no other such call encloses."""
    if span.phase != "forward" or span.path.startswith(_BESIDE):
        return False
    return all(outer.path.startswith(_BESIDE) for outer in span.ancestor_spans())


def _ancestor_paths(path: str) -> Iterable[str]:
    """Yield the path of each module that encloses the one at `path`, innermost first, and "" for
    the model.
    """
    while path:
        path = path.rpartition(".")[0]
        yield path


def tensors_of_value(values: Any) -> list["Tensor"]:
    """Return the tensors in a value, also inside lists, tuples, dicts and dataclasses."""
    import torch

    if isinstance(values, torch.Tensor):
        return [values]
    if isinstance(values, dict):
        values = values.values()
    elif hasattr(values, "__dataclass_fields__"):
        values = vars(values).values()
    elif not isinstance(values, list | tuple):
        return []
    return [tensor for value in values for tensor in tensors_of_value(value)]


# What stands beside the watched step.


class RunPlace(NamedTuple):
    """The place where a model runs: device name, PyTorch version and number of threads."""

    device: str
    runtime: str
    threads: int


def model_run_place(model: "nn.Module") -> RunPlace:
    """Return where a model runs: the device name, the PyTorch version and the number of
    threads.
    """
    import torch

    device = device_of(model)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return RunPlace(name, f"torch {torch.__version__}", torch.get_num_threads())


def device_of_keras() -> str:
    """Return the name of the first accelerator that the Keras backend uses, else "cpu"."""
    from keras import backend

    if backend.backend() == "tensorflow":
        import tensorflow

        gpus = tensorflow.config.list_physical_devices("GPU")
        details = tensorflow.config.experimental.get_device_details(gpus[0]) if gpus else {}
        return str(details.get("device_name", "gpu")) if gpus else "cpu"
    if backend.backend() == "jax":
        import jax

        first = jax.devices()[0]
        return "cpu" if first.platform == "cpu" else str(first.device_kind)
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"


@contextmanager
def preserving_random_state() -> Iterator[None]:
    """Run the block with autocast off and gradients on, and restore the state of random generators
    after it.
    """
    import torch

    state, host = random.getstate(), torch.get_rng_state()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    try:
        with ExitStack() as stack:
            for kind in ("cpu", "cuda"):
                if torch.is_autocast_enabled(kind):
                    stack.enter_context(torch.autocast(kind, enabled=False))
            stack.enter_context(torch.enable_grad())
            yield
    finally:
        random.setstate(state)
        torch.set_rng_state(host)
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)
