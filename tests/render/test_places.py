"""A report about one module, and the table of the places where tools disagree."""

import pytest
from msgspec.structs import replace

from crossflops import Report
from crossflops.errors import InputError, UnknownNameError
from crossflops.ir.reconciliation import Explanation, PathRow, Reconciliation
from crossflops.ir.trace import Setting
from crossflops.render.formats import markdown
from crossflops.render.pages.places import ComparisonView, module_differences
from crossflops.render.terminal import terminal
from crossflops.report.report import ModuleRow

# ours by path, each with all beneath it; the model itself does 5
OURS = {"": 225, "a.0": 100, "a.0.x": 90, "a.1": 100, "a.1.x": 90, "b": 20}
NORMS = {"": 8, "a.0": 4, "a.0.x": 4, "a.1": 4, "a.1.x": 4}
BLIND = {"": -20, "b": -20}


def row(path, unit, norms, blind, reported):
    """A tool's row: what it sees, at so much per MAC, and what it adds for norms."""
    seen = OURS[path] + (blind.get(path, 0))
    causes = {
        "norm.batch": norms.get(path, 0),
        "functional.invisible": blind.get(path, 0),
        "unit.mac-vs-flop": (unit - 1) * seen,
    }
    predicted = unit * seen + norms.get(path, 0)
    return PathRow(
        path=path,
        ours=OURS[path],
        predicted=predicted,
        theirs=predicted if reported else None,
        causes={cause: amount for cause, amount in causes.items() if amount},
    )


def account(tool, unit=1, norms=None, blind=None, reported=True):
    """A reconciliation that holds at every path."""
    rows = tuple(row(path, unit, norms or {}, blind or {}, reported) for path in OURS)
    calls = {"norm.batch": ("a.0.x", "a.1.x@2/aten.norm"), "functional.invisible": ("b/F.f",)}
    return Reconciliation(
        tool=tool,
        edition="1",
        unit=unit,
        ours=225,
        theirs=rows[0].predicted,
        predicted=rows[0].predicted,
        explanations=tuple(
            Explanation(cause=cause, amount=amount, calls=calls.get(cause, ("b",)), macs=0)
            for cause, amount in rows[0].causes.items()
        ),
        by_path=rows,
    )


@pytest.fixture
def report(resnet):
    """Two tools that add norms, one of which is blind for `b`, and one that counts as we do."""
    accounts = (
        account("thop", norms=NORMS, blind=BLIND),
        account("fvcore", norms=NORMS),
        account("torch-flop-counter", unit=2, reported=False),
    )
    totals = {reconciliation.tool: reconciliation.theirs for reconciliation in accounts}
    return replace(
        resnet,
        setting=Setting(),
        totals=replace(resnet.totals, macs=225),
        profiles=tuple(
            replace(profile, total=totals[profile.tool]) for profile in resnet.profiles
        ),
        reconciliations=accounts,
        modules=tuple(
            ModuleRow(path=path, class_="Block", macs=macs, flops=2 * macs, params=1)
            for path, macs in OURS.items()
        ),
    )


