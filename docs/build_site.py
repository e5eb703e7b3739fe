"""Build the site: the pages of this folder, and the reference of verbs, Python and JSON.

    python docs/build_site.py                  write dist/site, fail at a warning
    python docs/build_site.py --links          check the links to other sites, too
    python docs/build_site.py --target FOLDER

The pages and notebooks are those that GitHub shows. Sphinx reads a copy of them, in which links
that lead out of docs/ lead to the repository, and flowcharts are pictures. The reference is made
from click, from docstrings, and from the types of the reports. The committed reports are pages for
a browser, as `crossflops render FILE -o page.html` writes them.
"""

import argparse
import json
import posixpath
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp

import click

import crossflops
from crossflops.cli import VERBS, command_group
from crossflops.render.formats import FORMATS
from crossflops.verbs.schema import REPORT_TYPES, build_schema

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path += [str(DOCS)]
from flowchart import chart_to_svg  # noqa: E402

REPOSITORY = "https://example.org/crossflops/blob/main/"
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
FENCE = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
# a scheme of links to files beside the pages, which docs/conf.py gives to myst
FILE_SCHEME = "extra:"
REPORT_SUFFIX = ".json.gz"
PAGE_SUFFIXES = (".md", ".svg", ".ipynb")
MENU_TITLES = {"README": "All pages", "ci": "CI and tests"}
# ends the first page: these pages are only on the site
LOOK_UP = """
## You look something up

* All options of a [verb](reference/verbs.md), and the [Python API](reference/python.md).
* The [JSON Schema](reference/schema.md) of reports, and [committed reports](reports/index.md).
* An [error message](errors.md) with its remedy, or any word in the search on the left.
"""
CHAPTERS = {
    "Begin": ("tutorial", "why", "notebooks/index", "README"),
    "How to": (
        "models", "count", "compare", "identify", "sweep", "tools", "efficiency", "roofline",
        "training", "bench", "profile", "devices", "formulas", "ci",
    ),
    "Reference": (
        "reference/verbs", "python", "reference/python", "reference/schema", "ops", "kernels",
        "causes", "conventions", "errors", "published", "atlas", "reports/index",
    ),
    "Explanation": ("llm", "converters", "performance", "adr/index"),
    "Contribute": ("extending", "architecture", "style", "release", "changelog"),
}  # fmt: skip


def write_source(target: Path) -> None:
    """Write all that sphinx reads into an empty folder."""
    shutil.copy(DOCS / "conf.py", target)
    (target / "_static").mkdir()
    shutil.copy(DOCS / "site.css", target / "_static")
    for picture in DOCS.glob("*.svg"):
        shutil.copy(picture, target)
    shutil.copytree(DOCS / "notebooks", target / "notebooks")
    write_report_pages(target / "_extra" / "reports")
    pages = {path.relative_to(DOCS).as_posix(): path for path in sorted(DOCS.rglob("*.md"))}
    decisions = [name.removesuffix(".md") for name in pages if name.startswith("adr/")]
    texts = {name: site_text(path) for name, path in pages.items()}
    texts["changelog.md"] = site_text(ROOT / "CHANGELOG.md")
    texts["index.md"] += LOOK_UP + "".join(map(contents_list, CHAPTERS, CHAPTERS.values()))
    names = [name.removeprefix("adr/") for name in decisions]
    texts["adr/index.md"] = "# Decisions\n" + contents_list("", tuple(names), hidden=False)
    notebooks = tuple(path.stem for path in sorted((DOCS / "notebooks").glob("*.ipynb")))
    texts["notebooks/index.md"] = "# Notebooks\n" + contents_list("", notebooks, hidden=False)
    texts["reports/index.md"] = "\n".join(report_lines())
    texts["reference/verbs.md"] = "\n".join(verb_lines())
    texts["reference/python.md"] = "\n".join(python_lines())
    texts["reference/schema.md"] = "\n".join(schema_lines())
    for name, text in texts.items():
        path = target / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


