"""What a model moves and holds."""

import msgspec


class Intensity(msgspec.Struct, frozen=True):
    """FLOPs for each byte moved, as the two integers of a ratio: FLOPs / bytes."""

    flops: int
    bytes: int


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """What the whole model moves and holds, in exact integers.

    Moved is what every node reads and writes by itself, nothing fused, a weight once by each
    node that uses it: `access_bytes`, and the same in elements. `peak_activation_bytes` are the
    most bytes alive at once besides the parameters, at node `peak_node`; `unsized` tensors have no
    known size and are not in it. `param_bytes` are the parameters as they are stored.
    """

    access_bytes: int
    access_elements: int
    elements_read: int
    elements_written: int
    intensity: Intensity
    peak_activation_bytes: int
    peak_node: str
    unsized: int
    param_bytes: int
