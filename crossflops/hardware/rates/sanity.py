"""Figures that no run can have: what is faster than the machine, or does not add up.

Used on what was measured, never to change it. Every check gives sentences to print as warnings.
"""

from collections.abc import Iterable, Mapping

import msgspec

# The least that an update moves per parameter, in bytes, and what the usual one does:
# SGD in float32 reads a gradient and a weight and writes the weight (3 x 4); Adam in mixed
# precision reads and writes a float32 weight and two moments, reads a 16-bit gradient and writes
# a 16-bit weight (6 x 4 + 2 + 2). Source of the latter: Rajbhandari et al., ZeRO, 3.1.
LEAST, ADAM = 12, 28
COVERED = 0.9  # of a parent's time that its children should account for


class Timed(msgspec.Struct, frozen=True, kw_only=True):
    """A module or a node with its work in FLOPs and its time; a module's include its children."""

    path: str
    flops: int
    seconds: float

    @property
    def rate(self) -> float:
        """FLOP/s."""
        return self.flops / self.seconds if self.seconds > 0 else float("inf")


def optimizer_step(seconds: float, params: int, bandwidth: float) -> tuple[str, ...]:
    """A step that is too short to have read and written every parameter of one device."""
    least, adam = (params * size / bandwidth for size in (LEAST, ADAM))
    if seconds >= least:
        return ()
    return (
        f"a step of {1e3 * seconds:.3g} ms cannot be an update of {params / 1e6:.1f} M "
        f"parameters: reading and writing them takes {1e3 * least:.2g} ms at "
        f"{bandwidth / 1e9:.0f} GB/s ({LEAST} bytes each, SGD; {1e3 * adam:.2g} ms with Adam): "
        "a micro-step of gradient accumulation, or timing that did not wait",
    )


def above_peak(rows: Iterable[Timed], peak: float) -> tuple[str, ...]:
    """Rows that are faster than the device."""
    return tuple(
        f"{row.path or '(the model)'} at {row.rate / 1e12:.4g} TFLOP/s is above the peak of "
        f"{peak / 1e12:.4g}: its time was taken without waiting for the device"
        for row in rows
        if row.flops and row.rate > peak
    )


def uncovered(rows: Iterable[Timed], least: float = COVERED) -> tuple[str, ...]:
    """Parents whose children leave much of their time unexplained, or take more than all of it.

    The children of a path are the rows one level below it, or the next level that has any.
    """
    times = {row.path: row.seconds for row in rows}
    found = []
    for path, seconds in times.items():
        inside = _children(path, times)
        total = sum(times[one] for one in inside)
        if not inside or seconds <= 0 or least <= total / seconds <= 1 / least:
            continue
        name = path or "(the model)"
        left = 1e3 * (seconds - total)
        what = (
            f"leave {left:.4g} ms of it unexplained" if left > 0 else f"take {-left:.4g} ms more"
        )
        found.append(
            f"{name} took {1e3 * seconds:.4g} ms, and what is in it {1e3 * total:.4g} ms: the "
            f"{len(inside)} parts {what}"
        )
    return tuple(found)


def _children(path: str, times: Mapping[str, float]) -> tuple[str, ...]:
    """The rows directly within a path: those with no other row between."""
    inside = [one for one in times if one != path and (not path or one.startswith(f"{path}."))]
    return tuple(
        one
        for one in inside
        if not any(one != other and one.startswith(f"{other}.") for other in inside)
    )
