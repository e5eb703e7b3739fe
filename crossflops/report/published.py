"""Read a figure as somebody printed it, such as "4.11 GFLOPs": its digits, its prefix, its unit.

Whether a count prints so is decided in whole numbers: rounded to the last printed digit, or cut
off there.
"""

import re
from fractions import Fraction
from typing import Literal

import msgspec

from crossflops.errors import InputError
from crossflops.ir.profile import Amount

Rounding = Literal["exact", "rounded", "truncated", "coarse", "binary"]

_POWERS = {"": 0, "k": 3, "K": 3, "M": 6, "G": 9, "B": 9, "T": 12, "P": 15}
_MACS = r"(?:mul(?:t|ti|tiply)?[- ]?)?(?:acc|accumulates?|adds?)|macs?|mults"
_FLOPS = r"flops?|float_ops"
_PARAMS = r"params?|parameters?|weights?"
_FIGURE = re.compile(
    r"\s*[~≈]?\s*(?P<number>\d[\d_ ,]*(?:\.\d+)?|\.\d+)"
    r"(?:[eE](?P<power>[+-]?\d{1,3})|\s*[x×*]\s*10\s*(?:\^|\*\*)\s*(?P<ten>\d{1,2}))?"
    r"\s*(?P<prefix>[kKMGBTP]?)(?P<binary>i?)\s*-?"
    rf"(?P<unit>(?i:{_MACS}|{_FLOPS}|{_PARAMS})?)\s*(?P<token>(?i:(?:/|per)\s*token)?)\s*"
)
_THOUSANDS = re.compile(r"\d{1,3}(?:[ ,_]\d{3})+(?:\.\d+)?")
_MOST_DIGITS = 40


class PublishedFigure(msgspec.Struct, frozen=True):
    """The figure `mantissa` x 10^`exponent`; the last digit of the mantissa is the last printed
    digit.

    `coarse` is the number of zeros at the end of an integer, which may be digits or not, and
    `unit` is "macs", "flops", "params", or "" where none is printed. `power` is the exponent that
    the prefix means: 9 for G. `binary` says that the prefix is one of 1024, such as Gi, and
    `per_token` that the figure is for one token. A number of work prints as the figure if it does
    so divided by `scale`: 1, but for a figure in days of a petaflop/s, or of a whole run.
    """

    text: str
    mantissa: int
    exponent: int
    unit: str = ""
    power: int = 0
    coarse: int = 0
    binary: bool = False
    per_token: bool = False
    scale: Fraction = Fraction(1)

    @property
    def digits(self) -> int:
        """The number of printed digits, without leading zeros."""
        return len(str(self.mantissa))

    @property
    def value(self) -> Fraction:
        """The printed number, without rounding."""
        return self.mantissa * self._last_digit_value

    @property
    def _last_digit_value(self) -> Fraction:
        """The value of one unit in the last printed digit."""
        exponent = self.exponent - (self.power if self.binary else 0)
        step = self.scale * Fraction(10) ** exponent
        return step * 1024 ** (self.power // 3) if self.binary else step

    def rounding_of(self, amount: Amount | Fraction) -> Rounding | None:
        """Return how the figure comes from this amount: "exact", "rounded", "truncated", "coarse"
        or "binary"; None if it does not.

        >>> figure = parse_figure("4.11G")
        >>> [figure.rounding_of(n) for n in (4_111_514_624, 4_118_000_000, 4_089_184_256)]
        ['rounded', 'truncated', None]
        >>> parse_figure("300M").rounding_of(304_000_000)
        'coarse'
        """
        if rounds_to_mantissa(Fraction(amount) / self._last_digit_value, self.mantissa):
            return "exact" if Fraction(amount) == self.value else "rounded"
        if Fraction(amount) // self._last_digit_value == self.mantissa:
            return "truncated"
        if self.coarse:
            step = self._last_digit_value * 10**self.coarse
            if rounds_to_mantissa(Fraction(amount) / step, self.mantissa // 10**self.coarse):
                return "coarse"
        if self.power and not self.binary:
            scale = Fraction(1024 ** (self.power // 3), 10**self.power)
            if rounds_to_mantissa(
                Fraction(amount) / (self._last_digit_value * scale), self.mantissa
            ):
                return "binary"
        return None

    def distance(self, amount: Amount | Fraction) -> Fraction:
        """Return how far an amount is from the figure, relative to the figure: 0.1 for 10 %."""
        return abs(Fraction(amount) / self.value - 1)


def rounds_to_mantissa(quotient: Fraction, mantissa: int) -> bool:
    """Return whether the number rounds to this integer; a half may be rounded up or down."""
    return abs(quotient - mantissa) <= Fraction(1, 2)


def parse_figure(text: str, power: int | None = None, unit: str = "") -> PublishedFigure:
    """Return the figure that a text states, such as "4.11G", "17.6 GFLOPs", "300 M" or "3.8 x
    10^9".

    Args:
        text: the figure.
        power: the exponent that a table's head states, for a figure without a prefix.
        unit: the unit that a table's head states.

    Raises InputError for any other text, and for zero.

    >>> figure = parse_figure("17.6 GFLOPs")
    >>> figure.mantissa, figure.exponent, figure.unit
    (176, 8, 'flops')
    >>> parse_figure("4,111,514,624 MACs").value
    Fraction(4111514624, 1)
    >>> parse_figure("51.47 GFLOPs/token").per_token
    True
    """
    match = _FIGURE.fullmatch(text)
    if match is None or not _has_plain_digits(match["number"]):
        raise InputError(
            f"{text!r} is not a number of MACs, FLOPs or parameters",
            'write, for example, 4.11G, "17.6 GFLOPs" or 25.6M',
        )
    integer, _, rest = re.sub(r"[_ ,]", "", match["number"]).partition(".")
    mantissa = int(integer + rest or "0")
    if not mantissa or len(integer + rest) > _MOST_DIGITS:
        problem = "is zero" if not mantissa else f"has more than {_MOST_DIGITS} digits"
        raise InputError(
            f"the figure {text!r} {problem}", "write the published figure, such as 4.11G"
        )
    prefix = _POWERS[match["prefix"]]
    if not match["prefix"] and power is not None:
        prefix = power
    written = int(match["power"] or match["ten"] or 0)
    zeros = 0 if rest else len(integer) - len(integer.rstrip("0"))
    return PublishedFigure(
        text=text.strip(),
        mantissa=mantissa,
        exponent=prefix + written - len(rest),
        unit=_unit_name(match["unit"]) or unit,
        power=prefix,
        coarse=zeros,
        binary=bool(match["binary"] and match["prefix"]),
        per_token=bool(match["token"]),
    )


def _has_plain_digits(number: str) -> bool:
    """Return whether the number has no separators, or has them only between groups of three
    digits.
    """
    number = number.strip()
    return not re.search(r"[ ,_]", number) or bool(_THOUSANDS.fullmatch(number))


def _unit_name(word: str) -> str:
    """Return the kind of a printed unit, "macs", "flops" or "params"; "" for another word."""
    kinds = (("flops", _FLOPS), ("params", _PARAMS), ("macs", _MACS))
    return next((kind for kind, words in kinds if word and re.fullmatch(words, word, re.I)), "")
