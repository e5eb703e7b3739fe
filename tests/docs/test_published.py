"""Figures that others published come out of `crossflops efficiency`, or it is said why not."""

import importlib.util
import sys
from pathlib import Path

import pytest

PATH = Path(__file__).resolve().parents[2] / "docs" / "claims.py"


def loaded():
    """The module beside the pages."""
    spec = importlib.util.spec_from_file_location("claims", PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault("claims", module)
    spec.loader.exec_module(module)
    return module


CLAIMS = loaded()
ROWS = CLAIMS.claims()


@pytest.mark.parametrize("claim", ROWS, ids=lambda claim: f"{claim.model}: {claim.claim}")
def test_a_published_figure_comes_out_as_it_is_printed(claim):
    """To its last digit, or within the digits of what goes in; else as the row says."""
    value = CLAIMS.computed(claim)
    if claim.why:
        assert CLAIMS.is_printed(claim.ours, value)
        assert not CLAIMS.is_printed(claim.printed, value)
    elif claim.rounded is None:
        assert CLAIMS.is_printed(claim.printed, value)
    else:
        assert CLAIMS.is_printed(claim.printed, *CLAIMS.bounds(claim))


def test_most_of_them_come_out():
    """Of several kinds, each with its source; a reason stands with its figure alone."""
    alike = [claim for claim in ROWS if not claim.why]
    assert len(alike) >= 80
    assert {claim.figure for claim in alike} >= {"mfu", "hfu", "mbu", "flops", "hours", "tflops"}
    assert all(claim.source for claim in ROWS)
    assert all(bool(claim.why) == bool(claim.ours) for claim in ROWS)
    assert len({(claim.model, claim.claim, claim.source) for claim in ROWS}) == len(ROWS)


@pytest.mark.parametrize(
    ("text", "values", "holds"),
    [
        ("46.2", ("46.249",), True),
        ("46.2", ("46.251",), False),
        ("3.14e23", ("3.1428e23",), True),
        ("3.14e23", ("3.15e23",), False),
        ("41.5", ("41.27", "42.03"), True),
        ("41.0", ("41.27", "42.03"), False),
    ],
)
def test_what_is_printed(text, values, holds):
    """Half of the last digit on either side."""
    assert CLAIMS.is_printed(text, *map(CLAIMS.Decimal, values)) is holds
