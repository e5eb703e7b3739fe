"""docs/why.md: its numbers are those of the committed reports."""

import re
from pathlib import Path

import crossflops

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "why.md").read_text("utf-8")
# what the page writes of ResNet-50: tool, cause, amount
AMOUNTS = [
    ("torch-flop-counter", "unit.mac-vs-flop", 4089184256),
    ("fvcore", "norm.batch", 22227968),
    ("thop", "norm.batch", 44455936),
]


def test_the_amounts_are_those_of_the_report_of_resnet50():
    """Each is in the table, by its digits."""
    report = crossflops.render(ROOT / "reports" / "resnet50.json.gz")
    for tool, cause, amount in AMOUNTS:
        steps = {step.cause: step.amount for step in report.reconciliation(tool).explanations}
        assert steps[cause] == amount
        assert re.search(rf"{tool}: .*{amount:,}".replace(",", " "), PAGE)


def test_the_totals_of_the_first_sentence_are_those_of_the_report_of_the_vit():
    """The number of tools, the smallest and the largest printed total."""
    report = crossflops.render(ROOT / "reports" / "vit_b_16.json.gz")
    totals = sorted(row.theirs for row in report.reconciliations)
    assert len(totals) == 14
    assert f"{totals[0] / 1e9:.2f} G to {totals[-1] / 1e9:.1f} G" in PAGE
