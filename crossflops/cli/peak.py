"""`crossflops peak`."""

import re
from typing import Any

import click

from crossflops.cli.options import output_options
from crossflops.cli.output import deliver
from crossflops.errors import InputError

_CLOCK = re.compile(r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*([kMG]?)(?:Hz)?", re.IGNORECASE)
_POWERS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}


def hertz(ctx: click.Context, param: click.Parameter, text: str) -> float:
    """A clock as people write it: 1.41GHz, 1215MHz, 1.41e9."""
    found = _CLOCK.fullmatch(text.strip())
    if not found:
        raise InputError(f"{text!r} is no clock", "write for example 1.41GHz or 1215MHz")
    return float(found[1]) * _POWERS[found[2].casefold()]


@click.command("peak")
@click.option("--clock", callback=hertz, required=True, metavar="HZ", help="Such as 1.41GHz.")
@click.option("--units", type=float, required=True, metavar="N",
              help="SMs, compute units or cores.")  # fmt: skip
@click.option("--fma", type=float, required=True, metavar="N",
              help="Multiply-adds of a unit in a clock: 64 in FP32 for an A100's SM.")  # fmt: skip
@output_options
def command(clock: float, units: float, fma: float, **fields: Any) -> int:
    """Derive a compute peak from a clock and units.

    It is clock x units x FMA per clock and unit x 2 FLOPs per FMA.
    An A100 in FP32: --clock 1.41GHz --units 108 --fma 64 gives 19.49 TFLOP/s.
    """
    from crossflops.hardware.devices.sheets import derive_peak

    deliver(derive_peak(clock, units, fma), **fields)
    return 0
