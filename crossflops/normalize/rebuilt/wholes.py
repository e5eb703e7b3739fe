"""Converters that look at a whole node: they choose which of its inputs their layer takes."""

from collections.abc import Callable
from typing import Any

from crossflops.normalize.rebuilt.facts import Facts
from crossflops.normalize.rebuilt.recurrent import recurrent

Whole = Callable[[Facts], tuple[Any, tuple[int, ...]]]

WHOLES: dict[str, Whole] = {
    "LSTM": recurrent,
    "GRU": recurrent,
    "RNN": recurrent,
}
