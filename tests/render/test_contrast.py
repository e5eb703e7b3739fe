"""Two tools set against each other, on a page."""

from msgspec.structs import replace

from crossflops import Report
from crossflops.render.formats import markdown
from crossflops.render.terminal import terminal


def between(report, first, second):
    """The report with a contrast."""
    return replace(report, between=report.contrast(first, second))


def test_the_difference_of_two_tools(resnet):
    """On ResNet-50: 2 per element of its batch norms, and half an operation at each average."""
    text = terminal(between(resnet, "fvcore", "thop"), 80)
    assert text.splitlines()[-7:-2] == [
        " thop = fvcore + 22 230 016",
        " cause                amount        fvcore          thop   from",
        " norm.batch      +22 227 968   +22 227 968   +44 455 936   53 calls",
        " pool.adaptive        +2 048      +100 352      +102 400   1 call",
        " residual                  0",
    ]
    assert text.splitlines()[-2].startswith("   left out at 80 columns: what; ")
    assert "torch-flop-counter" not in text


def test_it_is_read_back_as_it_was_written(resnet):
    """JSON holds the amounts, the difference and the residual."""
    report = between(resnet, "thop", "torch-flop-counter")
    data = report.to_dict()["between"]
    assert (data["delta"], data["residual"]) == (2 * 4_089_184_256 - 4_133_742_592, 0)
    assert data["differences"][0]["amount"] == 4_089_184_256
    assert Report.from_json(report.to_json()) == report
    assert markdown(Report.from_json(report.to_json())) == markdown(report)


def test_it_fits_a_narrow_terminal(resnet):
    """On 40 columns the two amounts make way, and the difference stays."""
    lines = terminal(between(resnet, "fvcore", "thop"), 40).splitlines()
    assert max(map(len, lines)) <= 40
    assert any("norm.batch" in line and "+22 227 968" in line for line in lines)
