"""Parameters of the tools beside ours, on a page."""

from msgspec.structs import replace

from crossflops import Report
from crossflops.ir.reconciliation import ParamsExplanation, ParamsReconciliation
from crossflops.render.formats import markdown
from crossflops.render.terminal import terminal

OURS = 25_557_032


def with_params(report, tool, theirs, **amounts):
    """The report, with another number of parameters of one tool, and its causes."""
    account = ParamsReconciliation(
        ours=OURS,
        theirs=theirs,
        predicted=OURS + sum(amounts.values()),
        explanations=tuple(
            ParamsExplanation(
                cause=f"params.{name}", amount=amount, parameters=("a.b", "c"), reference="r"
            )
            for name, amount in amounts.items()
        ),
    )
    return replace(
        report,
        profiles=tuple(
            replace(profile, params=theirs) if profile.tool == tool else profile
            for profile in report.profiles
        ),
        reconciliations=tuple(
            replace(reconciliation, params=account)
            if reconciliation.tool == tool
            else reconciliation
            for reconciliation in report.reconciliations
        ),
    )


def test_each_cause_has_a_line_and_the_others_agree(resnet):
    """The largest first; tools that count as we do are named in one line."""
    text = terminal(with_params(resnet, "thop", OURS - 300, bare=-100, frozen=-200), 80)
    assert text.splitlines()[-5:] == [
        " Parameters: native 25 557 032",
        " tool   parameters   vs native   cause           amount   what",
        " thop   25 556 732    -0.001 %   params.frozen     -200",
        "                                 params.bare       -100",
        "   the same as the native count: fvcore, torch-flop-counter",
    ]


def test_a_residual_is_shown(resnet):
    """What no cause covers has a line of its own."""
    report = with_params(resnet, "thop", OURS - 299, bare=-300)
    assert report.reconciliation("thop").params.residual == 1
    assert " residual          +1\n" in terminal(report, 80)
    plain = report.to_dict()["reconciliations"][0]["params"]
    assert (plain["delta"], plain["residual"]) == (-299, 1)


def test_where_all_agree_nothing_is_said(resnet):
    """No section without a difference."""
    assert "Parameters" not in terminal(resnet, 80)


def test_a_file_names_the_parameters(resnet):
    """Markdown has them; what is read back looks the same."""
    report = with_params(resnet, "thop", OURS - 5, bare=-5)
    assert "a.b, and 1 more" in markdown(report)
    assert markdown(Report.from_json(report.to_json())) == markdown(report)
