"""Run torchstat (PyPI `torchstat`, github.com/Swall0w/torchstat), 0.0.7."""

import importlib
import importlib.util
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import msgspec

from crossflops.errors import InputError
from crossflops.ir.profile import Entry, Profile
from crossflops.ir.trace import Setting
from crossflops.patches import inventory
from crossflops.patches.patching import patching_attribute, patching_items, restore_attribute
from crossflops.plugins.adapter import exact, installed, is_module, positional, under


class _Column:
    """The adapter of one column: it runs `torchstat.ModelStat`, and reads the layers before a
    table is made of them.
    """

    name: ClassVar[str]
    printed_as: ClassVar[str]
    distribution = "torchstat"

    @property
    def convention(self) -> str:
        """The name of the convention of this column, which is the name of the tool."""
        return self.name

    def version(self) -> str:
        """Return the version of the installed torchstat; raise MissingExtraError if it is not
        installed.
        """
        return installed(self.distribution)

    def load(self) -> None:
        """Import torchstat, with PyTorch."""
        self.version()
        with _substituting_pandas():
            importlib.import_module("torchstat")

    def accepts(self, model: object) -> bool:
        """Return whether the model is a torch.nn.Module."""
        return is_module(model)

    def profile(
        self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], setting: Setting
    ) -> Profile:
        """Return the sum of the column, the number of parameters, and the number of each row; a
        row is a module without children.

        torchstat switches to eval mode and makes the input itself: one image of random floats.
        The classes whose `__call__` it replaces are as before when it has answered, so that a
        second run in one process sees what the first one saw.
        """
        self.load()
        size = _image_shape(positional(model.forward, args, kwargs))
        forced = msgspec.structs.replace(setting, training=False)
        with under(forced, model), _restoring_class_calls(model), _adding_numpy_long():
            rows = importlib.import_module("torchstat").ModelStat(model, size)._analyze_model()
        entries = tuple(Entry(row.name, exact(self.amount(row))) for row in rows)
        return Profile(
            tool=self.name,
            version=self.version(),
            setting=forced,
            total=sum(entry.amount for entry in entries),
            params=exact(sum(row.parameter_quantity for row in rows)),
            printed_as=self.printed_as,
            entries=entries,
        )

    def amount(self, row: Any) -> Any:
        """Return the number that this column has in a row of torchstat's table."""
        raise NotImplementedError


class Flops(_Column):
    """The column "Flops", which are MACs and more."""

    name, printed_as = "torchstat", "Flops"

    def amount(self, row: Any) -> Any:
        """Return the number in the column "Flops" for a layer."""
        return row.Flops


class MAdd(_Column):
    """The column "MAdd": multiplications and additions."""

    name, printed_as = "torchstat-madd", "MAdd"

    def amount(self, row: Any) -> Any:
        """Return the number in the column "MAdd" for a layer."""
        return row.MAdd


class MemRead(_Column):
    """The column "MemRead(B)"."""

    name, printed_as = "torchstat-memread", "MemRead"

    def amount(self, row: Any) -> Any:
        """Return the bytes that a layer reads."""
        return row.Memory[0]


class MemWrite(_Column):
    """The column "MemWrite(B)"."""

    name, printed_as = "torchstat-memwrite", "MemWrite"

    def amount(self, row: Any) -> Any:
        """Return the bytes that a layer writes."""
        return row.Memory[1]


def _image_shape(inputs: tuple[Any, ...]) -> tuple[int, ...]:
    """Return (C, H, W) of the model's only input; raise InputError unless it is one image of
    float32.
    """
    shape = tuple(getattr(inputs[0], "shape", ())) if len(inputs) == 1 else ()
    if len(shape) != 4 or shape[0] != 1 or str(inputs[0].dtype) != "torch.float32":
        raise InputError(
            "torchstat creates its own input, one image of floats, and cannot take this input",
            "give one input 1xCxHxW in float32, or leave out torchstat",
        )
    return shape[1:]


@contextmanager
def _substituting_pandas() -> Iterator[None]:
    """Add a substitute for pandas within the block if pandas is not installed; torchstat needs the
    real one only for its table.
    """
    if "torchstat" in sys.modules or importlib.util.find_spec("pandas") is not None:
        yield
        return
    stand_in = types.ModuleType("pandas")
    vars(stand_in)["set_option"] = lambda *_: None
    with patching_items(sys.modules, {"pandas": stand_in}, inventory.MODULES):
        yield


@contextmanager
def _adding_numpy_long() -> Iterator[None]:
    """Add `np.long` within the block if NumPy does not have it, since torchstat uses it."""
    numpy: Any = importlib.import_module("numpy")
    if hasattr(numpy, "long"):
        yield
        return
    with patching_attribute(numpy, "long", numpy.int64, inventory.NUMPY_LONG):
        yield


@contextmanager
def _restoring_class_calls(model: Any) -> Iterator[None]:
    """Restore, after the block, the `__call__` of the model's classes, which torchstat
    replaces.
    """
    before = {type(module): vars(type(module)).get("__call__") for module in model.modules()}
    try:
        yield
    finally:
        for kind, call in before.items():
            if call is not None:
                restore_attribute(kind, "__call__", call)
            elif "__call__" in vars(kind):
                restore_attribute(kind, "__call__")
