"""`crossflops peak` and `crossflops bandwidth`."""

import re
from typing import Any

import click

from crossflops.cli.help import verb
from crossflops.cli.options import OUTPUT, options
from crossflops.cli.output import deliver
from crossflops.errors import InputError

_CLOCK = re.compile(r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*([kMG]?)(?:Hz)?", re.IGNORECASE)
_POWERS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}


def hertz(ctx: click.Context, param: click.Parameter, text: str) -> float:
    """A clock as people write it: 1.41GHz, 1215MHz, 1.41e9."""
    clock = _CLOCK.fullmatch(text.strip())
    if not clock:
        raise InputError(f"{text!r} is no clock", "write for example 1.41GHz or 1215MHz")
    return float(clock[1]) * _POWERS[clock[2].casefold()]


@verb("peak", example="crossflops peak --clock 1.41GHz --units 432 --fma 256")
@options(
    click.option("--clock", callback=hertz, required=True, metavar="HZ", help="Such as 1.41GHz."),
    click.option("--units", type=float, required=True, metavar="N",
                 help="SMs, compute units or cores."),
    click.option("--fma", type=float, required=True, metavar="N",
                 help="Multiply-adds of a unit in a clock: 64 in FP32 for an A100's SM."),
    *OUTPUT,
)  # fmt: skip
def peak(clock: float, units: float, fma: float, **fields: Any) -> int:
    """Derive a compute peak from a clock and units.

    It is clock x units x FMA per clock and unit x 2 FLOPs per FMA.
    An A100 in FP32: --clock 1.41GHz --units 108 --fma 64 gives 19.49 TFLOP/s.
    """
    from crossflops.hardware.devices.sheets import derive_peak

    deliver(derive_peak(clock, units, fma), **fields)
    return 0


@verb("bandwidth", example="crossflops bandwidth --clock 1.215GHz --bus 5120")
@options(
    click.option("--clock", callback=hertz, required=True, metavar="HZ",
                 help="Of the memory, such as 1215MHz."),
    click.option("--bus", type=float, required=True, metavar="BITS", help="Width of the bus."),
    click.option("--channels", type=float, default=1, show_default=True, metavar="N",
                 help="Buses of that width."),
    click.option("--transfers", type=float, default=2, show_default=True, metavar="N",
                 help="Transfers in a clock: 2 for double data rate."),
    *OUTPUT,
)  # fmt: skip
def bandwidth(clock: float, bus: float, channels: float, transfers: float, **fields: Any) -> int:
    """Derive a memory bandwidth from a clock and a bus.

    It is clock x transfers per clock x bus width / 8 x channels.
    Two channels of 32 bits at 2000 MHz: --clock 2000MHz --bus 32 --channels 2 gives 32 GB/s.
    """
    from crossflops.hardware.devices.sheets import derive_bandwidth

    deliver(derive_bandwidth(clock, bus, channels, transfers), **fields)
    return 0
