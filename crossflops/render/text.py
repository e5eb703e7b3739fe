"""Plain text in a file, or printed: what a terminal shows, without colour."""

from shutil import get_terminal_size

from crossflops.render.layout import Noun
from crossflops.render.summary import Unit
from crossflops.render.terminal import terminal

WIDTH = 80
NARROWEST = 20


def text(noun: Noun, unit: Unit = "macs") -> str:
    """The page as plain text."""
    return terminal(noun, WIDTH, unit=unit)


def shown(noun: Noun) -> str:
    """The page as `print` shows it: as wide as the terminal, without the last end of line."""
    width = max(NARROWEST, get_terminal_size((WIDTH, 24)).columns)
    return terminal(noun, width).removesuffix("\n")
