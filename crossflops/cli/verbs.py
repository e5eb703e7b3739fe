"""The verbs. A verb is imported when it is called, so that `--help` costs nothing."""

from importlib import import_module
from typing import Any

import click

from crossflops.errors import UnknownNameError, nearest

VERBS = {
    "count": "Count a model exactly, with no tool.",
    "compare": "Run other counters on a model, and explain every difference.",
    "explain": "Say what a cause is, or everything that a tool does.",
    "efficiency": "Set a count against a device's peak.",
    "bench": "Run a model, and say how fast it is and where its time goes.",
    "devices": "Look up a device and its peaks, or measure this machine.",
    "peak": "Derive a compute peak from a clock and units.",
    "bandwidth": "Derive a memory bandwidth from a clock and a bus.",
    "tools": "List the tools that are known, and which of them are installed.",
    "export": "Write the normalized model, or its counts for a viewer, to a file.",
    "render": "Show a report again that was written to a file, in any format.",
    "doctor": "Look at what is installed here, and say what is missing.",
}


DEBUG = "--debug"
_DEBUG = click.Option(
    [DEBUG], is_flag=True, expose_value=False, help="Show the traceback of an error."
)


class LazyGroup(click.Group):
    """A group whose commands live in `crossflops.cli.<verb>`, each under the name `command`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs in the order in which they are learnt."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb of that name, imported now."""
        if cmd_name not in VERBS:
            return None
        command: Any = import_module(f"crossflops.cli.{cmd_name}").command
        if not isinstance(command, click.Command):
            return None
        if _DEBUG not in command.params:
            command.params.append(_DEBUG)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The verb; a name that is none is refused with those that are like it."""
        name = args[0]
        if name not in VERBS and not name.startswith("-"):
            raise UnknownNameError(f"there is no verb {name!r}", nearest(name, VERBS))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The verbs with a sentence each, without importing any of them."""
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


def _version(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        click.echo(f"crossflops {version('crossflops')}")
    except PackageNotFoundError:
        click.echo("crossflops, not installed: run from its source folder")
    ctx.exit()


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_version,
    help="Show the version and exit.",
)
@click.option(DEBUG, is_flag=True, expose_value=False, help="Show the traceback of an error.")
@click.pass_context
def group(context: click.Context) -> None:
    """Count a model's FLOPs exactly, and explain why other counters differ.

    A TARGET is `model.onnx`, or `pkg.module:callable` or `path/file.py:callable`, called to get
    the model: its code is run. Inputs are shapes: `--input 1x3x224x224`,
    `--input input_ids=1x128:int64`.

    Exit status: 0 done, 1 a check did not hold, 2 the request is wrong, 3 every tool failed.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
