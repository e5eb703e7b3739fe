"""The tables of a report, on a small model of which every number is known."""

import pytest

from crossflops import Report
from crossflops.errors import InputError
from crossflops.verbs.api import count
from tests.models import nn, torch

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def report():
    """Two blocks of Linear(4, 4) without bias and ReLU on 2 rows: 32 MACs and 8 compares each."""

    def block():
        return nn.Sequential(nn.Linear(4, 4, bias=False), nn.ReLU())

    model = nn.Sequential(block(), block(), nn.Linear(4, 2, bias=False))
    return count(model, torch.zeros(2, 4), as_=["exact-2k-1", "elementwise-1"])


def test_by_operator(report):
    """Three products, two comparisons: 32 + 32 + 16 MACs; (2 x 4 - 1) for each of 20 results."""
    view = report.view("op")
    rows = {row[0]: row for row in view.rows}
    place = {name: at for at, name in enumerate(view.columns)}
    product = rows["MatMul" if "MatMul" in rows else "Gemm"]
    assert product[place["nodes"]] == 3
    assert product[place["macs"]] == 80
    assert product[place["exact-2k-1"]] == 7 * 20
    assert rows["Relu"][place["flops"]] == 16
    assert rows["Relu"][place["elementwise-1"]] == 16
    assert view.total[place["exact-2k-1"]] == 140 + 16
    assert view.order == "exact-2k-1"
    # bytes: a ReLU reads and writes 8 floats, twice
    assert rows["Relu"][place["bytes_read"]] == 2 * 32


def test_by_module_every_row_has_all_beneath_it(report):
    """The tree in the order of the model, with its levels."""
    view = report.view("module")
    assert view.cells("module") == ("", "0", "0.0", "0.1", "1", "1.0", "1.1", "2")
    assert view.levels == (0, 1, 2, 2, 1, 2, 2, 1)
    assert view.cells("macs") == (80, 32, 32, 0, 32, 32, 0, 16)
    assert view.cells("params") == (40, 16, 16, 0, 16, 16, 0, 8)
    assert view.cells("elementwise-1") == (16, 8, 0, 8, 8, 0, 8, 0)
    shallow = report.view("module", depth=1)
    assert shallow.cells("module") == ("", "0", "1", "2")
    assert shallow.cells("macs") == (80, 32, 32, 16)
    assert report.view("module", depth=0).cells("class") == ("Sequential",)


def test_the_largest_rows(report):
    """The model itself is not among its own parts; what is left out is numbered."""
    view = report.view("module", top=2, depth=1)
    assert view.cells("module") == ("0", "1")
    assert (view.levels, view.hidden) == ((), 1)
    assert report.view("module", depth=1).hidden == 0
    assert view.total[view.columns.index("macs")] == 80


def test_by_type(report):
    """The class of the innermost module around a node."""
    view = report.view("type")
    assert {row[0]: row[1:3] for row in view.rows} == {"Linear": (3, 3), "ReLU": (2, 2)}
    assert dict(zip(view.cells("type"), view.cells("macs"), strict=True)) == {
        "Linear": 80,
        "ReLU": 0,
    }


def test_by_node_the_order_is_that_of_the_graph(report):
    """Kind and target as torch.fx has them."""
    view = report.view("node")
    assert view.cells("target") == ("0.0", "0.1", "1.0", "1.1", "2")
    assert set(view.cells("kind")) == {"call_module"}
    assert view.cells("class") == ("Linear", "ReLU", "Linear", "ReLU", "Linear")
    assert view.cells("elementwise-1") == (0, 8, 0, 8, 0)
    assert sum(view.cells("flops")) == report.flops


@pytest.mark.parametrize("by", ["op", "module", "node", "type"])
def test_a_report_read_back_gives_the_same_tables(report, by):
    """They are derived from what is in the JSON."""
    assert Report.from_json(report.to_json()).view(by) == report.view(by)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"by": "colour"}, "unknown --by 'colour'"),
        ({"by": "op", "depth": 1}, "got --by op"),
        ({"by": "module", "depth": -1}, "must be at least 0, got -1"),
        ({"by": "op", "top": 0}, "must be at least 1, got 0"),
    ],
)
def test_what_does_not_go_together(report, arguments, message):
    """Each is refused in a line, with a line of what to do."""
    with pytest.raises(InputError, match=message):
        report.view(**arguments)


def test_what_looks_at_modules_has_no_nodes():
    """torchstat's figures belong to modules; they are not spread over nodes."""
    counted = count(nn.Conv2d(4, 2, 1, bias=False), torch.zeros(1, 4, 1, 1), as_="torchstat")
    assert counted.view("module").cells("torchstat") == (8,)
    assert counted.view("type").cells("torchstat") == (8,)
    for by in ("op", "node"):
        with pytest.raises(InputError, match="calls of modules"):
            counted.view(by)
