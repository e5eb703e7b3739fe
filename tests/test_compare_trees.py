"""The comparison of two source trees without their names."""

import subprocess
import sys

import pytest

from tests.compare_trees import changed_files, tree_without_names

OLD = '''
"""A module."""
from a import told as asked
import b

def counted(place, *, how=1):
    "What is counted."
    global _seen
    home = {"how": place}  # where it is
    match place:
        case Point(x=0) | {"x": 0, **rest}:
            return home["how"] + how + b.value
'''
NEW = '''
"""Another text."""
import b
from a import request_record

def count_calls(index, *, mode=1):
    """Return the count."""
    global _observed
    module = {"how": index}
    match index:
        case Position(row=0) | {"x": 0, **others}:
            return module["how"] + mode + b.amount
'''


def test_names_docstrings_comments_and_imports_do_not_count():
    """Functions, parameters, attributes, patterns and globals may have other names."""
    assert tree_without_names(OLD) == tree_without_names(NEW)


@pytest.mark.parametrize(
    ("part", "other"),
    [
        ('"how"', '"mode"'),  # a key of JSON
        ("mode=1", "mode=2"),
        ("+ mode", "- mode"),
        ("(index, *, mode=1)", "(index, mode=1)"),
        ("b.amount", "b.amount.real"),
        ("row=0", "row=1"),
    ],
)
def test_what_runs_counts(part, other):
    """A string, a number, an operator, a kind of parameter, one attribute more."""
    assert part in NEW
    assert tree_without_names(NEW) != tree_without_names(NEW.replace(part, other))


def trees_of(tmp_path):
    """Return two folders: alike but for names in a.py, for a number in b.py, and for c.py."""
    folders = tmp_path / "old", tmp_path / "new"
    for folder, source, number in zip(folders, (OLD, NEW), "12", strict=True):
        (folder / "room").mkdir(parents=True)
        (folder / "a.py").write_text(source)
        (folder / "room" / "b.py").write_text(f"limit = {number}\n")
    (folders[1] / "c.py").write_text("")
    return folders


def test_files_that_differ_are_listed(tmp_path):
    """One with another number, and one that a side lacks."""
    old, new = trees_of(tmp_path)
    assert list(changed_files(old, new)) == ["c.py (on one side alone)", "room/b.py"]
    assert list(changed_files(old, old)) == []


def test_the_script_ends_with_what_it_found(tmp_path):
    """0 for trees that are alike, 1 for others, and a hint for a folder that is not there."""
    old, new = trees_of(tmp_path)

    def run(*folders):
        command = [sys.executable, "-m", "tests.compare_trees", *map(str, folders)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    alike, other, absent = run(old, old), run(old, new), run(old, tmp_path / "none")
    assert (alike.returncode, alike.stdout) == (0, "the syntax trees are alike\n")
    assert (other.returncode, other.stdout) == (1, "c.py (on one side alone)\nroom/b.py\n")
    assert absent.returncode == 1
    assert absent.stderr.startswith("error: two folders are needed\nhint: ")
