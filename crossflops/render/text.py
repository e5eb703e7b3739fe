"""Plain text in a file: what a terminal of 80 columns shows, without colour."""

from crossflops.render.layout import Noun
from crossflops.render.summary import Unit
from crossflops.render.terminal import terminal

WIDTH = 80


def text(noun: Noun, unit: Unit = "macs") -> str:
    """The page as plain text."""
    return terminal(noun, WIDTH, unit=unit)
