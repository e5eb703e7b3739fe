"""`crossflops export`."""

from pathlib import Path
from typing import Any

import click

from crossflops.cli.options import model_options, request, unit_option
from crossflops.cli.output import say
from crossflops.cli.progress import progress
from crossflops.errors import CrossflopsError


@click.command("export")
@model_options
@click.option(
    "--to",
    type=click.Choice(["onnx", "model-explorer"]),
    required=True,
    help="onnx: the normalized model with its weights. model-explorer: node data for that viewer.",
)
@click.option(
    "-o",
    "--output",
    "file",
    required=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The file to write, .onnx or .json.",
)
@click.option(
    "--annotate", is_flag=True, help="Write the counts into the metadata of the nodes (onnx)."
)
@unit_option
def command(file: Path, **fields: Any) -> int:
    """Write the normalized model, or its counts for a viewer, to a file."""
    asked = request(fields)
    _check(file)
    from crossflops.verbs import api

    with progress(f"exporting {asked.target}"):
        written = api.export(
            asked.target,
            asked.inputs,
            file=file,
            inputs_file=asked.inputs_file,
            setting=asked.setting,
            arguments=asked.arguments,
            dims=asked.dims,
            trips=asked.trips,
            branches=asked.branches,
            allow_pickle=asked.allow_pickle,
            **fields,
        )
    for path in written:
        say(f"wrote {path}")
    return 0


def _check(file: Path) -> None:
    """Refuse before the work begins."""
    if not file.parent.is_dir():
        raise CrossflopsError(f"there is no folder {file.parent}", f"mkdir -p {file.parent}")
    if file.is_dir():
        raise CrossflopsError(f"{file} is a folder", f"give a file in it: {file / 'model.onnx'}")
