"""A transformer by its sizes: the fields of `crossflops.hardware.rates.question.Language`."""

import click

from crossflops.cli.efficiency.group import POSITIVE, Function, stacked

_SIZES = (
    ("--layers", "L", "Layers with attention."),
    ("--hidden", "H", "Width of attention, which is heads x depth."),
    ("--heads", "H", "Heads, with --head-dim instead of --hidden."),
    ("--head-dim", "Q", "Depth of a head."),
    ("--kv-heads", "N", "Heads of keys and values, where they are fewer."),
    ("--seq", "T", "Tokens of a sequence."),
    ("--context", "T", "Tokens in the cache, when one token after the other is decoded."),
)


def options(function: Function) -> Function:
    """`--params` and sizes: without a TARGET, the work is that of a token by 6N + 12LHQT."""
    sizes = (
        click.option(name, type=click.IntRange(1), metavar=letter, help=what)
        for name, letter, what in _SIZES
    )
    return stacked(
        function,
        click.option(
            "--params",
            metavar="N",
            help="Parameters in products, such as 540.35G; with sizes it needs no TARGET.",
        ),
        *sizes,
        click.option(
            "--param-bytes", type=POSITIVE, default=2, metavar="X", help="Bytes of a parameter."
        ),
        click.option(
            "--cache-bytes", type=POSITIVE, default=2, metavar="X", help="Of a cached element."
        ),
    )
