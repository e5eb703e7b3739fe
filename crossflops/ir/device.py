"""A device and its peaks."""

import msgspec


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """One framework device of a product: the hardware behind one `cuda:0`, JAX device or socket.

    Peaks are dense, in FLOP/s by precision (OP/s for integers), 2 per FMA. `fp16`, `bf16`,
    `tf32`, `fp8`, `fp4`, `int8` and `int4` are those of the matrix units with FP32 (INT32)
    accumulation, where there are such units; `fp32` and `fp64` are those of the vector units,
    unless `_vector` or `_matrix` says otherwise, and `_accumulate_fp16` says that sums are FP16,
    too. `sparse_factor` is what structured sparsity multiplies a peak of the matrix units by,
    "default" for precisions that it does not name; empty where there is none. `sparse_pattern`
    is the pattern of the weights that it takes: 2:4 keeps 2 of 4 values.

    `bandwidth` is in bytes/s; `memory_bus` (bits) x `memory_transfers` (transfers/s of one pin)
    / 8 derives it a second time. `memory` is in bytes (one number for each size that is sold),
    `tdp` in watts. `power_mode` names the mode in which the figures hold, where a device has
    several. `clock` (Hz; `clock_basis` says whether that is the boost or the base clock), `units`
    and `fma_per_clock` (by precision, per unit) derive the peak a second time: clock x units x FMA
    x 2; matrix units whose sheet rests on another clock have it in `matrix_clock`. What was
    measured has "measured" for its `clock_basis`, and no clock.

    A package may hold several framework devices, `framework_devices_per_package`: every figure
    here is that of one. `confidence` says how far the figures were checked, `low_confidence`
    which of them less far, `source` where they are published, `evidence` what was read of it.
    `measured_matmul` are the best matrix products that somebody measured, in FLOP/s.

    Several boards may share an `id`, that of their entry: each but the first has the name of the
    board in `variant`, and figures of its own. `also` are the other devices whose drivers print
    the name by which this one was found.
    """

    id: str
    name: str
    aliases: tuple[str, ...] = ()
    vendor: str = ""
    kind: str = "gpu"
    architecture: str = ""
    year: int | None = None
    peaks: dict[str, float]
    sparse_factor: dict[str, float] = {}
    sparse_pattern: str = "2:4"
    bandwidth: float | None = None
    memory_bus: float | None = None
    memory_transfers: float | None = None
    memory: tuple[float, ...] = ()
    tdp: float | None = None
    power_mode: str = ""
    clock: float | None = None
    clock_basis: str = "boost"
    matrix_clock: float | None = None
    base_clock: float | None = None
    boost_clock: float | None = None
    units: int | None = None
    unit_kind: str = ""
    fma_per_clock: dict[str, float] = {}
    framework_devices_per_package: int = 1
    measured_matmul: dict[str, float] = {}
    measured_matmul_source: str = ""
    source: tuple[str, ...]
    confidence: str
    low_confidence: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    notes: str = ""
    variant: str = ""
    also: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The unique name of the device in the catalogue: its board variant, or else its id."""
        return self.variant or self.id


class PeakRow(msgspec.Struct, frozen=True, kw_only=True):
    """A peak in FLOP/s, beside that of the whole package, its second derivation, and `sparse`.

    `deviation` is derived / peak - 1; `clock` and `fma_per_clock` are what it was derived from.
    `ridge` is peak / bandwidth in FLOPs per byte. None where the catalogue does not say.
    """

    precision: str
    peak: float
    package_peak: float
    derived: float | None
    deviation: float | None
    sparse: float | None
    clock: float | None
    fma_per_clock: float | None
    ridge: float | None


class DeviceSheet(msgspec.Struct, frozen=True, kw_only=True):
    """A device with the figures that follow from its sheet.

    `emulated` are FP32 rates by products of BF16 parts; `families` are names that say less, each
    with the labels of all devices that bear it. `also` are the devices whose drivers print the
    name that was asked for as well, each with its share of the peak of this one.
    """

    schema: str
    device: Device
    peaks: tuple[PeakRow, ...]
    emulated: dict[str, float] = {}
    families: dict[str, tuple[str, ...]] = {}
    also: "tuple[DeviceShare, ...]" = ()


class DeviceShare(msgspec.Struct, frozen=True, kw_only=True):
    """A device in a list. `peak` (FLOP/s) is that of the list's precision, `ratio` its share of
    the highest of them; None where it has no such peak.
    """

    device: Device
    peak: float | None = None
    ratio: float | None = None


class DeviceList(msgspec.Struct, frozen=True, kw_only=True):
    """Devices: all known ones, the results of a search, or those with one name."""

    schema: str
    about: str
    precision: str
    devices: tuple[DeviceShare, ...]


class Factor(msgspec.Struct, frozen=True):
    """A number of a derivation, and its meaning."""

    what: str
    value: float
    unit: str = ""


class Derivation(msgspec.Struct, frozen=True, kw_only=True):
    """A rate as a product of factors: FLOP/s of a peak, bytes/s of a bandwidth."""

    schema: str
    what: str
    factors: tuple[Factor, ...]
    rate: float
    unit: str
