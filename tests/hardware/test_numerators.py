"""Whose MACs: parsed exactly, taken from a report, or turned from a tool's unit."""

from types import SimpleNamespace

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from crossflops.errors import InputError
from crossflops.hardware.rates.numerators import (
    convention_numerator,
    external_numerator,
    native_numerator,
    numerators_by_tool,
    parse_count,
)
from crossflops.hardware.rates.question import Question
from crossflops.hardware.rates.remarks import macs_source_remarks
from crossflops.ir.profile import ConventionCount, Failure, Profile
from crossflops.ir.reconciliation import Reconciliation
from crossflops.ir.trace import Setting
from crossflops.report.report import InputInfo, ModelInfo, NodeRow, Report, Totals, UncountedRow

NATIVE = 4_089_184_256
UNITS = {"bytes": 0, "thop": 1, "fvcore": 1, "torch-flop-counter": 2}
ZEROS = dict.fromkeys(
    (
        "adds", "muls", "divs", "compares", "specials", "bytes_read", "bytes_written",
        "constant_macs",
    ),
    0,
)  # fmt: skip


@pytest.fixture(autouse=True)
def units(monkeypatch):
    """What the tools count for one MAC, whatever conventions the package holds."""

    def find(tool, edition=None):
        return SimpleNamespace(unit=UNITS[tool])

    monkeypatch.setattr("crossflops.hardware.rates.numerators.find_convention", find)


def report(shape=(1, 3, 224, 224), **changes):
    """A count of ResNet-50."""
    fields = {
        "model": ModelInfo(
            name="ResNet", digest="d", inputs=(InputInfo("x", "float32", shape),), opset={"": 23}
        ),
        "totals": Totals(macs=NATIVE, flops=2 * NATIVE, params=1, **ZEROS),
        "macs_by_precision": {},
        "uncounted": (),
        "by_op": (),
        "modules": (),
        "nodes": (),
    }
    return Report(**(fields | changes))


def words(numerator, of=None, **flags):
    """What the numerator is said to be made from, and what to beware of."""
    return macs_source_remarks(numerator, Question.from_fields(**flags), of, 1)


def compared(totals, unknown=(), failed=()):
    """A comparison with what the tools printed; for the `unknown` ones there is no convention."""
    setting = Setting()
    return report(
        setting=setting,
        profiles=(
            *(
                Profile(tool=tool, version="1", setting=setting, total=total, printed_as="x")
                for tool, total in totals.items()
            ),
            *(Failure(tool=tool, stage="run", message="m", hint="h") for tool in failed),
        ),
        reconciliations=tuple(
            Reconciliation(
                tool=tool, edition="1", ours=NATIVE, theirs=total, predicted=0, explanations=()
            )
            for tool, total in totals.items()
            if tool not in unknown
        ),
    )


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("4.112G", 4_112_000_000),
        ("4111514624", 4_111_514_624),
        ("0", 0),
        (" 4.112 G ", 4_112_000_000),
        ("1.5K", 1_500),
        ("1.5k", 1_500),
        ("226.04392M", 226_043_920),
        ("1.000000000001T", 1_000_000_000_001),
        ("9007199.254740993P", 9_007_199_254_740_993_000_000),
        ("7.0", 7),
        ("4.112e9", 4_112_000_000),
        ("3E+23", 3 * 10**23),
    ],
)
def test_counts_are_read_exactly(text, count):
    """A decimal with a suffix is the integer that it says, beyond what a float holds too."""
    assert parse_count(text) == count
    assert isinstance(parse_count(text), int)


@pytest.mark.parametrize(
    "text",
    ["", "G", "4.112", "1.0000000005G", "-4G", "4,1G", "4.1125e3", "1e-3", "1e", "2e3G", "4.G",
     ".5G", "nan", "inf", "4GG", "4 112", "4X", "9" * 40],
)  # fmt: skip
def test_what_is_no_count_is_refused(text):
    """Fractions of a MAC, signs, powers beside a letter and words are errors."""
    with pytest.raises(InputError):
        parse_count(text)


@drawn(st.integers(0, 10**30 - 1), st.sampled_from([("k", 3), ("M", 6), ("G", 9), ("T", 12)]))
def test_shifting_the_point_changes_nothing(count, suffix):
    """Any integer, written with the point moved and the suffix for it, is read back."""
    letter, power = suffix
    whole, rest = divmod(count, 10**power)
    assert parse_count(f"{whole}.{rest:0{power}}{letter}") == count


def test_native_is_the_count():
    """The native numerator is the report's MACs, for one pass on its inputs."""
    numerator = native_numerator(report())
    assert (numerator.label, numerator.macs) == ("native MACs", NATIVE)
    assert words(numerator, report()) == (("one example is one pass on x 1x3x224x224",), ())


