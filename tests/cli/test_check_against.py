"""Several models held against a revision, or a baseline: what came in is told apart.

The pull request adds a node that nobody counts, a layer, a new model, and moves a file.
"""

import json
from xml.etree import ElementTree

import pytest

from tests.cli.test_check_parts import rows_of
from tests.end_to_end.test_gates import model
from tests.onnx_files import saved
from tests.verbs.test_revision import git

BUDGETS = {
    "vision": """
[budgets."a.onnx"]
rules = ["macs <= +1%", "uncounted == 0"]

[budgets."b.onnx"]
rules = ["macs <= +1%", "params <= 1k", "memory_traffic <= +0%"]
""",
    "text": """
[budgets."*.onnx"]
rules = ["macs <= +1%", "file_bytes <= +0%"]
modules = {"body" = ["macs <= +1%"]}
operators = {MatMul = ["nodes <= +0%"]}
""",
    "audio": """
[budgets."e.onnx"]
rules = ["macs <= +1%", "peak_activation_memory <= +0%"]
""",
}
FILES = {
    "vision/a": ("body",),
    "vision/b": ("body", "head"),
    "text/c": ("body", "head"),
    "text/d": ("body",),
    "audio/e": ("body", "head", "more"),
}


def strange():
    """`body`, and behind it a node of an unknown operator."""
    made = model(("body",))
    made.opset_import.add(domain="acme", version=1)
    made.graph.value_info.append(made.graph.output[0])
    made.graph.node.add(
        op_type="Huge", domain="acme", name="/tail/Huge", input=["y"], output=["z"]
    )
    made.graph.output[0].name = "z"
    return made


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Three folders with five models on `main`, of which a branch is checked out."""
    monkeypatch.chdir(tmp_path)
    git(tmp_path, "init", "-q", "-b", "main")
    for folder, text in BUDGETS.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "crossflops.toml").write_text(text)
    for name, layers in FILES.items():
        folder, _, file = name.partition("/")
        saved(tmp_path / folder, model(layers), f"{file}.onnx")
    commit(tmp_path)
    git(tmp_path, "checkout", "-q", "-b", "feature")
    return tmp_path


def commit(folder):
    """All that lies there."""
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "x")


def change(repository):
    """What the pull request does."""
    saved(repository / "vision", strange(), "a.onnx")
    saved(repository / "vision", model(("body", "head", "more")), "b.onnx")
    saved(repository / "text", model(("body",)), "new.onnx")
    git(repository, "mv", "audio/e.onnx", "text/moved.onnx")
    git(repository, "rm", "-q", "audio/crossflops.toml")
    commit(repository)


ALL = ("vision/a.onnx", "vision/b.onnx", "text/c.onnx", "text/d.onnx", "text/new.onnx",
       "text/moved.onnx")  # fmt: skip


def test_what_came_in_is_told_apart(line, repository):
    """In the page, JSON, JUnit and the exit status; what did not change holds."""
    change(repository)
    words = ("check", *ALL, "--against", "main")
    status, out, _ = line(*words, "--json", "--junit", "checks.xml")
    rows = {(row["target"], row["rule"], row["part"]): row for row in json.loads(out)["checks"]}
    assert status == 1
    failing = {key[:2] for key, row in rows.items() if not row["holds"]}
    assert failing == {
        ("vision/a.onnx", "macs <= +1%"), ("vision/a.onnx", "uncounted == 0"),
        ("vision/b.onnx", "macs <= +1%"), ("vision/b.onnx", "memory_traffic <= +0%"),
    }  # fmt: skip
    assert rows["vision/a.onnx", "macs <= +1%", ""]["uncounted"] == ["/tail/Huge (acme.Huge)"]
    grown = rows["vision/b.onnx", "macs <= +1%", ""]
    assert grown["grew"] == [{"path": "body.head.more", "by": 20}]
    moved = rows["text/moved.onnx", "macs <= +1%", ""]
    assert (moved["moved_from"], moved["change"]) == ("audio/e.onnx", 0)
    new = rows["text/new.onnx", "macs <= +1%", ""]
    assert (new["is_new"], new["limit"], new["value"]) == (True, None, 800)
    kinds = {
        case.get("classname"): {child.get("type") or child.tag for child in case}
        for case in ElementTree.parse("checks.xml").iter("testcase")
        if case.get("name") == "macs <= +1%"
    }
    assert kinds["vision/a.onnx"] == {"uncounted"}
    assert kinds["vision/b.onnx"] == {"limit"}
    assert kinds["text/moved.onnx"] == {"system-out"}
    assert kinds["text/c.onnx"] == set()
    page = " ".join(line(*words)[1].split())
    assert "1 node not counted: /tail/Huge" in page
    assert "Grew in MACs: body.head.more +20." in page
    assert "text/moved.onnx moved from audio/e.onnx." in page
    assert "text/new.onnx is not in main, so its growth is not checked." in page
    assert line("check", "text/moved.onnx", "--against", "main")[0] == 0
    assert len(git(repository, "worktree", "list").splitlines()) == 1


def test_a_file_that_moved_keeps_its_baseline(line, repository, monkeypatch):
    """Where its count is the same; a budget that still has the old name is told the new one."""
    monkeypatch.chdir(repository / "audio")
    assert line("check", "--update")[0] == 0
    git(repository / "audio", "mv", "e.onnx", "f.onnx")
    (row, _) = rows_of(line).values()
    assert "a file of that name exists" not in row["hint"]
    assert row["error"].startswith("cannot read e.onnx")
    (repository / "audio" / "nets").mkdir()
    git(repository / "audio", "mv", "f.onnx", "nets/e.onnx")
    (row, _) = rows_of(line).values()
    assert row["hint"].startswith("a file of that name exists at nets/e.onnx")
    text = BUDGETS["audio"].replace("e.onnx", "nets/e.onnx")
    (repository / "audio" / "crossflops.toml").write_text(text)
    status, out, _ = line("check")
    assert status == 0
    assert "nets/e.onnx moved from e.onnx." in out
    saved(repository / "audio" / "nets", model(("body",)), "e.onnx")
    (row, _) = rows_of(line).values()
    assert "needs a baseline" in row["error"]


def test_a_file_that_git_does_not_know_yet_moved(line, repository, monkeypatch):
    """As one that was added has: a file that is gone says so, a copy is new."""
    monkeypatch.chdir(repository / "text")
    (repository / ".git" / "info" / "exclude").write_text("ignored.onnx\n")
    (repository / "audio" / "e.onnx").rename("moved.onnx")
    (repository / "vision" / "b.onnx").rename("ignored.onnx")
    saved(repository / "text", (repository / "text" / "d.onnx").read_bytes(), "copy.onnx")
    before = git(repository, "status", "--short")
    rows = json.loads(line("check", "--against", "main", "--json")[1])["checks"]
    came = {row["target"]: (row["moved_from"], row["is_new"]) for row in rows}
    assert came["moved.onnx"] == ("../audio/e.onnx", False)
    assert came["ignored.onnx"] == ("../vision/b.onnx", False)
    assert came["copy.onnx"] == ("", True)
    assert came["c.onnx"] == ("", False)
    assert git(repository, "status", "--short") == before


def test_a_budget_is_no_file_that_moved(line, repository, monkeypatch):
    """Two budgets of one model: the one without an entry does not take the other's."""
    monkeypatch.chdir(repository / "vision")
    table = '[budgets.{}]\ntarget = "b.onnx"\nrules = ["macs <= +1%"]\n'
    file = repository / "vision" / "crossflops.toml"
    file.write_text(table.format("first"))
    assert line("check", "--update")[0] == 0
    file.write_text(table.format("first") + table.format("second"))
    for words in (("second",), ()):
        rows = json.loads(line("check", *words, "--json")[1])["checks"]
        assert "needs a baseline" in rows[-1]["error"]
        assert not rows[-1]["moved_from"]


