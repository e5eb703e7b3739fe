"""Where nothing can be compiled: numpy. A matrix product is a lower bound, and no peak.

numpy's sgemm was seen at half of what convolutions of another library reached on one machine, so
a share of this rate may be above 100 % with nothing wrong.
"""

import time
from collections.abc import Callable

_SIDE = 1024  # of the matrices: 4 MiB each, and 2 x 1024^3 FLOPs
_LEAST = 3  # repetitions


def product_rate(dtype: str, seconds: float) -> float:
    """FLOP/s of the best product of two square matrices, with the threads that numpy takes."""
    import numpy as np

    left = np.ones((_SIDE, _SIDE), dtype)
    out = np.empty_like(left)
    return 2 * _SIDE**3 / _best(lambda: np.matmul(left, left, out=out), seconds)


def sum_bandwidth(nbytes: int, seconds: float) -> float:
    """Bytes/s of a = b + c over three arrays of `nbytes`, with one thread."""
    import numpy as np

    first = np.ones(max(1, nbytes // 8))
    second, out = np.ones_like(first), np.empty_like(first)
    out.fill(0)  # its pages exist before they are timed
    return 3 * first.nbytes / _best(lambda: np.add(first, second, out=out), seconds)


def _best(action: Callable[[], object], seconds: float) -> float:
    """Seconds of the fastest run of the action, of several."""
    action()
    fastest, count, begun = float("inf"), 0, time.perf_counter()
    while count < _LEAST or time.perf_counter() - begun < seconds:
        start = time.perf_counter()
        action()
        fastest, count = min(fastest, time.perf_counter() - start), count + 1
    return fastest
