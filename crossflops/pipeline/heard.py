"""The warnings about a model, kept for its report."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from crossflops.errors import CrossflopsWarning

_PACKAGE = str(Path(__file__).parents[1])


@contextmanager
def heard() -> Iterator[list[str]]:
    """The sentences of every CrossflopsWarning of the block, each once, when it ends.

    They are heard whatever is filtered. All warnings are shown as always, then.
    """
    sentences: list[str] = []
    recorded: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as recorded:
            warnings.simplefilter("always", CrossflopsWarning)
            yield sentences
    finally:
        for one in recorded:
            _tell(one, sentences)


def _tell(one: warnings.WarningMessage, sentences: list[str]) -> None:
    sentence = str(one.message)
    if not issubclass(one.category, CrossflopsWarning):
        warnings.showwarning(one.message, one.category, one.filename, one.lineno)
        return
    if sentence in sentences:
        return
    sentences.append(sentence)
    # whoever filters by module means the package; a warning about a file bears the file's name
    module = "crossflops" if one.filename.startswith(_PACKAGE) else one.filename
    warnings.warn_explicit(sentence, one.category, one.filename, one.lineno, module)
