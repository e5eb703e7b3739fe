"""Named reasons for which two counts differ. Every module in this folder offers its `CAUSES`.

In: an id, or words that describe a cause. Out: causes, each with its page and its example.
May import: ir, errors.
"""

import functools
import re
from collections.abc import Iterable
from importlib import import_module
from pkgutil import iter_modules

from crossflops.errors import UnknownNameError
from crossflops.ir.reconciliation import Cause


@functools.cache
def _by_id() -> dict[str, Cause]:
    by_id: dict[str, Cause] = {}
    for module in iter_modules(__path__):
        for cause in import_module(f"{__name__}.{module.name}").CAUSES:
            if cause.id in by_id:
                raise ValueError(f"two causes are called {cause.id!r}")
            by_id[cause.id] = cause
    return by_id


def causes() -> tuple[Cause, ...]:
    """All causes, by id."""
    return tuple(cause for _, cause in sorted(_by_id().items()))


def cause(id: str) -> Cause:
    """The cause of that id. Raises UnknownNameError."""
    try:
        return _by_id()[id]
    except KeyError:
        family = id.partition(".")[0]
        near = [name for name in _by_id() if name.startswith(family)] or sorted(_by_id())
        raise UnknownNameError(
            f"no cause is called {id!r}", f"causes like it: {', '.join(near)}"
        ) from None


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


# Words of reports that are no causes, with a page each.
WORDS = (
    Cause(
        id="native",
        title="the count that crossflops makes by itself",
        page="The native count is the work that the outputs of a model depend on, in its "
        "normalized ONNX graph: every node has a formula of its own, and the sums are exact "
        "integers. No tool takes part in it.\n\n"
        "Native MACs are the multiply-accumulates of contractions (convolutions, matrix products, "
        "attention, recurrent layers) and of nothing else. Native FLOPs are 2 x MACs and one for "
        "each addition, multiplication, division, comparison and special function (exp, sqrt, "
        "tanh ...) outside of them. Native parameters are those of the source model, each storage "
        "once.\n\n"
        "Work that no output needs is not in it; work that depends on no input is, and is shown "
        "apart. A node without a formula is named as uncounted, which is not zero. 'exact' says "
        "that every node is counted in full; 'an upper bound' and 'an estimate' that the work of "
        "some depends on data, or on an algorithm that is not fixed.",
        recognise="It is the number in the title, and the one that every account of a tool "
        "starts from: `thop = native + 44 558 336`.",
    ),
    Cause(
        id="residual",
        title="what no cause explains",
        page="An account of a tool goes from the native count to the number that it printed, "
        "cause by cause. The residual is what is left: the printed number minus the one that was "
        "predicted before the tool ran. 0 says that every difference is explained, down to the "
        "last integer; 'explained 100 %' in the table says the same.\n\n"
        "Another value is printed, never hidden, with the modules where the tool printed other "
        "numbers than was predicted. It says that the tool does something that its convention "
        "does not know: often a release on which that was not checked. `--strict` ends with "
        "status 1 then.",
        recognise="The last line of every account.",
    ),
)
