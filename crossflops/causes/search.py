"""Causes by the words that somebody has for them."""

import re
from collections.abc import Iterable

from crossflops.ir.reconciliation import Cause

CAUSES: tuple[Cause, ...] = ()
# how people write what a page spells out
_ALSO = {
    "twice": ("double", "again"),
    "double": ("twice",),
    "doubled": ("double", "twice"),
    "bn": ("batchnormalization",),
    "ln": ("layernormalization",),
    "mha": ("multiheadattention",),
    "sdpa": ("scaleddotproductattention",),
    "2x": ("2permultiplyaccumulate",),
    "factor2": ("2permultiplyaccumulate",),
    "dead": ("neverused", "deadcode"),
    "unused": ("neverused",),
}
_NAME, _PAGE = 4, 1  # what a word is worth where it stands


def search(words: str, causes: Iterable[Cause]) -> tuple[Cause, ...]:
    """The causes in whose name or page every one of the words stands, the nearest first.

    Words are compared by their letters and digits alone, so that "batchnorm" is found in "batch
    normalization". Those with all words in their name and title leave out the others, and so does
    the only one whose title begins with them.
    """
    wanted = [plain for word in words.split() if (plain := _plain(word))]
    scored = [(score, cause) for cause in causes if wanted and (score := _score(wanted, cause))]
    begun = [cause for _, cause in scored if _begins("".join(wanted), cause)]
    if len(begun) == 1:
        return tuple(begun)
    named = [pair for pair in scored if pair[0] >= _NAME * len(wanted)]
    return tuple(
        cause for _, cause in sorted(named or scored, key=lambda pair: (-pair[0], pair[1].id))
    )


def _score(wanted: list[str], cause: Cause) -> int:
    """How near the cause is to these words; 0 where one of them is not in it."""
    name = _plain(f"{cause.id} {cause.title}")
    page = _plain(f"{cause.page} {cause.recognise}")
    worths = [max(_worth(form, name, page) for form in _forms(word)) for word in wanted]
    return sum(worths) if all(worths) else 0


def _worth(form: str, name: str, page: str) -> int:
    return _NAME if form in name else _PAGE if form in page else 0


def _forms(word: str) -> tuple[str, ...]:
    """The word, what else it is called, and the word without the end of a plural."""
    singular = (word[:-1],) if len(word) > 4 and word.endswith("s") else ()
    spelled = (word.replace("avg", "average"),) if "avg" in word else ()
    return (word, *_ALSO.get(word, ()), *spelled, *singular)


def _begins(words: str, cause: Cause) -> bool:
    return any(_plain(cause.title).startswith(form) for form in _forms(words))


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.casefold())
