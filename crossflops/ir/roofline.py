"""The limits of a device: the shortest time of a step, node by node and as a whole."""

from typing import Literal, TypeAlias

import msgspec

Side: TypeAlias = Literal["compute", "memory", "none"]
ByteModel: TypeAlias = Literal["unfused", "weights-once", "fused-ideal"]


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """The operations and bytes of one node in one forward pass, at the counted batch.

    `operations` are operations of every kind, `macs` those that a matrix unit runs. The bytes are
    apart by what they hold, since only activations and cache grow with the batch. `precision` is
    that of the count, such as "float32"; `weighted` says whether an operand is a weight.
    """

    node: str
    op: str
    path: str
    precision: str
    macs: int
    operations: int
    weights: int
    cache: int
    activations: int
    weighted: bool = False

    @property
    def bytes(self) -> int:
        """All bytes that the node moves: weights, cache and activations."""
        return self.weights + self.cache + self.activations


class Ceiling(msgspec.Struct, frozen=True, kw_only=True):
    """The two limits of a device: peaks in FLOP/s by precision, bandwidth in bytes/s.

    `tdp` is in watts. A given peak stands under the name of the precision that it is given for.
    """

    name: str
    peaks: dict[str, float]
    bandwidth: float
    tdp: float | None = None


class NodeBound(msgspec.Struct, frozen=True, kw_only=True):
    """One node beneath a roofline, for a whole step.

    `work` is 2 x MACs x passes, in FLOPs; `operations` count every kind, and are shown, not
    timed. `intensity` = work / bytes (of operations where there are no MACs), in FLOP/byte.
    `seconds` = max(work / peak, bytes / bandwidth).
    """

    node: str
    op: str
    path: str
    kind: str
    precision: str
    work: int
    operations: int
    bytes: int
    cache: int
    peak: float | None
    intensity: float | None
    bound: Side
    seconds: float


class KindBound(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of one operator in one kind of module, together. `cache` are bytes of caches."""

    kind: str
    nodes: int
    work: int
    bytes: int
    cache: int
    seconds: float
    bound: Side


class KernelBound(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel that ran, against the work, bytes and shortest time of its nodes.

    `measured` is the time in one run of `work`, `rate` = work / measured in FLOP/s, and
    `efficiency` = seconds / measured.
    """

    kernel: str
    nodes: tuple[str, ...]
    work: int
    bytes: int
    intensity: float | None
    seconds: float
    measured: float
    rate: float
    efficiency: float


class StepBound(msgspec.Struct, frozen=True, kw_only=True):
    """A whole step of `examples` under one assumption.

    `peak` is the effective one: work / the time that it takes at the peaks of its precisions.
    `intensity` = work / bytes, `ridge` = peak / bandwidth. `whole_seconds` = max(work / peak,
    bytes / bandwidth); `seconds` is the sum of the same over the nodes, None where these are not
    known. `attainable` = min(peak, intensity x bandwidth), in FLOP/s. `joules` are for one
    example at the whole TDP of the device for the shortest time.
    """

    label: str
    examples: int
    work: int
    bytes: int
    weights: int
    cache: int
    peak: float
    bandwidth: float
    intensity: float | None
    ridge: float
    bound: Side
    whole_seconds: float
    seconds: float | None
    attainable: float
    joules: float | None = None

    @property
    def shortest_seconds(self) -> float:
        """The shortest time of the step in seconds: the sum over its nodes, or that of the model
        as a whole if the nodes are not known.
        """
        return self.whole_seconds if self.seconds is None else self.seconds


class MeasuredStep(msgspec.Struct, frozen=True, kw_only=True):
    """A measured step against its roofline.

    `roofline_efficiency` = shortest time / measured time, `whole_efficiency` the same for the
    model as a whole; `mfu` = work / (seconds x peak), `mbu` = bytes / (seconds x bandwidth).
    """

    seconds: float
    roofline_efficiency: float
    whole_efficiency: float
    mfu: float
    mbu: float
    joules: float | None = None


class Roofline(msgspec.Struct, frozen=True, kw_only=True):
    """A model under the roofline of a device.

    `peaks` are all those of the device, in FLOP/s by precision. `intensity_limit` is the
    intensity that no batch exceeds (None: it grows without limit), `compute_from` the batch from
    which the whole is compute-bound (None: never, or unknown). `kernels` are there after a run.
    """

    device: str
    peaks: dict[str, float]
    byte_model: str
    formula: str
    training: bool
    step: StepBound
    intensity_limit: float | None
    compute_from: int | None
    kinds: tuple[KindBound, ...] = ()
    nodes: tuple[NodeBound, ...] = ()
    kernels: tuple[KernelBound, ...] = ()
    what_if: tuple[StepBound, ...] = ()
    achieved: MeasuredStep | None = None
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