class TestModule:
    """A report about one module."""

    @pytest.mark.parametrize("path", OURS)
    def test_every_account_adds_up_there(self, report, path):
        """Causes lead from our MACs to the tool's number, and nothing is left."""
        for reconciliation in report.at(path).reconciliations:
            assert reconciliation.ours == OURS[path]
            assert reconciliation.residual == 0
            assert all(explanation.amount for explanation in reconciliation.explanations)

    def test_only_what_is_beneath_it_is_left(self, report):
        """Modules, rows, and the calls of a cause; nothing of a sibling of a similar name."""
        part = report.at("a.1")
        assert [module.path for module in part.modules] == ["a.1", "a.1.x"]
        first = part.reconciliation("thop")
        assert [place.path for place in first.by_path] == ["a.1", "a.1.x"]
        assert [explanation.calls for explanation in first.explanations] == [
            ("a.1.x@2/aten.norm",)
        ]
        assert [profile.total for profile in part.profiles] == [104, 104, 200]

    def test_the_page_is_about_the_module(self, report):
        """Its class and its MACs; a number that no tool printed is said to be predicted."""
        lines = terminal(report.at("a.0"), 80).splitlines()
        assert lines[0].startswith("a.0 of ResNet · Block · 1 parameter")
        assert "100 MACs" in lines[0] + lines[1]
        shown = {line.split()[0]: line.split()[-1] for line in lines[3:7] if line.strip()}
        assert shown == {
            "tool": "explained",
            "thop": "%",
            "fvcore": "%",
            "torch-flop-counter": "predicted",
        }
        assert any(line.startswith(" thop 0.1.1") and "+4.00 %" in line for line in lines)

    def test_a_residual_stays_where_it_is(self, report):
        """What a tool prints more in one module is a residual there, and none beside it."""
        first, *others = report.reconciliations
        rows = tuple(
            replace(place, theirs=place.theirs + 7) if place.path in ("", "b") else place
            for place in first.by_path
        )
        wrong = replace(report, reconciliations=(replace(first, by_path=rows), *others))
        assert wrong.at("b").residuals["thop"] == 7
        assert wrong.at("a.0").residuals["thop"] == 0

    def test_an_unknown_path_lists_those_like_it(self, report):
        """A slip in a path shows what there is."""
        with pytest.raises(UnknownNameError) as caught:
            report.at("a.0.y")
        assert "a.0.x" in caught.value.hint

    def test_a_report_without_causes_by_path_is_refused(self, report):
        """Older ones do not hold them."""
        rows = (PathRow(path="b", ours=20, predicted=20),)
        old = tuple(
            replace(reconciliation, by_path=rows) for reconciliation in report.reconciliations
        )
        with pytest.raises(InputError):
            replace(report, reconciliations=old).at("b")

    def test_it_is_read_back_as_it_was_written(self, report):
        """The module stands in the JSON."""
        part = report.at("a.0")
        assert part.to_dict()["module"]["path"] == "a.0"
        assert Report.from_json(part.to_json()) == part


class TestPlaces:
    """Where tools disagree most."""

    def test_every_module_stands_for_itself(self, report):
        """By hand: what is beneath a module is not in its own row; 2 per MAC is no difference."""
        by_module = module_differences(report)
        assert by_module.native == {"": 5, "a.0": 10, "a.0.x": 90, "a.1": 10, "a.1.x": 90, "b": 20}
        apart = {
            tool: {path: amount for path, amount in own.items() if amount}
            for tool, own in by_module.tools.items()
        }
        assert apart == {
            "thop": {"a.0.x": 4, "a.1.x": 4, "b": -20},
            "fvcore": {"a.0.x": 4, "a.1.x": 4},
            "torch-flop-counter": {},
        }
        assert {path: n for path, n in by_module.largest_by_module.items() if n} == {
            "a.0.x": 4,
            "a.1.x": 4,
            "b": 20,
        }

    def test_the_table(self, report):
        """The largest first, modules of one kind in one row, tools without a difference below."""
        lines = terminal(report, 80).splitlines()
        start = next(k for k, line in enumerate(lines) if "disagree" in line)
        assert lines[start + 1 : start + 5] == [
            " module   times   native   thop   fvcore",
            " b            1       20    -20        =",
            " a.*.x        2       90     +4       +4",
            "   = in all of these: torch-flop-counter",
        ]

    def test_top_says_how_many(self, report):
        """One row, and how many there are more; none at all with 0."""
        text = terminal(ComparisonView(report, 1), 80)
        assert "a.*.x" not in text
        assert "   and 2 modules more with a difference\n" in text
        assert "disagree" not in terminal(ComparisonView(report, 0), 80)

    def test_tools_that_count_alike_share_a_column(self, report):
        """The first one names it, and a line the others."""
        first, _, third = report.reconciliations
        alike = (first, replace(first, tool="fvcore"), third)
        text = terminal(replace(report, reconciliations=alike), 80)
        assert " module   times   native   thop +1\n" in text
        assert "   thop +1: also fvcore\n" in text

    def test_on_a_narrow_terminal_the_table_is_broken(self, report):
        """Tools go into several tables, each with the modules."""
        text = terminal(report, 36)
        assert max(map(len, text.splitlines())) <= 36
        assert text.count(" module") == 2
        assert text.count(" native") >= 2

    def test_files_have_one_table(self, report):
        """Markdown is never too narrow."""
        assert "| module | times | native | thop | fvcore |" in markdown(report)
