"""The built site in a real Chromium: wide and narrow, light and dark, with its search."""

import functools
import http.server
import os
import shutil
import threading

import pytest

from tests.docs.built_site import build_site

pytestmark = pytest.mark.pages

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
WIDTHS = (1280, 400)
DARK = "() => getComputedStyle(document.body).backgroundColor"
TOO_WIDE = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


class _QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words):
        """Say nothing of each request."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of the site."""
    target = tmp_path_factory.mktemp("site")
    build_site(target)
    return target


@pytest.fixture(scope="module")
def address(folder):
    """The address of a server of the site on this machine."""
    handler = functools.partial(_QuietHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def browser():
    """A Chromium without a window."""
    from playwright.sync_api import sync_playwright

    chromium = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    assert chromium, "no Chromium is here: install it (Debian: apt-get install chromium)"
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def open_page(browser, address):
    """Opens pages in a window; nothing is asked of another site, and no error is printed."""
    problems, contexts = [], []

    def opened(width, scheme="light"):
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda line: problems.append(line.text) if line.type == "error" else 0)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on(
            "request",
            lambda sent: (
                0 if sent.url.startswith((address, "data:")) else problems.append(sent.url)
            ),
        )
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not problems


@pytest.mark.parametrize("width", WIDTHS)
def test_no_page_scrolls_sideways(folder, address, open_page, width):
    """Tables and blocks scroll within themselves."""
    page = open_page(width)
    wide = {}
    for path in sorted(folder.rglob("*.html")):
        name = path.relative_to(folder).as_posix()
        page.goto(address + name, wait_until="load")
        if (excess := page.evaluate(TOO_WIDE)) > 0:
            wide[name] = excess
    assert not wide


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_flowchart_has_the_colours_of_the_page(address, open_page, scheme):
    """Its letters are not those of its boxes, and follow the scheme of the system."""
    page = open_page(1280, scheme)
    page.goto(address + "architecture.html")
    ink, shade = (
        page.evaluate(f"getComputedStyle(document.querySelector('.chart .{name}')).fill")
        for name in ("f-ink", "f-shade")
    )
    darkness = {colour: sum(map(int, colour[4:-1].split(","))) for colour in (ink, shade)}
    assert (darkness[ink] > darkness[shade]) == (scheme == "dark")
    assert (
        page.evaluate("document.querySelector('.chart svg').getBoundingClientRect().width") > 300
    )


def test_the_search_finds_a_cause(address, open_page):
    """Without a server but that of the files."""
    page = open_page(1280)
    page.goto(address + "search.html?q=double-counted")
    page.wait_for_selector("#search-results li a")
    assert "Causes" in page.inner_text("#search-results")
