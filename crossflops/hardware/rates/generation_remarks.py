"""Assumptions of the rates of generated text, and contradictions to them."""

from collections.abc import Iterator
from fractions import Fraction

from crossflops.hardware.devices.peaks import Peaks
from crossflops.hardware.rates.generation import (
    GenerationRun,
    bytes_relative_to_stored_type,
    cache_share_per_device,
    model_runs,
)
from crossflops.hardware.rates.remarks import IMPOSSIBLE_REASONS, peak_notes
from crossflops.ir.workload import Workload
from crossflops.report.efficiency import PhaseEfficiency
from crossflops.report.quantity import count_with_noun, short_amount

_BYTES = {
    "weights-once": "bytes are the weights once for each pass, and the reads and writes of the "
    "cache; activations stay on the chip (--bytes unfused adds them)",
    "unfused": "bytes are the inputs and outputs of every operator separately",
}


def generation_assumptions(
    workload: Workload, run: GenerationRun, against: Peaks | None
) -> tuple[str, ...]:
    """Return notes on the work, the bytes, the devices and the peak."""
    models = [(own, own_run) for _, own, own_run in model_runs(workload, run)]
    types = [list(_type_notes(own, own_run)) for own, own_run in models]
    return (
        "work is 2 FLOPs per MAC of the native count, which includes the full square of "
        "attention in the prefill",
        *_image_notes(workload),
        *_speculation_notes(workload),
        _BYTES[run.byte_model],
        *types[0],
        *(f"draft model: {note}" for note in (types[1] if len(types) > 1 else ())),
        *_tensor_parallel_notes(workload, run),
        *peak_notes(against, (run.precision,)),
    )


def _image_notes(workload: Workload) -> Iterator[str]:
    """Yield a note on the images in a prompt, if there are some."""
    if workload.images:
        yield (
            f"a prompt has {count_with_noun(workload.images, 'image')}: their "
            f"{count_with_noun(workload.image_tokens, 'token')} are prompt tokens, and their "
            "encoder is a part of the prefill"
        )


def _speculation_notes(workload: Workload) -> Iterator[str]:
    """Yield notes on the rounds of a draft model, if there is one."""
    speculation = workload.speculation
    if speculation is None:
        return
    yield (
        f"the draft model {speculation.target} proposes "
        f"{count_with_noun(speculation.draft_tokens, 'token')} in a round, and "
        f"{speculation.acceptance} of them are accepted on average, spread evenly over the rounds"
    )
    yield (
        f"a request has {count_with_noun(speculation.rounds, 'round')}, with "
        f"{speculation.proposed_tokens} proposed and {speculation.accepted_tokens} accepted "
        "tokens; the prefill of the model checks those of the first round"
    )
    yield (
        "the draft and the model run one after the other on the same devices; tokens of their "
        "phases are those that the passes take in, tokens of the request are new ones"
    )


def _type_notes(workload: Workload, run: GenerationRun) -> Iterator[str]:
    """Yield notes on the types of the weights and of the cache of a model, and on its experts."""
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
    """Yield notes on the devices that share the model, and its draft model if it has one."""
    if run.devices == 1:
        return
    for names, own, _ in model_runs(workload, run):
        share = cache_share_per_device(own.cache_heads, run.devices)
        heads = own.cache_heads
        part = "the whole cache" if share == 1 else f"{share} of the cache"
        kept = (
            f"{part}, because its {count_with_noun(heads, 'head')} of keys and values cannot be "
            "split"
            if heads
            else "the whole cache, because its number of heads is unknown"
        )
        whose = " of the draft model" if names[0] != "prefill" else ""
        yield (
            f"tensor parallel{whose}: a device has 1/{run.devices} of FLOPs, weights and "
            f"activations, and {kept}"
        )
    yield (
        "repeated work on each device (norms, routers, copied heads) and communication between "
        "devices are not added"
    )


def generation_warnings(
    row: PhaseEfficiency, workload: Workload, run: GenerationRun, against: Peaks | None
) -> tuple[str, ...]:
    """Return warnings: a share above 100 %, and weights and cache that fill the memory."""
    sentences = []
    for share, name in ((row.mfu, "peak"), (row.mbu, "bandwidth")):
        if share is not None and share > 1:
            sentences += [f"{row.phase}: {100 * share:.1f} % of the {name} is impossible",
                          IMPOSSIBLE_REASONS]  # fmt: skip
    memory = max(against.device.memory, default=0) if against and against.device else 0
    needed_bytes = device_memory_need(workload, run)
    if memory and needed_bytes > memory:
        sentences.append(
            f"weights and cache take {short_amount(needed_bytes, 'B')} of a device with "
            f"{short_amount(memory, 'B')} of memory: it needs more devices (--tensor-parallel), "
            "or smaller types"
        )
    return tuple(sentences)


def device_memory_need(workload: Workload, run: GenerationRun) -> float:
    """Return the bytes of all weights, and of the cache at the end, that a device keeps; those of
    a draft model are among them.
    """
    needed = Fraction(0)
    for _, own, own_run in model_runs(workload, run):
        floats = bytes_relative_to_stored_type(own.weight_dtype, own_run.precision)
        kept = bytes_relative_to_stored_type(own.cache_dtype, own_run.cache)
        kept *= cache_share_per_device(own.cache_heads, run.devices)
        needed += own.model_bytes * floats / run.devices + own.cache_bytes * kept
    return float(needed)
