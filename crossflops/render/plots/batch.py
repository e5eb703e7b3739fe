"""The picture of a search for the best batch."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from crossflops.core.measurement import Measurement, Unfit
from crossflops.errors import InputError
from crossflops.render.plots.style import BLUE, GREY, INK, PALE, VERMILION, headed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw(
    figure: "Figure", curve: Sequence[Measurement | Unfit], title: str, chosen: int | None
) -> None:
    """Examples per second above, milliseconds below, over the batch.

    Raises InputError where no batch ran.
    """
    ran = sorted((one for one in curve if isinstance(one, Measurement)), key=lambda one: one.batch)
    unfit = sorted((one for one in curve if isinstance(one, Unfit)), key=lambda one: one.batch)
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
    _ticks(lower, sorted({one.batch for one in ran} | {one.batch for one in unfit}))
    lower.set_xlabel("batch")
    headed(upper, title)


def _throughput(axes: "Axes", ran: Sequence[Measurement], chosen: int | None) -> None:
    rates = [one.examples_per_second for one in ran]
    axes.plot(
        [one.batch for one in ran], rates, "-o", color=BLUE, linewidth=1.8, markersize=5, zorder=3
    )
    axes.set_ylabel("examples/s")
    axes.set_ylim(0, max(rates) * 1.25)
    fastest = max(ran, key=lambda one: one.examples_per_second)
    _mark(axes, fastest, f"fastest: {fastest.examples_per_second:.4g}/s at {fastest.batch}", 10)
    other = next((one for one in ran if one.batch == chosen), fastest)
    if other is not fastest:
        _mark(axes, other, f"chosen: {other.examples_per_second:.4g}/s at {other.batch}", 10)
    if ran[-1] is not fastest and ran[-1] is not other:
        _mark(axes, ran[-1], f"largest that ran: {ran[-1].batch}", -16)


def _mark(axes: "Axes", one: Measurement, text: str, above: int) -> None:
    axes.plot(
        one.batch, one.examples_per_second, "o", markersize=11, markerfacecolor="none",
        markeredgecolor=VERMILION, markeredgewidth=1.8, zorder=4,
    )  # fmt: skip
    axes.annotate(
        text, (one.batch, one.examples_per_second), xytext=(0, above), ha="right", fontsize=8,
        textcoords="offset points", fontweight="bold", color=INK,
    )  # fmt: skip


def _latency(axes: "Axes", ran: Sequence[Measurement]) -> None:
    """The median with its spread, each line named at its end."""
    batches = [one.batch for one in ran]
    for name, style, colour in (("p50", "-", BLUE), ("p90", "--", GREY), ("p99", ":", VERMILION)):
        values = [1e3 * getattr(one, name) for one in ran]
        axes.plot(batches, values, style, color=colour, linewidth=1.5, zorder=3, label=name)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_ylabel("ms a run")
    axes.legend(loc="upper left", fontsize=8, ncols=3)


def _failed(axes: "Axes", unfit: Sequence[Unfit]) -> None:
    top = axes.get_ylim()[1]
    for one in unfit:
        axes.text(
            one.batch, top, f"{one.batch} did not run: {one.stage} ", fontsize=7.5, color=GREY,
            rotation=90, ha="right", va="top",
        )  # fmt: skip


def _ticks(axes: "Axes", batches: Sequence[int]) -> None:
    """The batches that were tried, as far as their numbers have room."""
    kept: list[int] = []
    for batch in batches:
        if not kept or batch >= kept[-1] * 1.25:
            kept.append(batch)
    axes.set_xticks(kept, [str(one) for one in kept])
    axes.minorticks_off()
