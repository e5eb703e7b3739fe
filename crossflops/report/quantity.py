"""Write numbers as text: exact counts, or four significant digits with an SI prefix."""

from decimal import Context, Decimal
from fractions import Fraction
from math import isfinite
from typing import TypeAlias

Amount: TypeAlias = int | float

_SIGNIFICANT = 4
_DIGITS = Context(prec=_SIGNIFICANT)
_PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z", "Y", "R", "Q")


def exact_amount(amount: Amount) -> str:
    """Return an amount as text with all digits, in groups of three.

    >>> exact_amount(4133742592)
    '4 133 742 592'
    """
    return f"{amount:,}".replace(",", " ")


def amount_with_sign(amount: Amount) -> str:
    """Return an amount as text with its sign and all digits.

    >>> amount_with_sign(44455936), amount_with_sign(-1), amount_with_sign(0)
    ('+44 455 936', '-1', '0')
    """
    return f"{amount:+,}".replace(",", " ") if amount else "0"


def term_with_sign(amount: Amount) -> str:
    """Return an amount as a term: " + 7", " - 7", or "" for zero.

    >>> term_with_sign(44455936), term_with_sign(-1), term_with_sign(0)
    (' + 44 455 936', ' - 1', '')
    """
    return f" {'-' if amount < 0 else '+'} {exact_amount(abs(amount))}" if amount else ""


def short_amount(amount: Amount | Fraction, unit: str = "") -> str:
    """Return a number as text in four digits with SI prefix and unit: "4.112 GMACs".

    >>> short_amount(4133742592), short_amount(4089184256, "MACs"), short_amount(57, "MACs")
    ('4.134 G', '4.089 GMACs', '57 MACs')
    """
    if isinstance(amount, float) and not isfinite(amount):
        return f"{amount} {unit}".rstrip()
    exact = Fraction(amount)
    value = _DIGITS.divide(Decimal(exact.numerator), Decimal(exact.denominator))
    if abs(value) < 1000:
        number = str(exact.numerator) if exact.denominator == 1 else f"{value:f}"
        return f"{number} {unit}".rstrip()
    value = _DIGITS.quantize(value, Decimal(1).scaleb(value.adjusted() - _SIGNIFICANT + 1))
    step = value.adjusted() // 3
    if step >= len(_PREFIXES):
        return f"{value:.3E} {unit}".rstrip()
    return f"{value.scaleb(-3 * step):f} {_PREFIXES[step]}{unit}".rstrip()


def seconds_to_text(seconds: float) -> str:
    """Return a time in seconds as text in four digits, in s, ms, µs or ns.

    >>> seconds_to_text(0.005122), seconds_to_text(0.0001)
    ('5.122 ms', '100 µs')
    >>> seconds_to_text(75.0), seconds_to_text(0.0)
    ('75 s', '0 s')
    """
    for unit, power in (("s", 0), ("ms", 3), ("µs", 6)):
        value = seconds * 10**power
        if not seconds or f"{value:.3e}"[-3] == "+":
            return f"{value:.4g} {unit}"
    return f"{seconds * 1e9:.4g} ns"


def percent_share(part: Amount, full: Amount) -> str:
    """Return a part as percent of a total with one decimal; "-" if the total is 0.

    >>> percent_share(1, 8)
    '12.5 %'
    """
    if not full:
        return "-"
    return f"{_decimal_text(Fraction(part) / Fraction(full) * 100, 1)} %"


def percent_change(value: Amount | Fraction, reference: Amount) -> str:
    """Return the change from `reference` to `value` as text, in percent with at least two
    decimals; "-" if `reference` is 0 or one is not finite.

    Where all of these are 0 and the value is another one, to the first digit that is not.

    >>> pairs = (4133742592, 4089184256), (5, 5), (100001, 100000)
    >>> tuple(percent_change(first, second) for first, second in pairs)
    ('+1.09 %', '0.00 %', '+0.001 %')
    >>> percent_change(10**9 - 4, 10**9)
    '-0.0000004 %'
    """
    if not reference or not all(isfinite(amount) for amount in (value, reference)):
        return "-"
    ratio = Fraction(value) / Fraction(reference) - 1
    sign = "+" if ratio > 0 else "-" if ratio < 0 else ""
    return f"{sign}{_decimal_text(abs(ratio) * 100, _percent_decimals(abs(ratio) * 100))} %"


def _percent_decimals(percent: Fraction) -> int:
    """Return how many decimals a percentage needs so that its first digit other than 0 is shown;
    at least 2.
    """
    indices = 2
    while percent and percent * 10**indices <= Fraction(1, 2):
        indices += 1
    return indices


def explanation_percent(residual: Amount, delta: Amount) -> str:
    """Return the explained share of a difference as text in percent; "100 %" only if the residual
    is 0.

    >>> pairs = (0, 7), (0, 0), (1, 10**9), (1, 0)
    >>> tuple(explanation_percent(part, whole) for part, whole in pairs)
    ('100 %', '100 %', '99.99 %', '0.00 %')
    """
    if not residual:
        return "100 %"
    if not delta or not all(isfinite(amount) for amount in (residual, delta)):
        return "0.00 %"
    left = abs(Fraction(residual) / Fraction(delta))
    hundredths = max(0, min(9999, int((1 - left) * 10_000)))
    return f"{hundredths // 100}.{hundredths % 100:02} %"


def command_line_shape(dims: tuple[int, ...]) -> str:
    """Return a shape as text such as "1x3x224x224".

    >>> command_line_shape((1, 3, 224, 224)), command_line_shape(())
    ('1x3x224x224', 'scalar')
    """
    return "x".join(map(str, dims)) or "scalar"


def count_with_noun(count: int, singular: str) -> str:
    """Return a number and its noun as text; the noun is in the plural if the number is not 1.

    >>> count_with_noun(1, "call"), count_with_noun(53, "call")
    ('1 call', '53 calls')
    """
    return f"{exact_amount(count)} {singular}{'' if count == 1 else 's'}"


def short_count_with_noun(count: int, singular: str) -> str:
    """Return a number in four digits and its noun, as text.

    >>> short_count_with_noun(1, "parameter"), short_count_with_noun(25557032, "parameter")
    ('1 parameter', '25.56 M parameters')
    """
    return f"{short_amount(count)} {singular}{'' if count == 1 else 's'}"


def _decimal_text(value: Fraction, decimals: int) -> str:
    """Return a fraction as text, rounded to this number of decimals."""
    scaled = round(value * 10**decimals)
    integer, rest = divmod(scaled, 10**decimals)
    return f"{exact_amount(integer)}.{rest:0{decimals}}"


def percent_text(ratio: float | None) -> str:
    """Return a ratio as text in percent: with one decimal, or with two significant digits below 1
    %.
    """
    if ratio is None:
        return "-"
    value = 100 * ratio
    return f"{value:.1f} %" if value >= 1 else f"{value:.2g} %"


def version_without_suffix(version: str) -> str:
    """Return a version without its build suffix and without a ".0" at the end.

    >>> version_without_suffix("0.1.1.post2209072238"), version_without_suffix("2.13.0+cpu")
    ('0.1.1', '2.13')
    >>> version_without_suffix("2.13.0a0"), version_without_suffix("x")
    ('2.13.0a0', 'x')
    """
    numbers = version.split("+")[0].split(".post")[0].split(".dev")[0]
    return numbers.removesuffix(".0") if numbers.count(".") > 1 else numbers
