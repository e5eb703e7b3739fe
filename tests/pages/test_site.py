"""The built site in a real Chromium: wide and narrow, light and dark, with its search."""

import functools
import http.server
import threading

import pytest

from tests.docs.built_site import build_site

pytestmark = pytest.mark.pages

WIDTHS = (1280, 400)
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


@pytest.fixture
def open_window(browser, address):
    """Opens windows; their pages ask nothing of another site, and print no error."""
    problems, windows = [], []

    def note_request(request):
        if not request.url.startswith((address, "data:")):
            problems.append(request.url)

    def note_line(line):
        if line.type == "error":
            problems.append(line.text)

    def open_page(width, scheme="light"):
        size = {"width": width, "height": 900}
        window = browser.new_context(viewport=size, color_scheme=scheme)
        window.on("console", note_line)
        window.on("weberror", lambda error: problems.append(str(error.error)))
        window.on("request", note_request)
        windows.append(window)
        return window

    yield open_page
    for window in windows:
        window.close()
    assert not problems


@pytest.mark.parametrize("width", WIDTHS)
def test_no_page_scrolls_sideways(folder, address, open_window, width):
    """Tables and blocks scroll within themselves."""
    window = open_window(width)
    wide = {}
    for path in sorted(folder.rglob("*.html")):
        name = path.relative_to(folder).as_posix()
        # one tab would break off what the page before still loads
        page = window.new_page()
        page.goto(address + name)
        if (excess := page.evaluate(TOO_WIDE)) > 0:
            wide[name] = excess
        page.close()
    assert not wide


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_flowchart_has_the_colours_of_the_page(address, open_window, scheme):
    """Its letters are not those of its boxes, and follow the scheme of the system."""
    page = open_window(1280, scheme).new_page()
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


def test_the_search_finds_a_cause(address, open_window):
    """Without a server but that of the files."""
    page = open_window(1280).new_page()
    page.goto(address + "search.html?q=double-counted")
    page.wait_for_selector("#search-results li a")
    assert "Causes" in page.inner_text("#search-results")
