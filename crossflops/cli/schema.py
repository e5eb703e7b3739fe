"""`crossflops schema`."""

import json

import click

from crossflops.cli.options import verb


@verb("schema", example="crossflops schema count")
@click.argument("name", metavar="[VERB]", required=False)
def schema(name: str | None) -> int:
    """Print the JSON Schema of the reports.

    With VERB, that of the report of this verb alone. The reports are those that `--json` and
    `-o FILE.json` write and `crossflops render` reads.
    """
    from crossflops.verbs.schema import build_schema

    click.echo(json.dumps(build_schema(name), indent=1, ensure_ascii=False))
    return 0
