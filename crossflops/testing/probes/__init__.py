"""Define small models (probes), each of which shows one thing that counters treat differently.

In: nothing. Out: probes; every module in this folder offers its own in `PROBES`.
May import: testing, frontends, ir; a framework only when a probe is built.
"""

import functools
from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import msgspec

from crossflops.frontends.inputs import parse_inputs
from crossflops.frontends.pytorch.load.inputs import make_model_arguments
from crossflops.ir.graph import TensorSpec

Built = tuple[Any, tuple[Any, ...], dict[str, Any]]


class Probe(msgspec.Struct, frozen=True):
    """A named model with its inputs, which are written as on the command line.

    `macs` is the result of a hand calculation, by the comment or the layer's own formula.
    """

    name: str
    model: Callable[[], Any]
    inputs: tuple[str, ...]
    macs: int

    def build(self) -> Built:
        """Return (model in evaluation mode, positional inputs, keyword inputs)."""
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = self.model()
        specs: tuple[TensorSpec, ...] = parse_inputs(self.inputs)
        return (model.eval(), *make_model_arguments(model, specs))


def wrap_layer(layer: Callable[[], Any]) -> Callable[[], Any]:
    """Return a builder (a function without arguments) of a model whose only child is the layer
    that `layer` makes.

    Some tools treat the root of a model differently from its children.
    """
    return lambda: function_model(lambda model, *args: model.layer(*args), layer=layer)()


def function_model(body: Callable[..., Any], **modules: Callable[[], Any]) -> Callable[[], Any]:
    """Return a builder (a function without arguments) of a model that computes `body(model,
    *inputs)`; `modules` make its submodules.
    """

    def build_function_model() -> Any:
        """Return a torch module with these submodules, whose forward calls `body`."""
        from torch import nn

        class Function(nn.Module):
            def forward(self, *args: Any) -> Any:
                """Return what `body` gives for the model and the inputs."""
                return body(self, *args)

        model = Function()
        for name, module in modules.items():
            model.add_module(name, module())
        return model

    return build_function_model


def nn(name: str, *args: Any, **kwargs: Any) -> Callable[[], Any]:
    """Return a builder (a function without arguments) of the layer of torch.nn with this name and
    these arguments.
    """

    def build_torch_layer() -> Any:
        """Return the layer of torch.nn with this name and these arguments."""
        import torch

        return getattr(torch.nn, name)(*args, **kwargs)

    return build_torch_layer


@functools.cache
def probes() -> dict[str, Probe]:
    """Return all probes as {name: probe}; raise ValueError if two have the same name."""
    by_name: dict[str, Probe] = {}
    for module in iter_modules(__path__):
        for probe in import_module(f"{__name__}.{module.name}").PROBES:
            if probe.name in by_name:
                raise ValueError(f"two probes are called {probe.name!r}")
            by_name[probe.name] = probe
    return by_name
