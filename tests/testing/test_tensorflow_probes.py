"""The probes for TensorFlow's tools: native counts against what is derived by hand."""

import pytest

pytest.importorskip("tensorflow")
pytest.importorskip("tf2onnx")

from crossflops.frontends import Source, normalize
from crossflops.ir.trace import Setting
from crossflops.ledger.count import count
from crossflops.testing.tensorflow import PROBES

pytestmark = pytest.mark.tensorflow

# What no converter has an operator for, or nobody can count.
UNKNOWN = [name for name, probe in PROBES.items() if probe.macs is None]


@pytest.mark.parametrize("name", [name for name in PROBES if name not in UNKNOWN])
def test_native_macs(name):
    """Equal to the hand's, with every node counted."""
    ledger = count(normalize(Source(*PROBES[name].build()), Setting())[0])
    assert ledger.total.macs == PROBES[name].macs
    assert not [(gap.node.key, gap.reason) for gap in ledger.uncounted]


@pytest.mark.parametrize("name", UNKNOWN)
def test_the_others_say_so_or_count(name):
    """They go through, and what is not counted is named."""
    ledger = count(normalize(Source(*PROBES[name].build()), Setting())[0])
    assert all(gap.reason for gap in ledger.uncounted)
