"""What tells the time of a device: events on its stream, or this process's own clock."""

import time
from typing import Any, Protocol, TypeAlias

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
