"""Files that are no reports: the normalized or annotated model, and node data for viewers.

In: a model in memory or an ONNX file, with its counts. Out: a file that is whole, or not there.
May import: frontends, load, ir, files, errors; onnx and onnx_ir.
"""

from crossflops.export.onnx_file import (
    NodeNote,
    copy_model,
    node_data,
    notes_of_file,
    notes_of_graph,
)
from crossflops.export.program import save_bound, save_program, save_uniform

__all__ = [
    "NodeNote",
    "copy_model",
    "node_data",
    "notes_of_file",
    "notes_of_graph",
    "save_bound",
    "save_program",
    "save_uniform",
]
