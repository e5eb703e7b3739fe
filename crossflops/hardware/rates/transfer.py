"""The bytes that a pass has to move at least, between a device's memory and its units.

    bytes(batch) = weights + batch x (inputs, outputs and caches of the model)

This is the byte model `fused-ideal` of `traffic`: every weight is read once, activations stay on
the chip, a cache is read and appended to. It is the headline of decoding: memory bandwidth
utilization, MBU = bytes / (time x bandwidth).
"""

from collections.abc import Iterable

import msgspec

from crossflops.core.roofline import Load


class Transfer(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of one pass: of the weights once, and of each example. `model` says of what."""

    model: str
    weights: int
    each: int


def of_loads(loads: Iterable[Load], examples: int = 1) -> Transfer:
    """The bytes of one pass over so many examples, from its loads under `fused-ideal`."""
    every = tuple(loads)
    return Transfer(
        model="weights once, caches, inputs and outputs of the model",
        weights=sum(one.weights for one in every),
        each=sum(one.cache + one.activations for one in every) // examples,
    )
