"""JSON: the contract `crossflops/1` of a report, and the plain values of every other noun."""

import msgspec

from crossflops.render.layout import Noun
from crossflops.render.pages.bench import Benched
from crossflops.render.pages.places import Compared
from crossflops.render.pages.summary import Unit
from crossflops.render.pages.view import Viewed
from crossflops.report.bench import Bench
from crossflops.report.efficiency import EfficiencyReport
from crossflops.report.report import Report


def json(noun: Noun, unit: Unit = "macs") -> str:
    """The noun as indented JSON, counts as exact integers. Ends with a newline.

    `unit` orders nothing here: the contract fixes what stands where.
    """
    if isinstance(noun, Compared | Benched):
        noun = noun.report if isinstance(noun, Compared) else noun.bench
    if isinstance(noun, Report | Viewed | Bench | EfficiencyReport):
        return noun.to_json()
    return msgspec.json.format(msgspec.json.encode(noun), indent=2).decode() + "\n"
