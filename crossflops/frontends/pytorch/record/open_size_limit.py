"""A limit on the sizes that depend on values in an export without values.

Each operator whose output size depends on values gives PyTorch's tracer a new symbol, and each
later operator asks a solver about all of them. A detector that suppresses boxes class by class
makes hundreds of them, and then such an export fails: a size is compared with a number. An export
with real values, which follows anyway, has no symbols.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from crossflops.patches import inventory
from crossflops.patches.patching import original_attribute, patching_attribute

OPEN_SIZES = 16


class OpenSizeCounter:
    """The number of sizes that depend on values in the export that runs."""

    def __init__(self) -> None:
        self.number = 0

    @property
    def is_past_limit(self) -> bool:
        """True if the number of sizes is larger than OPEN_SIZES."""
        return self.number > OPEN_SIZES


@contextmanager
def limiting_open_sizes() -> Iterator[OpenSizeCounter]:
    """End an export inside the block when it has more than OPEN_SIZES sizes that depend on values.

    Yields the counter of these sizes. The export raises RuntimeError.
    """
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    counter = OpenSizeCounter()
    create = original_attribute(ShapeEnv, "create_unbacked_symint", inventory.OPEN_SIZES)

    def create_and_count_size_symbol(shapes: Any, *args: Any, **kwargs: Any) -> Any:
        """Create the symbol of a size, unless there are too many."""
        counter.number += 1
        if counter.is_past_limit:
            raise RuntimeError(f"more than {OPEN_SIZES} sizes depend on values of tensors")
        return create(shapes, *args, **kwargs)

    with patching_attribute(
        ShapeEnv, "create_unbacked_symint", create_and_count_size_symbol, inventory.OPEN_SIZES
    ):
        yield counter
