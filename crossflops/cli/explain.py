"""`crossflops explain`."""

from typing import Any

import click

from crossflops.cli.options import OUTPUT, command_options, verb
from crossflops.cli.output import write_verb_result


@verb("explain", example="crossflops explain norm.batch")
@click.argument("name", metavar="CAUSE|TOOL[@EDITION]|WORDS", nargs=-1, required=True)
@command_options(*OUTPUT)
def explain(name: tuple[str, ...], **fields: Any) -> int:
    """Describe a cause, or list all rules of a tool.

    WORDS search for a cause by its subject (`explain batchnorm`, `explain relu twice`). Terms of
    the reports have pages, too: `native`, `residual`, `mfu`, `roofline`, `6nd` ...
    """
    from crossflops.verbs.explain import find_page_subject

    write_verb_result(find_page_subject(" ".join(name)), **fields)
    return 0
