"""Two numbers for one model, or two models, and every reason why they differ: causes, which have
names.

Two models are set beside each other layer by layer.
"""

import msgspec
from msgspec import UNSET, UnsetType

from crossflops.ir.profile import Amount


class Example(msgspec.Struct, frozen=True):
    """A model that shows a cause: a few lines that define `model` and `inputs`.

    With the convention of `tool` ("TOOL" or "TOOL@EDITION") the cause is booked with `amount`,
    under `options` of the command line. Of a cause between two models `tool` is "", the lines
    define `other` too, and `other_inputs` where these differ, and `unit` says of what the amount
    is: "MACs", "FLOPs" or "parameters".
    """

    code: str
    tool: str
    amount: int
    options: tuple[str, ...] = ()
    unit: str = ""


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """A named reason for which two counts differ.

    `page` says what it is, `recognise` how to tell it without crossflops, `example` shows it,
    `references` are threads upstream, "owner/repository#number".
    """

    id: str
    title: str
    page: str
    recognise: str = ""
    example: Example | None = None
    references: tuple[str, ...] = ()


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """A cause, the signed amount it contributes, the calls it comes from, and a source.

    Attributes:
        cause: The id of the cause: `crossflops explain CAUSE` describes it.
        amount: The contribution to the tool's number, in the tool's unit.
        calls: The keys of the calls, or of the nodes.
        reference: The place in the tool's source.
        macs: The part of the amount that is in MACs, which the step of the unit then scales.

    Example:
        >>> from crossflops import Explanation
        >>> Explanation(cause="act.relu", amount=8, calls=("relu",)).amount
        8
    """

    cause: str
    amount: Amount
    calls: tuple[str, ...]
    reference: str = ""
    macs: int | UnsetType = UNSET


class PathRow(msgspec.Struct, frozen=True, kw_only=True):
    """One module: our MACs, the prediction of the convention, and the tool's number (if printed).

    `causes` are amounts by cause that add up to `predicted - ours`.
    """

    path: str
    ours: int
    predicted: Amount
    theirs: Amount | None = None
    causes: dict[str, Amount] | UnsetType = UNSET


class ParamsExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """A cause, the signed number of elements, and the parameters, by their first names."""

    cause: str
    amount: int
    parameters: tuple[str, ...]
    reference: str = ""


class ParamsReconciliation(msgspec.Struct, frozen=True, kw_only=True):
    """From our number of parameters to the tool's: `delta == sum(amounts) + residual`."""

    ours: int
    theirs: Amount
    predicted: int
    explanations: tuple[ParamsExplanation, ...]

    @property
    def delta(self) -> Amount:
        """The tool's number of parameters minus ours."""
        return self.theirs - self.ours

    @property
    def residual(self) -> Amount:
        """The part of `delta` that no explanation covers, in parameters."""
        return self.delta - sum(explanation.amount for explanation in self.explanations)


class Reconciliation(msgspec.Struct, frozen=True, kw_only=True):
    """The way from our MACs to the tool's total. `predicted` was fixed before the tool ran.

    Explanations and residual add up to the difference: `delta == sum(amounts) + residual`.

    Attributes:
        tool: The id of the tool.
        edition: The edition of its convention.
        ours: The native MACs.
        theirs: The number that the tool printed.
        predicted: The number that its convention predicts.
        explanations: The amounts by cause.
        by_path: The numbers of each module.
        unit: The tool's count for one MAC.
        params: The same for parameters, if the tool counts them and its way is known.
        obstacle: Why nothing is explained, if nothing was predicted.

    Example:
        >>> from crossflops import Explanation, Reconciliation
        >>> relu = Explanation(cause="act.relu", amount=8, calls=("relu",))
        >>> way = Reconciliation(tool="onnx-tool", edition="1.0.1", ours=64, theirs=72,
        ...                      predicted=72, explanations=(relu,))
        >>> way.delta, way.residual
        (8, 0)
    """

    tool: str
    edition: str
    ours: int
    theirs: Amount
    predicted: Amount
    explanations: tuple[Explanation, ...]
    by_path: tuple[PathRow, ...] = ()
    unit: int | UnsetType = UNSET
    params: ParamsReconciliation | UnsetType = UNSET
    obstacle: str | UnsetType = UNSET

    @property
    def delta(self) -> Amount:
        """The number that the tool printed minus the native MACs."""
        return self.theirs - self.ours

    @property
    def residual(self) -> Amount:
        """The part of `delta` that no explanation covers."""
        return self.delta - sum(explanation.amount for explanation in self.explanations)


# Two models set beside each other, layer by layer.


class Shift(msgspec.Struct, frozen=True, kw_only=True):
    """The contribution of one cause on the way from the first model to the second.

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
    """A layer of one model: its nodes, the module of the first, and its work in words."""

    nodes: tuple[str, ...]
    path: str
    what: str


class LayerPair(msgspec.Struct, frozen=True, kw_only=True):
    """A layer of the first model and its counterpart in the second.

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
    """A cause with its contribution in all layers, and the number of these."""

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
        """The work of the second model minus that of the first."""
        return self.second_work - self.first_work

    @property
    def residual(self) -> Work:
        """The part of `delta` that no cause covers."""
        left = self.delta
        for cause in self.causes:
            left = left - Work(macs=cause.macs, flops=cause.flops, params=cause.params)
        return left

    @property
    def same(self) -> bool:
        """Whether nothing differs: no cause was found, and every node of both models has a native
        count.
        """
        return not self.causes and not any(self.uncounted)
