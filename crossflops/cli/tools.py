"""`crossflops tools`."""

from typing import Any

import click

from crossflops.cli.doctor import toolbox
from crossflops.cli.options import output_options, python_option
from crossflops.cli.output import deliver
from crossflops.cli.progress import progress
from crossflops.plugins.interpreters import chosen
from crossflops.render.pages.inventory import ToolList


@click.command("tools")
@python_option
@output_options
def command(python: dict[str, str], **fields: Any) -> int:
    """List the tools that are known, and which of them are installed."""
    interpreters = chosen(python)
    with progress("looking at the tools"):
        noun = ToolList(toolbox(interpreters))
    deliver(noun, **fields)
    return 0
