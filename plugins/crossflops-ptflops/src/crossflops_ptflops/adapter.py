"""Run ptflops (github.com/sovrasov/flops-counter.pytorch), with one adapter for each backend."""

import contextlib
import importlib
import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import msgspec

from crossflops.errors import MissingExtraError
from crossflops.frontends import load_with_retry
from crossflops.ir.profile import Amount, Entry, Profile
from crossflops.ir.trace import Setting
from crossflops.patches import inventory
from crossflops.patches.patching import patching_attribute
from crossflops.plugins.adapter import exact, installed, is_module, under
from crossflops.plugins.teaching import (
    TakesFormulas,
    classes_with_formulas,
    cost_of_module_call,
    cost_of_operator_call,
    operators_with_formulas,
)
from crossflops_ptflops.inputs import build_ptflops_inputs

_FAILED = "because of the following exception:"


class _Ptflops(TakesFormulas):
    """The adapter of both backends: it calls `get_model_complexity_info` with its defaults."""

    name: str
    convention: str
    distribution = "ptflops"
    backend: str
    hooked: bool | Literal["children"] = True
    on_fakes = True

    def version(self) -> str:
        """Return the version of the installed ptflops; raise MissingExtraError if it is not
        installed.
        """
        return installed(self.distribution)

    def load(self) -> None:
        """Import ptflops with PyTorch and, if they are installed, torchvision and timm.

        ptflops lets a missing torchvision pass, but not one built for another PyTorch: its
        operators are declared then, as for `torchvision.models`.
        """
        self.version()
        try:
            load_with_retry(lambda: importlib.import_module("ptflops"))
        except RuntimeError as problem:
            raise MissingExtraError(
                f"ptflops imports torchvision, which fails here: {problem}",
                "install the torchvision that was built for this PyTorch, or uninstall it",
            ) from problem

    def accepts(self, model: object) -> bool:
        """Return whether the model is a torch.nn.Module."""
        return is_module(model)

    def profile(
        self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], setting: Setting
    ) -> Profile:
        """Return what ptflops prints in evaluation mode: its total of MACs, its number of
        parameters, and the MACs of each module.

        ptflops switches to evaluation mode. It answers an exception of the model with None and
        a printed message, which is raised here.
        """
        self.load()
        run = importlib.import_module("ptflops").get_model_complexity_info
        forced = msgspec.structs.replace(setting, training=False, hooked=self.hooked)
        printed = io.StringIO()
        batch = build_ptflops_inputs(model, args, kwargs)
        with (
            under(forced, model),
            self.recording_module_sums(model) as entries,
            _capturing_stdout(printed),
        ):
            total, params = run(
                model,
                (1,),
                input_constructor=lambda _: batch,
                as_strings=False,
                print_per_layer_stat=False,
                verbose=False,
                backend=self.backend,
                custom_modules_hooks=self.hooks_of_formulas(),
            )
        if total is None:
            raise RuntimeError(_exception_in_output(printed.getvalue()))
        return Profile(
            tool=self.name,
            version=self.version(),
            setting=forced,
            total=exact(total),
            params=exact(params),
            printed_as="MACs",
            entries=(Entry("", exact(total)), *(Entry(*pair) for pair in entries.items())),
        )

    def recording_module_sums(
        self, model: Any
    ) -> contextlib.AbstractContextManager[dict[str, Amount]]:
        """Return a context manager that yields {module path: MACs}, which is filled while ptflops
        runs in the block.
        """
        raise NotImplementedError

    def hooks_of_formulas(self) -> dict[Any, Any]:
        """Return the argument `custom_modules_hooks` of ptflops for the user's formulas: {class or
        operator: function}.
        """
        raise NotImplementedError


