"""`crossflops explain`."""

from difflib import get_close_matches
from typing import Any

import click

from crossflops.causes import causes
from crossflops.cli.options import output_options
from crossflops.cli.output import deliver
from crossflops.conventions import conventions
from crossflops.core.convention import Cause, Convention
from crossflops.errors import UnknownNameError


@click.command("explain")
@click.argument("name", metavar="CAUSE|TOOL[@EDITION]")
@output_options
def command(name: str, **fields: Any) -> int:
    """Say what a cause is, or everything that a tool does."""
    deliver(_noun(name), **fields)
    return 0


def _noun(name: str) -> Cause | Convention:
    """The cause of that id, or the convention of that tool: its first edition by default."""
    known: dict[str, Cause | Convention] = {}
    for convention in conventions():
        known.setdefault(convention.tool, convention)
        known[f"{convention.tool}@{convention.edition}"] = convention
    known.update({one.id: one for one in causes()})
    if name in known:
        return known[name]
    family = f"{name.partition('.')[0]}."
    near = (
        get_close_matches(name, known, n=3, cutoff=0.8)
        or [one for one in known if one.startswith(family)]
        or sorted({one.tool for one in conventions()})
    )
    raise UnknownNameError(
        f"{name} is neither a cause nor a tool", f"perhaps one of these: {', '.join(near)}"
    )
