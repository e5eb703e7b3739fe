"""The atlas of a sweep: agreement of tools, shares of causes, published figures, and its size."""

import msgspec
import pytest

from crossflops.render.formats import FORMATS
from crossflops.render.terminal import plain_page_text
from crossflops.report.sweep import PublishedPoint, Sweep, SweepCase, SweepRow
from crossflops.report.sweep_summary import agreement_of_tools, cause_shares

UNIT = "unit.mac-vs-flop"


def rows_of(target, family, macs, *answers):
    """The native row of a model, and one for each (tool, total, count for one MAC, causes)."""
    case = SweepCase(target=target)
    shared = {"case": case, "family": family, "macs": macs, "flops": 2 * macs + 7, "params": 3}
    yield SweepRow(**shared, tool="native", kind="native", total=macs, residual=0)
    for tool, total, per_mac, causes in answers:
        failure = "it does not run" if total is None else ""
        yield SweepRow(
            **shared, tool=tool, kind="run", version="1", total=total, per_mac=per_mac,
            causes=causes, residual=None if total is None else 0, stage="run" if failure else "",
            failure=failure,
        )  # fmt: skip


@pytest.fixture
def sweep():
    """Of 100 MACs each: `a` counts a bias of 10 in one model, `b` FLOPs of it, `c` fails once."""
    rows = [
        *rows_of("m:one", "first", 100, ("a", 110, 1, {"bias.conv": 10}),
                 ("b", 220, 2, {UNIT: 100, "bias.conv": 20}), ("c", 100, 1, {})),
        *rows_of("m:two", "second", 100, ("a", 100, 1, {}), ("b", 200, 2, {UNIT: 100}),
                 ("c", None, 1, {})),
    ]  # fmt: skip
    point = PublishedPoint(target="m:one", unit="macs", text="120", published=120.0, exact=100)
    return Sweep(suite="s.toml", rows=tuple(rows), tools=("a", "b", "c"), published=(point,))


def test_agreement_is_of_macs_in_cases_that_both_count(sweep):
    """110 of one unit and 220 of two are one number; a failure is no case."""
    agreement = agreement_of_tools(sweep)
    assert agreement["a", "b"] == (2, 2)
    assert agreement["native", "a"] == (1, 2)
    assert agreement["native", "c"] == (1, 1)
    assert agreement["a", "c"] == (0, 1)


def test_shares_of_causes_are_of_the_exact_count(sweep):
    """10 of 100, and 20 of 200; the factor of a unit is no cause."""
    shares = [(row.tool, row.cause, row.cases, row.median) for row in cause_shares(sweep)]
    assert shares == [("a", "bias.conv", 1, 0.1), ("b", "bias.conv", 1, 0.1)]
    by_family = cause_shares(sweep, by_family=True)
    assert {row.family for row in by_family} == {"first"}


def test_the_native_flops_are_exact_too():
    """A tool may count FLOPs as the native count does."""
    _, row = rows_of("m", "", 100, ("d", 207, 1, {}))
    assert row.is_exact


def test_a_number_without_a_prediction_is_not_explained(sweep):
    """Tool `a` has a number for two models, of which one has no prediction: 1 of them is open."""
    rows = tuple(
        msgspec.structs.replace(row, residual=None)
        if (row.tool, row.case.target) == ("a", "m:two")
        else row
        for row in sweep.rows
    )
    text = FORMATS[".md"](msgspec.structs.replace(sweep, rows=rows))
    cells = next(line for line in text.splitlines() if line.startswith("| a "))
    assert [cell.strip() for cell in cells.strip("|").split("|")][-1] == "1"


def test_the_page_has_a_picture_and_tables_that_sort(sweep):
    """Under the policy of all pages: nothing from elsewhere."""
    text = FORMATS[".html"](sweep)
    assert "<circle" in text
    assert "data-sort" in text
    assert "default-src 'none'" in text
    assert "http" not in text.replace("http-equiv", "").replace("http://www.w3.org", "")
    assert "it does not run" in text
    assert "+10.00 %" in text


def test_a_model_is_found_by_its_family_in_files(sweep):
    """The terminal, which has less room and no search, shows the model alone."""
    lines = FORMATS[".md"](sweep).splitlines()
    row = next(line for line in lines if line.startswith("| m:two "))
    assert [cell.strip() for cell in row.strip("|").split("|")][:2] == ["m:two", "second"]
    assert "second" not in plain_page_text(sweep)


def test_a_page_of_500_models_is_below_5_mb(sweep):
    """With six tools, and a cause in each."""
    answers = [(f"tool-{n}", 11, 1, {"bias.conv": 10}) for n in range(6)]
    rows = [
        row
        for number in range(500)
        for row in rows_of(
            f"library:model_of_some_length_{number}", f"f{number % 60}", 1, *answers
        )
    ]
    tools = tuple(name for name, *_ in answers)
    large = Sweep(suite="s.toml", rows=tuple(rows), tools=tools)
    assert len(FORMATS[".html"](large).encode()) < 2_000_000
