"""Run XLA's cost analysis (jax/_src/stages.py: Lowered, Compiled)."""

import importlib
import importlib.util
from typing import Any, ClassVar

from crossflops.errors import InputError
from crossflops.frontends import frontend_of
from crossflops.frontends.jax import FRONTEND
from crossflops.ir.profile import Profile
from crossflops.ir.trace import Setting
from crossflops.plugins.adapter import exact, installed

_FLOPS = "flops"


class LoweredProgram:
    """The adapter of the cost analysis of the program that JAX gives to XLA."""

    name: ClassVar[str] = "xla-lowered"
    convention: ClassVar[str] = "xla-lowered"
    distribution = "jax"

    def version(self) -> str:
        """Return the version of the installed JAX; raise MissingExtraError if it is not
        installed.
        """
        return installed("jax", "JAX")

    def load(self) -> None:
        """Import JAX and, if it is installed, Flax."""
        self.version()
        importlib.import_module("jax")
        if importlib.util.find_spec("flax"):
            importlib.import_module("flax.nnx")

    def accepts(self, model: object) -> bool:
        """Return whether the model is a module of Flax NNX or a function of JAX."""
        return frontend_of(model) is FRONTEND

    def profile(
        self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], setting: Setting
    ) -> Profile:
        """Return the total of flops that XLA's cost analysis gives for the program; it has no
        numbers of parts.

        Nothing is run, and the model stays as it is. Gradients on or off are the same to it, but
        for a training step: that is a program with the gradients beside the outputs.
        """
        if setting.device != "cpu":
            raise InputError(
                f"this tool counts programs for the CPU only, not for {setting.device}",
                "write Setting(device='cpu'), or leave out device",
            )
        whole = importlib.import_module("crossflops.frontends.jax.program")
        programs = importlib.import_module("crossflops.frontends.jax.observe.xla")
        steps = importlib.import_module("crossflops.frontends.jax.observe.training_step")
        seen = whole.record_jax_model(model, args, kwargs, setting)
        pure = seen.pure
        if setting.step:
            pure = steps.with_jax_gradients(pure, seen.modules, setting.step)
        return Profile(
            tool=self.name,
            version=self.version(),
            setting=setting,
            total=exact(
                self._cost_analysis_properties(programs.lower_for_xla(pure)).get(_FLOPS, 0)
            ),
            printed_as=_FLOPS,
        )

    def _cost_analysis_properties(self, lowered: Any) -> dict[str, float]:
        """Return the properties that XLA's cost analysis gives for the lowered program, as {name:
        number}.
        """
        return _cost_properties(lowered.cost_analysis())


class CompiledProgram(LoweredProgram):
    """The adapter of the cost analysis of the program that XLA compiles for this processor."""

    name: ClassVar[str] = "xla-compiled"
    convention: ClassVar[str] = "xla-compiled"

    def _cost_analysis_properties(self, lowered: Any) -> dict[str, float]:
        """Compile the lowered program; return the properties that XLA's cost analysis gives for
        it, as {name: number}.
        """
        return _cost_properties(lowered.compile().cost_analysis())


def _cost_properties(answer: Any) -> dict[str, float]:
    """Return the answer of XLA's cost analysis as {name: number}; "flops" is missing if nothing
    counts.

    Older versions give a list with one dictionary. Raises ValueError where there is no answer.
    """
    properties = answer[0] if isinstance(answer, list) and answer else answer
    if not isinstance(properties, dict):
        raise ValueError("XLA reports no cost on this platform")
    return properties
