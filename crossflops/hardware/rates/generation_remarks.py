"""Assumptions of the rates of generated text, and contradictions to them."""

from collections.abc import Iterator

from crossflops.hardware.devices.peaks import Peaks
from crossflops.hardware.rates.generation import (
    GenerationRun,
    bytes_relative_to_stored_type,
    cache_share_per_device,
)
from crossflops.hardware.rates.remarks import IMPOSSIBLE_REASONS, peak_notes
from crossflops.ir.workload import Workload
from crossflops.report.efficiency import PhaseEfficiency
from crossflops.report.quantity import short_amount

_BYTES = {
    "weights-once": "bytes are the weights once for each pass, and the reads and writes of the "
    "cache; activations stay on the chip (--bytes unfused adds them)",
    "unfused": "bytes are the inputs and outputs of every operator separately",
}


def generation_assumptions(
    workload: Workload, run: GenerationRun, against: Peaks | None
) -> tuple[str, ...]:
    """Return notes on the work, the bytes, the devices and the peak."""
    return (
        *_flops_and_bytes_notes(workload, run),
        *_tensor_parallel_notes(workload, run),
        *peak_notes(against, (run.precision,)),
    )


def _flops_and_bytes_notes(workload: Workload, run: GenerationRun) -> Iterator[str]:
    """Yield notes on FLOPs and bytes."""
    yield (
        "work is 2 FLOPs per MAC of the native count, which includes the full square of "
        "attention in the prefill"
    )
    yield _BYTES[run.byte_model]
    if not workload.weight_dtype:
        yield "the weights have several types; their stored bytes are used"
    elif bytes_relative_to_stored_type(workload.weight_dtype, run.precision) != 1:
        yield f"the weights are {workload.weight_dtype} in the config, and {run.precision} here"
    elif run.precision:
        yield f"the weights are {workload.weight_dtype}"
    if bytes_relative_to_stored_type(workload.cache_dtype, run.cache) != 1:
        yield (
            f"the cache is {workload.cache_dtype} in the count, and {run.cache} here, without "
            "the scales of a quantized one"
        )
    if workload.model_cache_dtype:
        yield (
            f"the cache was counted in {workload.cache_dtype}, and the model keeps it in "
            f"{workload.model_cache_dtype}; scales of a quantized one are not added"
        )
    if workload.experts:
        yield workload.experts


def _tensor_parallel_notes(workload: Workload, run: GenerationRun) -> Iterator[str]:
    """Yield notes on the devices that share the model."""
    if run.devices == 1:
        return
    share = cache_share_per_device(workload.cache_heads, run.devices)
    heads = workload.cache_heads
    kept = (
        f"and {share} of the cache, because its {heads} heads of keys and values are not split"
        if heads
        else "and the whole cache, because its number of heads is unknown"
    )
    yield (
        f"tensor parallel: a device has 1/{run.devices} of FLOPs, weights and activations, {kept}"
    )
    yield (
        "repeated work on each device (norms, routers, copied heads) and communication between "
        "devices are not added"
    )


def generation_warnings(
    row: PhaseEfficiency, workload: Workload, against: Peaks | None
) -> tuple[str, ...]:
    """Return warnings: a share above 100 %, and weights and cache that fill the memory."""
    sentences = []
    for share, name in ((row.mfu, "peak"), (row.mbu, "bandwidth")):
        if share is not None and share > 1:
            sentences += [f"{row.phase}: {100 * share:.1f} % of the {name} is impossible",
                          IMPOSSIBLE_REASONS]  # fmt: skip
    memory = max(against.device.memory, default=0) if against and against.device else 0
    needed_bytes = device_memory_need(row, workload)
    if memory and needed_bytes > memory:
        sentences.append(
            f"weights and cache take {short_amount(needed_bytes, 'B')} of a device with "
            f"{short_amount(memory, 'B')} of memory: it needs more devices (--tensor-parallel), "
            "or smaller types"
        )
    return tuple(sentences)


def device_memory_need(row: PhaseEfficiency, workload: Workload) -> float:
    """Return the bytes of all weights, and of the cache at the end, that a device keeps."""
    weights = workload.model_bytes * bytes_relative_to_stored_type(
        workload.weight_dtype, row.precision
    )
    cache = workload.cache_bytes * bytes_relative_to_stored_type(
        workload.cache_dtype, row.cache_dtype
    )
    share = cache_share_per_device(workload.cache_heads, row.devices)
    return float(weights / row.devices + cache * share)
