"""`crossflops devices`, and `crossflops peak` and `crossflops bandwidth`, which derive rates of a
device.
"""

import re
from typing import Any

import click

from crossflops.cli.options import OUTPUT, Positive, command_options, reject_options, verb
from crossflops.cli.output import showing_progress, write_verb_result
from crossflops.errors import InputError
from crossflops.render.formats import format_suffix

_POSITIVE = Positive()


@verb("devices", example="crossflops devices a100-sxm4-80gb")
@command_options(
    click.argument("name", required=False),
    click.option("--search", metavar="TEXT",
                 help="List the devices with TEXT in the name, the maker or the chip."),
    click.option("--precision", default="", metavar="P",
                 help="The precision whose peaks are listed."),
    click.option("--catalogue", metavar="FILE.toml",
                 help="A TOML file with more devices, in addition to those of crossflops.toml."),
    click.option("--peak-tflops", multiple=True, metavar="[P=]X",
                 help="Describe a device by its dense peak in TFLOP/s."),
    click.option("--bandwidth", type=_POSITIVE, metavar="X", help="The memory bandwidth of "
                                                                  "that device in GB/s."),
    click.option("--here", is_flag=True, help="Show this machine: its processor and its GPUs."),
    click.option("--measure", is_flag=True,
                 help="Show this machine, and measure its peak and bandwidth now."),
    *OUTPUT,
)  # fmt: skip
def devices(as_json: bool, file: Any, **chosen: Any) -> int:
    """Look up a device and its peaks, or measure this machine.

    NAME is a whole name, as drivers print it. One matching device is shown with its sources. If
    several devices have that name they are listed, and the exit status is 2; it is 2 for an
    unknown name, too. Without NAME all devices are listed.
    """
    from crossflops.verbs.devices import DeviceQuestion, answer_device_question

    question = DeviceQuestion(**{**chosen, "peak_tflops": tuple(chosen["peak_tflops"])})
    question.refuse_contradictions()
    shows_peaks = as_json or (file is not None and format_suffix(file) == ".json")
    if not question.subject_names and not shows_peaks:
        reject_options(
            ("precision",), "the page of all devices shows no peaks", "add --search or --json"
        )
    with showing_progress(question.progress_text):
        content, trouble = answer_device_question(question)
    write_verb_result(content, as_json=as_json, file=file)
    if trouble is not None:
        raise trouble
    return 0


# What a device can do, derived from clocks.

_CLOCK = re.compile(r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*([kMG]?)(?:Hz)?", re.IGNORECASE)
_POWERS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}


def parse_frequency_hz(ctx: click.Context, param: click.Parameter, text: str) -> float:
    """Return a clock frequency in Hz, from a text such as "1.41GHz", "1215MHz" or "1.41e9". Raises
    InputError.
    """
    clock = _CLOCK.fullmatch(text.strip())
    if not clock:
        raise InputError(
            f"--clock must be a frequency, got {text!r}",
            "write, for example, 1.41GHz or 1215MHz",
        )
    return float(clock[1]) * _POWERS[clock[2].casefold()]


@verb("peak", example="crossflops peak --clock 1.41GHz --units 432 --fma 256")
@command_options(
    click.option("--clock", callback=parse_frequency_hz, required=True, metavar="HZ",
                 help="Clock frequency, such as 1.41GHz."),
    click.option("--units", type=float, required=True, metavar="N",
                 help="Number of SMs, compute units or cores."),
    click.option("--fma", type=float, required=True, metavar="N",
                 help="Multiply-adds per unit and clock: 64 in FP32 for an SM of an A100."),
    *OUTPUT,
)  # fmt: skip
def peak(clock: float, units: float, fma: float, **fields: Any) -> int:
    """Derive a compute peak from a clock and units.

    The peak is clock x units x FMA per clock and unit x 2 FLOPs per FMA.
    An A100 in FP32: --clock 1.41GHz --units 108 --fma 64 gives 19.49 TFLOP/s.
    """
    from crossflops.hardware.devices.sheets import derive_peak

    write_verb_result(derive_peak(clock, units, fma), **fields)
    return 0


@verb("bandwidth", example="crossflops bandwidth --clock 1.215GHz --bus 5120")
@command_options(
    click.option("--clock", callback=parse_frequency_hz, required=True, metavar="HZ",
                 help="Memory clock, such as 1215MHz."),
    click.option("--bus", type=float, required=True, metavar="BITS",
                 help="Width of the bus in bits."),
    click.option("--channels", type=float, default=1, show_default=True, metavar="N",
                 help="Number of buses of that width."),
    click.option("--transfers", type=float, default=2, show_default=True, metavar="N",
                 help="Transfers per clock: 2 for double data rate."),
    *OUTPUT,
)  # fmt: skip
def bandwidth(clock: float, bus: float, channels: float, transfers: float, **fields: Any) -> int:
    """Derive a memory bandwidth from a clock and a bus.

    The bandwidth is clock x transfers per clock x bus width / 8 x channels.
    Two channels of 32 bits at 2000 MHz: --clock 2000MHz --bus 32 --channels 2 gives 32 GB/s.
    """
    from crossflops.hardware.devices.sheets import derive_bandwidth

    write_verb_result(derive_bandwidth(clock, bus, channels, transfers), **fields)
    return 0
