"""How a group of options is put on a command."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

Function = TypeVar("Function", bound=Callable[..., Any])

POSITIVE = click.FloatRange(min=0, min_open=True)


def stacked(function: Function, *decorators: Callable[[Function], Function]) -> Function:
    """The function with these options, in this order in its help."""
    for decorator in reversed(decorators):
        function = decorator(function)
    return function
