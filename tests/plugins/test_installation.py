"""The exact command that installs a tool."""

import shlex
import sys

from crossflops.plugins import discovery
from crossflops.plugins.discovery import extra, to_install

PIP = [sys.executable, "-m", "pip", "install"]


def plugin(root, name, tools):
    """A source folder of a plugin that declares these tools."""
    folder = root / "plugins" / name
    folder.mkdir(parents=True)
    rows = "\n".join(f'{tool} = "x:y"' for tool in tools)
    text = f'[project]\nname = "{name}"\n[project.entry-points."crossflops.adapters"]\n{rows}\n'
    (folder / "pyproject.toml").write_text(text)
    return str(folder)


def test_a_source_folder_installs_its_own_plugins(tmp_path):
    """Beside the sources the plugins that declare the tools are installed, each once."""
    one = plugin(tmp_path, "one", ["a", "b"])
    two = plugin(tmp_path, "two", ["c"])
    assert shlex.split(to_install(["a", "b"], tmp_path)) == [*PIP, "-e", one]
    assert shlex.split(to_install(None, tmp_path)) == [*PIP, "-e", one, "-e", two]


def test_elsewhere_the_extras_are_installed(tmp_path, monkeypatch):
    """Without the sources the extra that bears the tool's id is installed, or all tools."""
    monkeypatch.setattr(discovery, "_extras", lambda: ["torch", "tools", "thop"])
    assert shlex.split(to_install(["thop"], tmp_path)) == [*PIP, "crossflops[thop]"]
    assert shlex.split(to_install(None, tmp_path)) == [*PIP, "crossflops[tools]"]
    assert shlex.split(extra("torch", tmp_path)) == [*PIP, "crossflops[torch]"]


def test_a_tool_without_a_plugin_has_no_command(tmp_path, monkeypatch):
    """Where there is nothing to install, nothing is claimed."""
    monkeypatch.setattr(discovery, "_extras", list)
    assert to_install(["torchstat"], tmp_path) == ""
