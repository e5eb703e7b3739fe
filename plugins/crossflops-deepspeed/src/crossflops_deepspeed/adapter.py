"""Run DeepSpeed's flops profiler (github.com/deepspeedai/DeepSpeed)."""

import importlib
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from crossflops.ir.profile import Entry, Profile
from crossflops.ir.trace import Setting
from crossflops.plugins.adapter import exact, installed, is_module, under

_PROFILER = "deepspeed.profiling.flops_profiler.profiler"


class Deepspeed:
    """The FLOPs of `FlopsProfiler`, which replaces functions of PyTorch while the model runs."""

    name = "deepspeed"
    convention = "deepspeed"
    distribution = "deepspeed"
    printed_as = "FLOPs"
    counter = "flops"
    on_fakes = True

    def version(self) -> str:
        """Return the version of the installed DeepSpeed; raise MissingExtraError if it is not
        installed.
        """
        return installed(
            self.distribution,
            "DeepSpeed",
            command="DS_BUILD_OPS=0 pip install --no-build-isolation deepspeed",
        )

    def load(self) -> None:
        """Import DeepSpeed's flops profiler with PyTorch, without a search for an accelerator.

        DeepSpeed asks every back end that it knows for a device unless it is told which to take,
        and writes what it does to stdout.
        """
        self.version()
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
        with _switching_off_logging():
            importlib.import_module(_PROFILER)

    def accepts(self, model: object) -> bool:
        """Return whether the model is a torch.nn.Module."""
        return is_module(model)

    def profile(
        self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], setting: Setting
    ) -> Profile:
        """Return what DeepSpeed prints in evaluation mode: its total, its number of parameters,
        and its number for each module.

        The steps are those of `get_model_profile`, without a warm-up.

        Of a training step it is the product that `print_model_profile` divides by the time of
        both passes, with what is computed again as the profiler has it, and as many times the
        amounts of modules, which DeepSpeed itself prints for the forward pass alone.
        DeepSpeed switches to eval mode and hooks every module. An amount of a module has what lies
        beneath it; one with several names stands under the first.
        """
        self.load()
        profiler = importlib.import_module(_PROFILER)
        forced = msgspec.structs.replace(setting, training=False, hooked=True)
        run = profiler.FlopsProfiler(model)
        counted = getattr(profiler, f"get_module_{self.counter}")
        with _switching_off_logging(), under(forced, model):
            try:
                run.start_profile()
                model(*args, **kwargs)
                total = counted(model)
                params = run.get_total_params()
                entries = [(path, counted(module)) for path, module in model.named_modules()]
            finally:
                # A model that fails would leave the functions replaced, and its stack filled.
                run.end_profile()
                profiler.module_flop_count.clear()
                profiler.module_mac_count.clear()
        if setting.step:  # profiler.py: bwd_factor + 1
            times = 3 + run.recompute_fwd_factor
            total, entries = total * times, [(path, times * own) for path, own in entries]
        return Profile(
            tool=self.name,
            version=self.version(),
            setting=forced,
            total=exact(total),
            params=exact(params),
            printed_as=self.printed_as,
            entries=tuple(Entry(path, exact(amount)) for path, amount in entries),
        )


class DeepspeedMacs(Deepspeed):
    """The MACs of the same run."""

    name = "deepspeed-macs"
    convention = "deepspeed-macs"
    printed_as = "MACs"
    counter = "macs"


@contextmanager
def _switching_off_logging() -> Iterator[None]:
    """Switch off all logging within the block, because DeepSpeed's logger writes to stdout."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
