"""The terminal page, written out by hand where it matters."""

import re

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from crossflops.core.profile import Failure
from crossflops.core.trace import Setting
from crossflops.render import comparison
from crossflops.render.page import Column, Page, Row, Table, Title
from crossflops.render.terminal import terminal

WIDE = """\
ResNet · 25.56 M parameters · input 1x3x224x224 float32 · 4.089 GMACs · 8.239 GFLOPs \
(native, exact)

 tool                      prints            total   as MACs   vs native   explained
 thop 0.1.1                "MACs"    4 133 742 592   4.134 G     +1.09 %       100 %
 fvcore 0.1.5              "flops"   4 111 512 576   4.112 G     +0.55 %       100 %
 torch-flop-counter 2.13   "FLOPs"   8 178 368 512   4.089 G      0.00 %       100 %

 thop = native + 44 558 336
   norm.batch      +44 455 936   53 calls   4 per element of every nn.BatchNorm2d
   pool.adaptive      +102 400   1 call     (49 adds + 1 div) per output of AdaptiveAvgPool2d
   residual                  0

 fvcore = native + 22 328 320
   norm.batch      +22 227 968   53 calls   4 per element of every nn.BatchNorm2d
   pool.adaptive      +100 352   1 call     (49 adds + 1 div) per output of AdaptiveAvgPool2d
   residual                  0

 torch-flop-counter = native + 4 089 184 256
   unit.mac-vs-flop   +4 089 184 256   54 calls   2 FLOPs for a MAC
   residual                        0
"""  # the shape that the design shows; numbers published for ResNet-50

COUNT = """\
ResNet · 25.56 M parameters · input 1x3x224x224 float32 · 4.089 GMACs
  8.239 GFLOPs (native, exact)

   MACs            4 089 184 256   multiply-accumulates of contractions
   adds               60 000 000
   muls                        0
   divs                        0
   compares                    0
   specials              616 832
   FLOPs           8 238 985 344   2 x MACs and one for each of the others
   bytes read              1 000   every operator by itself, nothing fused
   bytes written           2 000
   parameters         25 557 032

 Operators
 operator   nodes            MACs           FLOPs   of MACs
 Conv          53   4 087 136 256   8 174 272 512    99.9 %
 Gemm           1       2 048 000       4 096 000     0.1 %
 Relu          49               0      60 616 832     0.0 %
"""


def lines(text):
    """The lines of a text."""
    return text.splitlines()


def test_a_comparison_looks_as_the_design_shows_it(resnet):
    """At 120 columns a comparison is the page that the design shows."""
    assert terminal(resnet, 120) == WIDE


def test_a_count_shows_totals_by_kind_and_operators(count):
    """A count without tools shows every kind, then the operators, the most MACs first."""
    assert terminal(count, 80) == COUNT


@pytest.mark.parametrize("width", [20, 40, 80, 120])
@pytest.mark.parametrize("colour", [False, True])
@pytest.mark.parametrize("name", ["resnet", "troubled", "count", "folded"])
def test_no_line_is_longer_than_the_terminal(request, name, width, colour):
    """However narrow it is, no line runs over the edge."""
    text = terminal(request.getfixturevalue(name), width, colour)
    text = re.sub(r"\x1b\[[\d;]*m", "", text)
    assert "\x1b" not in text
    assert max(map(cell_len, lines(text))) <= width


def test_eighty_columns_keep_every_number(resnet):
    """At 80 columns all six columns of the overview are there."""
    text = terminal(resnet, 80)
    assert (
        ' torch-flop-counter 2.13  "FLOPs"  8 178 368 512  4.089 G     0.00 %      100 %' in text
    )
    assert "+44 455 936   53 calls" in text


def test_narrow_overviews_lose_the_least_needed_column_first():
    """A spare column makes way, the highest number first; the others stay whole."""
    table = Table(
        columns=(Column(head="aaaa"), Column(head="bbbb", spare=1), Column(head="cccc", spare=2)),
        rows=(Row(("1", "2", "3")),),
    )
    assert lines(terminal(Page((table,)), 17)) == [" aaaa  bbbb  cccc", " 1     2     3"]
    assert lines(terminal(Page((table,)), 16)) == [" aaaa   bbbb", " 1      2"]
    assert lines(terminal(Page((table,)), 10)) == [" aaaa", " 1"]


