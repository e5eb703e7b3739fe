"""Run calflops (github.com/MrYxJ/calculate-flops.pytorch)."""

import importlib.util
import sys
from typing import Any

import msgspec

from crossflops.errors import MissingExtraError
from crossflops.ir.profile import Entry, Profile
from crossflops.ir.trace import Setting
from crossflops.patches import inventory
from crossflops.patches.patching import patching_items
from crossflops.plugins.adapter import exact, installed, is_module, under

_PACKAGE = "calflops"
_PIPELINE = "calflops.calculate_pipline"  # its own spelling
_BACKWARD_FACTOR = 2.0  # the default of calculate_flops


class Calflops:
    """The FLOPs of calflops, which replaces functions of PyTorch while the model runs."""

    name = "calflops"
    convention = "calflops"
    distribution = "calflops"
    printed_as = "FLOPs"
    counter = "flops"
    on_fakes = True

    def version(self) -> str:
        """Return the version of the installed calflops; raise MissingExtraError if it is not
        installed.
        """
        return installed(self.distribution)

    def load(self) -> None:
        """Import PyTorch and the part of calflops that counts; raise MissingExtraError if it is
        not installed.
        """
        self.version()
        _import_counting_module()

    def accepts(self, model: object) -> bool:
        """Return whether the model is a torch.nn.Module."""
        return is_module(model)

    def profile(
        self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], setting: Setting
    ) -> Profile:
        """Return what calflops prints in evaluation mode: its total, its number of parameters, and
        its number for each module.

        Of a training step it is the total with `include_backPropagation`, and as many times the
        amounts of modules, which calflops itself prints for the forward pass alone.

        Not among these steps is moving inputs to the model's device, at which `calculate_flops`
        fails for models without parameters and for inputs that are no tensors. Of parameters it
        counts those that are trained. A module with several names stands under the first.
        """
        self.load()
        pipeline = _import_counting_module()
        forced = msgspec.structs.replace(setting, training=False, hooked=True)
        run = pipeline.CalFlopsPipline(model, bool(setting.step), _BACKWARD_FACTOR)
        counted = getattr(pipeline, f"get_module_{self.counter}")
        with under(forced, model):
            try:
                run.start_flops_calculate()
                model(*args, **kwargs)
                total = counted(model)
                params = run.get_total_params()
                entries = [(path, counted(module)) for path, module in model.named_modules()]
            finally:
                # A model that fails would leave the functions replaced, and its stack filled.
                run.end_flops_calculate()
                pipeline.module_flop_count.clear()
                pipeline.module_mac_count.clear()
        if setting.step:  # flops_counter.py: after the profile has ended
            times = 1 + _BACKWARD_FACTOR
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


class CalflopsMacs(Calflops):
    """The MACs of the same run."""

    name = "calflops-macs"
    convention = "calflops-macs"
    printed_as = "MACs"
    counter = "macs"


def _import_counting_module() -> Any:
    """Return the module of calflops that counts, imported without the rest of the package.

    The package imports transformers, accelerate, huggingface_hub and timm for models of a hub,
    which takes as long as PyTorch. Who imports the whole of it later gets the same module.
    """
    if _PACKAGE in sys.modules or _PIPELINE in sys.modules:
        return importlib.import_module(_PIPELINE)
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None:
        raise MissingExtraError("calflops is not installed", "pip install calflops")
    package = importlib.util.module_from_spec(spec)
    with patching_items(sys.modules, {_PACKAGE: package}, inventory.MODULES):
        return importlib.import_module(_PIPELINE)
