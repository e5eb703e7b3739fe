"""The help of a verb: those options first that matter first, the others in named groups, and an
example that runs.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import click

Decorator: TypeAlias = Callable[[Any], Any]
FIRST = "What matters first"
OTHERS = "Others"
_TITLES: dict[click.Parameter, str] = {}  # of options, which are as long here as the program


def titled(title: str, *decorators: Decorator) -> tuple[Decorator, ...]:
    """These options, under this heading in the help of every verb that has them."""
    return tuple(_titled(title, decorator) for decorator in decorators)


def _titled(title: str, decorator: Decorator) -> Decorator:
    def decorate(function: Any) -> Any:
        decorated = decorator(function)
        _TITLES[decorated.__click_params__[-1]] = title  # click.option puts what it makes there
        return decorated

    return decorate


class Verb(click.Command):
    """A command with its options in groups. `first` are flags, `example` a line to type."""

    def __init__(
        self, *args: Any, first: Sequence[str] = (), example: str = "", **fields: Any
    ) -> None:
        super().__init__(*args, **fields)
        self.first = tuple(first)
        self.example = example

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The groups in the order in which their options stand on the command."""
        groups: dict[str, list[tuple[str, str]]] = {FIRST: []} if self.first else {}
        for param in sorted(self.get_params(ctx), key=self._place):
            record = param.get_help_record(ctx)
            if record is not None:
                groups.setdefault(self._heading(param), []).append(record)
        for heading in sorted(groups, key=lambda heading: heading == OTHERS):
            with formatter.section(heading):
                formatter.write_dl(groups[heading])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The example."""
        if self.example:
            with formatter.section("Example"):
                formatter.write(f"{' ' * formatter.current_indent}{self.example}\n")

    def _place(self, param: click.Parameter) -> int:
        """The place among the first options; behind them all for any other."""
        places = [self.first.index(flag) for flag in param.opts if flag in self.first]
        return min(places, default=len(self.first))

    def _heading(self, param: click.Parameter) -> str:
        first = self._place(param) < len(self.first)
        return FIRST if first else _TITLES.get(param, OTHERS)


def verb(name: str, *, example: str, first: Sequence[str] = ()) -> Callable[[Any], Verb]:
    """Makes a function the verb of this name."""
    return click.command(name, cls=Verb, example=example, first=first)
