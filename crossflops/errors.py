"""Everything that crossflops raises on purpose: what is wrong, what to do, where to read more."""

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

TRACEBACK = "--debug, or CROSSFLOPS_DEBUG=1, shows the whole traceback"
_NEAR = 3  # names that a hint offers


class CrossflopsError(Exception):
    """The root. `message` says what is wrong in one line, `hint` what to do in one line.

    `exit_status` is what the command line exits with.
    """

    exit_status = 2

    def __init__(self, message: str, hint: str, reference: str = "") -> None:
        super().__init__(message)
        self.message = _one_line(message)
        self.hint = _one_line(hint)
        self.reference = reference


class TargetError(CrossflopsError):
    """The model cannot be found, loaded or built."""


class InputError(CrossflopsError):
    """The inputs do not fit the model, or are written wrongly."""


class OperandError(CrossflopsError):
    """A node has operands that its operator cannot take: the graph cannot run as it is."""


class NormalizeError(CrossflopsError):
    """The model was built, but no graph could be made of it."""


class UnknownNameError(CrossflopsError):
    """A tool, a cause, a device, a convention or a format that does not exist, or is ambiguous."""


class MissingExtraError(CrossflopsError):
    """A framework that is not installed."""


class CrossflopsWarning(UserWarning):
    """Something about a model that whoever reads its count should know."""


def nearest(wrong: str, known: "Iterable[str]", otherwise: str = "") -> str:
    """What to do about a name that is not known: the names that are like it, or else all of them.

    `otherwise` is what stands for all of them, where they are many.

    >>> nearest("thpo", ["thop", "fvcore"]), nearest("x", ["thop", "fvcore"])
    ('did you mean thop?', 'known: thop, fvcore')
    """
    names = list(known)
    folded = {name.casefold(): name for name in names}
    near = [folded[one] for one in get_close_matches(wrong.casefold(), folded, n=_NEAR)]
    if near:
        return f"did you mean {' or '.join(near)}?"
    return otherwise or f"known: {', '.join(names) or 'none'}"


def _one_line(text: str) -> str:
    return " ".join(text.split())
