"""The settings of sphinx for the site, which docs/build_site.py builds."""

import tomllib
from pathlib import Path
from typing import Any

from docutils import nodes

# The folder of this file, from which sphinx reads it, or of its copy beside the pages.
_PROJECT = next(
    folder / "pyproject.toml"
    for folder in Path(__file__).resolve().parents
    if (folder / "pyproject.toml").is_file()
)
project = "crossflops"
author = "the crossflops maintainers"
release = tomllib.loads(_PROJECT.read_text("utf-8"))["project"]["version"]
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "index"
smartquotes = False  # two hyphens begin an option
html_theme = "furo"
html_title = f"crossflops {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_extra_path = ["_extra"]  # pages that sphinx does not write: reports
html_favicon = "icon.svg"
exclude_patterns = ["_extra"]
nb_execution_mode = "off"  # tests/docs/test_notebooks.py runs them, and compares the outputs
html_show_sourcelink = False
html_copy_source = False
myst_heading_anchors = 4  # the anchors of GitHub, to which the pages link
# links to the pages of reports are left as they are
myst_url_schemes = {"http": None, "https": None, "mailto": None, "extra": "{{path}}"}
myst_enable_extensions = ["colon_fence"]
default_role = "code"  # docstrings write names as Markdown does
strip_signature_backslash = True  # an argument may end with an underscore
autodoc_typehints = "description"
autodoc_member_order = "bysource"
linkcheck_ignore = [r"https://example\.org/"]  # the stand-in for the address of the repository
linkcheck_timeout = 20


def setup(app: Any) -> None:
    """Register what changes docstrings before napoleon reads their sections, and their links."""
    app.connect("autodoc-process-docstring", _join_return_section, priority=100)
    app.connect("doctree-read", _unlink_editions)


def _join_return_section(
    _app: Any, _what: str, _name: str, _value: Any, _options: Any, lines: list[str]
) -> None:
    """Write a dash for the colon in the text of `Returns:`; napoleon expects a type before it."""
    for number, line in enumerate(lines[:-1]):
        if line.strip() == "Returns:":
            lines[number + 1] = lines[number + 1].replace(": ", " \N{EN DASH} ", 1)


def _unlink_editions(_: Any, document: nodes.document) -> None:
    """Make text of "thop@0.0.31", which docutils reads as an address of a person."""
    for reference in list(document.findall(nodes.reference)):
        if reference.get("refuri", "").startswith("mailto:"):
            reference.replace_self(nodes.Text(reference.astext()))
