"""Tables of published figures: their columns, their contradictions, and an audit that goes on."""

import json

import pytest

from crossflops.errors import CrossflopsError, InputError
from crossflops.targets.request import Request
from crossflops.verbs import audit
from crossflops.verbs.audit import AuditChoice, audit_table
from crossflops.verbs.published_tables import read_published_table
from tests.onnx_files import saved, with_weights

# 2 x 3 x 5 = 30 MACs and 15 parameters; 2 x 5 x 7 = 70 MACs more and 35 parameters.
ONE = "one (float[2,3] x, float[3,5] w) => (float[2,5] y) { y = MatMul(x, w) }"
TWO = """two (float[2,3] x, float[3,5] w, float[5,7] v) => (float[2,7] y) {
    h = MatMul(x, w)
    y = MatMul(h, v)
}"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Both models, in the current folder."""
    saved(tmp_path, with_weights(ONE, "w"), "one.onnx")
    saved(tmp_path, with_weights(TWO, "w", "v"), "two.onnx")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def table(folder, text):
    """A file with this content."""
    path = folder / "table.csv"
    path.write_text(text, encoding="utf-8")
    return path


NATIVE_ONLY = AuditChoice(as_=("elementwise-1",))


def test_each_figure_is_judged(folder):
    """Exact by the convention of most rows, contradicted by another one, or open."""
    path = table(
        folder,
        "# figures\nmodel,MACs,Params\none.onnx,30,15\ntwo.onnx,100,51\none.onnx,30,\n"
        "two.onnx,200,50\n",
    )
    result = audit_table(path, NATIVE_ONLY)
    rows = [(row.line, row.column, row.status, row.reproduced_by) for row in result.rows]
    assert rows == [
        (3, "MACs", "exact", "MACs"),
        (3, "Params", "exact", "params"),
        (4, "MACs", "exact", "MACs"),
        (4, "Params", "open", ""),
        (5, "MACs", "exact", "MACs"),
        (6, "MACs", "contradicted", "2 x MACs"),
        (6, "Params", "exact", "params"),
    ]
    assert result.contradictions == ("MACs: 1 of 4 rows are 2 x MACs, most others MACs: two",)
    assert [row.reason for row in result.rows if row.reason] == ["nearest: params prints 50"]


def test_a_model_that_cannot_be_counted_is_open(folder):
    """With the reason; the others are counted."""
    result = audit_table(table(folder, "name,macs\nnothing.onnx,30\none.onnx,30\n"), NATIVE_ONLY)
    assert [row.status for row in result.rows] == ["open", "exact"]
    assert "nothing.onnx" in result.rows[0].reason
    assert result.figures_counted == 1


def test_a_figure_of_another_build_is_found(folder, monkeypatch):
    """A library builds one model for some weights with another argument: 30 or 100 MACs."""
    two = Request.from_arguments("two.onnx")

    def alternative(request):
        return [(two, "--arg aux_loss=true")] if request.target == "one.onnx" else []

    monkeypatch.setattr(audit, "with_alternative_arguments", alternative)
    path = table(folder, "model,macs,params\ntwo.onnx,100,50\none.onnx,30,15\none.onnx,100,50\n")
    result = audit_table(path, NATIVE_ONLY)
    rows = [(row.line, row.status, row.reproduced_by) for row in result.rows if row.line > 2]
    assert rows == [
        (3, "exact", "MACs"),
        (3, "exact", "params"),
        (4, "contradicted", "MACs with --arg aux_loss=true"),
        (4, "contradicted", "params with --arg aux_loss=true"),
    ]
    assert result.rows[-1].prints == 50


