"""Tables that were published, a row for each node or layer, from one command each."""

import csv
import json

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch
POINTWISE = ("count", "targets_of_tables.py:Pointwise", "--input", "1x5x32x32")
LAYER = ("count", "targets_of_tables.py:first_layer", "--input", "1x3x500x500")


def test_the_table_of_nodes(crossflops):
    """Name, kind, target, class and operations of every node, and their sum."""
    done = crossflops(*POINTWISE, "--as", "elementwise-1", "--by", "node")
    assert done.status == 0, done.err
    rows = [line.split() for line in done.out.splitlines()]
    assert ["node", "operator", "kind", "target", "class", "elementwise-1", "share"] in rows
    for name, operator, kind in (("relu", "Relu", "ReLU"), ("sigmoid", "Sigmoid", "Sigmoid")):
        row = next(row for row in rows if row and row[0] == f"node_{name}")
        assert row[1:3] == [operator, "call_module"]
        assert row[3:] == [name, kind, "5", "120", "50.0", "%"]
    assert ["total", "10", "240", "100.0", "%"] in rows


def test_the_table_of_layers(crossflops):
    """Parameters, memory, MAdd, Flops, MemRead and MemWrite, under the tool's own heads."""
    done = crossflops(*LAYER, "--as", "torchstat*", "--by", "module")
    assert done.status == 0, done.err
    table = [line for line in done.out.splitlines() if line.startswith((" module", " total"))]
    assert table[0].split() == [
        "module", "params", "Flops", "MAdd", "MemRead", "MemWrite", "memory",
    ]  # fmt: skip
    assert (
        "".join(table[1].split())
        == "total294" + "18375000" + "36625000" + "3001176" + "500000" * 2
    )


def test_the_table_of_layers_as_csv(crossflops, tmp_path):
    """The same figures, raw."""
    file = tmp_path / "layers.csv"
    done = crossflops(*LAYER, "--as", "torchstat*", "--by", "module", "-o", str(file))
    assert (done.status, done.out) == (0, ""), done.err
    row = list(csv.DictReader(file.read_text().splitlines()))[1]
    assert (row["module"], row["class"], row["params"]) == ("0", "Conv2d", "294")
    assert row["torchstat"] == row["macs"] == "18375000"
    assert row["torchstat-madd"] == "36625000"
    assert (row["torchstat-memread"], row["torchstat-memwrite"]) == ("3001176", "500000")
    # the unfused model reads the same: the image and the weights, and writes the output
    assert (row["bytes_read"], row["bytes_written"]) == ("3001176", "500000")


def test_the_exact_form_of_a_matrix_product(crossflops):
    """(2 x 5 - 1) x 4 + 4 = 40; 2K for it would be 44."""
    done = crossflops(
        "count", "targets_of_tables.py:linear", "--input", "1x5", "--as", "exact-2k-1", "--json"
    )
    data = json.loads(done.out)
    assert (data["as"]["total"], data["totals"]["flops"]) == (40, 44)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--by", "op", "--depth", "1"), "got --by op"),
        (("--by", "colour"), "colour"),
        (("--top", "0"), "0"),
        (("--as", "torchstat", "--by", "node"), "so it has no table --by node"),
        (
            (
                "--as",
                "nothing*",
            ),
            "no convention matches",
        ),
    ],
)
def test_what_does_not_go_together_is_two_lines(crossflops, arguments, message):
    """Status 2, what is wrong and what to do."""
    done = crossflops(*POINTWISE, *arguments)
    assert (done.status, done.out) == (2, "")
    wrong, remedy = done.err.splitlines()
    assert wrong.startswith("error: ")
    assert message in wrong
    assert remedy.startswith("hint: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--to", "onnx", "-o", "model.json"), "must end in .onnx"),
        (("--to", "onnx", "-o", "no/such/folder/model.onnx"), "does not exist"),
        (
            ("--to", "model-explorer", "-o", "m.json", "--annotate"),
            "--annotate applies only to --to onnx",
        ),
        (("--to", "onnx"), "--output"),
    ],
)
def test_a_wrong_export_is_two_lines(crossflops, arguments, message):
    """Before the model is built."""
    done = crossflops("export", "no_such_module:f", *arguments)
    assert (done.status, done.out) == (2, "")
    wrong, _ = done.err.splitlines()
    assert message in wrong


def test_an_export_says_what_it_wrote(crossflops, tmp_path):
    """On stderr, as every file does."""
    file = tmp_path / "out.onnx"
    done = crossflops("export", *POINTWISE[1:], "--to", "onnx", "--annotate", "-o", str(file))
    assert (done.status, done.out, done.err) == (0, "", f"wrote {file}\n")
    counted = crossflops("count", str(file), "--as", "elementwise-1", "--by", "node", "--json")
    assert json.loads(counted.out)["as"]["total"] == 10_240
