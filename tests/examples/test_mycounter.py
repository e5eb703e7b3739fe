"""A tool from outside: its plugin brings adapter and rules, and crossflops has no line of it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

EXAMPLE = Path(__file__).parents[2] / "examples" / "crossflops-mycounter"
MODEL = """
from torch import nn

def make():
    linear = nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3, bias=False)
    return nn.Sequential(*linear, nn.Conv1d(1, 1, 3))
"""
# rows x in x out of both layers, and a bias for each of four results
PRINTED = 5 * 4 + 4 * 3 + 4
CONVOLUTION = 3  # one position of three taps, which the counter does not know


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder into which pip installed the example."""
    folder = tmp_path_factory.mktemp("site")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
    subprocess.run([*install, str(folder), str(EXAMPLE)], check=True, timeout=300)
    (folder / "model.py").write_text(MODEL)
    return folder


def line(site, *words):
    """A command line in an environment that has the example; its JSON."""
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", "crossflops", *words, "--json"],
        env={**os.environ, "PYTHONPATH": path},
        cwd=site,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_integer_of_it_is_explained(site):
    """It prints what was computed by hand, and nothing is left over."""
    report = line(site, "compare", "model.py:make", "--input", "1x5", "--tool", "mycounter")
    (account,) = report["reconciliations"]
    assert (account["tool"], account["theirs"], account["predicted"]) == (
        "mycounter",
        PRINTED,
        PRINTED,
    )
    assert account["residual"] == 0
    assert {row["cause"]: row["amount"] for row in account["explanations"]} == {
        "bias.linear": 4,
        "op.unregistered-zero": -CONVOLUTION,
    }


def test_it_counts_without_being_run(site):
    """`--as` folds the native count by its rules, and `explain` prints them."""
    report = line(site, "count", "model.py:make", "--input", "1x5", "--as", "mycounter")
    assert (report["as"]["tool"], report["as"]["total"]) == ("mycounter", PRINTED)
    page = line(site, "explain", "mycounter")
    assert [rule["amount"] for rule in page["rules"]] == ["n(x) x out_features.", "n(y)."]
