"""Files: whole or not there; compressed ones have the same bytes, or are refused in one line."""

import gzip
import os
import shutil
import sys
from threading import Thread

import pytest

from crossflops.cli import main
from crossflops.files import gzip_bytes, read_file_bytes, write_file
from tests.make_reports import FOLDER, SUFFIX

NAME = "lstm"


@pytest.fixture
def small():
    """The smallest of the committed reports."""
    return FOLDER / f"{NAME}{SUFFIX}"


def test_what_was_compressed_comes_back(tmp_path):
    """The same bytes for the same content, and a file that is not compressed as it is."""
    data = b'{"a": 1}\n' * 100
    file = tmp_path / "a"
    for written in (data, gzip_bytes(data), gzip.compress(data)):
        file.write_bytes(written)
        assert read_file_bytes(file) == data
    assert gzip_bytes(data) == gzip_bytes(data)
    assert b"a" not in gzip_bytes(b"")[:10]  # no name of a file


def test_a_link_stays_one(tmp_path):
    """What it leads to gets the content, and no draft is left."""
    file, link = tmp_path / "a", tmp_path / "b"
    file.write_text("old")
    link.symlink_to(file)
    write_file(link, "new")
    assert (link.is_symlink(), file.read_text()) == (True, "new")
    assert sorted(tmp_path.iterdir()) == [file, link]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such pipes")
def test_a_pipe_gets_the_content_and_stays_one(tmp_path):
    """As /dev/null does, which a rename by root would replace by a file."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read = []
    reader = Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write_file(pipe, "all of it")
    reader.join(10)
    assert (read, pipe.is_fifo()) == (["all of it"], True)


def test_a_compressed_report_is_a_report_under_any_name(small, tmp_path, capfd):
    """`render` reads it and writes it again: JSON, compressed JSON, and its page."""
    plain, again, page = (tmp_path / name for name in ("a.json", "b.json.gz", "c.md"))
    odd = tmp_path / "no-suffix"
    shutil.copy(small, odd)
    assert main(["render", str(odd), "-o", str(plain)]) == 0
    assert main(["render", str(plain), "-o", str(again)]) == 0
    assert main(["render", str(again), "-o", str(page)]) == 0
    assert plain.read_bytes() == read_file_bytes(small)
    assert again.read_bytes() == small.read_bytes()
    assert page.read_bytes() == (FOLDER / f"{NAME}.md").read_bytes()
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: data[:30] + b"x" * 40])
def test_a_damaged_file_is_refused_in_two_lines(small, tmp_path, capfd, damage):
    """One says what, one what to do, and the status is 2."""
    file = tmp_path / "bad.json.gz"
    file.write_bytes(damage(small.read_bytes()))
    assert main(["render", str(file)]) == 2
    what, hint = capfd.readouterr().err.splitlines()
    assert f"{file} is a damaged gzip file: " in what
    assert hint == "hint: copy or write the file again"


def test_only_json_is_written_compressed(small, tmp_path, capfd):
    """A page is to be read."""
    assert main(["render", str(small), "-o", str(tmp_path / "a.md.gz")]) == 2
    assert "the suffix '.md.gz', which is not a known format" in capfd.readouterr().err
