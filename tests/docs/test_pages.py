"""README.md and the pages of docs/ say what is true: links, commands, flags, names, output."""

import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest

from crossflops.cli import VERBS, command_group
from crossflops.tools.registry import all_conventions
from tests.docs.blocks import (
    PAGES,
    ROOT,
    agrees,
    all_blocks,
    blocks,
    commands,
    prepare,
    renewed,
    run,
)

README = ROOT / "README.md"
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
CONTEXT = click.Context(command_group, **command_group.context_settings)
FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`([^`]+)`")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
# Options of start.py, of docs/build_site.py, of tests/make_atlas.py and of the plugin of pytest,
# and of no verb alone.
FOREIGN = {
    "--add", "--quick", "--keep", "--nightly", "--links", "--update-flops", "--help", "--version",
}  # fmt: skip


def prose(page):
    """The text of a page without its blocks."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def anchors(page):
    """The names that GitHub gives to the headings of a page."""
    heads = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", head.lower()) for head in heads)
    return {head.replace(" ", "-") for head in plain}


def verbs():
    """Every verb with its command."""
    return {name: command_group.get_command(CONTEXT, name) for name in VERBS}


def options(command):
    """The long options of a verb."""
    return {o for p in command.params for o in (*p.opts, *p.secondary_opts) if o.startswith("--")}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page):
    """To a file or folder of the repository, and to a heading in it where one is named."""
    for target in LINK.findall(prose(page)):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name}: {target}"
        assert file.is_relative_to(ROOT)
        if anchor:
            assert anchor in anchors(file), f"{page.name}: {target}"


@pytest.mark.parametrize("block", [b for page in PAGES for b in blocks(page) if b.shows], ids=str)
def test_what_is_shown_of_a_file_stands_there(block):
    """Line by line, in one piece."""
    assert "\n".join(block.lines) in (ROOT / block.shows).read_text("utf-8")


def test_the_front_page_is_short():
    """At most 8 kB, so that it is read."""
    assert len(README.read_bytes()) <= 8000


def test_every_page_is_listed():
    """docs/README.md leads to every page beside it."""
    index = ROOT / "docs" / "README.md"
    listed = set(LINK.findall(prose(index)))
    assert {p.name for p in index.parent.glob("*.md")} - {"README.md"} <= listed


def test_every_verb_and_every_tool_stands_on_the_front_page():
    """In its tables, and no others; formulas stand in those of their own page."""
    text = prose(README)
    named = {words.split()[1] for words in INLINE.findall(text) if words.startswith("crossflops ")}
    assert named == set(VERBS)
    formulas = (README.parent / "docs/llm.md").read_text("utf-8")
    for convention in all_conventions():
        page = text if convention.formula is None else formulas
        tables = "".join(line for line in page.splitlines(keepends=True) if line.startswith("|"))
        assert f"`{convention.tool}`" in tables, convention.tool


@pytest.mark.parametrize("block", all_blocks("console"), ids=str)
def test_every_command_can_be_parsed(block):
    """Its verb, options and choices exist, and paths need not."""
    known = verbs()
    for command in commands(block):
        words = command.words
        if "|" in words:
            words = words[: words.index("|")]
        refused = any(line.startswith("error:") for line in command.output)
        if words[:1] != ["crossflops"] or words[1:] == ["--help"] or refused:
            continue
        verb = known[words[1]]
        ours = words[2 : words.index("--")] if "--" in words else words[2:]
        given = {word.partition("=")[0] for word in ours if word.startswith("--")}
        assert given <= options(verb) | {"--help"}, command.text
        parser = verb.make_parser(click.Context(verb, parent=CONTEXT))
        parser.parse_args(list(words[2:]))  # raises what a user would see


def test_the_front_page_begins_with_three_commands():
    """`start.py report`, a first count and a first comparison, which can be parsed."""
    [block] = [b for b in blocks(README) if any(".venv" in line for line in b.lines)]
    first, *others = block.lines
    assert first == "python3 start.py report"
    assert (ROOT / "start.py").exists()
    assert [line.split()[:2] for line in others] == [
        [".venv/bin/crossflops", verb] for verb in ("count", "compare")
    ]
    for line in others:
        verb = verbs()[line.split()[1]]
        verb.make_parser(click.Context(verb, parent=CONTEXT)).parse_args(line.split()[2:])


def test_every_option_that_a_page_names_is_one():
    """Of some verb, or of start.py; and every option of a verb is named on some page."""
    known = set().union(*map(options, verbs().values())) | FOREIGN
    named = set()
    for page in PAGES:
        words = " ".join(INLINE.findall(prose(page)))
        shown = " ".join(c.text for b in blocks(page) if b.language == "console"
                         for c in commands(b))  # fmt: skip
        strays = set(OPTION.findall(words)) - known
        assert not strays, f"{page.name}: {', '.join(sorted(strays))}"
        named |= set(OPTION.findall(f"{words} {shown}"))
    assert sorted(known - FOREIGN - named) == []


def test_the_rooms_are_those_of_the_contract():
    """The table of docs/architecture.md names every room, in the order in which imports point."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    [floors] = [c for c in table["tool"]["importlinter"]["contracts"] if c["id"] == "floors"]
    order = [room.strip() for layer in floors["layers"] for room in layer.split("|")]
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8").partition("\nWhere to change")[0]
    rows = re.findall(r"^\| `(\w+)(?:/|\.py)` \|", text, re.MULTILINE)
    layer_of = {r.strip(): i for i, layer in enumerate(floors["layers"]) for r in layer.split("|")}
    assert sorted(rows) == sorted(order)
    assert [layer_of[row] for row in rows] == sorted(layer_of[row] for row in rows)


def test_tables_of_toml_can_be_read():
    """As TOML reads them."""
    for block in all_blocks("toml"):
        assert tomllib.loads("\n".join(block.lines)), block


def held(block, folder):
    """Run the commands of a block: each prints what the block shows."""
    prepare(block, folder)
    for command in commands(block):
        printed = run(command, folder)
        if command.output:
            assert agrees(command.output, printed), "\n".join((command.text, *printed))
        else:
            assert not any(line.startswith("error:") for line in printed), printed


def test_the_first_twelve_commands_run():
    """Each block of the tutorial names the environment in which the tests below run it."""
    shown = [b for b in blocks(ROOT / "docs" / "tutorial.md") if b.language == "console"]
    assert len(shown) == 12
    assert {block.runs for block in shown} == {"core", "torch", "tools"}


@pytest.mark.parametrize("block", all_blocks("console", "core"), ids=str)
def test_output_is_what_the_core_prints(block, tmp_path):
    """Without any framework."""
    held(block, tmp_path)


@pytest.mark.torch
@pytest.mark.parametrize("block", all_blocks("console", "torch"), ids=str)
def test_output_is_what_is_printed_beside_pytorch(block, tmp_path):
    """With torchvision and the plugins of thop, fvcore and torch."""
    held(block, tmp_path)


@pytest.mark.tools
@pytest.mark.parametrize("block", all_blocks("console", "tools"), ids=str)
def test_output_is_what_is_printed_beside_every_tool(block, tmp_path):
    """With all tools of PyTorch that share an environment."""
    held(block, tmp_path)


@pytest.mark.frameworks
@pytest.mark.parametrize("block", all_blocks("console", "frameworks"), ids=str)
def test_output_is_what_is_printed_beside_every_framework(block, tmp_path):
    """With PyTorch, TensorFlow, JAX and scikit-learn."""
    held(block, tmp_path)


@pytest.mark.torch
@pytest.mark.parametrize("block", all_blocks("python", "torch"), ids=str)
def test_python_prints_what_its_comments_say(block, tmp_path, monkeypatch, capsys):
    """A comment at the end of a line with `print` is what that line prints."""
    prepare(block, tmp_path)
    monkeypatch.chdir(tmp_path)
    exec(compile("\n".join(block.lines), str(block), "exec"), {"__name__": "page"})
    shown = [line.partition("  # ")[2] for line in block.lines if "print(" in line]
    assert capsys.readouterr().out.splitlines() == shown


def test_an_elision_stands_for_any_lines():
    """And for none; every other line stands as it is."""
    printed = ["a", "b (c)", "d"]
    assert agrees(["a", " ...", "d"], printed)
    assert agrees(["a", "b (c)", "...", "d"], printed)
    assert not agrees(["a", "d"], printed)
    assert not agrees(["a", "..."], ["b"])
    assert renewed(["a", "...", "e"], printed) == ["a", " ...", "d"]


def test_a_command_is_read_with_its_output():
    """Lines after a backslash belong to the command."""
    [block] = [b for b in blocks(README) if b.runs == "tools"]
    [command] = commands(block)
    assert shlex.split(command.text)[:2] == ["crossflops", "compare"]
    assert command.output
    assert isinstance(block.page, Path)


def test_what_to_change_is_where_the_architecture_says():
    """Each file and folder that its table names is there."""
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    _, _, table = text.partition("\nWhere to change what")
    table = table.partition("\nNext to the package")[0].partition("|---|---|")[2]
    places = [
        place
        for row in re.findall(r"^\| .* \| (.*) \|$", table, re.MULTILINE)
        for place in re.findall(r"`([\w./]+)`", row)
    ]
    assert len(places) > 20
    assert not [place for place in places if not (ROOT / "crossflops" / place).exists()]


def test_the_steps_of_a_comparison_are_calls_of_it():
    """Each row of the walk names a function of a file, which the comparison calls or imports."""
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    _, _, walk = text.partition("\n### A comparison, step by step")
    rows = re.findall(r"^\| \d+ \| (.*?) \|", walk.partition("\nThree rooms")[0], re.MULTILINE)
    folder = ROOT / "crossflops" / "verbs" / "compare"
    calls = (folder / "compare.py").read_text("utf-8")
    assert len(rows) == 13
    for row in rows:
        [file] = re.findall(r"`([\w/]+\.py)", row)
        names = re.findall(r"`(?:[\w/]+\.py: )?(\w+)`", row)
        beside = folder / file
        path = beside if beside.exists() else ROOT / "crossflops" / file
        code = path.read_text("utf-8")
        for name in names:
            assert re.search(rf"\bdef {name}\(|\bimport {name}$", code, re.M), row
            assert path.is_relative_to(ROOT / "crossflops" / "cli") or f"{name}(" in calls, row
