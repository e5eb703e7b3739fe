"""A step asked for, and the same with something else: another batch, precision or device."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction

import msgspec

from crossflops.errors import InputError, UnknownNameError
from crossflops.hardware.devices.catalogue import find
from crossflops.hardware.roofline.bounds import Scenario, step_bound
from crossflops.hardware.roofline.step_traffic import Formats
from crossflops.ir.device import Device
from crossflops.ir.roofline import ByteModel, Ceiling, Load, StepBound

Loads = Callable[[ByteModel, Formats], Sequence[Load]]
Look = Callable[[str], Device]  # a device by its name
MODELS: tuple[ByteModel, ...] = ("unfused", "weights-once", "fused-ideal")
_KEYS = ("batch", "precision", "weights", "cache", "device", "bytes")
_HINT = f"write for example batch=64 or weights=fp8,cache=fp8; it takes {', '.join(_KEYS)}"


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario with the byte model and the formats that its loads are counted in."""

    run: Scenario
    model: ByteModel
    formats: Formats = Formats()


def ceiling(device: Device, bandwidth: float | None = None) -> Ceiling:
    """The limits of a device, `bandwidth` in bytes/s in place of its own where it is given.

    Raises UnknownNameError where the bandwidth is unknown.
    """
    chosen = device.bandwidth if bandwidth is None else bandwidth
    if chosen is None:
        raise UnknownNameError(
            f"the memory bandwidth of {device.label} is not known",
            "give it in GB/s by --bandwidth",
        )
    return Ceiling(name=device.label, peaks=device.peaks, bandwidth=chosen, tdp=device.tdp)


def byte_model(name: str) -> ByteModel:
    """The byte model of that name. Raises UnknownNameError for any other."""
    for model in MODELS:
        if model == name:
            return model
    raise UnknownNameError(f"there is no byte model {name!r}", f"give one of {', '.join(MODELS)}")


def alternatives(
    texts: Iterable[str],
    base: Variant,
    loads: Loads,
    *,
    fixed: Sequence[str] = (),
    look: Look = find,
) -> tuple[StepBound, ...]:
    """The step under each of these assumptions, such as "batch=64" or "weights=fp8,cache=fp8".

    What is `fixed`, such as bytes that were given, has no alternative; `look` knows the devices.
    Raises InputError for what cannot be read and UnknownNameError for an unknown name.
    """
    steps = []
    for text in texts:
        changed = other(base, text, fixed=fixed, look=look)
        steps.append(step_bound(loads(changed.model, changed.formats), changed.run))
    return tuple(steps)


def other(base: Variant, text: str, *, fixed: Sequence[str] = (), look: Look = find) -> Variant:
    """The scenario with these changes."""
    changes = _changes(text)
    stuck = [name for name in changes if name in fixed]
    if stuck:
        raise InputError(
            f"--what-if {text}: the bytes are not counted, and not known with other {stuck[0]}",
            "give the model, without --bytes-per-example, and they are",
        )
    run, formats = base.run, base.formats
    if "device" in changes:
        run = msgspec.structs.replace(run, ceiling=ceiling(look(changes["device"])))
    if "batch" in changes:
        examples = _batch(changes["batch"], text)
        scale = run.scale * examples / Fraction(run.examples)
        run = msgspec.structs.replace(run, examples=examples, scale=scale)
    if "precision" in changes:
        run = msgspec.structs.replace(run, precision=changes["precision"])
        formats = Formats(
            activations=changes["precision"], weights=formats.weights, cache=formats.cache
        )
    named = {name: changes[name] for name in ("weights", "cache") if name in changes}
    return Variant(
        run=msgspec.structs.replace(run, label=text),
        model=byte_model(changes["bytes"]) if "bytes" in changes else base.model,
        formats=msgspec.structs.replace(formats, **named),
    )


def _changes(text: str) -> Mapping[str, str]:
    changes: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = (word.strip() for word in part.partition("="))
        if not equals or key not in _KEYS or not value or key in changes:
            raise InputError(f"--what-if {text!r} is not KEY=VALUE", _HINT)
        changes[key] = value if key == "device" else value.casefold()
    return changes


def _batch(value: str, text: str) -> int:
    if not (value.isascii() and value.isdigit()) or not 0 < int(value[:13]) < 10**12:
        raise InputError(f"--what-if {text}: {value} is no batch", "give a whole number above 0")
    return int(value)
