"""The terminal page, written out by hand where it matters."""

import re

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from crossflops.commands import python_command
from crossflops.ir.profile import ConventionCount, Failure
from crossflops.ir.trace import Setting
from crossflops.render.page import Code, Column, Heading, Page, Row, Table, Text, Title
from crossflops.render.pages import comparison
from crossflops.render.terminal import terminal
from crossflops.render.terminal import terminal_cell_width as measured
from crossflops.report.report import InputInfo, UncountedRow

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
   FLOPs           8 238 985 344   2 x MACs, and one for each other operation
   bytes read              1 000   each operator separately, without fusion
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
    """A spare column makes way, the highest number first, and is named; the others stay whole."""
    table = Table(
        columns=(Column(head="aaaa"), Column(head="bbbb", spare=1), Column(head="cccc", spare=2)),
        rows=(Row(("1", "2", "3")),),
    )
    assert lines(terminal(Page((table,)), 17)) == [" aaaa  bbbb  cccc", " 1     2     3"]
    assert lines(terminal(Page((table,)), 16))[:3] == [
        " aaaa   bbbb",
        " 1      2",
        "   left out at",
    ]
    assert "16 columns: cccc; COLUMNS=17 shows it," in said(terminal(Page((table,)), 16))
    narrow = terminal(Page((table,)), 10)
    assert lines(narrow)[:2] == [" aaaa", " 1"]
    assert "columns:bbbb,cccc;COLUMNS=17showsthem," in said(narrow).replace(" ", "")


def said(text):
    """The words of a text, wherever its lines break."""
    return " ".join(text.split())


def test_what_is_left_out_is_named_once_for_like_tables():
    """Two tables that lose the same column name it once; another loss is named again."""
    first = Table(
        columns=(Column(head="aaaa"), Column(head="bbbb" * 5, spare=1)), rows=(Row(("1", "2")),)
    )
    other = replace(first, columns=(Column(head="aaaa"), Column(head="cccc" * 5, spare=1)))
    text = said(terminal(Page((first, first, other)), 24))
    assert text.count("left out at 24 columns: " + "bbbb" * 5) == 1
    assert text.count("left out at 24 columns: " + "cccc" * 5) == 1


def test_the_figures_that_answer_stay_at_eighty_columns(resnet):
    """Of a comparison with long names and totals, the word that a tool prints makes way first."""
    profiles = tuple(replace(profile, version="2.13.99rc1") for profile in resnet.profiles)
    report = replace(resnet, profiles=profiles)
    text = terminal(report, 80)
    heads = " ".join(lines(text)[3:5])
    assert all(word in heads for word in ("total", "as MACs", "native", "explained"))
    assert "prints" not in heads
    assert "left out at 80 columns: prints; COLUMNS=" in said(text)
    wide = int(said(text).split("COLUMNS=")[1].split()[0])
    assert '"flops"' in terminal(report, wide)
    assert "left out" not in terminal(report, wide)


HOSTILE = "conv\x1b[2J\x9b31m\u202egnp.\x07\x7f\u2028\udc80\r\n"
INERT = r"conv\x1b[2J\x9b31m\u202egnp.\x07\x7f\u2028\udc80\r\n"


def test_no_control_character_reaches_the_terminal(count):
    """Wherever a name stands, what a terminal would obey is spelled out."""
    rows = (UncountedRow(HOSTILE, HOSTILE, HOSTILE),)
    named = InputInfo(HOSTILE, "float32", (1,))
    model = replace(count.model, name=HOSTILE, inputs=(named, named))
    failure = Failure(tool=HOSTILE, stage="load", message=HOSTILE, hint=HOSTILE)
    folds = ConventionCount(tool=HOSTILE, edition="1", total=1, assumed=True)
    reports = (
        replace(count, model=model, uncounted=rows, as_=folds),
        replace(count, model=model, profiles=(failure,), reconciliations=()),
    )
    for report in reports:
        text = terminal(report, 300)
        assert all(letter == "\n" or letter.isprintable() for letter in text)
        assert INERT in text
    assert terminal(Page((Code("a\x1b\nb"), Heading(HOSTILE))), 80).startswith("   a\\x1b\n   b\n")


