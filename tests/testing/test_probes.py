"""The probes together."""

from crossflops.testing.probes import probes


def test_no_two_probes_bear_one_name():
    """They are gathered from many files, and a kit collects none where two collide."""
    assert len(probes()) > 200