class PtflopsPytorch(_Ptflops):
    """The adapter of the backend "pytorch", ptflops' default."""

    name = convention = "ptflops-pytorch"
    backend = "pytorch"

    def hooks_of_formulas(self) -> dict[Any, Any]:
        """Return {module class: hook} for the user's formulas; a hook adds the MACs of the formula
        to the module's `__flops__`.
        """

        def macs_hook_of_formula(formula: Any) -> Any:
            """Return a forward hook that adds the MACs of this formula to the module's
            `__flops__`.
            """

            def add_macs(module: Any, inputs: Any, output: Any) -> None:
                """Add the MACs of the formula for this call to the module's `__flops__`."""
                module.__flops__ += cost_of_module_call(formula, module, inputs, output).macs

            return add_macs

        by_class = classes_with_formulas(self.formulas)
        return {kind: macs_hook_of_formula(formula) for kind, formula in by_class.items()}

    @contextmanager
    def recording_module_sums(self, model: Any) -> Iterator[dict[str, Amount]]:
        """Yield {module path: MACs}, filled while ptflops runs in the block: its sum for each
        module, divided by the batch size and cut off as its total is.

        The counts are attributes of the modules, which it removes before it answers: they are
        read when it sums them up. What its functions count belongs to no module.
        """
        engine: Any = importlib.import_module("ptflops.pytorch_engine")
        compute = engine.compute_average_flops_cost
        amounts: dict[str, Amount] = {}

        def store_and_return_sum(self: Any) -> Any:
            """Store the sum of each module, then return what ptflops' own function returns."""
            for path, module in model.named_modules(remove_duplicate=False):
                if path:
                    amounts[path] = int(
                        _operations_of_module(engine, module) / self.__batch_counter__
                    )
            return compute(self)

        with patching_attribute(
            engine, "compute_average_flops_cost", store_and_return_sum, inventory.PTFLOPS_SUMS
        ):
            yield amounts


class PtflopsAten(_Ptflops):
    """The adapter of the backend "aten", which sees operators that reach a dispatch mode."""

    name = convention = "ptflops-aten"
    backend = "aten"
    hooked: Literal["children"] = "children"

    def hooks_of_formulas(self) -> dict[Any, Any]:
        """Return {operator: function} for the user's formulas; the function gives the MACs of the
        formula.

        The counting mode hands it the positional arguments, and a tuple of results.
        """

        def macs_function_of_operator(packet: Any, formula: Any) -> Any:
            """Return a function that gives the MACs of this formula for a call of the operator."""

            def count_macs(args: Any, results: Any) -> int:
                """Return the MACs of the formula for a call with these arguments and results."""
                return cost_of_operator_call(formula, packet, args, {}, results).macs

            return count_macs

        by_packet = operators_with_formulas(self.formulas)
        return {
            packet: macs_function_of_operator(packet, formula)
            for packet, formula in by_packet.items()
        }

    @contextmanager
    def recording_module_sums(self, model: Any) -> Iterator[dict[str, Amount]]:
        """Yield {module path: MACs}, filled when ptflops' counting mode ends in the block: its sum
        for each child of the model.
        """
        engine: Any = importlib.import_module("ptflops.aten_engine")
        mode = engine.FlopCounterMode
        amounts: dict[str, Amount] = {}

        class Watched(mode):  # type: ignore[misc, valid-type]
            def __exit__(self, *problem: Any) -> None:
                super().__exit__(*problem)
                for path, counts in self.flop_counts.items():
                    if path != "Global":
                        amounts[path] = exact(sum(counts.values()))

        with patching_attribute(engine, "FlopCounterMode", Watched, inventory.PTFLOPS_MODE):
            yield amounts


def _operations_of_module(engine: Any, module: Any) -> int:
    """Return the operations that ptflops counts in a module and its submodules, as
    accumulate_flops of pytorch_engine.py does.
    """
    if engine.is_supported_instance(module):
        return int(module.__flops__)
    return sum(_operations_of_module(engine, child) for child in module.children())


@contextmanager
def _capturing_stdout(printed: io.StringIO) -> Iterator[None]:
    """Redirect stdout to `printed` within the block, and discard stderr."""
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        yield


def _exception_in_output(text: str) -> str:
    """Return the exception that ptflops printed instead of a number, as text."""
    _, marker, rest = text.partition(_FAILED)
    return rest.strip() if marker else "ptflops returned no number"
