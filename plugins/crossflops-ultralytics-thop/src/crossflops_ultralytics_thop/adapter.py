"""Run ultralytics-thop (PyPI `ultralytics-thop`, github.com/ultralytics/thop), 2.2.3."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from crossflops.errors import InputError, MissingExtraError
from crossflops.ir.profile import Entry, Profile
from crossflops.ir.trace import Setting
from crossflops.plugins.adapter import (
    exact,
    is_module,
    non_buffer_places,
    positional,
    under,
)
from crossflops.plugins.discovery import distribution_of_package

NAMESAKE = "thop"
_BUFFERS = ("total_ops", "total_params")  # thop/profile.py: add_hooks


class UltralyticsThop:
    """The adapter of `thop.profile`, which hooks modules and sees functions by a mode."""

    name = "ultralytics-thop"
    convention = "ultralytics-thop"
    distribution = "ultralytics-thop"
    on_fakes = True

    def version(self) -> str:
        """Return the version of the installed ultralytics-thop; raise MissingExtraError if `thop`
        is the package of thop.
        """
        package = distribution_of_package("thop", (self.distribution, NAMESAKE))
        if package.name.lower() == NAMESAKE:
            raise MissingExtraError(
                f"the package `thop` in this environment comes from {NAMESAKE} "
                f"{package.version}, which counts differently",
                "install ultralytics-thop in a separate environment, and give its "
                "interpreter: --python ultralytics-thop=PYTHON",
            )
        return package.version

    def load(self) -> None:
        """Import ultralytics-thop, with PyTorch."""
        self.version()
        importlib.import_module("thop")

    def accepts(self, model: object) -> bool:
        """Return whether the model is a torch.nn.Module."""
        return is_module(model)

    def profile(
        self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], setting: Setting
    ) -> Profile:
        """Return what the tool prints: its total of MACs, its number of parameters, and the MACs
        of each layer.

        The layers hold the work of modules alone: that of functions is in the total only. The
        tool switches to eval mode, runs under no_grad, hooks modules, and passes inputs by
        position, whatever the setting.
        """
        self.load()
        run = importlib.import_module("thop").profile
        forced = msgspec.structs.replace(setting, training=False, grad=False, hooked=True)
        inputs = positional(model.forward, args, kwargs)
        with under(forced, model), _explaining_taken_buffer_names(model):
            total, params, layers = run(model, inputs=inputs, verbose=False, ret_layer_info=True)
        return Profile(
            tool=self.name,
            version=self.version(),
            setting=forced,
            total=exact(total),
            params=exact(params),
            printed_as="MACs",
            entries=(Entry("", exact(total)), *_layer_entries(layers, "")),
        )


@contextmanager
def _explaining_taken_buffer_names(model: Any) -> Iterator[None]:
    """Turn a KeyError of the block into an InputError that names the attribute which keeps the
    tool from adding its buffers.
    """
    try:
        yield
    except KeyError as error:
        taken = next(non_buffer_places(model, _BUFFERS), None)
        if taken is None:
            raise
        raise InputError(
            f"thop adds the buffers {' and '.join(_BUFFERS)} to every module, but {taken} "
            "already exists, as an attribute of the model or of a module inside torch.compile",
            "give the model as it was before torch.compile, or rename the attribute",
        ) from error


def _layer_entries(children: dict[str, Any], parent: str) -> Iterator[Entry]:
    """Yield the path and the MACs of each layer; `children` is {name: (operations, parameters,
    children)}, as the tool returns it.
    """
    for name, (operations, _, below) in children.items():
        path = f"{parent}.{name}" if parent else name
        yield Entry(path, exact(operations))
        yield from _layer_entries(below, path)
