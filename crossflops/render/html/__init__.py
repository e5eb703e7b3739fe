"""HTML: a fragment for notebooks, without a script, and a document that is a file by itself.

In: a noun. Out: text in which every word of a model is escaped. The document asks for nothing
from elsewhere; its numbers, its pictures and all that it says are there without JavaScript.
May import: render, rules, report, ir, errors; jinja2. Templates, style and script
lie beside.
"""

import re
from functools import cache
from importlib.resources import files

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from crossflops.render.layout import Noun, layout
from crossflops.render.pages.summary import Unit

_PARTS = re.compile(r"(?<=[/._])(?=[^\W\d_])")


def html(noun: Noun, unit: Unit = "macs") -> str:
    """The page as one `<div>`, columns and tables of detail not among it."""
    return template("fragment.html.j2").render(page=layout(noun, unit))


@cache
def template(name: str) -> Template:
    """A template of this folder; what it is given is escaped."""
    environment = Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
    environment.filters["breakable"] = breakable
    return environment.from_string(resource(name))


def breakable(text: str) -> Markup:
    """The text, escaped, with places for line breaks in its paths: before a part that is a word.

    >>> breakable("nn/_ops.py: a&b")
    Markup('nn/_<wbr>ops.<wbr>py: a&amp;b')
    """
    return Markup("<wbr>").join(_PARTS.split(text))


def resource(name: str) -> str:
    """The text of a file of this folder."""
    return files("crossflops.render.html").joinpath(name).read_text(encoding="utf-8")
