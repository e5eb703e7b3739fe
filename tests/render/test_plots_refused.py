"""What no picture is made of, with and without matplotlib."""

import sys

import pytest

from crossflops.errors import MissingExtraError, UnknownNameError
from crossflops.ir.measurement import measured
from crossflops.render.plots import batch_plot, checked

pytestmark = pytest.mark.plots


@pytest.mark.parametrize("suffix", ["", ".pdf", ".svgz"])
def test_other_formats_are_refused(suffix):
    """By name."""
    with pytest.raises(UnknownNameError, match="format"):
        checked(suffix)


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    """One line, and the command that installs it."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError) as caught:
        batch_plot([measured(1, [0.1], 1)], "net", ".svg")
    assert caught.value.hint == "pip install 'crossflops[plots]'"
