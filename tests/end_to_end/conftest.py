"""The command as a user runs it, in a process of its own."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def crossflops():
    """Runs the command line in this folder: status, stdout, stderr. `path` comes first."""

    def run(*arguments, path=""):
        places = os.pathsep.join(filter(None, (str(path), *sys.path)))
        done = subprocess.run(
            [sys.executable, "-m", "crossflops", *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=HERE,
            env=os.environ | {"PYTHONPATH": places},
            timeout=300,
        )
        return SimpleNamespace(status=done.returncode, out=done.stdout, err=done.stderr)

    return run


@pytest.fixture(scope="session")
def three_tools():
    """Skips where the plugins or their tools are not installed."""
    for name in ("crossflops_thop", "crossflops_fvcore", "crossflops_torch", "thop", "fvcore"):
        if find_spec(name) is None:
            pytest.skip(f"{name} is not installed")


@pytest.fixture(scope="session")
def zoo():
    """Skips where torchvision is not installed."""
    for name in ("torchvision", "PIL"):
        if find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
