"""Silence is impossible: every operator that onnxruntime adds is a rule or an explicit not yet."""

from pathlib import Path

import pytest

from crossflops.ir.graph import Op
from crossflops.operators import (
    all_operator_rules,
    find_operator_rule,
    missing_rule_reason,
    reasons_for_missing_rules,
)
from crossflops.operators.rule import MICROSOFT, NCHWC, NHWC


# Listed once by onnxruntime itself; the first line says by which version.
def _listed(name: str) -> list[tuple[str, ...]]:
    lines = Path(__file__).with_name(name).read_text("utf-8").splitlines()[1:]
    return [tuple(line.split("::")) for line in lines]


NAMES = _listed("operators.txt")
# Those of its training build, which no package on PyPI has.
OF_TRAINING = _listed("training_operators.txt")


@pytest.mark.parametrize(("domain", "name"), NAMES + OF_TRAINING, ids=lambda part: part)
def test_every_operator_of_onnxruntime_is_a_rule_or_an_explicit_not_yet(domain, name):
    """A rule, or a reason of words; never both, never neither."""
    op = Op(domain, name, 1)
    assert (find_operator_rule(op) is not None) != (str(op) in reasons_for_missing_rules())
    if find_operator_rule(op) is None:
        assert missing_rule_reason(op) == f"{op}: {reasons_for_missing_rules()[str(op)]}"


def test_the_list_is_whole():
    """So many operators has each domain in the version that the list is from."""
    domains = [domain for domain, _ in NAMES]
    assert (domains.count(MICROSOFT), domains.count(NCHWC), domains.count(NHWC)) == (136, 8, 19)


def test_no_rule_is_for_an_operator_that_does_not_exist():
    """A rule with a misspelt name would never be found."""
    theirs = {
        (op.domain, op.type)
        for op in all_operator_rules()
        if op.domain in (MICROSOFT, NCHWC, NHWC)
    }
    assert theirs <= {*NAMES, *OF_TRAINING}
    reasons = {name for name in reasons_for_missing_rules() if name.startswith(MICROSOFT)}
    assert reasons <= {f"{domain}.{name}" for domain, name in NAMES + OF_TRAINING}


def test_a_newer_version_falls_under_the_same_rule():
    """Models import com.microsoft in version 1, and the NHWC domain in that of ai.onnx."""
    assert find_operator_rule(Op(NHWC, "Conv", 22)) is all_operator_rules()[Op(NHWC, "Conv", 1)]
