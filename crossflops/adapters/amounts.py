"""Numbers as tools print them, turned into numbers that can be compared exactly."""

import math
import operator
from typing import Any

from crossflops.core.profile import Amount


def exact(value: Any) -> Amount:
    """The integer that a tool means, or the float that it printed where it is no integer.

    Takes what `int` and `float` take, NumPy's scalars too. Raises ValueError on a NaN or an
    infinity, which is no count.

    >>> exact(4111514624.0), exact(2.5)
    (4111514624, 2.5)
    """
    try:
        return operator.index(value)
    except TypeError:
        number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"the tool printed {number}, which is no count")
    return int(number) if number.is_integer() else number
