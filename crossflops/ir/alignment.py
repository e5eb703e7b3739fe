"""Two models set beside each other layer by layer: every reason why their work differs."""

import msgspec


class Shift(msgspec.Struct, frozen=True, kw_only=True):
    """What one cause adds on the way from the first model to the second.

    The amounts may be zero: a stride that stands in another layer changes what follows, but not
    always the work of the layer itself. `note` says what differs, "stride 1 -> 2".
    """

    cause: str
    macs: int = 0
    flops: int = 0
    params: int = 0
    note: str = ""


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """MACs, FLOPs and parameters, of a layer or of all."""

    macs: int = 0
    flops: int = 0
    params: int = 0

    def __add__(self, other: "Work") -> "Work":
        return Work(
            macs=self.macs + other.macs,
            flops=self.flops + other.flops,
            params=self.params + other.params,
        )

    def __sub__(self, other: "Work") -> "Work":
        return Work(
            macs=self.macs - other.macs,
            flops=self.flops - other.flops,
            params=self.params - other.params,
        )


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A layer of one model: its nodes, the module of the first, and what it does in words."""

    nodes: tuple[str, ...]
    path: str
    what: str


class LayerPair(msgspec.Struct, frozen=True, kw_only=True):
    """A layer of the first model and the one of the second that stands for it.

    A layer is one contraction, or several that are together what one is on the other side, with
    the operations that follow up to the next. A place is None where the other model has no such
    layer. The shifts add up to `second_work - first_work`.
    """

    first: Place | None
    second: Place | None
    first_work: Work
    second_work: Work
    shifts: tuple[Shift, ...] = ()


class CauseRow(msgspec.Struct, frozen=True, kw_only=True):
    """A cause with what it adds in all layers, and the number of these."""

    cause: str
    macs: int
    flops: int
    params: int
    layers: int


class Alignment(msgspec.Struct, frozen=True, kw_only=True):
    """Two models, layer by layer, from the first to the second.

    `same` says that nothing differs at all; `same_work` that what differs is how the work is
    written down. Nodes without a native count are in no amount: `uncounted` numbers them.
    """

    first_work: Work
    second_work: Work
    causes: tuple[CauseRow, ...]
    layers: tuple[LayerPair, ...]
    uncounted: tuple[int, int] = (0, 0)

    @property
    def delta(self) -> Work:
        """The second model's work minus the first's."""
        return self.second_work - self.first_work

    @property
    def residual(self) -> Work:
        """What no cause covers."""
        left = self.delta
        for cause in self.causes:
            left = left - Work(macs=cause.macs, flops=cause.flops, params=cause.params)
        return left

    @property
    def same(self) -> bool:
        """Whether the layers are the same, one by one, with nothing between them that differs."""
        return not self.causes and not any(self.uncounted)