@pytest.mark.parametrize("letter", ["a", "a ", "\u0301", "\x1b", "\u3042"])
def test_an_endless_name_does_not_fill_the_screen(count, letter):
    """A name of 100 000 letters, of whatever kind, takes a few lines and keeps both ends."""
    name = f"begin{letter * 100_000}end"
    model = replace(count.model, name=name, inputs=(InputInfo(name, "float32", (1,)),) * 2)
    rows = (UncountedRow(name, name, name),)
    text = terminal(replace(count, model=model, uncounted=rows), 80)
    plain = terminal(count, 80)
    assert len(text) < 20_000
    assert len(lines(text)) < len(lines(plain)) + 3 * 24 * (4 if " " in letter else 1)
    assert "begin" in text
    assert "end" in text


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
    assert " * unverified version 9.9: the convention was checked with 1.0\n" in text
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
    assert "No tool was run: `crossflops doctor` shows how to install tools." in text


def test_only_failures_leave_no_empty_table(count):
    """When every tool failed there is no overview, only their lines."""
    failure = Failure(tool="thop", stage="load", message="broken", hint="mend it")
    text = terminal(replace(count, profiles=(failure,), reconciliations=()), 80)
    assert "explained" not in text
    assert text.endswith("\n\n No answer\n thop failed at load: broken (mend it)\n")


def test_tools_that_fail_for_one_reason_are_one_line(count):
    """Also where each is named in its own message; another stage, word or hint is another line."""
    rows = [
        *((tool, "build", "the file has no batch norm", "mend it") for tool in ("a", "b", "c-d")),
        ("e", "build", "e wants e", "leave e out"),
        ("f-g", "build", "f-g wants f-g", "leave f-g out"),
        ("h", "run", "the file has no batch norm", "mend it"),
        ("i", "build", "the file has no batch norm", "pip install it"),
    ]
    failures = tuple(
        Failure(tool=tool, stage=stage, message=message, hint=hint)
        for tool, stage, message, hint in rows
    )
    text = terminal(replace(count, profiles=failures, reconciliations=()), 120)
    assert text.split(" No answer\n")[1].splitlines() == [
        " a, b, c-d failed at build: the file has no batch norm (mend it)",
        " e, f-g failed at build: e wants e (leave e out)",
        " h failed at run: the file has no batch norm (mend it)",
        " i failed at build: the file has no batch norm",
        f"   {python_command()} -m pip install it",
    ]


def test_names_are_not_read_as_markup():
    """Brackets and colons in a name are printed as they are."""
    page = Page((Title(("[bold]x[/bold] :smile:",)),))
    assert terminal(page, 80) == "[bold]x[/bold] :smile:\n"


@pytest.mark.parametrize(("forces", "said"), [({}, True), ({"grad": False}, False)])
def test_a_setting_that_the_tool_imposes_is_expected(resnet, monkeypatch, forces, said):
    """What the convention says that the tool imposes is not told again in every report."""
    known = comparison.find_convention

    def find(tool, edition=None):
        return replace(known(tool, edition), forces=forces)

    monkeypatch.setattr(comparison, "find_convention", find)
    other = replace(resnet.profiles[0], setting=Setting(grad=False, hooked=True))
    text = terminal(replace(resnet, profiles=(other,)), 80)
    assert ("   ran in an unexpected setting: eval no_grad hooked\n" in text) is said


def test_columns_of_letters_are_those_that_rich_knows():
    """Latin ones are measured without it, others by it: marks take none, ideographs two."""
    for letter in map(chr, range(0x3100)):
        assert measured(f"a{letter}") == cell_len(f"a{letter}")


@pytest.mark.parametrize("colour", [False, True])
@pytest.mark.parametrize("width", range(20, 90, 3))
def test_no_line_breaks_within_a_number(width, colour):
    """Not in a title, a heading, a paragraph, a cell or a head, at any width."""
    words = "macs <= +1% fails, with 218 790. Grew: Conv_0 +24 300, of 1 024 (-4 558 336)"
    numbers = ("218 790.", "+24 300,", "1 024", "(-4 558 336)")
    columns = (Column(head="of 1 024"), Column(head="why", flows=True))
    for block in (
        Title((words,)),
        Heading(words),
        Text(words, "! "),
        Table(columns=columns, rows=(Row.from_cells("x", words),)),
    ):
        lines = "".join(f" {line.strip()} \n" for line in written(block, width, colour))
        for number in numbers:
            assert number in lines


def written(block, width, colour):
    """The lines of one block, without colours."""
    page = terminal(Page((block,)), width, colour)
    return [re.sub(r"\x1b\[[\d;]*m", "", line) for line in page.splitlines()]
