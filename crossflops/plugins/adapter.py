"""What an adapter is, and what every adapter needs."""

import math
import operator
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol, runtime_checkable

from crossflops.errors import InputError, MissingExtraError
from crossflops.frontends.inputs import positional
from crossflops.frontends.seeds import seeding_generators
from crossflops.ir.profile import Amount, Profile
from crossflops.ir.trace import Setting
from crossflops.rules.rule import Convention


@runtime_checkable
class Adapter(Protocol):
    """Runs one tool for real, and brings back what it printed.

    An entry point of the group `crossflops.adapters` bears the id of the tool and names a
    callable without arguments, as a rule the class, that returns the adapter. Making it, and
    asking it for `version` and `accepts`, imports neither the tool nor its framework.

    `name` is the id of the tool, `distribution` the name under which the tool is installed.
    `convention` predicts what the tool prints: the id of the tool whose convention does (as a
    rule the same) or, of a tool that crossflops does not know, the `Convention` itself, which the
    plugin brings along, or one for each edition of the tool, the newest first.

    A tool whose convention sees nodes counts ONNX files: its model is the `pathlib.Path` of one,
    without inputs. All sizes in it are definite, and external data lies beside it. The entries
    of such a tool are amounts by the name of the node, TYPE_N for a nameless N-th one.
    """

    name: str
    convention: str | Convention | tuple[Convention, ...]
    distribution: str

    def version(self) -> str:
        """The version of the installed distribution that really owns the tool's code.

        Raises MissingExtraError when the tool is not installed, or is another tool's namesake.
        """

    def load(self) -> None:
        """Import the tool and its framework, so that `profile` has nothing left to import.

        It is called before the model is built, as a rule in a process from which the tools of
        one framework are forked: it starts no thread and changes nothing of the framework. A
        tool that has to declares `own_process = True`. Any exception says that the tool cannot be
        used here.
        """

    def accepts(self, model: object) -> bool:
        """Whether the tool can be asked about this model at all."""

    def profile(
        self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], setting: Setting
    ) -> Profile:
        """Run the tool on `model(*args, **kwargs)`, and give what it printed.

        Putting the setting in force is the adapter's task (`crossflops.plugins.adapter.under`
        does it for PyTorch, and `ran` runs the training step that it may ask for). The model may
        be changed: it was built for this call. `entries` hold inclusive amounts by module path,
        at the tool's own grain; `setting` is the one in force while the tool ran, which is
        `setting` unless the tool forces something else.
        Integral floats become ints (`crossflops.plugins.adapter.exact`). Any exception is the
        tool's own answer.

        A tool that prints the same of tensors that have shapes and no values (`setting.fake`)
        declares `on_fakes = True`, and the conformance kit holds it to that. Any other is not
        run where a model has no values.
        """


def on_fakes(adapter: Adapter) -> bool:
    """Whether a tool prints the same of tensors without values, as its adapter declares."""
    return bool(getattr(adapter, "on_fakes", False))


def installed(distribution: str, title: str = "", command: str = "") -> str:
    """The version of an installed distribution: what `Adapter.version` returns of most tools.

    Raises MissingExtraError, in which `title` stands for the name, and `command` installs it where
    "pip install" and the name do not.
    """
    try:
        return version(distribution)
    except PackageNotFoundError as problem:
        raise MissingExtraError(
            f"{title or distribution} is not installed", command or f"pip install {distribution}"
        ) from problem


# Numbers as tools print them, turned into numbers that can be compared exactly.


def exact(value: Any) -> Amount:
    """The integer that a tool means, or the float that it printed where it is no integer.

    Takes what `int` and `float` take, NumPy's scalars too. Raises ValueError on a NaN or an
    infinity, which is no count.

    >>> exact(4111514624.0), exact(2.5)
    (4111514624, 2.5)
    """
    try:
        return operator.index(value)
    except TypeError:
        number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"the tool printed {number}, which is not a count")
    return int(number) if number.is_integer() else number


# What every adapter of a PyTorch tool needs, without importing PyTorch.
#
# A model object exists only where its framework has been imported already, so PyTorch is looked
# up among the loaded modules.


def is_module(model: object) -> bool:
    """Whether `model` is a torch.nn.Module."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def refused_buffers(model: Any, names: Collection[str]) -> Iterator[str]:
    """Yield where a module has an attribute of one of these names that is no buffer of its own.

    A tool cannot register a buffer there. A module that torch.compile made shows the attributes of
    the module within.
    """
    for path, module in model.named_modules():
        for name in names:
            if hasattr(module, name) and name not in module._buffers:
                yield f"{path}.{name}".lstrip(".")


@contextmanager
def under(setting: Setting, model: Any) -> Iterator[None]:
    """Run a module under a setting: its mode, gradients on or off, and generators at seed 0.

    What sizes depend on may be drawn: the export began there, too. Every training flag, the
    gradient mode and the state of the generators are as before when the block ends. Raises
    InputError for a device other than the CPU.
    """
    if setting.device != "cpu":
        raise InputError(f"the tool cannot run on {setting.device!r}", "use device 'cpu'")
    torch = sys.modules["torch"]
    # Frozen TorchScript has no such flag.
    before = [(layer, layer.training) for layer in model.modules() if hasattr(layer, "training")]
    model.train(setting.training)
    try:
        with seeding_generators(), torch.set_grad_enabled(setting.grad):
            yield
    finally:
        for module, training in before:
            module.training = training


# What adapters and those who run them call.

__all__ = ["positional"]


def ran(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], setting: Setting) -> None:
    """Run a PyTorch model and, where the setting has a training step, go back from the loss.

    The model is changed: see `frontends.pytorch.observe.training_step.run`.
    """
    if not setting.step:
        model(*args, **kwargs)
        return
    from crossflops.frontends.pytorch.observe.training_step import (
        run_torch_training_step,  # other frameworks have no need
    )

    run_torch_training_step(model, args, kwargs, setting)
