"""The site as docs/build_site.py builds it: its pages, their links, and ways through them."""

import posixpath
import subprocess
import sys
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
VOID = {"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "source", "wbr"}
CONTENT = ("article", "main")  # without the menu: of a page of sphinx, and of a report


class SitePage(NamedTuple):
    """A page: its links, those of its article by their texts, its anchors, and its words."""

    links: frozenset[str]
    clicks: Mapping[str, str]
    anchors: frozenset[str]
    words: str


def build_site(target: Path) -> str:
    """Build the site into a folder, and return what the script prints.

    Raises AssertionError if sphinx warns.
    """
    command = [sys.executable, str(ROOT / "docs" / "build_site.py"), "--target", str(target)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def read_site(folder: Path) -> dict[str, SitePage]:
    """Return every page of the site by its path."""
    files = sorted(folder.rglob("*.html"))
    return {path.relative_to(folder).as_posix(): _read_page(path) for path in files}


def _read_page(path: Path) -> SitePage:
    parser = _PageParser()
    parser.feed(path.read_text("utf-8"))
    parser.close()
    words = " ".join("".join(parser.words).split())
    return SitePage(frozenset(parser.links), parser.clicks, frozenset(parser.anchors), words)


class _PageParser(HTMLParser):
    """Collects links and anchors of a page; clicks and words are those of its content."""

    def __init__(self) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.clicks: dict[str, str] = {}
        self.anchors: set[str] = set()
        self.words: list[str] = []
        self._depth = 0  # of tags within the article, itself counted; 0 outside of it
        self._open: tuple[str, int] | None = (
            None  # the address of a link, and where its text begins
        )

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attrs if value}
        self.anchors.update(values[name] for name in ("id", "name") if name in values)
        addresses = {values[name] for name in ("href", "src") if name in values}
        self.links |= addresses
        if tag not in VOID and (self._depth or tag in CONTENT):
            self._depth += 1
        if self._depth and tag == "a" and "href" in values:
            self._open = (values["href"], len(self.words))

    def handle_endtag(self, tag: str) -> None:
        if self._depth and tag not in VOID:
            self._depth -= 1
        if tag == "a" and self._open is not None:
            address, start = self._open
            self.clicks.setdefault(" ".join("".join(self.words[start:]).split()), address)
            self._open = None

    def handle_data(self, data: str) -> None:
        if self._depth:
            self.words.append(data)


def link_target(page: str, link: str) -> str:
    """Return the path on the site to which a link of a page leads.

    >>> link_target("adr/index.html", "../ops.html#conv"), link_target("index.html", "#top")
    ('ops.html', 'index.html')
    """
    path = link.partition("#")[0].partition("?")[0]
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page


def is_outside(link: str) -> bool:
    """Whether a link leads to another site, or is data."""
    return link.startswith(("http://", "https://", "mailto:", "data:", "javascript:"))


def clicks_to_pages(pages: Mapping[str, SitePage], start: str = "index.html") -> dict[str, int]:
    """Return the fewest clicks in articles by which each page is reached from the first."""
    clicks = {start: 0}
    row = [start]
    while row:
        found = {
            target: clicks[page] + 1
            for page in row
            for link in pages[page].clicks.values()
            if not is_outside(link)
            if (target := link_target(page, link)) in pages and target not in clicks
        }
        clicks |= found
        row = list(found)
    return clicks


def follow_links(pages: Mapping[str, SitePage], texts: Sequence[str]) -> str:
    """Return the page to which these links lead, one after the other, from the first page.

    Raises KeyError if a page has no such link in its article.
    """
    page = "index.html"
    for text in texts:
        page = link_target(page, pages[page].clicks[text])
    return page
