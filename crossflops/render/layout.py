"""Choose the page of a result. A count imports only its own page."""

from typing import TYPE_CHECKING, TypeAlias

from msgspec import UNSET

from crossflops.render.page import Page
from crossflops.render.pages.summary import Unit, summary_page
from crossflops.report.report import Report

if TYPE_CHECKING:
    from crossflops.render.pages import nouns

ShowableResult: TypeAlias = "nouns.ShowableResult"


def page_without_figures(content: ShowableResult, unit: Unit = "macs") -> Page:
    """Return the page of a result without pictures, ordered by `unit`."""
    return page_with_figures(content, unit).without_figures()


def page_with_figures(content: ShowableResult, unit: Unit = "macs") -> Page:
    """Return the page of a result with pictures, ordered by `unit`."""
    if isinstance(content, Report) and content.profiles is content.llm is UNSET:
        return summary_page(content, unit)
    from crossflops.render.pages.nouns import content_page

    return content_page(content, unit)