def site_text(path: Path) -> str:
    """Return the text of a page with the links and headings that the site needs."""
    folder = path.parent.relative_to(ROOT).as_posix()
    parts = FENCE.split(path.read_text("utf-8"))
    prose = parts[::2]
    linked = [LINK.sub(lambda match: _site_link(match, folder), text) for text in prose]
    if sum(len(re.findall(r"^# ", text, re.MULTILINE)) for text in prose) > 1:
        linked = [re.sub(r"^#", "##", text, flags=re.MULTILINE) for text in linked]
        linked[0] = f"# {path.stem.capitalize()}\n\n{linked[0]}"
    parts[::2] = linked
    parts[1::2] = [_site_block(block) for block in parts[1::2]]
    return "".join(parts)


def _site_block(block: str) -> str:
    """Return a fenced block as the site has it: a flowchart as a picture, others as they are."""
    if not block.startswith("```mermaid\n"):
        return block
    chart = block.removeprefix("```mermaid\n").removesuffix("```")
    return f'<div class="chart">{chart_to_svg(chart, "Flowchart")}</div>\n'


def _site_link(match: re.Match[str], folder: str) -> str:
    """Return a link of a page in this folder of the repository, as the site has it."""
    address = match[2]
    if "://" in address or address.startswith("#"):
        return match[0]
    path, _, anchor = address.partition("#")
    place = posixpath.normpath(posixpath.join(folder, path))
    if place == "docs/adr":
        address = "adr/index.md"
    elif place == "docs/notebooks":
        address = "notebooks/index.md"
    elif place == "CHANGELOG.md":
        address = "changelog.md"
    elif place == "reports":
        address = "reports/index.md"
    elif place.startswith("reports/") and place.endswith(REPORT_SUFFIX):
        address = FILE_SCHEME + report_page_path(ROOT / place)
    elif not place.startswith("docs/") or not place.endswith(PAGE_SUFFIXES):
        address = REPOSITORY + place
    elif folder == ".":  # the page lies in docs/ on the site
        address = place.removeprefix("docs/") + (f"#{anchor}" if anchor else "")
    return f"{match[1]}{address}{match[3]}"


def contents_list(caption: str, names: tuple[str, ...], hidden: bool = True) -> str:
    """Return the list by which sphinx orders pages, in the menu alone if it is hidden."""
    options = [f":caption: {caption}"] if caption else [":maxdepth: 1"]
    options += [":hidden:"] if hidden else []
    entries = (f"{MENU_TITLES[name]} <{name}>" if name in MENU_TITLES else name for name in names)
    return "\n".join(("", "```{toctree}", *options, "", *entries, "```", ""))


def report_files() -> list[Path]:
    """Return the committed reports: the atlas, and the comparisons."""
    return [ROOT / "reports/atlas/atlas.json.gz", *sorted((ROOT / "reports").glob("*.json.gz"))]


def report_page_path(file: Path) -> str:
    """Return the path of the page of a report on the site."""
    return f"reports/{file.name.removesuffix(REPORT_SUFFIX)}.html"


def write_report_pages(folder: Path) -> None:
    """Write each committed report as a page for a browser."""
    folder.mkdir(parents=True)
    for file in report_files():
        page = FORMATS[".html"](crossflops.render(file))
        (folder / Path(report_page_path(file)).name).write_text(page, encoding="utf-8")


def report_lines() -> Iterator[str]:
    """Yield the lines of the page of reports: a link to each."""
    yield "# Reports\n"
    yield "Each report is one file that also works offline."
    yield "[Compare](../compare.md#html-pages) explains its parts.\n"
    for file in report_files():
        name = file.name.removesuffix(REPORT_SUFFIX)
        yield f"* [{name}]({FILE_SCHEME}{name}.html)"
    yield ""


