"""A tool from outside: its plugin brings adapter and rules, and crossflops has no line of it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

EXAMPLES = Path(__file__).parents[2] / "examples"
PLUGIN = EXAMPLES / "crossflops-mycounter"
MODEL = """
from torch import nn

def make():
    linear = nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3, bias=False)
    return nn.Sequential(*linear, nn.Conv1d(1, 1, 3))
"""
# one row x in x out of both layers
PRODUCTS = 5 * 4 + 4 * 3
CONVOLUTION = 3  # one position of three taps, which the counter does not know
# what 1.1 adds: a bias for each of four results, and one for each layer's row
ADDED = {"bias.linear": 4, "mycounter.row-lookup": 2}
RELEASES = {"1.0": {}, "1.1": ADDED}


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    """For each release of the counter a folder into which pip installed it and the plugin."""
    wheels = tmp_path_factory.mktemp("wheels")
    pip = [sys.executable, "-m", "pip"]
    for sources in ([EXAMPLES / "mycounter" / "1.0", PLUGIN], [EXAMPLES / "mycounter" / "1.1"]):
        line = [*pip, "wheel", "--quiet", "--no-deps", "-w", str(wheels), *map(str, sources)]
        subprocess.run(line, check=True, timeout=300)
    folders = {}
    for release in RELEASES:
        folders[release] = tmp_path_factory.mktemp("site")
        install = [*pip, "install", "--quiet", "--no-deps", "--no-index", "-f", str(wheels)]
        into = ["--target", str(folders[release])]
        names = [f"mycounter=={release}", "crossflops-mycounter"]
        subprocess.run([*install, *into, *names], check=True, timeout=300)
        (folders[release] / "model.py").write_text(MODEL)
    return folders


@pytest.fixture
def site(sites):
    """The folder with the newest release."""
    return sites["1.1"]


def environment(site):
    """The variables under which Python finds what was installed there."""
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path}


def line(site, *words):
    """A command line in an environment that has the example; its JSON."""
    done = subprocess.run(
        [sys.executable, "-m", "crossflops", *words, "--json"],
        env=environment(site),
        cwd=site,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("release", RELEASES)
def test_every_integer_of_it_is_explained(sites, release):
    """Each release prints what was computed by hand, and nothing is left over."""
    words = ("compare", "model.py:make", "--input", "1x5", "--tool", "mycounter")
    report = line(sites[release], *words)
    (account,) = report["reconciliations"]
    total = PRODUCTS + sum(RELEASES[release].values())
    assert account["tool"] == "mycounter"
    assert (account["theirs"], account["predicted"]) == (total, total)
    assert account["residual"] == 0
    assert {row["cause"]: row["amount"] for row in account["explanations"]} == {
        **RELEASES[release],
        "op.unregistered-zero": -CONVOLUTION,
    }


def test_its_editions_count_without_being_run(site):
    """`--as` folds the native count by the rules of the newest release, or of the named one."""
    words = ("--input", "1x5", "--as", "mycounter", "--as", "mycounter@1.0")
    report = line(site, "count", "model.py:make", *words)
    totals = {row["edition"]: row["total"] for row in (report["as"], *report["as_also"])}
    assert totals == {"1.1": PRODUCTS + sum(ADDED.values()), "1.0": PRODUCTS}


def test_its_rules_and_its_cause_are_explained(site):
    """`explain` prints the rules of the newest release, and the page of a cause of its own."""
    page = line(site, "explain", "mycounter")
    assert [rule["amount"] for rule in page["rules"]] == [
        "n(x) x out_features.",
        "n(y).",
        "n(x) / in_features.",
    ]
    assert line(site, "explain", "mycounter.row-lookup")["page"].startswith("mycounter 1.1 adds")


def test_its_kit_runs_in_a_clean_folder(site, tmp_path):
    """A part of what its tox.ini runs: the installed release is verified, and a probe holds."""
    shutil.copytree(PLUGIN / "tests", tmp_path / "tests")
    part = "installed_version or test_probe_is_predicted[linear_vector]"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests", "-k", part],
        env=environment(site),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout


def test_its_matrix_has_every_release_that_its_rules_know():
    """tox.ini has an environment for each edition, and installs that release there."""
    matrix = (PLUGIN / "tox.ini").read_text("utf-8")
    assert all(f"counter{release}: mycounter=={release}" in matrix for release in RELEASES)