def test_what_was_counted_is_not_counted_again(folder, monkeypatch):
    """An audit that was ended goes on where it stood; another request begins anew."""
    path = table(folder, "model,macs\none.onnx,30\ntwo.onnx,100\n")
    choice = AuditChoice(as_=("elementwise-1",), store="kept")
    counted = []
    predict = audit.predict_model_numbers

    def end_at_the_second(request, conventions):
        if len(counted) == 1 and not ended:
            ended.append(True)
            raise KeyboardInterrupt
        counted.append(request.target)
        return predict(request, conventions)

    ended = []
    monkeypatch.setattr(audit, "predict_model_numbers", end_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        audit_table(path, choice)
    assert counted == ["one.onnx"]
    result = audit_table(path, choice)
    assert counted == ["one.onnx", "two.onnx"]
    assert [row.status for row in result.rows] == ["exact", "exact"]
    audit_table(path, AuditChoice(as_=("exact-2k-1",), store="kept"))
    assert counted[2:] == ["one.onnx", "two.onnx"]


def test_a_file_is_not_the_folder_of_the_store(folder):
    """The message names the option."""
    path = table(folder, "model,MACs\none.onnx,30\n")
    choice = AuditChoice(as_=("elementwise-1",), store="one.onnx")
    with pytest.raises(CrossflopsError, match=r"cannot use one\.onnx as the folder of --store"):
        audit_table(path, choice)


def test_a_broken_file_of_the_store_is_counted_again(folder):
    """Whatever another program left there."""
    path = table(folder, "model,macs\none.onnx,30\n")
    choice = AuditChoice(as_=("elementwise-1",), store="kept")
    audit_table(path, choice)
    [kept] = (folder / "kept").iterdir()
    kept.write_text("{")
    assert audit_table(path, choice).rows[0].status == "exact"
    assert json.loads(kept.read_text())["numbers"]["macs"] == 30


def test_models_are_selected(folder):
    """The page says how many figures were left out."""
    path = table(folder, "model,macs\none.onnx,30\ntwo.onnx,100\n")
    only = audit_table(path, AuditChoice(as_=("elementwise-1",), only=("tw*",)))
    first = audit_table(path, AuditChoice(as_=("elementwise-1",), limit=1))
    assert [row.model for row in only.rows] == ["two.onnx"]
    assert [row.model for row in first.rows] == ["one.onnx"]
    assert only.left_out == first.left_out == 1


HEADS = [
    ("model,img_size,gmacs,mparams", ("gmacs", "mparams"), (224, "")),
    ("name,resolution,FLOPs (G),#Params (M)", ("FLOPs (G)", "#Params (M)"), (224, "")),
    ("Arch,Input Size,GFLOPS,param_count", ("GFLOPS", "param_count"), (224, "")),
]


@pytest.mark.parametrize(("head", "columns", "size"), HEADS)
def test_columns_are_found_by_their_names(tmp_path, head, columns, size):
    """In several ways of writing them."""
    found = read_published_table(table(tmp_path, f"{head},note\nnet,224,1.5,2.25M,a\n"), "timm")
    assert tuple(row.column for row in found.rows) == columns
    assert [row.figure.value for row in found.rows] == [1_500_000_000, 2_250_000]
    assert {(row.image_size, row.input) for row in found.rows} == {size}
    assert {row.target for row in found.rows} == {"timm:net"}
    assert found.ignored == ("note",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("224", (224, "")), ("224x224", (224, "")), ("3x224x224", (224, "")), ("", (None, "")),
     ("224x320", (None, "1x3x224x320")), ('"(3, 224, 224)"', (224, "")),
     ("1x3x8x9", (None, "1x3x8x9")), ("1x3x16x8x8", (None, "1x3x16x8x8"))],
)  # fmt: skip
def test_inputs_are_sides_or_shapes(tmp_path, text, expected):
    """A square image of three channels is a side; a missing input is the usual one."""
    [row] = read_published_table(table(tmp_path, f"model,input,macs\nnet,{text},1\n")).rows
    assert (row.image_size, row.input) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "no rows"), ("model,speed\na,1\n", "its columns are model, speed"),
     ("speed,macs\n1,2\n", "no column for the model"), ("model,macs\na\n", "line 2"),
     ("model,macs\na,many\n", "column macs: 'many' is not a number of MACs"),
     ("model,macs\n,1\n", "does not name a model"),
     ("model,size,macs\na,big,1\n", "'big' is not an input size")],
)  # fmt: skip
def test_other_tables_are_rejected(tmp_path, text, words):
    """With what was found in them."""
    with pytest.raises(InputError) as caught:
        read_published_table(table(tmp_path, text))
    assert words in caught.value.message
