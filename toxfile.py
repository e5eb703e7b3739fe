"""What tox does here beside tox.ini: it removes an environment that has run, when asked to.

There is an environment for every tool and framework, most of them with a PyTorch of their own:
together they take over 10 GB. `start.py tests` asks for the removal, so that only those that
run at the same time are on the disk; `tox -e NAME` by hand keeps what it makes.
"""

import os
import shutil
from typing import Protocol

from tox.plugin import impl

ASKED = "CROSSFLOPS_REMOVE_ENVIRONMENTS"


class Environment(Protocol):
    """What is read of tox's own ToxEnv."""

    @property
    def env_dir(self) -> os.PathLike[str]:
        """Its folder."""


@impl
def tox_env_teardown(tox_env: Environment) -> None:
    """Remove its folder after the last command, whether that failed or not.

    The interpreters it ran have ended, and its output is in tox's memory.
    """
    if os.environ.get(ASKED):
        shutil.rmtree(tox_env.env_dir, ignore_errors=True)
