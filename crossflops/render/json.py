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
from crossflops.rules.rule import equation
from crossflops.rules.site import Condition


def json(noun: Noun, unit: Unit = "macs") -> str:
    """The noun as indented JSON, counts as exact integers. Ends with a newline.

    `unit` orders nothing here: the contract fixes what stands where.
    """
    if isinstance(noun, Compared | Benched):
        noun = noun.report if isinstance(noun, Compared) else noun.bench
    if isinstance(noun, Report | Viewed | Bench | EfficiencyReport):
        return noun.to_json()
    plain = msgspec.json.encode(noun, enc_hook=_words)
    return msgspec.json.format(plain, indent=2).decode() + "\n"


def _words(value: object) -> str:
    """Conditions and formulas of a rule as their words."""
    if isinstance(value, Condition):
        return str(value)
    if callable(value):
        return equation(value)
    raise NotImplementedError(f"{type(value).__name__} has no place in JSON")
