"""Find the name of an input that is misspelt.

A model counts without an optional input that has another name, and one with `**kwargs` takes any
name: its count would be another one, without an error.
"""

import inspect
from collections.abc import Iterable, Sequence

from crossflops.errors import InputError

_MAX_EDITS = 2
_LETTERS_PER_EDIT = 4  # "x" and "y" are two names, "maks" is "mask"


def reject_misspelt_keywords(call: inspect.BoundArguments, model: str) -> None:
    """Raise InputError if a keyword that `**kwargs` took in a call of a model is a misspelt
    parameter.
    """
    kinds = {name: parameter.kind for name, parameter in call.signature.parameters.items()}
    free = [name for name in kinds if name not in call.arguments]
    for name, kind in kinds.items():
        if kind is inspect.Parameter.VAR_KEYWORD:
            reject_misspelt_names(call.arguments.get(name, ()), free, model)


def reject_misspelt_names(names: Iterable[str], free: Sequence[str], model: str) -> None:
    """Raise InputError if one of the names, which are no parameters of a model, is nearly that of
    a `free` parameter, which has no input.
    """
    for name in names:
        meant = next((known for known in free if is_misspelling(name, known)), None)
        if meant is not None:
            raise InputError(
                f"the model {model} has no parameter {name!r}, and no input for {meant!r}",
                f"rename the input to {meant!r}, or leave it out",
            )


def is_misspelling(name: str, known: str) -> bool:
    """Return whether a name is another one with one letter of four wrong, at most two.

    >>> is_misspelling("attention_maks", "attention_mask"), is_misspelling("y", "x")
    (True, False)
    """
    allowed = min(_MAX_EDITS, len(known) // _LETTERS_PER_EDIT)
    return allowed > 0 and _edit_distance(name.casefold(), known.casefold()) <= allowed


def _edit_distance(first: str, second: str) -> int:
    """Return the number of letters to insert, to delete, to replace or to exchange with the next
    one, so that the first text is the second.
    """
    before: list[int] = []
    row = list(range(len(second) + 1))
    for i, letter in enumerate(first, 1):
        before, above, row = row, before, [i]
        for j, other in enumerate(second, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != other))
            if i > 1 and j > 1 and letter == second[j - 2] and first[i - 2] == other:
                cost = min(cost, above[j - 2] + 1)
            row.append(cost)
    return row[-1]
