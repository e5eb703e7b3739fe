"""`crossflops bandwidth`."""

from typing import Any

import click

from crossflops.cli.options import output_options
from crossflops.cli.output import deliver
from crossflops.cli.peak import hertz


@click.command("bandwidth")
@click.option("--clock", callback=hertz, required=True, metavar="HZ",
              help="Of the memory, such as 1215MHz.")  # fmt: skip
@click.option("--bus", type=float, required=True, metavar="BITS", help="Width of the bus.")
@click.option("--channels", type=float, default=1, show_default=True, metavar="N",
              help="Buses of that width.")  # fmt: skip
@click.option("--transfers", type=float, default=2, show_default=True, metavar="N",
              help="Transfers in a clock: 2 for double data rate.")  # fmt: skip
@output_options
def command(clock: float, bus: float, channels: float, transfers: float, **fields: Any) -> int:
    """Derive a memory bandwidth from a clock and a bus.

    It is clock x transfers per clock x bus width / 8 x channels.
    Two channels of 32 bits at 2000 MHz: --clock 2000MHz --bus 32 --channels 2 gives 32 GB/s.
    """
    from crossflops.hardware.devices.sheets import derive_bandwidth

    deliver(derive_bandwidth(clock, bus, channels, transfers), **fields)
    return 0
