"""Models without numbers: built on PyTorch's fake tensors, which have a shape and a type.

A count looks at shapes, so it needs neither the memory of the weights nor the time to draw them.
Whatever asks a fake tensor for a value is heard, also where the model catches what it raises: it
would take another path than with numbers.
Source: torch/_subclasses/fake_tensor.py.
"""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from types import ModuleType
from typing import Any

from crossflops.errors import ValuesNeededError
from crossflops.frontends.pytorch.exporter import brief
from crossflops.ir.provenance import FAKE, META, REAL

_SCRIPTED = "parts of it are TorchScript"


@contextmanager
def hollow() -> Iterator[None]:
    """Tensors that are made in this context are fake. Raises ValuesNeededError where that fails.

    Modules that are imported meanwhile make real ones, which they may keep.
    """
    mode = _mode()
    try:
        with _real_imports(), _no_scripts(mode), mode:
            yield
    except (Exception, SystemExit) as error:
        complaint = f"building it without values raises {type(error).__name__}: {brief(error)}"
        raise ValuesNeededError(mode.asked or complaint) from error
    if mode.asked:
        raise ValuesNeededError(mode.asked)


def is_ours(tensor: Any) -> bool:
    """Whether a tensor was made fake by `hollow`."""
    return getattr(getattr(tensor, "fake_mode", None), "of_crossflops", False)


def is_hollow(model: Any, *inputs: Any) -> bool:
    """Whether a module, or what it is called with, was built in `hollow`, in whole or in part."""
    from torch.utils._pytree import tree_leaves

    plain = [
        value
        for module in model.modules()
        for name, value in vars(module).items()
        if name != "_modules"
    ]
    return any(map(is_ours, tree_leaves([plain, inputs])))


def weights(model: Any, args: Any, kwargs: Any) -> str:
    """What a report says of the weights: "fake", "meta" or "real"."""
    if is_hollow(model, args, kwargs):
        return FAKE
    return META if any(tensor.is_meta for tensor in model.parameters()) else REAL


def is_building() -> bool:
    """Whether a model is built in `hollow` now."""
    from torch.utils._python_dispatch import _get_current_dispatch_mode

    return getattr(_get_current_dispatch_mode(), "of_crossflops", False)


def refuse_scripted(model: Any) -> None:
    """TorchScript holds its tensors itself. Raises ValuesNeededError."""
    import torch

    if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
        raise ValuesNeededError(_SCRIPTED)


def is_fake(tensor: Any) -> bool:
    """Whether a tensor has no data though its device is a real one."""
    return type(tensor).__name__ == "FakeTensor"


def _mode() -> Any:
    return _class()(allow_non_fake_inputs=True)


@functools.cache
def _class() -> Any:
    """PyTorch's mode, which remembers in `asked` what first needed values, in words."""
    import torch  # in whole, before any part of it  # noqa: F401
    from torch._subclasses.fake_tensor import (
        DataDependentOutputException,
        DynamicOutputShapeException,
        FakeTensorMode,
    )

    class Hearing(FakeTensorMode):
        """Hears who asks for values."""

        of_crossflops = True
        asked = ""

        def __deepcopy__(self, memo: dict[int, Any]) -> Any:
            # A copy of a tensor has the same mode. A copied mode would hold its weak references
            # to storages twice, and each frees them: PyTorch crashes.
            return self

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            try:
                return super().__torch_dispatch__(func, types, args, kwargs)
            except (DataDependentOutputException, DynamicOutputShapeException):
                self.asked = self.asked or f"building it reads values ({func})"
                raise

    return Hearing


@contextmanager
def _no_scripts(mode: Any) -> Iterator[None]:
    """In this context no TorchScript is made, which holds its tensors itself, real or not."""
    from torch.jit import RecursiveScriptModule

    usual = RecursiveScriptModule.__init__

    def refuse(*args: Any, **kwargs: Any) -> None:
        mode.asked = mode.asked or _SCRIPTED
        raise ValuesNeededError(_SCRIPTED)

    script_class: Any = RecursiveScriptModule
    script_class.__init__ = refuse
    try:
        yield
    finally:
        script_class.__init__ = usual


@contextmanager
def _real_imports() -> Iterator[None]:
    """In this context the code of a module that is imported runs outside of every mode.

    What a module makes when it is imported stays there, for whoever uses it after this context.
    """
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes():  # it imports modules of its own when it is first entered
        usual = SourceFileLoader.exec_module

    def exec_module(loader: SourceFileLoader, module: ModuleType) -> None:
        with _disable_current_modes():
            usual(loader, module)

    loader_class: Any = SourceFileLoader
    loader_class.exec_module = exec_module
    try:
        yield
    finally:
        loader_class.exec_module = usual
