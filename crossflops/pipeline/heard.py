"""The warnings about a model, kept for its report."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from crossflops.errors import CrossflopsWarning


@contextmanager
def heard() -> Iterator[list[str]]:
    """The sentences of every CrossflopsWarning of the block, each once, when it ends.

    All warnings are shown as always, then.
    """
    sentences: list[str] = []
    with warnings.catch_warnings(record=True) as recorded:
        try:
            yield sentences
        finally:
            told = list(recorded)
    for one in told:
        if issubclass(one.category, CrossflopsWarning) and str(one.message) not in sentences:
            sentences.append(str(one.message))
        warnings.showwarning(one.message, one.category, one.filename, one.lineno)
