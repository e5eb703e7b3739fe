"""Virtual environments for tests: folders that a Python takes for environments of their own."""

import os
import sys
from pathlib import Path

import pytest

HERE = [path for path in sys.path if path and Path(path).is_dir()]
TESTS = Path(__file__).parent

posix = pytest.mark.skipif(os.name != "posix", reason="a link stands for an interpreter")


def environment(folder, sees=True):
    """A venv without anything of its own, which sees what this Python sees, or nothing of it."""
    site = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    site.mkdir(parents=True)
    (folder / "bin").mkdir()
    base = Path(sys._base_executable).resolve()
    (folder / "bin" / "python").symlink_to(base)
    (folder / "pyvenv.cfg").write_text(f"home = {base.parent}\nversion = {sys.version}\n")
    if sees:
        standard = str(Path(os.__file__).parent)
        paths = [p for p in HERE if not p.startswith(standard) or "site-packages" in p]
        (site / "seen.pth").write_text("\n".join(paths))
    return site


def plugin(site, tool, value, name=None):
    """A distribution that offers a tool, and says no more."""
    name = name or f"crossflops-{tool}"
    info = site / f"{name.replace('-', '_')}-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[crossflops.adapters]\n{tool} = {value}\n")
