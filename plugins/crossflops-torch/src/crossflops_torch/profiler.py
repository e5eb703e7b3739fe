"""Run torch.profiler with `with_flops=True` (torch/profiler/profiler.py)."""

import importlib
from typing import Any

from crossflops.ir.profile import Entry, Profile
from crossflops.ir.trace import Setting
from crossflops.plugins.adapter import exact, installed, is_module, ran, under


class TorchProfiler:
    """The adapter of `torch.profiler.profile(with_flops=True)`."""

    name = "torch-profiler"
    convention = "torch-profiler"
    distribution = "torch"

    def version(self) -> str:
        """Return the version of the installed PyTorch without its build suffix, such as "+cpu"."""
        return installed(self.distribution, "PyTorch").partition("+")[0]

    def load(self) -> None:
        """Import PyTorch and its profiler."""
        self.version()
        importlib.import_module("torch.profiler")

    def accepts(self, model: object) -> bool:
        """Return whether the model is a torch.nn.Module."""
        return is_module(model)

    def profile(
        self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], setting: Setting
    ) -> Profile:
        """Return the total of the FLOPs of all events that torch.profiler records.

        The events name their operator and not their module, so there are no numbers of modules.
        """
        profiler = importlib.import_module("torch.profiler")
        cpu = [profiler.ProfilerActivity.CPU]
        with under(setting, model), profiler.profile(activities=cpu, with_flops=True) as run:
            ran(model, args, kwargs, setting)
        total = exact(sum(event.flops for event in run.key_averages()))
        return Profile(
            tool=self.name,
            version=self.version(),
            setting=setting,
            total=total,
            printed_as="FLOPs",
            entries=(Entry("", total),),
        )
