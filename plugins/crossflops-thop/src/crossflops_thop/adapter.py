"""Run thop (PyPI `thop`, github.com/Lyken17/pytorch-OpCounter), 0.0.31 and 0.1.1."""

import collections
import collections.abc
import importlib
import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from crossflops.errors import InputError, MissingExtraError
from crossflops.ir.profile import Entry, Profile
from crossflops.ir.trace import Setting
from crossflops.patches import inventory
from crossflops.patches.patching import patching_attribute
from crossflops.plugins.adapter import (
    exact,
    is_module,
    non_buffer_places,
    positional,
    under,
)
from crossflops.plugins.discovery import distribution_of_package
from crossflops.plugins.teaching import (
    TakesFormulas,
    classes_with_formulas,
    cost_of_module_call,
)

NAMESAKE = "ultralytics-thop"
_BUFFERS = ("total_ops", "total_params")  # thop/profile.py: profile


class Thop(TakesFormulas):
    """The adapter of `thop.profile`, which hooks the modules that it has a rule for."""

    name = "thop"
    convention = "thop"
    distribution = "thop"
    on_fakes = True

    def version(self) -> str:
        """Return the version of the installed thop; raise MissingExtraError if `thop` is the
        package of ultralytics.
        """
        package = distribution_of_package("thop", (self.distribution, NAMESAKE))
        if package.name.lower().replace("_", "-") == NAMESAKE:
            raise MissingExtraError(
                f"the package `thop` in this environment comes from {NAMESAKE} "
                f"{package.version}, which counts differently",
                f"pip uninstall {NAMESAKE}, then pip install --force-reinstall thop",
            )
        return package.version.replace("-", ".post")  # 0.1.1-2209072238, as PEP 440 spells it

    def load(self) -> None:
        """Import thop, with PyTorch.

        Raises MissingExtraError where `distutils`, which thop imports, is gone (Python 3.12)
        and setuptools does not stand in for it.
        """
        self.version()
        try:
            importlib.import_module("distutils.version")
        except ModuleNotFoundError as problem:
            raise MissingExtraError(
                "thop imports distutils, which Python 3.12 and later do not have",
                "pip install setuptools, which provides it",
            ) from problem
        with _adding_collections_iterable():
            importlib.import_module("thop")

    def accepts(self, model: object) -> bool:
        """Return whether the model is a torch.nn.Module."""
        return is_module(model)

    def profile(
        self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], setting: Setting
    ) -> Profile:
        """Return what thop prints: its total of MACs, its number of parameters, and, if the
        version returns them, the MACs of each layer.

        thop switches to eval mode, runs under no_grad, and hooks modules, whatever the setting.
        It passes inputs by position.
        """
        self.load()
        run = importlib.import_module("thop").profile
        forced = msgspec.structs.replace(setting, training=False, grad=False, hooked=True)
        inputs = positional(model.forward, args, kwargs)
        # thop 0.0.31 does not return its layers
        has_layers = "ret_layer_info" in inspect.signature(run).parameters
        options: dict[str, Any] = {"ret_layer_info": True} if has_layers else {}
        if self.formulas:
            options["custom_ops"] = _hooks_of_formulas(self.formulas)
        with under(forced, model), _explaining_taken_buffer_names(model):
            total, params, *layers = run(model, inputs=inputs, verbose=False, **options)
        tree = (Entry("", exact(total)), *_layer_entries(layers[0], "")) if layers else ()
        return Profile(
            tool=self.name,
            version=self.version(),
            setting=forced,
            total=exact(total),
            params=exact(params),
            printed_as="MACs",
            entries=tree,
        )


def _hooks_of_formulas(formulas: Sequence[Any]) -> dict[Any, Any]:
    """Return the argument `custom_ops` of `thop.profile` for the user's formulas: {module class:
    hook}.
    """

    def macs_hook_of_formula(formula: Any) -> Any:
        """Return a forward hook that adds the MACs of this formula to the module's `total_ops`."""

        def add_macs(module: Any, inputs: Any, output: Any) -> None:
            """Add the MACs of the formula for this call to the module's `total_ops`."""
            module.total_ops += cost_of_module_call(formula, module, inputs, output).macs

        return add_macs

    return {
        kind: macs_hook_of_formula(formula)
        for kind, formula in classes_with_formulas(formulas).items()
    }


@contextmanager
def _explaining_taken_buffer_names(model: Any) -> Iterator[None]:
    """Turn a KeyError of the block into an InputError that names the attribute which keeps thop
    from adding its buffers.
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
    children)}, as thop returns it.
    """
    for name, (operations, _, below) in children.items():
        path = f"{parent}.{name}" if parent else name
        yield Entry(path, exact(operations))
        yield from _layer_entries(below, path)


@contextmanager
def _adding_collections_iterable() -> Iterator[None]:
    """Add `collections.Iterable` within the block; thop 0.0.31 imports it, and Python 3.10 removed
    it.
    """
    if hasattr(collections, "Iterable"):
        yield
        return
    iterable = collections.abc.Iterable
    with patching_attribute(collections, "Iterable", iterable, inventory.COLLECTIONS):
        yield
