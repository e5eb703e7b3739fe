"""Runs FlopCounterMode (torch/utils/flop_counter.py)."""

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
    """Runs the model under `FlopCounterMode`, which sees the operators that are dispatched."""

    name = "torch-flop-counter"
    convention = "torch-flop-counter"
    distribution = "torch"
    on_fakes = True

    def version(self) -> str:
        """The public version of the installed PyTorch: without "+cpu" and its like."""
        return installed(self.distribution, "PyTorch").partition("+")[0]

    def load(self) -> None:
        """Import PyTorch and the counter, and what the counter imports when it is first used.

        PyTorch imports its compiler, for seconds, on the first operator under such a mode.
        """
        self.version()
        counter_mode = importlib.import_module("torch.utils.flop_counter").FlopCounterMode
        with counter_mode(display=False):
            importlib.import_module("torch").zeros(1).neg()

    def accepts(self, model: object) -> bool:
        """Any torch.nn.Module."""
        return is_module(model)

    def profile(
        self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], setting: Setting
    ) -> Profile:
        """`get_total_flops()` and `get_flop_counts()`, summed over operators by module.

        The mode's hooks are global, not on the modules, so fused paths stay on. It reports no
        parameters, and no module in which it counted nothing. In a backward pass its hooks take
        gradients out of their module, so of a training step there is the total alone.
        """
        counter_mode = importlib.import_module("torch.utils.flop_counter").FlopCounterMode
        mapping = _mapping_of_formulas(self.formulas)
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
            entries=tuple(_entries(counts, type(model).__name__, paths)),
        )


def _mapping_of_formulas(formulas: Sequence[Any]) -> dict[Any, Any]:
    """The `custom_mapping` of the mode: by operator, the FLOPs of a formula, 2 for a MAC."""

    def function_of(packet: Any, formula: Any) -> Any:
        def count_flops(*args: Any, out_val: Any = None, **kwargs: Any) -> int:
            return cost_of_operator_call(formula, packet, args, kwargs, out_val).flops

        count_flops._get_raw = True  # type: ignore[attr-defined]  # tensors, not their shapes
        return count_flops

    return {
        packet: function_of(packet, formula)
        for packet, formula in operators_with_formulas(formulas).items()
    }


def _entries(
    counts: Mapping[str, Mapping[Any, int]], root: str, paths: Sequence[str]
) -> Iterator[Entry]:
    """Amounts by module path, in the order of the modules, unregistered ones last by name.

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
