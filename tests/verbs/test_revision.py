"""`crossflops diff` of what git keeps: the reader's folder stays as it is."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from crossflops.errors import InputError
from crossflops.verbs.revisions import (
    import_folders_outside_repository,
    reject_modules_of_present_files,
    split_revision,
)
from crossflops.verbs.revisions import repository_root as top
from tests.cli.test_table import ONE, TWO
from tests.onnx_files import saved, with_weights

ROOT = Path(__file__).resolve().parents[2]


def git(folder, *words):
    """What git prints."""
    names = ("-c", "user.name=a", "-c", "user.email=a@b")
    return subprocess.run(
        ["git", *names, *words], cwd=folder, check=True, capture_output=True, text=True
    ).stdout


def diff(folder, *words):
    """Exit status, JSON and stderr of the command in that folder."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-m", "crossflops", "diff", *words, "--json"], cwd=folder, text=True,
        env=os.environ | {"PYTHONPATH": path}, capture_output=True, check=False, timeout=300,
    )  # fmt: skip
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


@pytest.fixture
def repository(tmp_path):
    """ONE in the first commit, TWO in the second, and a file of weights that no commit has."""
    folder = tmp_path / "repository" / "models"
    folder.mkdir(parents=True)
    git(folder.parent, "init", "-q", "-b", "main")
    (folder.parent / ".git" / "hooks" / "post-checkout").write_text("#!/bin/sh\ntouch ../HOOK\n")
    (folder.parent / ".git" / "hooks" / "post-checkout").chmod(0o755)
    for text, weights in ((ONE, "w"), (TWO, "wv")):
        saved(folder, with_weights(text, *weights))
        git(folder, "add", ".")
        git(folder, "commit", "-q", "-m", "x")
    (folder / "untracked").write_text("")
    return folder


def test_a_file_at_two_revisions(repository, monkeypatch):
    """ONE has 30 MACs, TWO 70 more; nothing in the folder is touched, and no worktree stays.

    Nor is the index of a commit that is being made, as a hook of git names it.
    """
    monkeypatch.setenv("GIT_INDEX_FILE", str(repository.parent / ".git" / "index"))
    before = git(repository, "status", "--porcelain")
    limit = ("--max-increase", "2%")
    status, change, _ = diff(repository, "HEAD~1:model.onnx", "model.onnx", *limit)
    assert (status, change["over"]) == (1, ["macs", "flops", "params"])
    assert (change["first_work"]["macs"], change["second_work"]["macs"]) == (30, 100)
    assert diff(repository, "main:model.onnx", "main~1:model.onnx", *limit)[0] == 0
    assert git(repository, "status", "--porcelain") == before
    assert len(git(repository, "worktree", "list").splitlines()) == 1
    assert not list(repository.parents[1].rglob("HOOK"))


def test_the_letter_of_a_drive_is_no_revision(repository, monkeypatch):
    """Not even where a tag bears its name; of any other path it is one."""
    git(repository, "tag", "C")
    monkeypatch.chdir(repository)
    for target in ("C:\\models\\model.py:make", "C:/models/model.py:make", "c:\\model.onnx"):
        assert split_revision(target) == ("", target)
    assert split_revision("C:model.py:make") == ("C", "model.py:make")
    assert split_revision("C:model.onnx") == ("C", "model.onnx")


def test_what_git_does_not_know_is_refused(repository):
    """A revision; a file that was not there yet, which is taken for a target."""
    status, _, err = diff(repository, "gone:model.py:make", "model.onnx")
    assert status == 2
    assert "unknown git revision 'gone'" in err
    status, _, err = diff(repository, "HEAD~1:other.onnx", "model.onnx")
    assert status == 2
    assert "Traceback" not in err
    assert len(git(repository, "worktree", "list").splitlines()) == 1


@pytest.mark.torch
def test_code_and_what_it_imports_are_those_of_the_revision(repository):
    """A package beside the model has the same name in both; an error of the old code is told."""
    (repository / "blocks.py").write_text("WIDE = 3\n")
    (repository / "model.py").write_text(
        "import torch\nfrom blocks import WIDE\n\ndef make():\n    print('talks')\n"
        "    return torch.nn.Linear(4, WIDE)\n"
    )
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "3")
    (repository / "blocks.py").write_text("WIDE = 5\n")
    words = ("HEAD:model.py:make", "model.py:make", "--input", "2x4")
    status, change, err = diff(repository, *words)
    assert status == 0, err
    assert (change["first_work"]["macs"], change["second_work"]["macs"]) == (24, 40)
    status, _, err = diff(repository, "HEAD~1:model.py:make", "model.py:make", "--input", "2x4")
    assert status == 2
    assert "file model.py does not exist" in err


