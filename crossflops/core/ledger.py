"""One count per node: a cost, or an honest "uncounted, because ..."."""

from collections.abc import Iterator
from functools import cached_property
from typing import Literal, TypeAlias

import msgspec

from crossflops.core.cost import ZERO, Cost
from crossflops.core.graph import Node

Exactness: TypeAlias = Literal["exact", "bound", "estimate"]


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """A node with its cost, the equation that gave it, and how far it can be trusted.

    `precision` is the element type in which the node computes; of a contraction that in which
    its operands are stored ("int8", or "float32xint4" where they differ). `exactness` is
    "bound" where the work depends on data, "estimate" where the algorithm is not fixed by the
    operator. `cost` is that of all `times` runs: what is in a loop or a function may run more
    than once. `converter_macs` are MACs of the node that the source model has not: a converter
    wrote an operation so (see `Node.stands_for`).
    """

    node: Node
    cost: Cost
    formula: str
    precision: str
    exactness: Exactness = "exact"
    times: int = 1
    converter_macs: int = 0


class Uncounted(msgspec.Struct, frozen=True):
    """A node whose cost is unknown, which is never zero, and why."""

    node: Node
    reason: str


class Ledger(msgspec.Struct, frozen=True, dict=True):
    """The counts of a graph, in the order of its nodes."""

    digest: str
    counts: tuple[Counted | Uncounted, ...]

    @property
    def counted(self) -> Iterator[Counted]:
        """The nodes that have a cost."""
        return (count for count in self.counts if isinstance(count, Counted))

    @property
    def uncounted(self) -> tuple[Uncounted, ...]:
        """The nodes that have none."""
        return tuple(count for count in self.counts if isinstance(count, Uncounted))

    @cached_property
    def total(self) -> Cost:
        """The cost of all counted nodes."""
        return sum((count.cost for count in self.counted), ZERO)

    @cached_property
    def by_call(self) -> dict[str, Cost]:
        """Cost by the key of the operator call that produced the nodes."""
        found: dict[str, Cost] = {}
        for count in self.counted:
            found[count.node.call] = found.get(count.node.call, ZERO) + count.cost
        return found

    @cached_property
    def converter_by_call(self) -> dict[str, int]:
        """MACs that only a converter put in, by the key of the operator call."""
        found: dict[str, int] = {}
        for count in self.counted:
            found[count.node.call] = found.get(count.node.call, 0) + count.converter_macs
        return found
