"""Hooks of tox beside tox.ini: find pyenv's interpreters, and, when asked, report and remove an
environment that has run.

tox looks for `python3.12` on the path. pyenv's shims fail for a version that is not selected, so
`tox -e py312` would skip an interpreter that is installed.

There is an environment for every tool and framework, most of them with a PyTorch of their own:
together they take over 10 GB. `start.py tests` asks for the removal, so that only those that
run at the same time are on the disk; `tox -e NAME` by hand keeps what it makes.
"""

import os
import shutil
from pathlib import Path
from typing import Protocol

from tox.plugin import impl

DISCOVER = "TOX_DISCOVER"  # the variable of tox's own --discover
ASKED = "CROSSFLOPS_REMOVE_ENVIRONMENTS"
TOLD = "CROSSFLOPS_TELL_OF_ENVIRONMENTS"
ENDED = "environment has run: "  # begins the line that start.py waits for


class Environment(Protocol):
    """What is read of tox's own ToxEnv."""

    @property
    def name(self) -> str:
        """As in tox.ini."""

    @property
    def env_dir(self) -> os.PathLike[str]:
        """Its folder."""


def find_interpreters() -> list[str]:
    """Return the Pythons that pyenv has, from 3.11 on, by path."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    return sorted(map(str, pyenv.glob("versions/3.1[1-9].*/bin/python")))


@impl
def tox_add_option() -> None:
    """Give `--discover` pyenv's interpreters as its default, behind those that the user names.

    tox calls this before it reads its command line.
    """
    named = os.environ.get(DISCOVER)
    os.environ[DISCOVER] = os.pathsep.join([*([named] if named else ()), *find_interpreters()])


@impl
def tox_env_teardown(tox_env: Environment) -> None:
    """After the last command, whether that failed or not: say so, and remove its folder.

    The interpreters it ran have ended, and its output is in tox's memory. What tox itself prints
    of an end depends on whether it takes the machine for CI.
    """
    if os.environ.get(TOLD):
        os.write(1, f"\n{ENDED}{tox_env.name}\n".encode())
    if os.environ.get(ASKED):
        shutil.rmtree(tox_env.env_dir, ignore_errors=True)
