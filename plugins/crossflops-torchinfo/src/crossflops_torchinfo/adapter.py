"""Run torchinfo (PyPI `torchinfo`, github.com/TylerYep/torchinfo), 1.8.0."""

import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import msgspec

from crossflops.ir.profile import Amount, Entry, Profile
from crossflops.ir.trace import Setting
from crossflops.plugins.adapter import exact, installed, is_module, positional, under


class Torchinfo:
    """The adapter of `torchinfo.summary`, which hooks every module."""

    name = "torchinfo"
    convention = "torchinfo"
    distribution = "torchinfo"
    on_fakes = True

    def version(self) -> str:
        """Return the version of the installed torchinfo; raise MissingExtraError if it is not
        installed.
        """
        return installed(self.distribution)

    def load(self) -> None:
        """Import torchinfo, with PyTorch."""
        self.version()
        importlib.import_module("torchinfo")

    def accepts(self, model: object) -> bool:
        """Return whether the model is a torch.nn.Module."""
        return is_module(model)

    def profile(
        self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], setting: Setting
    ) -> Profile:
        """Return what torchinfo prints: its total of mult-adds, its number of parameters, and the
        sum of the mult-adds in each module.

        The mode is the one that is asked, which torchinfo takes as an argument; it always runs
        under no_grad.
        """
        self.load()
        tool = importlib.import_module("torchinfo.torchinfo")
        forced = msgspec.structs.replace(setting, grad=False, hooked=True)
        inputs = _summary_arguments(tool, model, args, kwargs)
        with under(forced, model):
            mode = "train" if setting.training else "eval"
            summary = tool.summary(model, mode=mode, verbose=0, **inputs)
        return Profile(
            tool=self.name,
            version=self.version(),
            setting=forced,
            total=exact(summary.total_mult_adds),
            params=exact(summary.total_params),
            printed_as="mult-adds",
            entries=tuple(_module_entries(model, summary.summary_list)),
        )


def _summary_arguments(
    tool: Any, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Return the arguments of `summary`, as {name: value}, with which it calls `model(*args,
    **kwargs)`.

    It has keywords of its own (device, depth, mode ...), which go into `input_data`, and adds up
    the sizes of all that is in there, which fails on None and on texts: these go by keyword.
    """
    own = {
        *inspect.signature(tool.summary).parameters,
        *inspect.signature(tool.forward_pass).parameters,
    }
    if own.isdisjoint(kwargs) and _has_summable_sizes(args):
        return {"input_data": list(args), **kwargs}
    named = _bind_arguments_by_name(model.forward, args, kwargs)
    if named is None:
        return {"input_data": list(positional(model.forward, args, kwargs))}
    data = {name: value for name, value in named.items() if name in own}
    return {"input_data": data, **{name: named[name] for name in named.keys() - own}}


def _has_summable_sizes(value: Any) -> bool:
    """Return whether torchinfo can add up the sizes of the value: neither it nor anything in it is
    None or a text.
    """
    if isinstance(value, list | tuple):
        return all(map(_has_summable_sizes, value))
    if isinstance(value, dict):
        return all(map(_has_summable_sizes, value.values()))
    return value is not None and not isinstance(value, str)


def _bind_arguments_by_name(
    forward: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any] | None:
    """Return all arguments of `forward` as {parameter name: value}; None if one of them can only
    be given by position.
    """
    parameters = inspect.signature(forward).parameters
    bound = inspect.signature(forward).bind(*args, **kwargs).arguments
    by_position = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL
    if any(parameters[name].kind in by_position for name in bound):
        return None
    named: dict[str, Any] = {}
    for name, value in bound.items():
        rest = parameters[name].kind is inspect.Parameter.VAR_KEYWORD
        named.update(value if rest else {name: value})
    return named


def _module_entries(model: Any, rows: list[Any]) -> Iterator[Entry]:
    """Return an iterator over the path and the mult-adds of each module that ran, with those of
    all leaf layers in it.
    """
    names = {id(module): name for name, module in model.named_modules()}
    amounts: dict[str, Amount] = {}
    for row in rows:
        path = names[id(row.module)]
        amounts.setdefault(path, 0)
        if not row.is_leaf_layer:
            continue
        for above in _path_and_ancestors(path):
            amounts[above] = amounts.get(above, 0) + exact(row.macs)
    return (Entry(path, amount) for path, amount in amounts.items())


def _path_and_ancestors(path: str) -> Iterator[str]:
    """Yield the path and the paths of all ancestors of the module, the model "" last."""
    yield path
    while path:
        path = path.rpartition(".")[0]
        yield path
