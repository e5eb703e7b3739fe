"""Tools of other environments: which Python runs which tool, and what it offers, without running a
tool.

A Python is named on the command line, or in the table `[python]` of `crossflops.toml`, or
`[tool.crossflops.python]` of `pyproject.toml`, in the nearest folder upwards that has one of them.
It is an interpreter, or the folder of a virtual environment, for each tool::

    [python]
    thop = "/venvs/thop"
"""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from crossflops.errors import CrossflopsError, InputError
from crossflops.ir.profile import Failure
from crossflops.plugins import discovery
from crossflops.plugins.discovery import (
    crossflops_install_command,
    find_distribution_version,
    plugin_install_command,
    with_pip_interpreter,
)
from crossflops.plugins.failures import shorten_line, tool_failure
from crossflops.tools.registry import conventions_of_adapter

# What a user sets for a folder and all beneath it: tables of `crossflops.toml`.
#
# Or `[tool.crossflops.*]` of `pyproject.toml`: the nearest file upwards that has something to say.

NAME = "crossflops.toml"
PROJECT = "pyproject.toml"
_TABLES = ("python", "devices", "budgets")
_KEYS = ("formulas",)


def find_config_table(table: str, folder: Path | None = None) -> tuple[Path, Mapping[str, Any]]:
    """Return the nearest configuration file in this folder or above it, and one table of it.

    The table is empty where nothing is set. Raises InputError on a file that cannot be understood.
    """
    here = folder or Path.cwd()
    for index in (here, *here.parents):
        for name in (NAME, PROJECT):
            file = index / name
            if file.is_file() and (content := _config_file_content(file)) is not None:
                return file, _config_table_rows(content, table, file)
    return here / NAME, {}


def find_config_value(key: str, folder: Path) -> tuple[Path, Any]:
    """Return the nearest configuration file in this folder or above it, and the value of a key in
    it (None if not set).

    None where nothing is set. Raises InputError on a file that cannot be understood.
    """
    for index in (folder, *folder.parents):
        for name in (NAME, PROJECT):
            file = index / name
            if file.is_file() and (content := _config_file_content(file)) is not None:
                return file, content.get(key) if isinstance(content, dict) else None
    return folder / NAME, None


def read_config_text(file: Path) -> str:
    """Return the text of a configuration file, without a byte order mark.

    Raises OSError, and UnicodeDecodeError for what is not in UTF-8.
    """
    return file.read_text(encoding="utf-8-sig")


def config_table_heading(table: str, file: Path) -> str:
    """Return the heading that a table has in this configuration file: "[python]" or
    "[tool.crossflops.python]".
    """
    return f"[{table}]" if file.name == NAME else f"[tool.crossflops.{table}]"


def _config_file_content(file: Path) -> Any:
    """Return the settings of crossflops in a TOML file, or None if it has none. Raises
    InputError.
    """
    try:
        content = tomllib.loads(read_config_text(file))
    except OSError as error:
        raise InputError(
            f"cannot read {file}: {error.strerror}", "make the file readable"
        ) from error
    except UnicodeDecodeError as error:
        message = f"{file} is not valid TOML, since it is not in UTF-8: {error.reason}"
        raise InputError(message, "save the file in UTF-8") from error
    except ValueError as error:
        raise InputError(
            f"{file} is not valid TOML: {error}", "correct the line that the message names"
        ) from error
    if file.name == NAME:
        return content
    tools = content.get("tool")
    return tools.get("crossflops") if isinstance(tools, dict) else None


def _config_table_rows(content: Any, table: str, file: Path) -> Mapping[str, Any]:
    """Return one table of a configuration, {} if it is not there. Raises InputError for unknown
    keys.
    """
    known = " and ".join(config_table_heading(name, file) for name in _TABLES)
    if not isinstance(content, dict):
        raise InputError(f"crossflops in {file} must be a table", f"write the tables {known}")
    strays = sorted(set(content) - {*_TABLES, *_KEYS})
    if strays:
        raise InputError(
            f"unknown key {strays[0]} in {file}",
            f"allowed: the tables {known}, and the key {' and '.join(_KEYS)}",
        )
    rows = content.get(table, {})
    if not isinstance(rows, dict):
        raise InputError(
            f"{table} in {file} must be a table",
            f"write {config_table_heading(table, file)}, and one line per entry below it",
        )
    return rows


_IN_VENV = ("bin/python", "Scripts/python.exe")
_EXAMPLE = 'write, for example, thop = "/venvs/thop/bin/python"'


