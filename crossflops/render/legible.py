"""Names that models, files and tools bring, as a terminal can show them: inert, not endless."""

import json
import re

NAME = 120  # letters of one word in a cell or a title
WORD = 400  # letters of one word in a paragraph, where it may be a path to copy
LONGEST = 1600  # letters of a whole text
# What moves the cursor, changes colours, reorders letters or hides: control characters (C0, DEL
# and C1), marks of direction and of no width, breaks of lines and paragraphs, tags, and the
# surrogates that stand for bytes of a file name which are no text.
_HARMFUL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
_GAP = "..."


def inert(text: str) -> str:
    """The text with every letter that a terminal would obey spelled out.

    >>> inert("conv" + chr(27) + "[2J")
    'conv\\\\x1b[2J'
    """
    return _HARMFUL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def legible(text: str, word: int = NAME, longest: int = LONGEST) -> str:
    """The text, inert, with the middle of long words left out, and that of a long text.

    >>> legible("a" * 60 + " " + "b" * 1000, word=9)
    'aaa...aaa bbb...bbb'
    """
    plain = inert(text[: 2 * longest] + text[-2 * longest :] if len(text) > 4 * longest else text)
    words = re.sub(rf"\S{{{word + 1},}}", lambda found: _clipped(found[0], word), plain)
    return _clipped(words, longest)


def inert_json(text: str) -> str:
    """JSON with every letter that a terminal would obey as JSON spells it; the same values."""
    return _HARMFUL.sub(
        lambda found: found[0] if found[0] == "\n" else json.dumps(found[0])[1:-1], text
    )


def _clipped(text: str, longest: int) -> str:
    kept = (longest - len(_GAP)) // 2
    return text if len(text) <= longest else f"{text[:kept]}{_GAP}{text[-kept:]}"
