"""The note of a model's parameters in a file: what of it is read, and what is no note at all."""

import pytest

from crossflops import count
from crossflops.frontends import Source
from crossflops.frontends.onnx import OnnxFile
from crossflops.frontends.onnx.noted_parameters import (
    KEY,
    NotedModule,
    NotedParameter,
    ParameterNotes,
    notes_text_with_digest,
)
from crossflops.ir.trace import Setting
from crossflops.reconcile.parameters import reconcile_stored_parameters
from crossflops.tools.registry import parse_convention
from crossflops.verbs.compare.tool_file import ToolInputFile
from crossflops.verbs.count import count_source
from tests.onnx_files import saved, with_weights

# A product with a matrix of 6, and 4 numbers that are made up.
TEXT = (
    "g (float[2,3] x, float[3,2] w, float[1,2] b) => (float[2,2] y)"
    " { m = MatMul(x, w) y = Add(m, b) }"
)
# The matrix, one complex number, and 5 halves that no node reads: 12 of 24 + 8 + 10 bytes.
NOTES = ParameterNotes(
    version=1,
    tensors="",
    modules=(
        NotedModule("", "Model", (NotedParameter("w", 0, "float32", (3, 2)),)),
        NotedModule(
            "a.b",
            "pkg.Layer",
            (NotedParameter("z", 1, "complex64", ()), NotedParameter("h", 2, "float16", (5,))),
        ),
        NotedModule("c", "pkg.Tied", (NotedParameter("again", 0, "float32", (3, 2)),)),
    ),
)


def noted(text=None):
    """The model with a note, of which only the text is given."""
    model = with_weights(TEXT, "w", "b")
    model.metadata_props.add(
        key=KEY, value=notes_text_with_digest(NOTES, model) if text is None else text
    )
    return model


def test_parameters_are_those_that_are_noted(tmp_path):
    """Each storage once, in its module, with its type; the bias of the file is none of them."""
    report = count(saved(tmp_path, noted()))
    assert (report.totals.params, report.memory.param_bytes) == (12, 42)
    by_type = {"float32": 24, "complex64": 8, "float16": 10}
    assert dict(report.memory.param_bytes_by_type) == by_type
    rows = {row.path: (row.class_, row.params) for row in report.modules}
    assert rows["a.b"] == ("Layer", 6)
    assert rows[""] == ("Model", 12)


def test_a_tool_of_files_counts_what_is_stored(tmp_path):
    """8 numbers for 12: the export left 6 out, and the 2 of a constant are a weight natively."""
    file = OnnxFile(path=saved(tmp_path, noted()), inlined=False)
    mine = count_source(Source(file, (), {}), Setting(), ())
    stock = ToolInputFile(file, tmp_path / "model.onnx").tensors_in_file(mine)
    account = reconcile_stored_parameters(
        parse_convention("onnx-tool").parameters, mine.graph.params, stock
    )
    assert (account.ours, account.predicted) == (12, 8)
    assert [(step.cause, step.amount) for step in account.explanations] == [
        ("params.exported", -4)
    ]


VALID = '{"version":1,"tensors":"TENSORS","modules":MODULES,"packed":[0,0],"idle":0}'
BROKEN = {
    "empty": "",
    "a list": "[]",
    "deep": "[" * 100_000,
    "another version": VALID.replace(":1,", ":2,").replace("MODULES", "[]"),
    "a negative size": VALID.replace("MODULES", '[["","M",[["w",0,"float32",[-3,2]]]]]'),
    "more than there can be": VALID.replace("MODULES", f'[["","M",[["w",0,"x",[{10**30}]]]]]'),
    "a negative rest": VALID.replace("MODULES", "[]").replace("[0,0]", "[-1,0]"),
    "no shape": VALID.replace("MODULES", '[["","M",[["w",0,"float32"]]]]'),
    "another file": VALID.replace("MODULES", "[]"),
}


@pytest.mark.filterwarnings("ignore:the notes of crossflops", "ignore:the weights were changed")
@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_note_is_not_used(name, tmp_path):
    """The file is counted as one without a note: 6 + 2 floats that feed weight inputs."""
    report = count(saved(tmp_path, noted(BROKEN[name])))
    assert (report.totals.params, report.memory.param_bytes) == (8, 32)
    assert len([text for text in report.warnings if "stored weights are counted" in text]) == 1
