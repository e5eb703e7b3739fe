"""Every page in every format, with every kind of missing figure: none may raise.

The nouns of `nouns/` were written by the commands; `randomized` leaves figures out, by the types
of their fields.
"""

import random
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from crossflops import Report
from crossflops.ir.device import DeviceList, DeviceSheet
from crossflops.render.formats import FORMATS
from crossflops.render.html import html
from crossflops.render.terminal import terminal
from crossflops.report.bench import Bench, BenchPeak
from crossflops.report.difference import Difference
from crossflops.report.efficiency import EfficiencyReport
from crossflops.report.papers import PaperTable
from crossflops.report.profile import TrainingProfile
from tests.render.random_nouns import randomized

FOLDER = Path(__file__).parent / "nouns"
KINDS = {
    "against": Report, "bench": Bench, "count": Report, "device": DeviceSheet,
    "devices": DeviceList, "diff": Difference, "efficiency": EfficiencyReport,
    "profile": TrainingProfile, "table": PaperTable,
}  # fmt: skip
TIMES = 17  # for each kind


def noun_of(name):
    """The noun that a command wrote."""
    return msgspec.json.decode((FOLDER / f"{name}.json").read_bytes(), type=KINDS[name])


@pytest.mark.parametrize("name", KINDS)
def test_a_page_with_missing_figures_is_shown_in_every_format(name):
    """Columns left empty, zeros, huge integers, odd names: all formats show it, and all widths."""
    whole = noun_of(name)
    for seed in range(TIMES):
        noun = randomized(whole, random.Random(seed))
        for render in (*FORMATS.values(), html):
            assert render(noun)
        for width in (40, 60, 140):
            assert terminal(noun, width)
        if hasattr(KINDS[name], "from_json"):
            again = KINDS[name].from_json(noun.to_json())
            assert again.to_json() == noun.to_json()


@pytest.mark.parametrize("name", ["resnet", "troubled", "folded"])
def test_a_comparison_with_missing_figures_is_shown_in_every_format(name, request):
    """Accounts, failures and folds of tools."""
    whole = request.getfixturevalue(name)
    for seed in range(TIMES):
        noun = randomized(whole, random.Random(seed))
        for render in (*FORMATS.values(), html):
            assert render(noun)


def test_a_bench_whose_precision_has_no_peak_has_a_dash():
    """The peak of an int8 file is measured in float32: its rate is no share of that."""
    bench = noun_of("bench")
    int8 = replace(
        bench,
        macs_by_precision={"int8": bench.macs},
        peak=BenchPeak(rates={"float32": 1e12}, source="measured"),
    )
    rows = [line for line in terminal(int8, 140).splitlines() if line.strip().startswith("1 ")]
    assert rows[0].rstrip().endswith(" -")


def test_a_bench_of_an_empty_batch_has_no_rate():
    """Nothing is divided by a batch, or a peak, of zero."""
    bench = noun_of("bench")
    timing = bench.curve[0]
    empty = replace(bench, batch=0)
    assert (empty.rate(timing), empty.share(timing)) == (None, None)
    idle = replace(bench, peak=replace(bench.peak, rates=dict.fromkeys(bench.peak.rates, 0.0)))
    assert idle.share(timing) is None
    for noun in (empty, idle):
        assert all(render(noun) for render in (*FORMATS.values(), html))
