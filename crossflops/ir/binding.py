"""Inputs of a model in the form that a tool can take."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from crossflops.errors import InputError

_KINDS_BY_POSITION = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)


def positional(
    forward: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Any, ...]:
    """The arguments of `forward(*args, **kwargs)` for a tool that calls `forward(*arguments)`.

    A gap before a given argument is filled with its default; what follows the last given one
    is left out. Raises InputError when an argument can only be passed by keyword, or when the
    arguments do not fit the signature.
    """
    if not kwargs:
        return args
    parameters = inspect.signature(forward).parameters
    names = [
        name for name, parameter in parameters.items() if parameter.kind in _KINDS_BY_POSITION
    ]
    stray = [name for name in kwargs if name not in names]
    if stray:
        raise InputError(
            f"this tool passes inputs by position, and {stray[0]!r} goes by keyword only",
            "wrap the model in a module whose forward takes all its inputs by position",
        )
    twice = [name for name in names[: len(args)] if name in kwargs]
    if twice:
        raise InputError(f"the input {twice[0]!r} is given twice", "give every input once")
    last = max(names.index(name) for name in kwargs)
    rest = (_value(parameters[name], kwargs) for name in names[len(args) : last + 1])
    return (*args, *rest)


def _value(parameter: inspect.Parameter, kwargs: Mapping[str, Any]) -> Any:
    if parameter.name in kwargs:
        return kwargs[parameter.name]
    if parameter.default is inspect.Parameter.empty:
        raise InputError(
            f"the input {parameter.name!r} is missing", "give every input that has no default"
        )
    return parameter.default
