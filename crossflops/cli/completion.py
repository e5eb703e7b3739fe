"""Completion of a shell at TAB: verbs, options, tools, devices, causes, budgets, files.

A shell asks by the variable `_CROSSFLOPS_COMPLETE`, as click's scripts do; `eval` of
`_CROSSFLOPS_COMPLETE=bash_source crossflops` (or zsh, fish) lets it ask. Whatever is typed, an
answer is printed or nothing is: no error stands in the middle of a line.
"""

import contextlib
import io
import os
import re
import sys
from collections.abc import Callable, Iterable
from typing import TypeAlias

import click
from click.shell_completion import CompletionItem

_OF_FILES = re.compile(r"FILE|REPORT|DIR|TARGET")
Values: TypeAlias = Callable[[], Iterable[str]]
_FILES = ("target", "targets", "first", "second")  # arguments that are models, or reports


def print_completions(group: click.Group, name: str, variable: str) -> int:
    """Print the completions that a shell requests by an environment variable; return an exit
    status.

    Nothing is printed on any error.
    """
    from click.shell_completion import shell_complete

    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="")
    status = 1
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(io.StringIO()),
        contextlib.suppress(BaseException),  # of a line that is half typed anything may be wrong
    ):
        status = shell_complete(group, {}, name, variable, os.environ[variable])
    if not status:
        out.seek(0)
        sys.stdout.write(out.read())
    return status


class _CompletableText(click.types.StringParamType):
    """A text for which a shell completes some values, and files where it may be one."""

    def __init__(self, values: Values, has_files: bool) -> None:
        self._values = values
        self._has_files = has_files

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the known values of the option that begin with the typed text."""
        items = [CompletionItem(text) for text in self._values() if text.startswith(incomplete)]
        return [*items, *([CompletionItem(incomplete, type="file")] if self._has_files else [])]


def add_value_completion(command: click.Command) -> None:
    """Let a shell complete the values of the text options and arguments of a verb."""
    for param in command.params:
        is_text = isinstance(param.type, click.types.StringParamType)
        if is_text and not getattr(param, "is_flag", False):
            values = _completion_source(command, param)
            has_files = bool(_OF_FILES.search(param.metavar or "")) or param.name in _FILES
            if values is not _no_values or has_files:
                param.type = _CompletableText(values, has_files)


def _completion_source(command: click.Command, param: click.Parameter) -> Values:
    """Return the function that lists the known values of an option or argument."""
    for flag in param.opts:
        if flag in _VALUES:
            return _VALUES[flag]
    return _VALUES.get(f"{command.name} {param.name}", _no_values)


def _no_values() -> Iterable[str]:
    """Return no values: there is nothing to complete."""
    return ()


def _tool_completions() -> Iterable[str]:
    """Return the ids of all tools with a known convention, sorted."""
    from crossflops.tools.registry import all_conventions

    return sorted({convention.tool for convention in all_conventions()})


def _device_completions() -> Iterable[str]:
    """Return the ids of all devices in the catalogue and in the configuration."""
    from crossflops.hardware.devices.catalogue import catalogue_devices, user_devices

    return [device.id for device in catalogue_devices(user_devices(None))]


def _explain_page_completions() -> Iterable[str]:
    """Return the names that `explain` accepts: terms, causes and tools."""
    from crossflops.causes import WORDS, all_causes

    return [*(cause.id for cause in (*WORDS, *all_causes())), *_tool_completions()]


def _budget_completions() -> Iterable[str]:
    """Return the names of the budgets in the configuration of the current folder."""
    from pathlib import Path

    from crossflops.verbs.budget_configuration import find_budget_configuration, parse_budget_table

    return [budget.name for budget in parse_budget_table(*find_budget_configuration(Path.cwd()))]


def _precision_completions() -> Iterable[str]:
    """Return the names of the known precisions, such as "fp16"."""
    from crossflops.hardware.step_traffic import PRECISIONS

    return PRECISIONS


_VALUES: dict[str, Values] = {
    **dict.fromkeys(("--tool", "--as", "--by-tool", "--between"), _tool_completions),
    "--device": _device_completions,
    "--precision": _precision_completions,
    "devices name": _device_completions,
    "explain name": _explain_page_completions,
    "check targets": _budget_completions,
}
