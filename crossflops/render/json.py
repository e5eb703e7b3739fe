"""JSON: the contract `crossflops/1` of a report, and the plain values of every other noun."""

import msgspec

from crossflops.core.efficiency import EfficiencyReport
from crossflops.core.report import Report
from crossflops.render.bench import Benched
from crossflops.render.layout import Noun
from crossflops.render.places import Compared
from crossflops.render.summary import Unit
from crossflops.render.view import Viewed


def json(noun: Noun, unit: Unit = "macs") -> str:
    """The noun as indented JSON, counts as exact integers. Ends with a newline.

    `unit` orders nothing here: the contract fixes what stands where.
    """
    if isinstance(noun, Compared):
        return noun.report.to_json()
    if isinstance(noun, Benched):
        return noun.bench.to_json()
    if isinstance(noun, Report | Viewed | EfficiencyReport):
        return noun.to_json()
    return msgspec.json.format(msgspec.json.encode(noun), indent=2).decode() + "\n"
