"""Tools of other environments: which of them are there, without running any."""

import json
import subprocess
from collections.abc import Mapping
from typing import Any

import msgspec

from crossflops.adapters.failures import failure, shortened
from crossflops.adapters.installation import into, itself, to_install
from crossflops.adapters.inventory import Inventory, Offer, inventory
from crossflops.core.profile import Failure

LIMIT = 60.0  # seconds for an interpreter that imports nothing heavy
_OLDEST = (3, 11)
_QUOTED = 160  # characters of what an interpreter says that a message quotes

# What is older than -P and -m of today's Python must understand this, and say what it is. The
# current folder, which -c puts first, is no place to import from.
_ASK = """
import json, sys
sys.path[:] = [one for one in sys.path if one]
print(json.dumps(list(sys.version_info[:2])))
if sys.version_info[:2] >= (3, 11):
    try:
        import crossflops
    except ImportError as problem:
        print(json.dumps(str(problem)))
    else:
        print("{}")
        from crossflops.adapters.inventory import main
        main(sys.argv[1:])
"""


def offers(interpreters: Mapping[str, str]) -> dict[str, Offer | Failure]:
    """What each tool is in the environment of its interpreter, or why it cannot be run there.

    Every interpreter is asked once, and all of them at the same time.
    """
    tools: dict[str, list[str]] = {}
    for tool, python in interpreters.items():
        tools.setdefault(python, []).append(tool)
    asked = {python: _Question(python, names) for python, names in tools.items()}
    found: dict[str, Offer | Failure] = {}
    for question in asked.values():
        found |= question.answers()
    return {tool: found[tool] for tool in interpreters}


class _Question:
    """One interpreter at work on the question which of these tools it has."""

    def __init__(self, python: str, tools: list[str]) -> None:
        self._python = python
        self._tools = tools
        self._obstacle = ""
        try:
            self._process = subprocess.Popen(
                [python, "-c", _ASK, *tools],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
            )
        except OSError as problem:
            self._obstacle = f"cannot start {python}: {problem.strerror}"

    def answers(self) -> dict[str, Offer | Failure]:
        """What is there of every tool."""
        if self._obstacle:
            return self._all(self._obstacle, "give the path of a Python, or the folder of a venv")
        try:
            said, complaint = self._process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            return self._all(f"{self._python} did not answer within {LIMIT:g} s", "try it alone")
        lines = [line for line in said.splitlines() if line.strip()]
        release = _read(lines[0]) if lines else None
        if not isinstance(release, list) or (self._process.returncode and len(lines) < 2):
            quoted = _last(complaint) or f"it ended with status {self._process.returncode}"
            return self._all(f"{self._python} is no Python that works: {quoted}", _NO_PYTHON)
        if tuple(release) < _OLDEST:
            what = ".".join(map(str, release))
            return self._all(f"{self._python} is Python {what}", "crossflops needs 3.11 or newer")
        return self._sorted(_read(lines[1]), lines[-1], complaint)

    def _sorted(self, obstacle: Any, answer: str, complaint: str) -> dict[str, Offer | Failure]:
        if isinstance(obstacle, str):
            return self._lacking(f"{self._python} has no crossflops: {obstacle}")
        try:
            there = msgspec.json.decode(answer, type=Inventory)
        except msgspec.DecodeError:
            quoted = _last(complaint) or "another version answers"
            return self._lacking(f"crossflops in {self._python} is not this one: {quoted}")
        here = inventory(())
        if there.home != here.home and (there.version is None or there.version != here.version):
            own = here.version or f"that of {here.home}"
            return self._all(
                f"{self._python} has crossflops {there.version or there.home}, and this is {own}",
                itself(self._python),
            )
        return {tool: self._answer(tool, there) for tool in self._tools}

    def _answer(self, tool: str, there: Inventory) -> Offer | Failure:
        found = there.answers.get(tool)
        if isinstance(found, Failure):
            return msgspec.structs.replace(found, hint=into(self._python, found.hint))
        if found is not None:
            return found
        known = ", ".join(there.plugins) or "none"
        return self._failure(
            tool,
            f"{self._python} has no plugin of {tool} (it has {known})",
            to_install([tool], python=self._python) or f"install a plugin of {tool} there",
        )

    def _lacking(self, message: str) -> dict[str, Offer | Failure]:
        """crossflops itself is not there: with it comes the plugin."""
        return {
            tool: self._failure(
                tool,
                message,
                to_install([tool], python=self._python) or itself(self._python),
            )
            for tool in self._tools
        }

    def _all(self, message: str, hint: str) -> dict[str, Offer | Failure]:
        return {tool: self._failure(tool, message, hint) for tool in self._tools}

    def _failure(self, tool: str, message: str, hint: str) -> Failure:
        return failure(tool, "load", message, hint)


_NO_PYTHON = "give the path of a Python interpreter, or the folder of a virtual environment"


def _read(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


def _last(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return shortened(lines[-1], _QUOTED) if lines else ""