def test_a_batch_is_warned_of():
    """An input with a first dimension of 8 may be eight examples: that is said."""
    eight = report(shape=(8, 3, 224, 224))
    _, (warning,) = words(native_numerator(eight), eight)
    assert "8 times too high" in warning


def test_what_is_not_counted_makes_a_lower_bound():
    """Uncounted nodes are a warning: unknown is not zero."""
    partly = report(uncounted=(UncountedRow("n", "Odd", "new"),))
    _, (warning,) = words(native_numerator(partly), partly)
    assert warning == "uncounted nodes: 1, so the rate is a lower bound"


def test_what_is_not_exact_is_said():
    """A bound among the nodes is an assumption of the rate."""
    node = NodeRow(
        node="n", op="NonZero", path="", macs=1, flops=2, bytes_read=0, bytes_written=0,
        precision="float32", exactness="bound",
    )  # fmt: skip
    bounded = report(nodes=(node,))
    assert "some nodes are not exact: bound" in words(native_numerator(bounded), bounded)[0]


def test_given_beside_a_model_names_the_native_count():
    """4.112 G on ResNet-50 is 0.56 % above the native count, and that is said."""
    numerator = external_numerator(4_112_000_000)
    assert numerator.macs == 4_112_000_000
    (note, _), _ = words(numerator, report(), macs="4.112G")
    assert "4 089 184 256" in note
    assert "+0.56 %" in note


def test_a_convention_in_macs_is_taken_as_it_is():
    """thop@0.0.31 counts one per MAC: its total is the numerator."""
    by_thop = report(
        as_=ConventionCount(tool="thop", edition="0.0.31", total=4_111_514_624, assumed=False)
    )
    numerator = convention_numerator(by_thop)
    assert (numerator.label, numerator.macs) == ("thop@0.0.31", 4_111_514_624)
    assert words(numerator, by_thop)[1] == ()


def test_a_convention_in_flops_is_not_doubled_twice():
    """torch's counter counts two per MAC: its total is halved before the rule of two applies."""
    total = 8_178_368_512
    doubled = report(
        as_=ConventionCount(tool="torch-flop-counter", edition="2", total=total, assumed=False)
    )
    numerator = convention_numerator(doubled)
    assert numerator.macs == NATIVE
    assert "counts 2 per MAC" in words(numerator, doubled)[0][0]


def test_an_odd_total_in_flops_is_rounded_and_said():
    """A total that is no whole number of MACs says that it was rounded."""
    odd = report(
        as_=ConventionCount(tool="torch-flop-counter", edition="2", total=7, assumed=True)
    )
    numerator = convention_numerator(odd)
    assert numerator.macs in {3, 4}
    notes, warnings = words(numerator, odd)
    assert any("rounded" in note for note in notes)
    assert any("cannot run this model" in warning for warning in warnings)


def test_what_counts_no_contractions_is_no_numerator():
    """Bytes, or elementwise operations alone, cannot be turned into MACs."""
    by_bytes = ConventionCount(tool="bytes", edition="1", total=7, assumed=False)
    with pytest.raises(InputError, match="bytes does not count multiply-accumulates"):
        convention_numerator(report(as_=by_bytes))


def test_without_a_convention_there_is_nothing_to_fold():
    """Asking for the folded total of a plain count is a mistake of the caller."""
    with pytest.raises(ValueError, match="number of that tool"):
        convention_numerator(report())


def test_every_tool_by_its_own_number():
    """Native first, then the tools in order, each in MACs; failures have no number."""
    totals = {
        "thop": 4_133_742_592, "fvcore": 4_111_512_576, "torch-flop-counter": 8_178_368_512,
    }  # fmt: skip
    numerators = numerators_by_tool(compared(totals, failed=("calflops",)))
    assert [(numerator.label, numerator.macs) for numerator in numerators] == [
        ("native MACs", NATIVE),
        ("thop", 4_133_742_592),
        ("fvcore", 4_111_512_576),
        ("torch-flop-counter", NATIVE),
    ]


@pytest.mark.parametrize(
    ("tool", "total", "unknown", "why"),
    [
        ("bytes", 7, (), "it counts no multiply-accumulates"),
        ("thop", 7, ("thop",), "what it counts for one MAC is unknown"),
        ("thop", float("nan"), (), "it printed nan"),
        ("thop", float("inf"), (), "it printed inf"),
        ("thop", -1, (), "it printed -1"),
    ],
)
def test_a_tool_without_a_usable_number_is_named(tool, total, unknown, why):
    """A tool that cannot be turned into MACs is left out, and a warning says so."""
    comparison = compared({tool: total}, unknown)
    (ours,) = numerators_by_tool(comparison)
    assert ours.label == "native MACs"
    assert f"{tool} is left out: {why}" in words(ours, comparison)[1]
