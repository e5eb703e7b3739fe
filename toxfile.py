"""What tox does here beside tox.ini, when asked to: it says that an environment has run, and
removes it.

There is an environment for every tool and framework, most of them with a PyTorch of their own:
together they take over 10 GB. `start.py tests` asks for the removal, so that only those that
run at the same time are on the disk; `tox -e NAME` by hand keeps what it makes.
"""

import os
import shutil
from typing import Protocol

from tox.plugin import impl

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
