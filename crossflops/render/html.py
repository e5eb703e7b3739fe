"""A fragment of HTML for notebooks: no script, nothing from elsewhere, every text escaped."""

from functools import cache
from importlib.resources import files

from jinja2 import Environment, Template

from crossflops.render.layout import Noun, layout
from crossflops.render.pages.summary import Unit


def html(noun: Noun, unit: Unit = "macs") -> str:
    """The page as one `<div>`, columns and tables of detail not among it."""
    return _template().render(page=layout(noun, unit))


@cache
def _template() -> Template:
    source = files("crossflops.render").joinpath("page.html.j2").read_text(encoding="utf-8")
    return Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(source)
