"""The picture of a search for the best batch."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from crossflops.errors import InputError
from crossflops.ir.measurement import Measurement, Unfit
from crossflops.render.plots.style import BLUE, GREY, INK, PALE, VERMILION, headed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LARGEST = "largest that ran"


def draw(
    figure: "Figure", curve: Sequence[Measurement | Unfit], title: str, chosen: int | None
) -> None:
    """Examples per second above, milliseconds below, over the batch.

    Raises InputError where no batch ran.
    """
    ran = sorted(
        (timing for timing in curve if isinstance(timing, Measurement)), key=lambda row: row.batch
    )
    unfit = sorted(
        (timing for timing in curve if isinstance(timing, Unfit)), key=lambda row: row.batch
    )
    if not ran:
        raise InputError("no batch ran, so there is no curve", "bench a batch that fits")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    for axes in (upper, lower):
        axes.grid(visible=True, color=PALE, linewidth=0.6, zorder=0)
        axes.set_xscale("log", base=2)
        for failed in unfit:
            axes.axvline(failed.batch, color=GREY, linestyle=":", linewidth=1, zorder=1)
    _throughput(upper, ran, chosen)
    _latency(lower, ran)
    _failed(upper, unfit)
    _ticks(lower, sorted({timing.batch for timing in ran} | {failure.batch for failure in unfit}))
    lower.set_xlabel("batch")
    headed(upper, title)


def _throughput(axes: "Axes", ran: Sequence[Measurement], chosen: int | None) -> None:
    """The rates, hollow where the runs had not settled, with the batches that matter named."""
    rates = [timing.examples_per_second for timing in ran]
    axes.plot([timing.batch for timing in ran], rates, "-", color=BLUE, linewidth=1.8, zorder=3)
    for timing in ran:
        axes.plot(
            timing.batch, timing.examples_per_second, "o", markersize=5.5, markeredgecolor=BLUE,
            markerfacecolor=BLUE if timing.settled else "white", zorder=4,
        )  # fmt: skip
    axes.set_ylabel("examples/s")
    axes.set_ylim(0, max(rates) * 1.3)
    fastest = max(ran, key=lambda row: row.examples_per_second)
    names = {ran[-1].batch: _LARGEST}
    names |= {timing.batch: "chosen" for timing in ran if timing.batch == chosen}
    names[fastest.batch] = "fastest"
    for timing in ran:
        if timing.batch in names:
            side = "left" if timing is ran[0] else "right" if timing is ran[-1] else "center"
            _mark(axes, timing, names[timing.batch], side, above=names[timing.batch] != _LARGEST)
    if not all(timing.settled for timing in ran):
        axes.text(
            0.5, 0.03, "hollow: the runs had not settled", transform=axes.transAxes, ha="center",
            fontsize=7.5, color=GREY,
        )  # fmt: skip


def _mark(axes: "Axes", timing: Measurement, name: str, side: str, *, above: bool) -> None:
    axes.plot(
        timing.batch, timing.examples_per_second, "o", markersize=11, markerfacecolor="none",
        markeredgecolor=VERMILION, markeredgewidth=1.8, zorder=5,
    )  # fmt: skip
    axes.annotate(
        f"{name}: {timing.examples_per_second:.4g}/s at {timing.batch}",
        (timing.batch, timing.examples_per_second), xytext=(0, 10 if above else -18), ha=side,
        textcoords="offset points", fontsize=8, fontweight="bold", color=INK,
    )  # fmt: skip


def _latency(axes: "Axes", ran: Sequence[Measurement]) -> None:
    """The median, and the percentiles above it."""
    from matplotlib.ticker import LogLocator, NullFormatter

    batches = [timing.batch for timing in ran]
    for name, style, colour in (("p50", "-", BLUE), ("p90", "--", GREY), ("p99", ":", VERMILION)):
        values = [1e3 * getattr(timing, name) for timing in ran]
        axes.plot(batches, values, style, color=colour, linewidth=1.5, zorder=3, label=name)
        if len(ran) == 1:  # a line of one point is not seen
            axes.plot(batches, values, "_", color=colour, markersize=14, zorder=3)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel("ms a run")
    axes.legend(loc="upper left", fontsize=8, ncols=3)


def _failed(axes: "Axes", unfit: Sequence[Unfit]) -> None:
    top = axes.get_ylim()[1]
    for failure in unfit:
        axes.text(
            failure.batch, top, f"{failure.batch} did not run: {failure.stage} ", fontsize=7.5,
            color=GREY, rotation=90, ha="right", va="top",
        )  # fmt: skip


def _ticks(axes: "Axes", batches: Sequence[int]) -> None:
    """The batches that were tried, as far as their numbers have room."""
    kept: list[int] = []
    for batch in batches:
        if not kept or batch >= kept[-1] * 1.25:
            kept.append(batch)
    axes.set_xticks(kept, [str(size) for size in kept])
    axes.minorticks_off()