def interpreters_by_tool(
    provided: Mapping[str, str | Path] | None = None, folder: Path | None = None
) -> dict[str, str]:
    """Return the Python interpreter of each tool, by tool id: from the options, else from the
    configuration.

    `folder` is the current one unless said. Raises InputError on a file that cannot be
    understood.
    """
    here = Path.cwd()
    over = {
        tool: _interpreter_path(str(python), here) for tool, python in (provided or {}).items()
    }
    return {**_interpreters_from_config(folder or here), **over}


def parse_interpreters(texts: Iterable[str]) -> dict[str, str]:
    """Return the Python interpreter by tool id, from texts TOOL=INTERPRETER. Raises InputError."""
    by_tool: dict[str, str] = {}
    for text in texts:
        tool, equals, python = text.partition("=")
        tool, python = tool.strip(), python.strip()
        if not equals or not tool or not python:
            raise InputError(
                f"--python must be TOOL=INTERPRETER, got {text!r}",
                "write, for example, --python thop=/venvs/thop/bin/python",
            )
        if by_tool.setdefault(tool, python) != python:
            raise InputError(
                f"--python is given twice for {tool}", "give only one interpreter for each tool"
            )
    return by_tool


def _interpreters_from_config(folder: Path) -> dict[str, str]:
    """Return the Python interpreter by tool id, from the configuration of a folder."""
    file, table = find_config_table("python", folder)
    for tool, python in table.items():
        if not isinstance(python, str) or not python:
            named = f"{tool} in {config_table_heading('python', file)} of {file}"
            raise InputError(f"{named} must be a path", _EXAMPLE)
    return {tool: _interpreter_path(python, file.parent) for tool, python in table.items()}


def _interpreter_path(python: str, folder: Path) -> str:
    """Return the path of a Python interpreter that is given as a path, the folder of a venv, or a
    command.

    Links are not followed: a venv is told by the path of the link. What is not there stays as
    it was written.
    """
    path = folder / Path(os.path.expanduser(python))
    if path.is_dir():
        return next(
            (str(path / index) for index in _IN_VENV if (path / index).is_file()), str(path)
        )
    plain = os.path.dirname(python) == "" and not path.exists()
    return (shutil.which(python) if plain else None) or str(path)


# What an environment offers, told by its own Python, which imports no tool and no framework.


class Offer(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="offer"):
    """A tool that can be run: the id of its convention, its distribution, and its version."""

    tool: str
    convention: str
    distribution: str
    version: str


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """The requested tools, and the ids of all that have a plugin.

    `version` is that of crossflops, None where it is run from a folder; `home` is that folder.
    """

    version: str | None
    home: str
    plugins: tuple[str, ...]
    answers: dict[str, Offer | Failure]


def environment_inventory(tools: Sequence[str]) -> Inventory:
    """Return what this environment offers: the ids of its plugins, and version or failure of each
    of these tools.
    """
    try:
        plugins = tuple(discovery.plugin_entry_points())
    except CrossflopsError as problem:  # two plugins of one name
        answers: dict[str, Offer | Failure] = {
            name: tool_failure(name, "load", problem) for name in tools
        }
        plugins = ()
    else:
        answers = {name: _read_plugin_offer(name) for name in tools if name in plugins}
    owner = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return Inventory(
        version=find_distribution_version("crossflops"),
        home=owner,
        plugins=plugins,
        answers=answers,
    )


def _read_plugin_offer(tool: str) -> Offer | Failure:
    """Return what the plugin of a tool offers (convention, distribution, version), or
    its failure.
    """
    adapter = discovery.load_plugin_adapter(tool)
    if isinstance(adapter, Failure):
        return adapter
    try:
        version = adapter.version()
    except Exception as problem:  # a plugin may do anything
        return tool_failure(tool, "load", problem)
    # a plugin from outside brings its editions along: they are of one tool
    brought = conventions_of_adapter(adapter)
    return Offer(
        tool=tool,
        convention=brought[0].tool if brought else str(adapter.convention),
        distribution=adapter.distribution,
        version=version,
    )


def main(tools: Sequence[str]) -> None:
    """Print the inventory of this environment for these tools, as one line of JSON."""
    sys.stdout.write(msgspec.json.encode(environment_inventory(tools)).decode())


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
        from crossflops.plugins.elsewhere import main
        main(sys.argv[1:])
