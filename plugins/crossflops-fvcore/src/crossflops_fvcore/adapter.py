"""Run fvcore's FlopCountAnalysis (github.com/facebookresearch/fvcore)."""

import importlib
from typing import Any

import msgspec

from crossflops.ir.profile import Entry, Profile
from crossflops.ir.trace import Setting
from crossflops.plugins.adapter import exact, installed, is_module, positional, under
from crossflops.plugins.teaching import TakesFormulas, cost_of_traced_node


class Fvcore(TakesFormulas):
    """The adapter of `fvcore.nn.FlopCountAnalysis`, which traces the model with torch.jit."""

    name = "fvcore"
    convention = "fvcore"
    distribution = "fvcore"
    on_fakes = True

    def version(self) -> str:
        """Return the version of the installed fvcore; raise MissingExtraError if it is not
        installed.
        """
        return installed(self.distribution)

    def load(self) -> None:
        """Import fvcore's counters, with PyTorch."""
        self.version()
        importlib.import_module("fvcore.nn")

    def accepts(self, model: object) -> bool:
        """Return whether the model is a torch.nn.Module."""
        return is_module(model)

    def profile(
        self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], setting: Setting
    ) -> Profile:
        """Return what fvcore prints: the total of flops (which are MACs), the number of
        parameters, and the flops of each module.

        fvcore keeps the caller's mode and gradients, and hooks every module while it traces.
        A module with several names is reported under the first. Inputs go by position.
        """
        self.load()
        fvcore = importlib.import_module("fvcore.nn")
        hooked = msgspec.structs.replace(setting, hooked=True)
        inputs = positional(model.forward, args, kwargs)
        with under(hooked, model):
            analysis = fvcore.FlopCountAnalysis(model, inputs)
            analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False)
            analysis.tracer_warnings("none")
            for formula in self.formulas:
                analysis.set_op_handle(formula.name, _macs_function_of_formula(formula))
            total = analysis.total()
        entries = analysis.by_module().items()
        return Profile(
            tool=self.name,
            version=self.version(),
            setting=hooked,
            total=exact(total),
            params=exact(fvcore.parameter_count(model)[""]),
            printed_as="flops",
            entries=tuple(Entry(path, exact(amount)) for path, amount in entries),
        )


def _macs_function_of_formula(formula: Any) -> Any:
    """Return a function that fvcore calls for an operator; it gives the MACs of the user's
    formula.
    """

    def count_macs(inputs: Any, outputs: Any) -> int:
        """Return the MACs of the user's formula for this operator call."""
        return cost_of_traced_node(formula, outputs).macs

    return count_macs
