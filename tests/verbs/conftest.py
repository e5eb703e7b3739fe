"""Tools that are installed for a test, and a target on disk."""

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from crossflops.plugins import discovery


@pytest.fixture
def tools(monkeypatch):
    """Lets only these fake tools be installed, here and in the workers."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "counters"))

    def install(*classes):
        points = {
            name.lower(): EntryPoint(name.lower(), f"fake_counters:{name}", discovery.GROUP)
            for name in classes
        }
        monkeypatch.setattr(discovery, "plugin_entry_points", lambda: dict(sorted(points.items())))

    return install


@pytest.fixture
def target(tmp_path):
    """A file with callables."""
    path = tmp_path / "pipeline_target.py"
    path.write_text(
        "import torch\n"
        "def make(wide=3): return torch.nn.Linear(4, wide)\n"
        "def both(): return torch.nn.Linear(4, 3), torch.ones(2, 4)\n"
    )
    return str(path)
