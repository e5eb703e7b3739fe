"""The sdist and the wheel, as `python -m build` makes them."""

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("build", reason="build is not installed")
pytestmark = pytest.mark.pre_commit

ROOT = Path(__file__).parents[2]
LEFT_OUT = {".ci/run"}
LINK = re.compile(r"\]\(([^)]+)\)")


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """A folder with the sdist, and the wheel that was built of it."""
    folder = tmp_path_factory.mktemp("packages")
    subprocess.run(
        [sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)],
        check=True,
        capture_output=True,
        timeout=300,
    )
    return folder


@pytest.fixture(scope="module")
def sources(packages):
    """The unpacked sdist."""
    (path,) = packages.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        archive.extractall(packages, filter="data")
    return packages / path.name.removesuffix(".tar.gz")


def test_the_sdist_has_all_that_is_committed(sources):
    """Whoever packages crossflops for a distribution has the tests and all that they read."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    missing = {name for name in listed.stdout.splitlines() if not (sources / name).is_file()}
    assert missing <= LEFT_OUT


def test_the_sdist_runs_its_tests(sources):
    """With its own conftest.py, which knows the environments of tests: one file as an example."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "core", "tests/causes/test_search.py"],
        cwd=sources,
        env={**os.environ, "PYTHONPATH": str(sources)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


def test_the_readme_of_the_wheel_holds_outside_of_the_repository(packages):
    """Its links are absolute, and it says how to install crossflops, not to set up a clone."""
    (path,) = packages.glob("*.whl")
    with zipfile.ZipFile(path) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith("/METADATA"))
        text = wheel.read(name).decode()
    links = LINK.findall(text)
    assert links
    assert all(link.startswith("https://") for link in links)
    assert "pip install 'crossflops[torch,tools]'" in text
    assert "start.py" not in text.partition("## One comparison")[0]