def verb_lines() -> Iterator[str]:
    """Yield the lines of the page of verbs: each with its help and its options."""
    yield "# Verbs\n"
    yield "This page is written from the command line. `crossflops VERB --help` prints the same.\n"
    context = click.Context(command_group, info_name="crossflops")
    for name, sentence in VERBS.items():
        command = command_group.get_command(context, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=context)
        usage = " ".join(command.collect_usage_pieces(inner))
        yield f"## {name}\n\n{sentence}\n\n```\ncrossflops {name} {usage}\n```\n"
        records = [
            record
            for param in command.get_params(inner)
            if isinstance(param, click.Option) and (record := param.get_help_record(inner))
        ]
        if records:
            yield "| option | meaning |\n|---|---|"
            yield from (f"| `{_cell(flag)}` | {_cell(_as_text(text))} |" for flag, text in records)
            yield ""


def _cell(text: str) -> str:
    """Return text for one cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def _as_text(text: str) -> str:
    """Return text whose letters mean nothing to Markdown, but for code."""
    parts = re.split(r"(`[^`]*`)", text)
    parts[::2] = [re.sub(r"([*_<>\[\]\\])", r"\\\1", part) for part in parts[::2]]
    return "".join(parts)


def python_lines() -> Iterator[str]:
    """Yield the lines of the page of Python: every public name, from its docstring."""
    yield "# Python API\n\n[How to use it](../python.md), with examples.\n"
    yield "```{eval-rst}\n.. currentmodule:: crossflops\n"
    for name in sorted(crossflops.__all__, key=str.lower):
        value = getattr(crossflops, name)
        kind = "function" if not isinstance(value, type) else "class"
        if isinstance(value, type) and issubclass(value, BaseException):
            kind = "exception"
        yield f".. auto{kind}:: crossflops.{name}"
        yield "   :members:\n" if kind == "class" else ""
    yield "```\n"


def schema_lines() -> Iterator[str]:
    """Yield the lines of the page of JSON: the schema of each kind of report."""
    yield "# JSON Schema\n"
    yield "The reports that `crossflops render` reads, as `--json` and `-o FILE.json` write them."
    yield "Counts are integers of any size.\n"
    yield "`crossflops schema` prints that of all reports, `crossflops schema VERB` that of one.\n"
    verbs: dict[type, list[str]] = {}
    for verb, report in REPORT_TYPES.items():
        verbs.setdefault(report, []).append(verb)
    for report, names in verbs.items():
        text = json.dumps(build_schema(names[0]), indent=1, ensure_ascii=False)
        yield f"## {report.__name__}\n\nWritten by: {', '.join(names)}.\n\n```json\n{text}\n```\n"


def run_sphinx(builder: str, source: Path, target: Path) -> int:
    """Run a builder of sphinx, for which a warning is an error; return its exit status."""
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", builder]
    command += ["-d", str(source / ".doctrees")]  # not beside the pages
    return subprocess.run([*command, str(source), str(target)], check=False).returncode


def main() -> int:
    """Build the site; return the status of sphinx."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", type=Path, default=ROOT / "dist" / "site")
    parser.add_argument("--links", action="store_true", help="check links to other sites")
    options = parser.parse_args()
    missing = [name for name in ("sphinx", "furo", "myst_nb") if find_spec(name) is None]
    if missing:
        print(f"error: not installed: {', '.join(missing)}", file=sys.stderr)
        print("hint: use tox -e site, or pip install sphinx furo myst-nb", file=sys.stderr)
        return 2
    shutil.rmtree(options.target, ignore_errors=True)
    (ROOT / "build").mkdir(exist_ok=True)
    # within the repository, where docs/conf.py finds the version; two builds do not share it
    source = Path(mkdtemp(prefix="site-", dir=ROOT / "build"))
    write_source(source)
    status = run_sphinx("html", source, options.target)
    if options.links and not status:
        status = run_sphinx("linkcheck", source, ROOT / "build" / "site-links")
    if not status:  # a warning names a line of the source
        shutil.rmtree(source)
    print(
        f"the site is in {options.target}" if not status else "the site is not complete: see above"
    )
    return status


if __name__ == "__main__":
    sys.exit(main())
