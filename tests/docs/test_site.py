"""The pages of the site: links that hold there, and a menu with every page."""

import re

from docs.build_site import (
    CHAPTERS,
    DOCS,
    REPOSITORY,
    report_files,
    report_lines,
    schema_lines,
    site_text,
    verb_lines,
)


def test_a_link_out_of_the_pages_leads_to_the_repository():
    """A link to another page stays, and so does its anchor."""
    text = site_text(DOCS / "ci.md")
    assert f"[constraints.txt]({REPOSITORY}constraints.txt)" in text
    assert "[release](release.md#rehearse)" in text
    assert "](../" not in text


def test_a_link_of_the_changelog_is_one_of_the_site():
    """It is a file of the root in the repository, and a page beside the others on the site."""
    text = site_text(DOCS.parent / "CHANGELOG.md")
    assert "[docs/release.md](release.md)" in text
    assert "](docs/" not in text


def test_a_page_with_many_titles_has_one():
    """A menu has one entry for each page."""
    text = re.sub(r"^```.*?^```$", "", site_text(DOCS / "conventions.md"), flags=re.M | re.S)
    assert re.findall(r"^# .*", text, re.MULTILINE) == ["# Conventions"]
    assert "\n## thop@" in text


def test_every_page_is_in_the_menu():
    """The first page leads to the others, and the decisions have a list."""
    pages = {path.stem for path in DOCS.glob("*.md")} - {"index"}
    names = [name for chapter in CHAPTERS.values() for name in chapter]
    assert pages <= set(names)
    assert len(names) == len(set(names))


def test_every_option_of_a_verb_is_in_the_reference():
    """With its metavar, and signs that Markdown would read are escaped."""
    text = "\n".join(verb_lines())
    assert "## count\n" in text
    assert "| `--input [NAME=]SHAPE[:DTYPE]` |" in text
    assert "crossflops render [OPTIONS] REPORT.json" in text


def test_the_reference_has_the_schema_of_each_report_that_render_reads():
    """Seven kinds, each as one JSON value."""
    text = "\n".join(schema_lines())
    assert text.count("```json\n") == 7
    assert '"type": "integer"' in text


def test_a_flowchart_is_a_picture():
    """Its text stays on the pages of the repository."""
    assert "```mermaid" in (DOCS / "architecture.md").read_text("utf-8")
    text = site_text(DOCS / "architecture.md")
    assert "mermaid" not in text
    assert '<div class="chart"><svg' in text


def test_a_report_is_a_page_of_the_site():
    """A link to the file of a report leads to its page, and one to the folder to a list."""
    assert "[its table](extra:reports/atlas.html)" in site_text(DOCS / "atlas.md")
    assert "](reports/index.md)" in site_text(DOCS / "compare.md")
    lines = list(report_lines())
    assert "* [resnet50](extra:resnet50.html)" in lines
    assert len([line for line in lines if line.startswith("* ")]) == len(report_files())
