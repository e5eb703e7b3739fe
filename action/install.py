"""Install crossflops for the Action, and the plugins of its extras that lie beside it.

An extra that names plugins of this repository (`thop`, `tools`) installs them from their folders,
since no index need have them. Everything else is pip's business.
"""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(os.environ.get("CROSSFLOPS") or Path(__file__).resolve().parents[1])
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_OWN = re.compile(r"crossflops\[([^]]*)\]")


def requirements(extras: str, root: Path) -> list[str]:
    """Return what pip is to install: the package, its extras, and folders of plugins."""
    table = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    known = table["project"]["optional-dependencies"]
    others, plugins = [], []
    pending = [name.strip() for name in extras.replace(",", " ").split()]
    while pending:
        extra = pending.pop(0)
        for line in known.get(extra, [None]):
            if line is None:
                others.append(extra)  # pip says that there is none
            elif own := _OWN.match(line):
                pending += [name.strip() for name in own[1].split(",")]
            else:
                match = _NAME.match(line)
                folder = root / "plugins" / (match[0] if match else "")
                if match and match[0].startswith("crossflops-") and folder.is_dir():
                    plugins.append(str(folder))
                else:
                    others.append(extra)
    names = ",".join(dict.fromkeys(others))
    return [f"{root}[{names}]" if names else str(root), *dict.fromkeys(plugins)]


if __name__ == "__main__":
    words = requirements(os.environ.get("EXTRAS", ""), ROOT)
    command = [sys.executable, "-m", "pip", "install", "--quiet", *words]
    sys.exit(subprocess.run(command, check=False).returncode)
