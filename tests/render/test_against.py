"""Two models on a page: what is a different model, what a different count."""

import csv
import io

import pytest
from msgspec.structs import replace

from crossflops import Report
from crossflops.ir.profile import Failure
from crossflops.ir.reconciliation import Alignment, CauseRow, LayerPair, Place, Shift, Work
from crossflops.render.formats import FORMATS
from crossflops.render.pages.places import ComparisonView
from crossflops.render.terminal import terminal
from crossflops.report.comparison import Against, contrast_accounts

LESS = 77_070_336  # of one 1x1 convolution that strides


def layer(number):
    """The first convolution of a stage, with and without its stride."""
    first = Place(nodes=(f"c{number}",), path=f"layer{number}.0.conv1", what="Conv 1x1")
    second = Place(nodes=(f"d{number}",), path=f"conv{number}_block1_1_conv", what="Conv 1x1 /2")
    shift = Shift(cause="model.stride", macs=-LESS, flops=-2 * LESS, note="stride 1 -> 2")
    more = Work(macs=4 * LESS, flops=8 * LESS)
    less = Work(macs=3 * LESS, flops=6 * LESS)
    return LayerPair(
        first=first, second=second, first_work=more, second_work=less, shifts=(shift,)
    )


@pytest.fixture
def two(resnet):
    """ResNet-50 against one of three layers that stride, with the tools of the first for both."""
    macs = resnet.macs - 3 * LESS
    whole = Work(macs=resnet.macs, flops=resnet.flops, params=resnet.params)
    less = replace(whole, macs=macs, flops=resnet.flops - 6 * LESS)
    same = LayerPair(first=None, second=None, first_work=Work(), second_work=Work())
    cause = CauseRow(cause="model.stride", macs=-3 * LESS, flops=-6 * LESS, params=0, layers=3)
    theirs = tuple(
        replace(
            reconciliation,
            ours=macs,
            theirs=reconciliation.theirs - 3 * LESS * (reconciliation.unit or 1),
        )
        for reconciliation in resnet.reconciliations
        if reconciliation.tool in ("thop", "fvcore")
    )
    against = Against(
        model=replace(resnet.model, name="other"),
        totals=replace(resnet.totals, macs=macs, flops=less.flops),
        alignment=Alignment(
            first_work=whole,
            second_work=less,
            causes=(cause,),
            layers=(*map(layer, (2, 3, 4)), same),
        ),
        profiles=resnet.profiles,
        reconciliations=theirs,
        tools=tuple(
            contrast_accounts(
                resnet.reconciliation(reconciliation.tool), reconciliation, models=True
            )
            for reconciliation in theirs
        ),
    )
    return replace(resnet, against=against)


def test_the_difference_of_two_models(two):
    """The sum, its cause, the layers that differ alike in one row, and the tools."""
    text = " ".join(terminal(two, 130).split())
    assert "other = ResNet - 231 211 008 MACs (-5.65 %)" in text
    assert "model.stride -231 211 008 -462 422 016 0 3" in text
    assert "Layers that differ: 3 of 4" in text
    row = "layer*.0.conv1 conv*_block1_1_conv 3 model.stride: stride 1 -> 2 -231 211 008"
    assert row in text
    assert "thop 4 133 742 592 3 902 531 584 -231 211 008 -231 211 008 0" in text


def test_nothing_is_left_of_tools_that_count_alike(two):
    """The whole difference of each tool is that of the models."""
    for tool in two.against.tools:
        assert tool.model == -3 * LESS
        assert (tool.delta, tool.residual, tool.differences) == (-3 * LESS, 0, ())


def test_two_tools_on_two_models(two):
    """fvcore on the first, thop on the second: its batch norms and half of its pools are more."""
    (thop,) = (
        reconciliation
        for reconciliation in two.against.reconciliations
        if reconciliation.tool == "thop"
    )
    compared = contrast_accounts(two.reconciliation("fvcore"), thop, models=True)
    assert {difference.cause: difference.amount for difference in compared.differences} == {
        "norm.batch": 22_227_968,
        "pool.adaptive": 2_048,
    }
    assert compared.delta == -3 * LESS + 22_227_968 + 2_048
    assert compared.residual == 0


def test_it_is_read_back_as_it_was_written(two):
    """Every format of the report that was read is that of the report that was written."""
    again = Report.from_json(two.to_json())
    assert again == two
    plain = two.to_dict()["against"]
    assert plain["alignment"]["delta"]["macs"] == -3 * LESS
    assert plain["alignment"]["residual"] == {"macs": 0, "flops": 0, "params": 0}
    assert plain["alignment"]["same"] is False
    assert [tool["residual"] for tool in plain["tools"]] == [0, 0]
    for write in FORMATS.values():
        assert write(ComparisonView(again, 5)) == write(ComparisonView(two, 5))


def test_a_table_has_every_layer(two):
    """One line for each cause of each layer, and for the layer that is the same."""
    rows = list(csv.DictReader(io.StringIO(FORMATS[".csv"](two))))
    assert [row["macs"] for row in rows] == [str(-LESS)] * 3 + ["0"]
    assert rows[0]["first"] == "layer2.0.conv1"
    assert rows[0]["note"] == "stride 1 -> 2"


def test_the_same_model_says_so(two):
    """And shows neither causes nor layers."""
    whole = two.against.alignment.first_work
    same = Alignment(first_work=whole, second_work=whole, causes=(), layers=())
    against = replace(two.against, alignment=same, totals=two.totals, tools=())
    text = terminal(replace(two, against=against), 100)
    assert "the same model" in text
    assert "residual" not in text


def test_a_tool_that_answered_for_one_did_not_fail(two):
    """A failure is told where neither model has a number."""
    gone = Failure(tool="gone", stage="run", message="no", hint="look")
    half = Failure(tool="thop", stage="accept", message="never shown", hint="")
    against = replace(two.against, profiles=(gone, half))
    text = terminal(replace(two, against=against), 100)
    assert "gone" in text
    assert "never shown" not in text


@pytest.mark.parametrize("width", [40, 60, 80])
def test_it_fits_a_narrow_terminal(two, width):
    """No line is longer than the terminal."""
    assert max(map(len, terminal(two, width).splitlines())) <= width