def test_where_modules_come_from(repository, tmp_path, monkeypatch):
    """Folders outside of the repository stay; what lies in it, as it is now, is refused."""
    monkeypatch.chdir(repository)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), str(repository.parent))))
    assert import_folders_outside_repository() == [str(tmp_path)]
    reject_modules_of_present_files(top())
    (repository.parent / "shared_by_models.py").write_text("")
    monkeypatch.syspath_prepend(repository.parent)
    importlib.import_module("shared_by_models")
    try:
        with pytest.raises(
            InputError, match=r"shared_by_models was imported from .* not part of that"
        ):
            reject_modules_of_present_files(top())
    finally:
        del sys.modules["shared_by_models"]


def test_what_is_not_here_is_named(repository, tmp_path, monkeypatch):
    """A branch that a shallow clone lacks, a commit before its first, a file, a pointer."""
    git(repository, "checkout", "-q", "-b", "feature")
    clone = tmp_path / "clone"
    origin = f"file://{repository.parent}"
    git(tmp_path, "clone", "-q", "--depth", "1", "--branch", "feature", origin, str(clone))
    monkeypatch.chdir(clone / "models")
    for text, words in {
        "main:model.onnx": "fetch --depth=1 origin main:refs/remotes/origin/main",
        "origin/main:model.onnx": "fetch --depth=1 origin main:refs/remotes/origin/main",
        "main:model.py:make": "fetch --depth=1 origin main:refs/remotes/origin/main",
        "main:report.json": "fetch --depth=1 origin main:refs/remotes/origin/main",
        "HEAD~2:model.onnx": "fetch --deepen=2",
        "0123456789:model.onnx": "fetch --depth=1 origin 0123456789",
        "featrue:model.onnx": "did you mean feature",
        "HEAD:modle.onnx": "did you mean model.onnx?",
    }.items():
        with pytest.raises(InputError) as caught:
            split_revision(text)
        assert text.partition(":")[0] in caught.value.message
        assert "shallow" in caught.value.message or text.startswith("HEAD:")
        assert words in caught.value.hint
    git(clone, "fetch", "-q", "--depth=1", "origin", "main:refs/remotes/origin/main")
    assert split_revision("origin/main:model.onnx") == ("origin/main", "model.onnx")
    with pytest.raises(InputError) as caught:
        split_revision("main:model.onnx")
    assert caught.value.hint == "write origin/main, which exists in this clone"
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="not in a git repository"):
        split_revision("main:model.onnx")
    assert split_revision("hf:config.json") == ("", "hf:config.json")
    assert split_revision("model.py:make") == ("", "model.py:make")


def test_what_is_no_one_commit_is_refused(repository, monkeypatch):
    """Git's index, a range, what was before the first commit, and all without git."""
    monkeypatch.chdir(repository)
    for text, hint in {
        ":model.onnx": "write HEAD:model.onnx",
        "a..b:model.onnx": "git merge-base a b",
        "a...b:model.onnx": "git merge-base a b",
        "HEAD~9:model.onnx": "HEAD does not have so many ancestors",
        "zzzzzzzz:model.onnx": "name a commit, a branch or a tag",
    }.items():
        with pytest.raises(InputError) as caught:
            split_revision(text)
        assert hint in caught.value.hint
    monkeypatch.setenv("PATH", str(repository))
    with pytest.raises(InputError, match="git is not installed"):
        split_revision("HEAD:model.onnx")


def test_a_pointer_of_git_lfs_is_the_reason(repository):
    """It is what the revision holds, whatever lies here now."""
    model = (repository / "model.onnx").read_bytes()
    (repository / "model.onnx").write_text("version https://git-lfs.github.com/spec/v1\noid x\n")
    git(repository, "commit", "-q", "-a", "-m", "pointer")
    (repository / "model.onnx").write_bytes(model)
    status, _, err = diff(repository, "HEAD:model.onnx", "model.onnx")
    assert status == 2
    assert err.splitlines() == [
        "error: model.onnx at HEAD is a Git LFS pointer, not the model",
        "hint: install git-lfs, then run `git lfs fetch origin HEAD`",
    ]
