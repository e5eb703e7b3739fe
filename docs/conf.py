"""The settings of sphinx for the site, which docs/build_site.py builds."""

import tomllib
from pathlib import Path

# The folder of this file, from which sphinx reads it, or of its copy beside the pages.
_PROJECT = next(
    folder / "pyproject.toml"
    for folder in Path(__file__).resolve().parents
    if (folder / "pyproject.toml").is_file()
)
project = "crossflops"
author = "the crossflops maintainers"
release = tomllib.loads(_PROJECT.read_text("utf-8"))["project"]["version"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "index"
html_theme = "furo"
html_title = f"crossflops {release}"
html_show_sourcelink = False
html_copy_source = False
myst_heading_anchors = 4  # the anchors of GitHub, to which the pages link
myst_enable_extensions = ["colon_fence"]
autodoc_typehints = "description"
autodoc_member_order = "bysource"
linkcheck_ignore = [r"https://example\.org/"]  # the stand-in for the address of the repository
linkcheck_timeout = 20
