"""The HTML files in a real Chromium: offline, under their policy, by keyboard, on a narrow screen.

Without Chromium, or the packages that drive it, these tests fail: to skip them would say nothing.
CHROMIUM names one that is not on the path.
"""

from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from crossflops.files import read_file_bytes
from crossflops.ir.reconciliation import Alignment, CauseRow, LayerPair, Place, Shift, Work
from crossflops.ir.training import Training
from crossflops.render.formats import FORMATS
from crossflops.report.comparison import Against
from crossflops.report.report import Report, ThumbRow, TrainingReport

pytestmark = pytest.mark.pages

REPORTS = Path(__file__).parents[2] / "reports"
HUGE = 2**53 + 1
# boxes that scroll sideways, and do not say what is in them
UNLABELLED = """[...document.querySelectorAll("body *")].filter(box =>
    box.scrollWidth > box.clientWidth + 1 && /auto|scroll/.test(getComputedStyle(box).overflowX)
    && !(box.getAttribute("role") === "region" && box.getAttribute("aria-label")))
    .map(box => box.outerHTML.slice(0, 80))"""


def loaded(name):
    """A committed report."""
    return Report.from_json(read_file_bytes(REPORTS / f"{name}.json.gz"))


def trained():
    """ResNet-18's forward pass with a training step: each node twice its forward MACs more."""
    report = loaded("resnet18")

    def step(macs, flops):
        return Training(
            forward_macs=macs, forward_flops=flops, backward_input_macs=macs,
            backward_input_flops=flops, backward_weight_macs=macs, backward_weight_flops=flops,
            recomputed_macs=0, recomputed_flops=0,
        )  # fmt: skip

    whole = step(report.macs, report.flops)
    parts = {name: getattr(whole, name) for name in whole.__struct_fields__}
    return replace(
        report,
        profiles=(),
        training=TrainingReport(
            **parts, three_forward_macs=3 * report.macs,
            differences=(ThumbRow("backward.first-layer", -1),), uncounted=(),
        ),
        nodes=tuple(replace(row, training=step(row.macs, row.flops)) for row in report.nodes),
    )  # fmt: skip


def two_models():
    """ResNet-18 against one with a layer less."""
    first = loaded("resnet18")
    second = replace(first.totals, macs=first.macs - 1000)
    nodes = tuple(row for row in first.nodes if row.path != "conv1")
    place = Place(nodes=("conv",), path="conv1", what="Conv")
    shift = Shift(cause="model.layer-missing", macs=-1000)
    return replace(
        first,
        profiles=(),
        against_modules=tuple(row for row in first.modules if row.path != "conv1"),
        against_nodes=nodes,
        against=Against(
            model=first.model,
            totals=second,
            alignment=Alignment(
                first_work=Work(macs=1000), second_work=Work(),
                causes=(CauseRow(cause="model.layer-missing", macs=-1000, flops=0, params=0,
                                 layers=1),),
                layers=(LayerPair(first=place, second=None, first_work=Work(macs=1000),
                                  second_work=Work(), shifts=(shift,)),),
            ),
        ),
    )  # fmt: skip


PAGES = {
    "resnet50": lambda: loaded("resnet50"),
    "vit": lambda: loaded("vit_b_16"),
    "bert": lambda: loaded("bert"),
    "training": trained,
    "two": two_models,
}


@pytest.fixture
def show(browser, tmp_path):
    """Opens a noun's file; afterwards no error was printed, and nothing was asked for."""
    complaints, requests, contexts = [], [], []

    def opened(noun, width=1200, scheme="light", **options):
        file = tmp_path / f"page{len(contexts)}.html"
        file.write_text(FORMATS[".html"](noun), "utf-8")
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True, **options
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(file.as_uri())
        return page

    yield opened
    assert complaints == []
    assert len(requests) == len(contexts)  # each page itself
    for context in contexts:
        context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing_serious(show, name, scheme):
    """By the rules of WCAG that axe-core checks, contrast in both colour schemes among them."""
    page = show(PAGES[name](), scheme=scheme)
    # the policy of the page keeps scripts from elsewhere out; axe comes through the debugger
    from axe_playwright_python.sync_playwright import Axe

    violations = Axe().run(page).response["violations"]
    serious = [
        violation for violation in violations if violation["impact"] in ("serious", "critical")
    ]
    assert [(violation["id"], violation["nodes"][0]["html"]) for violation in serious] == []


@pytest.mark.parametrize("name", PAGES)
def test_a_narrow_screen_does_not_scroll_sideways(show, name):
    """400 px: wide tables and pictures scroll in their own region."""
    page = show(PAGES[name](), width=400)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert page.evaluate(UNLABELLED) == []


