"""Spans of time within each other, as hooks begin and end them, and the clock that tells it.

The clock is events on the stream of a device, or this process's own.
"""

import threading
import time
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

Mark: TypeAlias = Any  # a point in time, of the clock that made it


class Clock(Protocol):
    """Marks points in time, and says how far they are apart once the device is done."""

    waits: bool  # whether a mark is made when the work is done, so that hooks take time from it

    def mark(self) -> Mark:
        """Now, in the order of the device's work."""
        ...

    def finish(self) -> None:
        """Wait until the device is done."""
        ...

    def between(self, start: Mark, end: Mark) -> float:
        """Seconds."""
        ...


class HostClock:
    """This process's own clock. A device that works apart is waited for at every mark."""

    waits = True

    def __init__(self, device: str = "cpu") -> None:
        import torch

        apart = None if device == "cpu" else getattr(torch, device, None)
        self._wait = getattr(apart, "synchronize", None)

    def mark(self) -> float:
        """Seconds of a clock that never goes back."""
        self.finish()
        return time.perf_counter()

    def finish(self) -> None:
        """Wait for the device, where it is another than this processor."""
        if self._wait is not None:
            self._wait()

    def between(self, start: float, end: float) -> float:
        """Seconds."""
        return end - start


class EventClock:
    """Events on the current stream of a CUDA device: nothing waits until the end."""

    waits = False

    def mark(self) -> Any:
        """An event, recorded behind the work that was given to the stream."""
        import torch

        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def finish(self) -> None:
        """Wait for all streams."""
        import torch

        torch.cuda.synchronize()

    def between(self, start: Any, end: Any) -> float:
        """Seconds, of events that have happened."""
        return float(start.elapsed_time(end)) / 1e3


def clock_of(device: str) -> Clock:
    """The clock for a type of device, such as "cuda"."""
    return EventClock() if device == "cuda" else HostClock(device)


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
