"""A Loop whose condition compares counters: stepped through until it is false."""

from collections.abc import Mapping
from typing import Any

from crossflops.normalize.onnx_file.values import known
from crossflops.normalize.onnx_file.whole_numbers import Value, scalar

_MOST_STEPS = 10_000


def steps(
    body: Any,
    carried: list[Value | None],
    most: int | None,
    shapes: Mapping[str, tuple[int, ...] | None],
    around: Mapping[str, Value],
) -> int | None:
    """How often a body runs whose first run is certain; None where whole numbers do not tell.

    `carried` are the values that the loop starts with, as far as they are small whole numbers,
    `most` the number of runs that it is given, `shapes` and `around` what else is known inside.
    """
    for done in range(_MOST_STEPS):
        if most is not None and done >= most:
            return most
        names = [one.name for one in body.input]
        starts = [Value(0, (done,)), Value(0, (1,)), *carried]
        values = {n: v for n, v in zip(names, starts, strict=False) if v is not None}
        found = known(body.node, (), shapes, {**around, **values})
        goes_on = scalar(found.get(body.output[0].name))
        if goes_on is None:
            return None
        if not goes_on:
            return done + 1
        results = [one.name for one in body.output[1 : len(carried) + 1]]
        carried = [found.get(name) for name in results]
    return None
