"""The option `--python`."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

Function = TypeVar("Function", bound=Callable[..., Any])


def python_option(function: Function) -> Function:
    """`--python`, as keyword `python`: interpreter by tool."""
    option = click.option(
        "--python",
        multiple=True,
        metavar="TOOL=INTERPRETER",
        callback=_interpreters,
        help="The Python (or the folder of a venv) that runs a tool, which then need not be "
        "installed here. Repeatable; goes over [python] in crossflops.toml.",
    )
    return option(function)


def _interpreters(
    ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]
) -> dict[str, str]:
    from crossflops.adapters.interpreters import parsed

    return parsed(texts)
