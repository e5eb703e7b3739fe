"""A device and its peaks."""

import msgspec


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """One framework device of a product: what one `cuda:0`, one JAX device or one socket can do.

    Peaks are dense, in FLOP/s by precision (OP/s for integers), 2 per FMA. `fp16`, `bf16`,
    `tf32`, `fp8`, `fp4`, `int8` and `int4` are those of the matrix units with FP32 (INT32)
    accumulation, where there are such units; `fp32` and `fp64` are those of the vector units,
    unless `_vector` or `_matrix` says otherwise, and `_accumulate_fp16` says that sums are FP16,
    too. `sparse_factor` is what 2:4 sparsity multiplies a peak by, "default" for precisions that
    it does not name; empty where there is none.

    `bandwidth` is in bytes/s, `memory` in bytes (one number for each size that is sold), `tdp`
    in watts. `clock` (Hz, "boost" or "base" by `clock_basis`), `units` and `fma_per_clock` (by
    precision, per unit) derive the peak a second time: clock x units x FMA x 2; matrix units
    whose sheet rests on another clock have it in `matrix_clock`.

    A package may hold several framework devices, `framework_devices_per_package`: every figure
    here is that of one. `confidence` says how far the figures were checked, `low_confidence`
    which of them less far, `source` where they are published, `evidence` what was read of it.
    `measured_matmul` are the best matrix products that somebody measured, in FLOP/s.
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
    bandwidth: float | None = None
    memory: tuple[float, ...] = ()
    tdp: float | None = None
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


class PeakRow(msgspec.Struct, frozen=True, kw_only=True):
    """A peak in FLOP/s, beside that of the whole package, its second derivation, and `sparse`.

    `deviation` is derived / peak - 1; `clock` and `fma_per_clock` are what it was derived from.
    None where the catalogue does not say.
    """

    precision: str
    peak: float
    package_peak: float
    derived: float | None
    deviation: float | None
    sparse: float | None
    clock: float | None
    fma_per_clock: float | None
