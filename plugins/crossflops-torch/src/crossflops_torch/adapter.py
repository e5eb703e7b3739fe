"""Run FlopCounterMode (torch/utils/flop_counter.py)."""

import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from crossflops.ir.profile import Amount, Entry, Profile
from crossflops.ir.trace import Setting
from crossflops.plugins.adapter import exact, installed, is_module, ran, under
from crossflops.plugins.teaching import (
    TakesFormulas,
    cost_of_operator_call,
    operators_with_formulas,
)

TOTAL = "Global"  # the key under which the mode books everything
UNREGISTERED = "(unregistered)"


class TorchFlopCounter(TakesFormulas):
    """The adapter of `FlopCounterMode`, which sees the operators that reach its dispatch mode."""

    name = "torch-flop-counter"
    convention = "torch-flop-counter"
    distribution = "torch"
    on_fakes = True

    def version(self) -> str:
        """Return the version of the installed PyTorch without its build suffix, such as "+cpu"."""
        return installed(self.distribution, "PyTorch").partition("+")[0]

    def load(self) -> None:
        """Import PyTorch and the counter, and also what the counter imports when it is first used.

        PyTorch imports its compiler, for seconds, on the first operator under such a mode.
        """
        self.version()
        counter_mode = importlib.import_module("torch.utils.flop_counter").FlopCounterMode
        with counter_mode(display=False):
            importlib.import_module("torch").zeros(1).neg()

    def accepts(self, model: object) -> bool:
        """Return whether the model is a torch.nn.Module."""
        return is_module(model)

    def profile(
        self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], setting: Setting
    ) -> Profile:
        """Return what the counter prints: its total of FLOPs, and the FLOPs of each module; for a
        training step only the total.

        The mode's hooks are global, not on the modules, so fused paths stay on. It reports no
        parameters, and no module in which it counted nothing. In a backward pass its hooks take
        gradients out of their module, so of a training step there is the total alone.
        """
        counter_mode = importlib.import_module("torch.utils.flop_counter").FlopCounterMode
        mapping = _custom_mapping_of_formulas(self.formulas)
        with (
            under(setting, model),
            counter_mode(display=False, custom_mapping=mapping) as counter,
        ):
            ran(model, args, kwargs, setting)
        paths = [path for path, _ in model.named_modules(remove_duplicate=False)]
        total, counts = exact(counter.get_total_flops()), counter.get_flop_counts()
        if setting.step:
            counts = {TOTAL: counts[TOTAL]}
        return Profile(
            tool=self.name,
            version=self.version(),
            setting=setting,
            total=total,
            printed_as="FLOPs",
            entries=tuple(_module_entries(counts, type(model).__name__, paths)),
        )


def _custom_mapping_of_formulas(formulas: Sequence[Any]) -> dict[Any, Any]:
    """Return the argument `custom_mapping` of the counter for the user's formulas: {operator:
    function that gives the FLOPs}.
    """

    def flops_function_of_operator(packet: Any, formula: Any) -> Any:
        """Return a function that gives the FLOPs of this formula for a call of the operator."""

        def count_flops(*args: Any, out_val: Any = None, **kwargs: Any) -> int:
            """Return the FLOPs of the formula for a call with these arguments and this result, 2
            for each MAC.
            """
            return cost_of_operator_call(formula, packet, args, kwargs, out_val).flops

        count_flops._get_raw = True  # type: ignore[attr-defined]  # tensors, not their shapes
        return count_flops

    return {
        packet: flops_function_of_operator(packet, formula)
        for packet, formula in operators_with_formulas(formulas).items()
    }


def _module_entries(
    counts: Mapping[str, Mapping[Any, int]], root: str, paths: Sequence[str]
) -> Iterator[Entry]:
    """Yield the path and the FLOPs of each module, in the order of `paths`; modules that are not
    registered come last, by name.

    The mode books an operator in a set of modules, which has another order in every process.

    ModuleTracker (torch/utils/module_tracker.py) names a module by its path behind the class
    name of the outermost module: "ResNet.layer1.0". A module that is called without being
    registered is an outermost one itself, and is marked as such. The root repeats the total.
    """
    places = {path: place for place, path in enumerate(paths)}
    amounts: dict[str, Amount] = {}
    for key, by_operator in sorted(counts.items()):
        if key == root:
            continue
        path = "" if key == TOTAL else key.removeprefix(f"{root}.")
        known = path in places and path != key
        amounts[path if known else f"{UNREGISTERED}.{key}"] = exact(sum(by_operator.values()))
    for path in sorted(amounts, key=lambda path: places.get(path, len(places))):
        yield Entry(path, amounts[path])
