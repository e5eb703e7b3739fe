"""`crossflops export`."""

from pathlib import Path
from typing import Any

import click

from crossflops.cli.options import (
    MODEL,
    SIZES,
    TARGET,
    UNIT,
    check_writable_path,
    command_options,
    pop_request,
    pop_size_options,
    reject_timeout_without_tools,
    verb,
)
from crossflops.cli.output import print_to_stderr, showing_progress


@verb(
    "export",
    example="crossflops export model.onnx --to onnx --annotate -o counted.onnx",
    first=("--to", "-o", "--annotate", "--verify", "--input"),
)
@command_options(
    TARGET,
    *MODEL,
    *SIZES,
    click.option("--to", type=click.Choice(["onnx", "model-explorer"]), required=True,
                 help="onnx: the normalized model with its weights. model-explorer: node data "
                      "for the Model Explorer viewer."),
    click.option("-o", "--output", "file", required=True, metavar="FILE",
                 type=click.Path(path_type=Path),
                 help="The file to write, .onnx or .json."),
    click.option("--annotate", is_flag=True,
                 help="Write the counts into the metadata of the nodes (onnx only)."),
    click.option("--verify", is_flag=True,
                 help="Run the file in onnxruntime and the model on the same random inputs. "
                      "Exit with status 1 if an output differs by more than rounding errors, or "
                      "if rounding errors could hide a difference (onnx only)."),
    UNIT,
)  # fmt: skip
def export(file: Path, **fields: Any) -> int:
    """Write the normalized model, or its counts for a viewer, to a file."""
    from crossflops.render.pages.agreement import agreement_lines
    from crossflops.verbs import export as export_verb

    requested = pop_request(fields, sizes=pop_size_options(fields))
    reject_timeout_without_tools(requested)
    check_writable_path(file, "model.onnx")
    with showing_progress(f"exporting {requested.target}"):
        written = export_verb.export_request(
            requested, export_verb.FileRequest(file=file, **fields)
        )
    for path in written:
        print_to_stderr(f"wrote {path}")
    if written.agreement is None:
        return 0
    for line in agreement_lines(written.agreement):
        print_to_stderr(line)
    return 0 if written.agreement.is_proven else 1
