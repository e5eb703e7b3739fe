"""Read a figure about a training run as somebody printed it: its compute, its speed, its MFU.

    compute  = FLOPs of a token x tokens of the run
    speed    = FLOPs of a token x tokens per second / devices
    MFU      = speed / peak

So each of them is the number of one token, times a factor that the run gives.
"""

import re
from fractions import Fraction
from typing import Literal

import msgspec

from crossflops.report.published import PublishedFigure, parse_figure

Quantity = Literal["compute", "speed", "mfu"]

PETAFLOP_DAY = 10**15 * 86400  # FLOPs
_LARGE = {"E": 18, "Z": 21, "Y": 24, "exa": 18, "zetta": 21, "yotta": 24, "peta": 15, "tera": 12}
_DAYS = re.compile(r"(.*\d)\s*(?:petaflops?|PFLOPs?|PF)(?:/s|s)?[- ]*days?\s*", re.I)
_SHARE = re.compile(r"(.*\d)\s*(?:(%)\s*(?:MFU)?|MFU)\s*", re.I)
_SPEED = re.compile(
    r"(.*\d)\s*([kMGTP]?)FLOPs?\s*(?:(?:/s|/sec|ps)(?:\s*(?:/|per)\s*(?:GPU|TPU|chip|device))?"
    r"|(?:/|per)\s*(?:GPU|TPU|chip|device))\s*",
    re.I,
)
_COMPUTE = re.compile(rf"(.*\d)\s*({'|'.join(_LARGE)})-?FLOPs?\s*", re.I)


class RunFigure(msgspec.Struct, frozen=True):
    """A figure of a run, and what it is about."""

    quantity: Quantity
    figure: PublishedFigure

    def with_factor(self, factor: Fraction) -> PublishedFigure:
        """Return the figure as one of a token, where `factor` is what the run multiplies the FLOPs
        of a token by.
        """
        return msgspec.structs.replace(
            self.figure, per_token=True, unit="flops", scale=self.figure.scale / factor
        )


def names_a_run(text: str) -> bool:
    """Return whether a figure is about a run by its unit: days of a petaflop/s, a speed, a share
    of a peak.

    >>> [names_a_run(text) for text in ("3640 PF-days", "46.2%", "3.14e23", "4.11 GFLOPs")]
    [True, True, False, False]
    """
    return any(pattern.fullmatch(text) for pattern in (_DAYS, _SHARE, _SPEED))


def parse_run_figure(text: str) -> RunFigure:
    """Return the figure of a run that a text states. Raises InputError for any other text.

    >>> parse_run_figure("3.64E+03 PF-days").figure.value == 3640 * PETAFLOP_DAY
    True
    >>> figure = parse_run_figure("46.2 %")
    >>> figure.quantity, figure.figure.value
    ('mfu', Fraction(231, 500))
    >>> parse_run_figure("2527.2 ZFLOPs").figure.value == 25272 * 10**20
    True
    >>> figure = parse_run_figure("400 TFLOP/s per GPU")
    >>> figure.quantity, figure.figure.value == 400 * 10**12
    ('speed', True)
    """
    if days := _DAYS.fullmatch(text):
        return RunFigure("compute", _scale_figure(text, days[1], Fraction(PETAFLOP_DAY)))
    if share := _SHARE.fullmatch(text):
        return RunFigure("mfu", _scale_figure(text, share[1], Fraction(1, 100 if share[2] else 1)))
    if speed := _SPEED.fullmatch(text):
        return RunFigure("speed", _scale_figure(text, speed[1] + speed[2], Fraction(1)))
    if large := _COMPUTE.fullmatch(text):
        power = next(value for name, value in _LARGE.items() if name.lower() == large[2].lower())
        return RunFigure("compute", _scale_figure(text, large[1], Fraction(10**power)))
    return RunFigure("compute", parse_figure(text))


def _scale_figure(text: str, number: str, scale: Fraction) -> PublishedFigure:
    """Return the figure of a number, times `scale`, under its whole text."""
    figure = parse_figure(number)
    return msgspec.structs.replace(figure, text=text.strip(), scale=scale, unit="")
