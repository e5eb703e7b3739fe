"""`crossflops tools`."""

from typing import Any

import click

from crossflops.cli.options import output_options
from crossflops.cli.output import deliver
from crossflops.cli.progress import progress
from crossflops.cli.toolbox import toolbox
from crossflops.render.inventory import Inventory


@click.command("tools")
@output_options
def command(**fields: Any) -> int:
    """List the tools that are known, and which of them are installed."""
    with progress("looking at the tools"):
        noun = Inventory(toolbox())
    deliver(noun, **fields)
    return 0
