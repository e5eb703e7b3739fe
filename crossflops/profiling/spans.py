"""Spans of time within each other, as hooks begin and end them."""

import threading
import time
from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeAlias

from crossflops.profiling.clock import Clock, Mark

Phase: TypeAlias = Literal["forward", "again", "backward"]
"""A module's forward pass, that which a backward pass runs again, or a node of a backward pass."""


class Moment(NamedTuple):
    """A point in time, and what hooks had taken in this thread until then."""

    mark: Mark
    spent: float


class Span:
    """A module, or a node of the backward pass that belongs to it, at work once."""

    __slots__ = ("end", "inner", "outer", "path", "phase", "spent", "start", "whole")

    def __init__(self, path: str, phase: Phase, outer: "Span | None") -> None:
        self.path, self.phase, self.outer = path, phase, outer
        self.inner: list[Span] = []
        self.start: Mark = None
        self.end: Mark = None
        self.spent = 0.0
        self.whole = True

    def around(self) -> Iterator["Span"]:
        """The spans around this one, from the inside."""
        span = self.outer
        while span is not None:
            yield span
            span = span.outer


class Spans:
    """The spans of a step, in every thread a stack of its own.

    What a hook itself takes is no work of a module: `spent` adds it up in each thread, and a span
    leaves out what was spent while it was open, where the clock is this process's own.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.all: list[Span] = []
        self._threads = threading.local()

    @property
    def open(self) -> list[Span]:
        """The spans of this thread that have not ended, outermost first."""
        if not hasattr(self._threads, "open"):
            self._threads.open, self._threads.spent = [], 0.0
        stack: list[Span] = self._threads.open
        return stack

    def now(self) -> Moment:
        """This moment."""
        stack = self.open  # which begins the count of a thread
        return Moment(self.clock.mark(), self._threads.spent if stack is not None else 0.0)

    def lasted(self, start: Moment, end: Moment) -> float:
        """Seconds between two moments of one thread, hooks left out."""
        took = self.clock.between(start.mark, end.mark)
        return max(took - (end.spent - start.spent), 0.0) if self.clock.waits else took

    def spend(self, since: float) -> None:
        """What a hook took from that time of `time.perf_counter` until now."""
        self._threads.spent += time.perf_counter() - since

    def begin(self, path: str, phase: Phase, since: float) -> Span:
        """A span within those that are open, in a hook that began at `since`."""
        stack = self.open
        span = Span(path, phase, stack[-1] if stack else None)
        if span.outer is not None:
            span.outer.inner.append(span)
        stack.append(span)
        self.all.append(span)
        self.spend(since)
        span.spent = -self._threads.spent
        span.start = self.clock.mark()
        return span

    def end(self, span: Span, whole: bool = True) -> float:
        """End a span, and those in it that an exception left open. Returns when it did."""
        mark, now = self.clock.mark(), time.perf_counter()
        stack = self.open
        while span in stack:
            last = stack.pop()
            last.end, last.spent = mark, last.spent + self._threads.spent
            last.whole = whole and last is span
            if last is span:
                break
        return now

    def seconds(self, span: Span) -> float:
        """How long a span took, hooks left out. One that never ended took no time."""
        if span.end is None:
            return 0.0
        took = self.clock.between(span.start, span.end)
        return max(took - span.spent, 0.0) if self.clock.waits else took
