"""What a person sees while a verb runs: a line for each tool as it ends, on a terminal alone."""

import io
import os
import pty
import select
import sys
import time

from crossflops.cli.output import showing_progress
from crossflops.ir.profile import Failure
from crossflops.verbs.compare.answers import collect_answers


def _fail():
    """Yield three tools that fail at once."""
    for name in ("thop", "fvcore", "torchinfo"):
        yield name, Failure(tool=name, stage="run", message="it failed", hint="mend it")


def test_every_tool_has_a_line_with_what_is_left():
    """The last one has none left."""
    lines = []
    collect_answers(_fail(), 3, {}, lines.append, time.monotonic())
    assert [line.partition(",")[0] for line in lines] == [
        "thop failed",
        "fvcore failed",
        "torchinfo failed",
    ]
    assert lines[0].endswith("1 of 3, about 1 s left\n")
    assert lines[2] == "torchinfo failed, 3 of 3\n"


def test_lines_stay_on_a_terminal(monkeypatch):
    """A text without an end is replaced, one with it is not."""
    reader, writer = pty.openpty()
    terminal = os.fdopen(writer, "w")
    kept = os.dup(2)
    os.dup2(writer, 2)
    monkeypatch.setattr(sys, "stderr", terminal)
    try:
        with showing_progress("comparing") as tell:
            tell("thop done, 1 of 2\n")
            tell("waiting")
    finally:
        os.dup2(kept, 2)
        os.close(kept)
    shown = b""
    while b"thop done, 1 of 2\r\n" not in shown:  # a terminal may give it in pieces
        assert select.select([reader], [], [], 10)[0], shown
        shown += os.read(reader, 1 << 16)


def test_nothing_is_told_without_a_terminal(monkeypatch):
    """A log is not filled with lines of progress."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with showing_progress("comparing") as tell:
        tell("thop done, 1 of 2\n")
    assert stream.getvalue() == ""
