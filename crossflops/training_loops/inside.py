"""The profiler inside a script that is not changed: it profiles one training step, between two
steps of an optimizer.

Python runs `await_torch_optim_import` before the script. It costs nothing until the script imports
torch.optim, whose own hooks then tell when an optimizer has stepped.
"""

import atexit
import os
import sys
import weakref
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import msgspec

from crossflops.files import write_file
from crossflops.profiling.compiled import explain_missing_model_call, has_torch_compiled_anything
from crossflops.profiling.loops import (
    Called,
    Undo,
    model_of_optimizer,
    record_called_modules,
    register_optimizer_step_hook,
)

if TYPE_CHECKING:
    from crossflops.training_loops.profiler import FlopsProfiler

SETTINGS = "CROSSFLOPS_PROFILE_SCRIPT"  # the environment variable that holds `ScriptSettings`
FIRST_STEP = 2  # the model of a step is found in the one before it
_OPTIMIZERS = "torch.optim.optimizer"


class ScriptSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The step to profile, the peak to compare with, and the files for the answer.

    `profile` gets the profile as JSON, `reason` a line of each process that has none: why.
    """

    step: int
    profile: str
    reason: str
    device: str | None = None
    peak_tflops: str | None = None
    precision: str | None = None
    as_: tuple[str, ...] = ()


def await_torch_optim_import() -> None:
    """Install an import hook that begins to watch for optimizer steps when the script imports
    torch.optim; only in a process of rank 0.
    """
    text = os.environ.get(SETTINGS)
    if text and os.environ.get("RANK", "0") in ("", "0"):
        settings = msgspec.json.decode(text, type=ScriptSettings)
        sys.meta_path.insert(
            0, _ImportAwaiter(_OPTIMIZERS, lambda: _ChosenStep(settings).watch_for_chosen_step())
        )


class _ImportAwaiter(MetaPathFinder):
    """A finder that calls `on_import` once the module of that name has been imported."""

    def __init__(self, name: str, on_import: Callable[[], None]) -> None:
        self._name, self._on_import = name, on_import

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the import spec of the awaited module, with a loader that calls `on_import` after
        the import; None for another module.
        """
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _LoaderWithCallback(spec.loader, self._on_import)
        return spec


class _LoaderWithCallback(Loader):
    """A loader that loads a module by its own loader, then calls `on_import`."""

    def __init__(self, loader: Loader, on_import: Callable[[], None]) -> None:
        self._loader, self._on_import = loader, on_import

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Return the module that the wrapped loader creates."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module by its own loader, restore that loader as its attribute, and call
        `on_import`.
        """
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._on_import()


class _ChosenStep:
    """The observation of the steps of the optimizer that steps first; it profiles one of them.

    Where others step behind it, as that of a generator does, a step ends with the last of them.
    """

    def __init__(self, settings: ScriptSettings) -> None:
        self._settings = settings
        self._optimizer: weakref.ref[Any] | None = None
        self._steps = 0
        self._last: weakref.ref[Any] | None = None  # the optimizer that ended the step before
        self._latest: weakref.ref[Any] | None = None  # the one that stepped latest
        self._called: Called = {}  # in the step before
        self._profiler: FlopsProfiler | None = None
        self._undo: list[Undo] = []
        self._is_over = False

    def watch_for_chosen_step(self) -> None:
        """Begin to watch for optimizer steps, and for the exit of the process."""
        atexit.register(self._write_reason_at_exit)
        self._register_optimizer_step_hook()
        if self._settings.step == FIRST_STEP:
            self._record_called_modules()

    def _register_optimizer_step_hook(self) -> None:
        """Register a hook that runs after each optimizer step, and after all hooks that exist
        now.
        """
        self._undo.append(register_optimizer_step_hook(self._on_step))

    def _record_called_modules(self) -> None:
        """Begin to record which modules are called."""
        self._undo.append(record_called_modules(self._called))

    def _on_step(self, optimizer: Any, *_: Any) -> None:
        """Handle the step of an optimizer: count it; if that raises, give up the profile and let
        the training continue.
        """
        try:
            self._count_optimizer_step(optimizer)
        except Exception as error:
            self._give_up_profile(
                getattr(error, "message", "") or f"{type(error).__name__}: {error}"
            )

    def _count_optimizer_step(self, optimizer: Any) -> None:
        """Count a call of an optimizer's step; if it is the last optimizer of a training step, end
        that step.
        """
        if self._optimizer is None:
            self._optimizer = self._last = weakref.ref(optimizer)
        first = self._optimizer() is optimizer
        if first:
            self._steps += 1
            self._last = self._latest or self._last
        self._latest = weakref.ref(optimizer)
        if self._last is None or self._last() is not optimizer:
            return
        self._start_or_stop_profile_at_step_end()

    def _start_or_stop_profile_at_step_end(self) -> None:
        """Handle the end of a training step: begin to profile if the next one is the chosen one,
        write the profile if this one was.
        """
        chosen = self._settings.step
        if self._profiler is None and self._called:
            self._remove_all_hooks()
            self._profiler = self._start_profiler()
            self._register_optimizer_step_hook()
        elif self._profiler is None and self._steps >= chosen - 2:
            self._record_called_modules()
        elif self._profiler is not None and self._steps >= chosen:
            self._remove_all_hooks()
            self._is_over = True
            profiler, self._profiler = self._profiler, None
            profiler.stop()
            try:
                write_file(Path(self._settings.profile), profiler.profile.to_json())
            finally:
                profiler.end()

    def _start_profiler(self) -> "FlopsProfiler":
        """Start and return a profiler for the model that the first optimizer trains."""
        from crossflops.training_loops.profiler import FlopsProfiler

        optimizer = self._optimizer() if self._optimizer is not None else None
        if optimizer is None:
            raise LookupError("the optimizer of the first step no longer exists")
        model = model_of_optimizer(optimizer, self._called)
        self._called = {}
        settings = self._settings
        profiler = FlopsProfiler(
            model,
            device=settings.device,
            peak_tflops=settings.peak_tflops,
            precision=settings.precision,
            as_=settings.as_,
        )
        profiler.start()
        return profiler

    def _remove_all_hooks(self) -> None:
        """Remove all hooks of the observation, the last first."""
        while self._undo:
            self._undo.pop()()

    def _give_up_profile(self, reason: str) -> None:
        """End the profiling without a profile, and write the reason to the file of reasons."""
        self._remove_all_hooks()
        self._called = {}
        if self._profiler is not None:
            self._profiler.end()
            self._profiler = None
        with open(self._settings.reason, "a", encoding="utf-8") as file:
            file.write(f"{reason}\n")
        self._is_over = True

    def _write_reason_at_exit(self) -> None:
        """Handle the exit of the process: if no step was profiled, write the reason."""
        if not self._is_over:
            if self._steps > self._settings.step and has_torch_compiled_anything():
                self._give_up_profile(": ".join(explain_missing_model_call()))
                return
            made = f"{self._steps} step" + "s" * (self._steps != 1)
            requested = f"step {self._settings.step} was requested"
            self._give_up_profile(f"the optimizer made only {made}, but {requested}")