def test_a_title_breaks_between_its_parts():
    """A part of the title is never cut where it fits on a line of its own."""
    page = Page((Title(("one two", "three four", "five")),))
    assert lines(terminal(page, 14)) == ["one two", "  three four", "  five"]


def test_plain_text_has_no_frames_and_no_escapes(resnet, troubled):
    """Piped output holds words, digits and spaces, and one kind of dot."""
    for report in (resnet, troubled):
        text = terminal(report, 80)
        assert {letter for letter in text if not letter.isascii()} == {"·"}
        assert "\x1b" not in text
        assert all(line == line.rstrip() for line in lines(text))


def test_colour_marks_a_residual(resnet, troubled):
    """With colour a zero residual is green, and another one red."""
    assert "\x1b[32mresidual" in terminal(resnet, 80, colour=True)
    assert "\x1b[1;31mresidual" in terminal(troubled, 80, colour=True)


def test_a_residual_is_shown_and_located(troubled):
    """A residual stands in the page, at the innermost module where the tool disagrees."""
    text = terminal(troubled, 80)
    assert "   residual    +1\n   at layer1.conv: predicted 6, printed 7\n" in text
    assert "at layer1:" not in text
    assert "100 %" not in text


def test_what_is_not_as_it_should_be_is_said(troubled):
    """An unverified version, another setting, wrong parameters, a failure: each has its line."""
    text = terminal(troubled, 100)
    assert "thop 9.9*" in text
    assert " * unverified version 9.9: the convention was checked on 1.0\n" in text
    assert "no grad" in text
    assert "   ran in an unexpected setting: eval grad\n" in text
    assert " Parameters: native 25 557 032\n" in text
    assert "+127.22 %   -       +32 512 968   not explained here\n" in text
    assert " fvcore failed at time: ran past 5 s (--timeout 60)\n" in text


def test_uncounted_nodes_are_named(troubled):
    """Twelve nodes are named, the rest is numbered, and the title does not say exact."""
    text = terminal(troubled, 100)
    assert "(native, without 14 uncounted nodes)" in text
    assert " node11   Mystery    no formula yet\n and 2 nodes more, all named in" in text
    assert "node12" not in text


def test_a_folded_count_says_that_it_assumed(folded):
    """A count by a convention shows its total, and that its calls were assumed."""
    text = terminal(folded, 80)
    assert "   thop@0.0.31   4 111 514 624   4.112 G\n thop is assumed: " in text


def test_the_unit_orders_the_operators(count):
    """With FLOPs as the unit the shares are shares of FLOPs, and Relu stands above Gemm."""
    text = terminal(count, 80, unit="flops")
    rows = [line.split()[0] for line in lines(text)[-3:]]
    assert rows == ["Conv", "Relu", "Gemm"]
    assert "of FLOPs" in text
    assert lines(text)[-2].endswith(" 0.7 %")  # 60 616 832 / 8 238 985 344 = 0.74 %


def test_no_tool_is_said(count):
    """A comparison in which no tool ran says how to get one."""
    text = terminal(replace(count, profiles=(), reconciliations=()), 80)
    assert "No tool was run: `crossflops doctor` says how to install some." in text


def test_only_failures_leave_no_empty_table(count):
    """When every tool failed there is no overview, only their lines."""
    failure = Failure(tool="thop", stage="load", message="broken", hint="mend it")
    text = terminal(replace(count, profiles=(failure,), reconciliations=()), 80)
    assert "explained" not in text
    assert text.endswith("\n\n No answer\n thop failed at load: broken (mend it)\n")


def test_names_are_not_read_as_markup():
    """Brackets and colons in a name are printed as they are."""
    page = Page((Title(("[bold]x[/bold] :smile:",)),))
    assert terminal(page, 80) == "[bold]x[/bold] :smile:\n"


@pytest.mark.parametrize(("forces", "said"), [({}, True), ({"grad": False}, False)])
def test_a_setting_that_the_tool_imposes_is_expected(resnet, monkeypatch, forces, said):
    """What the convention says that the tool imposes is not told again in every report."""
    known = comparison.find

    def find(tool, edition=None):
        return replace(known(tool, edition), forces=forces)

    monkeypatch.setattr(comparison, "find", find)
    other = replace(resnet.profiles[0], setting=Setting(grad=False, hooked=True))
    text = terminal(replace(resnet, profiles=(other,)), 80)
    assert ("   ran in an unexpected setting: eval no_grad hooked\n" in text) is said