"""


def ask_interpreters_for_tools(interpreters: Mapping[str, str]) -> dict[str, Offer | Failure]:
    """Ask each interpreter for its tools; return what it offers for each tool, or the failure, by
    tool id.

    Every interpreter is asked once, and all of them at the same time.
    """
    tools: dict[str, list[str]] = {}
    for tool, python in interpreters.items():
        tools.setdefault(python, []).append(tool)
    questions = {python: _Question(python, names) for python, names in tools.items()}
    by_tool: dict[str, Offer | Failure] = {}
    for question in questions.values():
        by_tool |= question.wait_for_offers()
    return {tool: by_tool[tool] for tool in interpreters}


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

    def wait_for_offers(self) -> dict[str, Offer | Failure]:
        """Wait until the interpreter answers; return its offer or its failure for each tool."""
        if self._obstacle:
            return self._same_failures(
                self._obstacle, "give the path of a Python, or the folder of a venv"
            )
        try:
            output, complaint = self._process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            return self._same_failures(
                f"{self._python} did not respond within {LIMIT:g} s",
                "check that this Python starts",
            )
        lines = [line for line in output.splitlines() if line.strip()]
        release = _parse_json_line(lines[0]) if lines else None
        if not isinstance(release, list) or (self._process.returncode and len(lines) < 2):
            quoted = (
                _last_text_line(complaint)
                or f"it ended with exit status {self._process.returncode}"
            )
            return self._same_failures(
                f"{self._python} is not a working Python interpreter: {quoted}", _NO_PYTHON
            )
        if tuple(release) < _OLDEST:
            what = ".".join(map(str, release))
            return self._same_failures(
                f"{self._python} is Python {what}", "crossflops needs 3.11 or newer"
            )
        return self._offers_from_output(_parse_json_line(lines[1]), lines[-1], complaint)

    def _offers_from_output(
        self, obstacle: Any, answer: str, complaint: str
    ) -> dict[str, Offer | Failure]:
        """Return the offer or the failure of each tool, from the lines that the interpreter
        printed.
        """
        if isinstance(obstacle, str):
            return self._failures_without_crossflops(
                f"{self._python} has no crossflops: {obstacle}"
            )
        try:
            there = msgspec.json.decode(answer, type=Inventory)
        except msgspec.DecodeError:
            quoted = _last_text_line(complaint) or "it has another version"
            return self._failures_without_crossflops(
                f"crossflops in {self._python} is another version: {quoted}"
            )
        here = environment_inventory(())
        if there.home != here.home and (there.version is None or there.version != here.version):
            version = here.version or f"that of {here.home}"
            return self._same_failures(
                f"{self._python} has crossflops {there.version or there.home}, but this is "
                f"{version}",
                crossflops_install_command(self._python),
            )
        return {tool: self._offer_or_failure(tool, there) for tool in self._tools}

    def _offer_or_failure(self, tool: str, there: Inventory) -> Offer | Failure:
        """Return the offer of one tool, or its failure with a command that installs it there."""
        offer = there.answers.get(tool)
        if isinstance(offer, Failure):
            return msgspec.structs.replace(
                offer, hint=with_pip_interpreter(self._python, offer.hint)
            )
        if offer is not None:
            return offer
        known = ", ".join(there.plugins) or "none"
        return self._tool_load_failure(
            tool,
            f"{self._python} has no plugin of {tool} (it has {known})",
            plugin_install_command([tool], python=self._python)
            or f"install a plugin of {tool} into that interpreter",
        )

    def _failures_without_crossflops(self, message: str) -> dict[str, Offer | Failure]:
        """Return a failure for each tool, since this Python has no usable crossflops, with a
        command that installs it.
        """
        return {
            tool: self._tool_load_failure(
                tool,
                message,
                plugin_install_command([tool], python=self._python)
                or crossflops_install_command(self._python),
            )
            for tool in self._tools
        }

    def _same_failures(self, message: str, hint: str) -> dict[str, Offer | Failure]:
        """Return the same failure for each of the tools."""
        return {tool: self._tool_load_failure(tool, message, hint) for tool in self._tools}

    def _tool_load_failure(self, tool: str, message: str, hint: str) -> Failure:
        """Return the failure that a tool cannot be loaded, with this message and hint."""
        return tool_failure(tool, "load", message, hint)


_NO_PYTHON = "give the path of a Python interpreter, or the folder of a virtual environment"


def _parse_json_line(line: str) -> Any:
    """Return the value of a line of JSON, or None if it is not valid JSON."""
    try:
        return json.loads(line)
    except ValueError:
        return None


def _last_text_line(text: str) -> str:
    """Return the last line of a text that is not empty, shortened; "" if there is none."""
    lines = [line for line in text.splitlines() if line.strip()]
    return shorten_line(lines[-1], _QUOTED) if lines else ""