def test_a_revision_that_is_not_here_ends_the_check(line, repository, monkeypatch):
    """Two lines; nothing is held in part. A pointer at that revision is a row's error."""
    status, out, err = line("check", *ALL[:2], "--against", "origin/main")
    assert (status, out) == (2, "")
    assert "origin/main" in err
    assert line("check", ALL[0], "--against", "main", "--update")[0] == 2
    pointer = repository / "vision" / "a.onnx"
    whole = pointer.read_bytes()
    pointer.write_text("version https://git-lfs.github.com/spec/v1\noid x\n")
    commit(repository)
    pointer.write_bytes(whole)
    rows = rows_of(line, "vision/a.onnx", "--against", "HEAD")
    assert "a Git LFS pointer" in rows["", "macs <= +1%"]["error"]
    assert rows["", "uncounted == 0"]["holds"]


def test_no_growth_is_held_only_where_git_has_no_file(line, repository, tmp_path, monkeypatch):
    """A model of a submodule, of another repository, or behind a link is not new."""
    inner = tmp_path / "inner"
    inner.mkdir()
    git(inner, "init", "-q", "-b", "main")
    saved(inner, model(("body",)), "s.onnx")
    commit(inner)
    outer = tmp_path / "outer"
    outer.mkdir()
    git(outer, "init", "-q", "-b", "main")
    git(outer, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add",
        f"file://{inner}", "sub")  # fmt: skip
    (outer / "kept").mkdir()
    saved(outer / "kept", model(("body",)), "k.onnx")
    (outer / "link").symlink_to("kept")
    (outer / "away.onnx").symlink_to("../inner/s.onnx")
    commit(outer)
    names = ("sub/s.onnx", "../inner/s.onnx", "away.onnx", "link/k.onnx", f"{outer}/kept/k.onnx")
    rows = "".join(f'[budgets."{name}"]\nrules = ["macs <= +1%"]\n' for name in names)
    (outer / "crossflops.toml").write_text(rows)
    saved(outer / "kept", model(("body", "head")), "k.onnx")
    monkeypatch.chdir(outer)
    rows = json.loads(line("check", "--against", "HEAD", "--json")[1])["checks"]
    errors = [row["error"].partition("which failed: ")[2] for row in rows]
    assert [row["holds"] for row in rows] == [False] * 5
    assert errors[0].startswith("sub/s.onnx is in the submodule sub")
    assert errors[1].startswith("../inner/s.onnx is outside the git repository")
    assert errors[2].startswith("cannot read away.onnx")
    assert [row["change"] for row in rows[3:]] == [200, 200]


def test_a_sparse_checkout_hides_no_older_model(line, repository):
    """The folder of the model is left out of the tree, and the revision has it."""
    git(repository, "sparse-checkout", "set", "text")
    (repository / "vision").mkdir(exist_ok=True)
    (repository / "vision" / "crossflops.toml").write_text(BUDGETS["vision"])
    saved(repository / "vision", model(("body", "head", "more")), "b.onnx")
    status, out, _ = line("check", "vision/b.onnx", "--against", "main")
    assert status == 1
    assert "Grew in MACs: body.head.more +20." in " ".join(out.split())
