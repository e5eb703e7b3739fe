"""The cost of a node, a count for every node, their totals, and the memory that is moved and held.

Costs are integers by kind, with the two operations of a commutative monoid.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from crossflops.ir.graph import Node


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Operations by kind, one each, and bytes moved under the unfused model.

    Attributes:
        macs: Multiply-accumulates of contractions (Conv, MatMul, Gemm, Einsum, Attention,
            recurrent layers) and of nothing else.
        adds: Additions and subtractions.
        muls: Multiplications.
        divs: Divisions.
        compares: Comparisons.
        specials: exp, log, tanh, sqrt and similar functions.
        bytes_read: Bytes that the node reads.
        bytes_written: Bytes that the node writes.

    Example:
        >>> from crossflops import Cost
        >>> (Cost(macs=3) + Cost(adds=2) * 2).flops
        10
    """

    macs: int = 0
    adds: int = 0
    muls: int = 0
    divs: int = 0
    compares: int = 0
    specials: int = 0
    bytes_read: int = 0
    bytes_written: int = 0

    @property
    def flops(self) -> int:
        """The number of FLOPs, a count and not a rate: 2 x MACs + adds + muls + divs + compares +
        specials.
        """
        return 2 * self.macs + self.adds + self.muls + self.divs + self.compares + self.specials

    def __add__(self, other: "Cost") -> "Cost":
        # Written out: a report adds costs several times per node.
        return Cost(
            macs=self.macs + other.macs,
            adds=self.adds + other.adds,
            muls=self.muls + other.muls,
            divs=self.divs + other.divs,
            compares=self.compares + other.compares,
            specials=self.specials + other.specials,
            bytes_read=self.bytes_read + other.bytes_read,
            bytes_written=self.bytes_written + other.bytes_written,
        )

    def __mul__(self, times: int) -> "Cost":
        return Cost(**{f: getattr(self, f) * times for f in self.__struct_fields__})

    __rmul__ = __mul__


ZERO = Cost()


Exactness: TypeAlias = Literal["exact", "bound", "estimate"]


class CountedNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node with its cost, the equation of the cost, and how exact it is.

    `precision` is the element type in which the node computes; of a contraction that in which
    its operands are stored ("int8", or "float32xint4" where they differ). `exactness` is
    "bound" where the work depends on data, "estimate" where the algorithm is not fixed by the
    operator. `cost` is that of all `times` runs: what is in a loop or a function may run more
    than once. `converter_macs` are MACs of the node that the source model has not: a converter
    wrote an operation so (see `ConversionAnnotation`). `constant_part` is the work that depends on
    no input of the model in runs of which a part does, times the runs of `Node.constant_runs`.
    """

    node: Node
    cost: Cost
    formula: str
    precision: str
    exactness: Exactness = "exact"
    times: int = 1
    converter_macs: int = 0
    constant_part: Cost = ZERO

    @property
    def constant_cost(self) -> Cost:
        """The part of the cost that depends on no input of the model."""
        if self.node.constant:
            return self.cost
        constant, runs = self.node.constant_runs
        if not constant and self.constant_part is ZERO:
            return ZERO
        full = self.cost * constant + self.constant_part
        return Cost(**{kind: getattr(full, kind) // runs for kind in Cost.__struct_fields__})


class UncountedNode(msgspec.Struct, frozen=True):
    """A node whose cost is unknown, which is never zero, with the reason."""

    node: Node
    reason: str


class Ledger(msgspec.Struct, frozen=True, dict=True):
    """The counts of a graph, in the order of its nodes."""

    digest: str
    counts: tuple[CountedNode | UncountedNode, ...]

    @property
    def counted(self) -> Iterator[CountedNode]:
        """The nodes that have a cost, in the order of the graph."""
        return (count for count in self.counts if isinstance(count, CountedNode))

    @property
    def uncounted(self) -> tuple[UncountedNode, ...]:
        """The nodes without a known cost, in the order of the graph."""
        return tuple(count for count in self.counts if isinstance(count, UncountedNode))

    @cached_property
    def total(self) -> Cost:
        """The cost of all counted nodes."""
        return sum((count.cost for count in self.counted), ZERO)

    @property
    def macs_by_precision(self) -> dict[str, int]:
        """The MACs of all counted nodes, by the precision of the contraction, such as
        "float32".
        """
        macs: dict[str, int] = {}
        for count in self.counted:
            if count.cost.macs:
                macs[count.precision] = macs.get(count.precision, 0) + count.cost.macs
        return macs

    @cached_property
    def costs_by_call(self) -> dict[str, Cost]:
        """The cost of the counted nodes, by the key of the operator call that produced them."""
        by_key: dict[str, Cost] = {}
        for count in self.counted:
            by_key[count.node.call] = by_key.get(count.node.call, ZERO) + count.cost
        return by_key

    @cached_property
    def converter_macs_by_call(self) -> dict[str, int]:
        """The MACs that the source model does not have and a converter added, by the key of the
        operator call.
        """
        by_key: dict[str, int] = {}
        for count in self.counted:
            by_key[count.node.call] = by_key.get(count.node.call, 0) + count.converter_macs
        return by_key


# Which model was counted, and what the whole of it comes to.


class InputInfo(msgspec.Struct, frozen=True):
    """An input of the model."""

    name: str
    dtype: str
    shape: tuple[int, ...]


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The model that was counted. `digest` identifies the structure, not the weights."""

    name: str
    digest: str
    inputs: tuple[InputInfo, ...]
    opset: dict[str, int]


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """The whole model. `constant_macs` are the part of `macs` that depends on no input.

    `converter_macs` are in no total: what a converter's nodes multiply beyond the source model.
    Nor are `dead_macs`: a run of the model or the file does them, and no output depends on them;
    unset where nothing is known of a run.
    `active_params` are those of `params` that one token uses, in a mixture of experts those of
    the chosen ones and all that is no expert, embeddings included; unset where that is all.
    `unchosen_macs` are those of `macs` that multiply tokens with experts which they did not
    choose: some models run all experts on all tokens. Unset where none do.
    `exactness` says of "macs" and of "flops" how far they can be trusted: "bound" where some of
    them depend on data and are counted in full, "estimate" where some algorithm is not fixed.
    """

    macs: int
    flops: int
    params: int
    adds: int
    muls: int
    divs: int
    compares: int
    specials: int
    bytes_read: int
    bytes_written: int
    constant_macs: int
    converter_macs: int = 0
    dead_macs: int | UnsetType = UNSET
    active_params: int | UnsetType = UNSET
    unchosen_macs: int | UnsetType = UNSET
    exactness: dict[str, Exactness] | UnsetType = UNSET


# What a model moves and holds.


class Intensity(msgspec.Struct, frozen=True):
    """FLOPs for each byte moved, as the two integers of a ratio: FLOPs / bytes."""

    flops: int
    bytes: int


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes that the whole model moves and holds, in exact integers.

    Moved is what every node reads and writes by itself, nothing fused, a weight once by each
    node that uses it: `access_bytes`, and the same in elements. `peak_activation_bytes` are the
    most bytes alive at once besides the parameters, at node `peak_node`; `unsized` tensors have no
    known size and are not in it. `param_bytes` are the parameters as they are stored. Of both what
    is moved and what is stored there are the bytes by type of the elements; those of parameters
    are unset where a type is not known.
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
    access_bytes_by_type: dict[str, int] | UnsetType = UNSET
    param_bytes_by_type: dict[str, int] | UnsetType = UNSET
