"""The contract of an adapter, and helpers that every adapter needs."""

import math
import operator
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol, runtime_checkable

from crossflops.errors import InputError, MissingExtraError
from crossflops.frontends.inputs import positional
from crossflops.frontends.seeds import seeding_random_generators
from crossflops.ir.profile import Amount, Profile
from crossflops.ir.trace import Setting
from crossflops.rules.rule import Convention


@runtime_checkable
class Adapter(Protocol):
    """The contract of a plugin: it runs one tool for real, and returns what the tool printed.

    An entry point of the group `crossflops.adapters` has the id of the tool as its name, and names
    a callable without arguments, usually the class, that returns the adapter. Making the adapter,
    and calling `version` and `accepts`, imports neither the tool nor its framework.

    A tool whose convention sees nodes counts ONNX files: its model is the `pathlib.Path` of one,
    without inputs. All sizes in it are definite, and external data lies beside it. The entries of
    such a tool are amounts by the name of the node, TYPE_N for a nameless N-th one.

    Attributes:
        name: The id of the tool.
        convention: The id of the tool whose convention predicts this one, usually the same; or the
            `Convention` of a tool that crossflops does not know, or one for each edition, the
            newest first.
        distribution: The name under which the tool is installed.

    Example:
        A tool of ONNX files that counts one for each node:

        >>> from pathlib import Path
        >>> import onnx
        >>> from crossflops.ir.profile import Profile
        >>> class NodeCounter:
        ...     name = convention = "node-counter"
        ...     distribution = "onnx"
        ...     def version(self):
        ...         return installed(self.distribution)
        ...     def load(self):
        ...         import onnx
        ...     def accepts(self, model):
        ...         return isinstance(model, Path)
        ...     def profile(self, model, args, kwargs, setting):
        ...         nodes = onnx.load(model, load_external_data=False).graph.node
        ...         return Profile(tool=self.name, version=self.version(), total=len(nodes),
        ...                        printed_as="nodes", entries=(), setting=setting)
        >>> NodeCounter().profile(Path("model.onnx"), (), {}, Setting()).total
        2
    """

    name: str
    convention: str | Convention | tuple[Convention, ...]
    distribution: str

    def version(self) -> str:
        """Return the version of the installed distribution that the tool's code really comes from.

        Returns:
            The version, such as "0.1.1".

        Raises:
            MissingExtraError: The tool is not installed, or the package is another tool's
                namesake.
        """

    def load(self) -> None:
        """Import the tool and its framework, so that `profile` has nothing left to import.

        It is called before the model is built, usually in a process from which the tools of one
        framework are forked: it starts no thread and changes nothing of the framework. A tool that
        must do so declares `own_process = True`.

        Raises:
            Exception: The tool cannot be used here.
        """

    def accepts(self, model: object) -> bool:
        """Return whether the tool supports models of this kind.

        Args:
            model: The model object, or the `pathlib.Path` of an ONNX file.

        Returns:
            False for a model of another framework.
        """

    def profile(
        self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], setting: Setting
    ) -> Profile:
        """Run the tool on the model with these inputs, and return the numbers that it printed.

        The adapter applies the setting: `crossflops.plugins.adapter.under` does it for PyTorch,
        and `ran` runs the requested training step. A tool that prints the same for tensors with
        shapes and no values (`setting.fake`) declares `on_fakes = True`, and the conformance kit
        checks that. Any other tool is not run on a model without values.

        Args:
            model: The model. It may be changed: it was built for this call.
            args: Its positional inputs.
            kwargs: Its keyword inputs.
            setting: The requested setting.

        Returns:
            The total and the inclusive amounts by module path, at the tool's own grain, as
            integers (`crossflops.plugins.adapter.exact`); `setting` is the one in force
            while the tool ran.

        Raises:
            Exception: The tool's own answer: it becomes a Failure.
        """


def on_fakes(adapter: Adapter) -> bool:
    """Return whether the tool prints the same numbers for fake tensors, which have no values."""
    return bool(getattr(adapter, "on_fakes", False))


def installed(distribution: str, title: str = "", command: str = "") -> str:
    """Return the version of an installed distribution. Raises MissingExtraError if it is not
    installed.

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
    """Return a number that a tool printed: as an int if it is whole, else as a float.

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
    """Return whether `model` is a torch.nn.Module."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def non_buffer_places(model: Any, names: Collection[str]) -> Iterator[str]:
    """Yield "path.name" for each attribute with one of these names, in any module, that is not a
    buffer.

    A tool cannot register a buffer there. A module that torch.compile made shows the attributes of
    the module within.
    """
    for path, module in model.named_modules():
        for name in names:
            if hasattr(module, name) and name not in module._buffers:
                yield f"{path}.{name}".lstrip(".")


@contextmanager
def under(setting: Setting, model: Any) -> Iterator[None]:
    """Set the training mode, gradient mode and random seed of a PyTorch model during the block.

    What sizes depend on may be drawn: the export began there, too. Every training flag, the
    gradient mode and the state of the generators are as before when the block ends. Raises
    InputError for a device other than the CPU.
    """
    if setting.device != "cpu":
        raise InputError(
            f"this tool runs models only on the CPU, not on {setting.device}",
            "write Setting(device='cpu'), or leave out device",
        )
    torch = sys.modules["torch"]
    # Frozen TorchScript has no such flag.
    before = [(layer, layer.training) for layer in model.modules() if hasattr(layer, "training")]
    model.train(setting.training)
    try:
        with seeding_random_generators(), torch.set_grad_enabled(setting.grad):
            yield
    finally:
        for module, training in before:
            module.training = training


# What adapters and those who run them call.

__all__ = ["positional"]


def ran(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], setting: Setting) -> None:
    """Run the forward pass of a PyTorch model, or a whole training step if the setting requests
    one.

    The model is changed: see `frontends.pytorch.observe.training_step.run`.
    """
    if not setting.step:
        model(*args, **kwargs)
        return
    from crossflops.frontends.pytorch.observe.training_step import (
        run_torch_training_step,  # other frameworks have no need
    )

    run_torch_training_step(model, args, kwargs, setting)