def test_both_models_are_mapped(show):
    """The second one is without the layer that it does not have, on its map and in its tables; the
    head has the names and totals of both.
    """
    noun = two_models()
    page = show(noun)
    assert page.locator("h1").inner_text() == f"{noun.name} against {noun.against.name}"
    card = page.locator(".cards span").first.inner_text()
    assert "".join(card.split()) == f"{noun.macs}→{noun.macs - 1000}"
    maps = page.locator(".icicle")
    assert maps.count() == 2
    assert maps.nth(0).locator("button[aria-label^='conv1,']").count() == 1
    assert maps.nth(1).locator("button[aria-label^='layer1,']").count() == 1
    assert maps.nth(1).locator("button[aria-label^='conv1,']").count() == 0
    trees = page.locator("table[role=treegrid] tbody")
    assert [trees.nth(k).locator("tr", has_text="Conv2d").count() for k in (0, 1)] == [20, 19]


def column(page, table, place):
    """The texts of one column, of the rows that are shown."""
    return page.locator(f"{table} tbody tr:not([hidden]) td:nth-child({place})").all_inner_texts()


def test_nodes_are_sorted_exactly_and_searched(show):
    """Counts that a float cannot tell apart are in order; a search leaves what has all words."""
    report = loaded("resnet18")
    nodes = [replace(row, macs=0) for row in report.nodes]
    nodes[3] = replace(nodes[3], macs=HUGE + 1)
    nodes[7] = replace(nodes[7], macs=HUGE)
    nodes[9] = replace(nodes[9], macs=HUGE - 1)
    page = show(replace(report, nodes=tuple(nodes)))
    table = "section:has(h2:text-is('Every node')) table"
    page.locator(f"{table} th button", has_text="MACs").press("Enter")
    first = [int(text.replace(" ", "")) for text in column(page, table, 4)[:3]]
    assert first == [HUGE + 1, HUGE, HUGE - 1]
    assert page.locator(f"{table} th[aria-sort=descending]").inner_text().startswith("MACs")
    page.locator(f"{table} th button", has_text="MACs").press("Enter")
    last = [int(text.replace(" ", "")) for text in column(page, table, 4)[-3:]]
    assert last == [HUGE - 1, HUGE, HUGE + 1]
    page.get_by_label("Search").last.fill("conv layer4")
    left = column(page, table, 3)
    assert 0 < len(left) < len(nodes)
    assert all(path.startswith("layer4") for path in left)


def test_the_tree_opens_by_keyboard(show):
    """Right opens, left closes, down goes on to the next; what it is, is said."""
    page = show(loaded("resnet18"))
    rows = "table[role=treegrid] tbody tr:not([hidden])"
    closed = page.locator(rows).count()
    button = page.get_by_role("button", name="Open layer1")
    button.focus()
    page.keyboard.press("ArrowRight")
    assert page.locator(rows).count() > closed
    row = page.locator("table[role=treegrid] tr[aria-expanded=true]", has_text="layer1").first
    assert row.get_attribute("aria-level") == "2"
    page.keyboard.press("ArrowDown")
    assert "layer1.0" in page.evaluate("document.activeElement.getAttribute('aria-label')")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowLeft")
    assert page.locator(rows).count() == closed


def test_the_map_is_drilled_into_and_sized_by_other_counts(show):
    """Parts lie side by side within the part that holds them; the trail leads back."""
    page = show(loaded("resnet18"))
    whole = page.locator(".map button")
    names = whole.all_inner_texts()
    assert names[0] == "(the model)"
    page.locator(".map button[aria-label^='layer3,']").press("Enter")
    assert page.locator(".map button").first.inner_text() == "layer3"
    assert page.locator(".trail button").all_inner_texts() == ["(the model)", "layer3"]
    inner = [part.bounding_box() for part in page.locator(".map button").all()]
    assert all(
        box["x"] >= inner[0]["x"] - 1
        and box["x"] + box["width"] <= inner[0]["x"] + inner[0]["width"] + 1
        for box in inner
    )
    second = sorted(box["x"] for box in inner if box["y"] > inner[0]["y"] + 20)
    assert all(left < right or left == right for left, right in pairwise(second))
    page.get_by_label("Size by").select_option("memory traffic")
    assert "memory traffic" in page.locator(".told").inner_text()
    page.locator(".trail button").first.click()
    assert page.locator(".map button").first.inner_text() == "(the model)"


def test_without_javascript_all_numbers_and_pictures_are_there(show):
    """The tree, the nodes and the waterfalls are in the file; only the map is not."""
    report = loaded("resnet18")
    page = show(report, java_script_enabled=False)
    assert page.locator("svg[role=img]").first.is_visible()
    assert page.locator("table[role=treegrid] tbody tr").count() == len(report.modules)
    assert page.locator("section:last-of-type table tbody tr").count() == len(report.nodes)
    assert page.locator(".without").is_visible()


def test_it_prints_whole(show):
    """On paper no table is cut off by its own scrolling, and no control is left."""
    page = show(loaded("resnet18"))
    page.emulate_media(media="print")
    assert not page.locator(".icicle").first.is_visible()
    assert not page.get_by_label("Search").first.is_visible()
    heights = "e => [e.scrollHeight, e.clientHeight]"
    tall = page.locator(".tall").last.evaluate(heights)
    assert tall[0] <= tall[1] + 1
    assert len(page.pdf()) > 10_000
