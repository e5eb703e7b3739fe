"""Every outcome of an evaluation that chooses between alternatives.

The evaluation runs once for each combination of choices. Two questions with the same key get the
same answer in one run, so texts under the same condition stay together.
"""

from collections.abc import Callable, Hashable
from typing import TypeVar

_Outcome = TypeVar("_Outcome")


class Choices:
    """The choices of one run: those of the script first, then the first alternative."""

    def __init__(self, script: list[int], closed: frozenset[Hashable]) -> None:
        self._script = script
        self._closed = closed
        self._chosen: dict[Hashable, int] = {}
        self.taken: list[tuple[Hashable, int, int]] = []

    def pick(self, key: Hashable, count: int) -> int | None:
        """Return the index of the chosen alternative of `count`, None if the key has too many."""
        if key in self._closed or count == 0:
            return None
        if key not in self._chosen:
            place = len(self.taken)
            self._chosen[key] = self._script[place] if place < len(self._script) else 0
            self.taken.append((key, self._chosen[key], count))
        return self._chosen[key] % count

    def next_script(self) -> list[int] | None:
        """Return the script of the next run, None after the last one."""
        script = [chosen for _, chosen, _ in self.taken]
        while script:
            if script[-1] + 1 < self.taken[len(script) - 1][2]:
                return [*script[:-1], script[-1] + 1]
            script.pop()
        return None


def all_outcomes(evaluate: Callable[[Choices], _Outcome], most: int) -> list[_Outcome]:
    """Return the different outcomes, in order.

    If more than `most` outcomes differ, the question with the most alternatives is closed: it has
    the answer None.
    """
    closed: frozenset[Hashable] = frozenset()
    while True:
        outcomes: dict[_Outcome, None] = {}
        counts: dict[Hashable, int] = {}
        script: list[int] | None = []
        runs = 0
        while script is not None and len(outcomes) <= most and runs < 12 * most:
            choices = Choices(script, closed)
            outcomes[evaluate(choices)] = None
            counts |= {key: count for key, _, count in choices.taken}
            script = choices.next_script()
            runs += 1
        if script is None and len(outcomes) <= most:
            return list(outcomes)
        closed |= {max(counts, key=lambda key: counts[key])}
