"""How many CPUs a process may use."""

import os

import pytest

from crossflops import limits


@pytest.mark.parametrize(
    ("quota", "cpus"),
    [
        ("max 100000", 8),
        ("200000 100000", 2),
        ("250000 100000", 3),  # two and a half
        ("50000 100000", 1),
        ("3200000 100000", 8),  # more than there are
        ("", 8),  # another kernel's file
        (None, 8),  # no such file
    ],
)
def test_cpus_are_those_of_the_affinity_and_the_quota(monkeypatch, tmp_path, quota, cpus):
    """A container may have two of eight."""
    file = tmp_path / "cpu.max"
    if quota is not None:
        file.write_text(quota)
    monkeypatch.setattr(limits, "_CPU_QUOTA", file)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert limits.usable_cpus() == cpus
