"""Which page a noun gets. That of a count needs no other, and they are not imported for it."""

from typing import TYPE_CHECKING, TypeAlias

from msgspec import UNSET

from crossflops.render.page import Page
from crossflops.render.pages.summary import Unit, summary
from crossflops.report.report import Report

if TYPE_CHECKING:
    from crossflops.render.pages import nouns

Noun: TypeAlias = "nouns.Noun"


def layout(noun: Noun, unit: Unit = "macs") -> Page:
    """The page of a noun in words, with counts ordered by `unit` where it has any."""
    return illustrated(noun, unit).written()


def illustrated(noun: Noun, unit: Unit = "macs") -> Page:
    """The same page with its pictures."""
    if isinstance(noun, Report) and noun.profiles is UNSET:
        return summary(noun, unit)
    from crossflops.render.pages.nouns import page

    return page(noun, unit)
