"""The built site: no warning, links that lead somewhere, and the tasks of its readers."""

import os
from pathlib import Path
from urllib.parse import unquote

import pytest

from docs.build_site import REPOSITORY
from tests.docs.built_site import (
    ROOT,
    SitePage,
    build_site,
    clicks_to_pages,
    follow_links,
    is_outside,
    link_target,
    read_site,
)

MOST_CLICKS = 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of the site, built without a warning: that of the environment, or one of ours."""
    if built := os.environ.get("CROSSFLOPS_SITE"):
        return Path(built)
    target = tmp_path_factory.mktemp("site")
    build_site(target)
    return target


@pytest.fixture(scope="module")
def pages(folder):
    """Its pages by path."""
    return read_site(folder)


@pytest.mark.site
def test_every_link_within_the_site_leads_to_a_page_and_an_anchor(folder, pages):
    """The links of the menu, of pictures, of style sheets and of the pages of reports, too."""
    wrong = []
    for name, page in pages.items():
        for link in filter(lambda link: not is_outside(link), page.links):
            target, anchor = link_target(name, link), unquote(link.partition("#")[2])
            if not (folder / unquote(target)).exists():
                wrong.append(f"{name}: {link}")
            elif anchor and target in pages and anchor not in pages[target].anchors:
                wrong.append(f"{name}: {link} has no such anchor")
    assert not wrong


@pytest.mark.site
def test_a_link_out_of_the_site_is_an_address_or_a_file_of_the_repository(pages):
    """No edition of a tool is read as an address of a person, and no file is missing."""
    links = {link for page in pages.values() for link in page.clicks.values() if is_outside(link)}
    assert {link.partition(":")[0] for link in links} == {"https"}
    files = [link.removeprefix(REPOSITORY) for link in links if link.startswith(REPOSITORY)]
    assert files
    for file in files:
        assert (ROOT / file.partition("#")[0]).exists(), file


@pytest.mark.site
@pytest.mark.parametrize(
    ("task", "texts", "answer"),
    [
        (
            "a reviewer: which tool printed this figure",
            ["Find the tool, the unit and the input size"],
            "crossflops identify 1.82G torchvision:resnet18",
        ),
        ("a reviewer: why tools differ", ["Why tools disagree"], "Five kinds of difference"),
        ("a reviewer: what a cause is", ["Look up a cause"], "norm.batch: batch normalization"),
        ("a reviewer: a report", ["Compare the tools", "reports/", "resnet50"], "4 089 184 256"),
        ("an engineer: count a file", ["Count it"], "crossflops count cnn.onnx"),
        (
            "an engineer: a budget in CI",
            ["Check it against a budget"],
            "crossflops check --update",
        ),
        ("an engineer: an operator of mine", ["write one"], "crossflops check-formula"),
        ("an engineer: all options", ["verb"], "crossflops count [OPTIONS] TARGET"),
        ("a trainer: the MFU of a run", ["Know the MFU of a run"], "--tokens-per-second"),
        ("a trainer: a formula", ["Compare the published formulas"], "6 N D with all parameters"),
        ("a trainer: a workload", ["count a language model"], "1141899264 1141899264"),
        ("a trainer: a loop", ["profile one"], "FlopsProfiler"),
        ("a contributor: run the tests", ["Set up and test"], "python3 start.py tests --quick"),
        ("a contributor: add a tool", ["how to extend"], "crossflops.adapters"),
        ("a contributor: release", ["Make a release"], "tox -e release"),
    ],
)
def test_a_task_of_a_reader_is_within_three_clicks(pages, task, texts, answer):
    """By links in the text of the pages, from the first one, without the menu and the search."""
    assert len(texts) <= MOST_CLICKS
    assert answer in pages[follow_links(pages, texts)].words, task


@pytest.mark.site
def test_every_page_is_within_three_clicks_of_the_first(pages):
    """But for the list of names and the search, which only the menu has."""
    made_by_sphinx = {"genindex.html", "search.html", "py-modindex.html"}
    clicks = clicks_to_pages(pages)
    far = [name for name in pages if clicks.get(name, MOST_CLICKS + 1) > MOST_CLICKS]
    assert set(far) <= made_by_sphinx


@pytest.mark.site
def test_the_site_has_each_kind_of_page(folder, pages):
    """A tutorial, an explanation, a reference, notebooks, reports, and words to search."""
    assert "crossflops count [OPTIONS] TARGET" in pages["reference/verbs.html"].words
    assert "crossflops.compare(" in pages["reference/python.html"].words
    assert '"$defs"' in pages["reference/schema.html"].words
    assert "norm.batch" in pages["notebooks/compare-tools.html"].words
    assert "1141899264 1141899264" in pages["notebooks/language-model.html"].words
    assert "roofline" in (folder / "notebooks" / "efficiency.html").read_text("utf-8").lower()
    assert 'class="chart"' in (folder / "architecture.html").read_text("utf-8")
    assert 'class="chart"' in (folder / "why.html").read_text("utf-8")
    assert "flowchart TD" not in pages["architecture.html"].words
    assert "reports/atlas.html" in pages
    assert "residual" in (folder / "searchindex.js").read_text("utf-8")


def test_clicks_are_those_of_the_shortest_way():
    """Two ways lead to c, and no link to d; a link to another site is not followed."""
    none = frozenset()
    pages = {
        "index.html": SitePage(none, {"to a": "a.html", "to b": "x/b.html#t"}, none, ""),
        "a.html": SitePage(none, {"to b": "x/b.html", "other": "https://c.html"}, none, ""),
        "x/b.html": SitePage(none, {"to c": "../c.html"}, none, ""),
        "c.html": SitePage(none, {}, none, ""),
        "d.html": SitePage(none, {"to c": "c.html"}, none, ""),
    }
    clicks = {"index.html": 0, "a.html": 1, "x/b.html": 1, "c.html": 2}
    assert clicks_to_pages(pages) == clicks
    assert follow_links(pages, ["to b", "to c"]) == "c.html"
    with pytest.raises(KeyError):
        follow_links(pages, ["to c"])
