"""Entry points: found unimported, refused when they clash, failing alone; and their install."""

import shlex
import sys
import types
from importlib.metadata import EntryPoint, PackageNotFoundError

import pytest

from crossflops.errors import UnknownNameError
from crossflops.ir.profile import Failure
from crossflops.plugins import discovery
from crossflops.plugins.discovery import extra_install_command, plugin_install_command


def point(name, value, distribution=None):
    """An entry point as an installed distribution declares it."""
    entry_point = EntryPoint(name=name, value=value, group=discovery.GROUP)
    if distribution:
        # as importlib.metadata does it itself
        vars(entry_point).update(dist=types.SimpleNamespace(name=distribution))
    return entry_point


@pytest.fixture
def plugins(monkeypatch):
    """Make the given entry points the installed ones."""

    def install(*points):
        monkeypatch.setattr(
            discovery,
            "entry_points",
            lambda group: [entry_point for entry_point in points if entry_point.group == group],
        )

    return install


def test_nothing_is_imported_to_list_the_tools(plugins, tmp_path, monkeypatch):
    """A listed plugin is loaded when it is asked for and not before."""
    (tmp_path / "lazy_plugin.py").write_text("from fake_tools import Honest\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    plugins(point("fake", "lazy_plugin:Honest"), point("another", "lazy_plugin:Other"))
    assert list(discovery.plugin_entry_points()) == ["another", "fake"]
    assert "lazy_plugin" not in sys.modules
    assert discovery.load_plugin_adapter("fake").name == "fake"
    assert "lazy_plugin" in sys.modules


def test_two_plugins_of_one_name_are_refused(plugins):
    """The message names both distributions."""
    plugins(point("fake", "a:A", "crossflops-a"), point("fake", "b:B", "crossflops-b"))
    with pytest.raises(UnknownNameError, match=r"crossflops-a \(a:A\) and crossflops-b \(b:B\)"):
        discovery.plugin_entry_points()


def test_two_distributions_with_the_same_code_are_refused(plugins):
    """Which of the two would be upgraded or removed is not clear either."""
    plugins(point("fake", "a:A", "crossflops-a"), point("fake", "a:A", "crossflops-fork"))
    with pytest.raises(UnknownNameError, match=r"crossflops-a .* and crossflops-fork"):
        discovery.load_plugin_adapter("fake")


def test_one_plugin_that_is_listed_twice_is_one(plugins):
    """The same entry point seen through two folders of sys.path is no clash."""
    plugins(point("fake", "a:A", "crossflops-a"), point("fake", "a:A", "crossflops-a"))
    assert list(discovery.plugin_entry_points()) == ["fake"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import no_such_framework", "ModuleNotFoundError: No module named 'no_such_framework'"),
        ("raise RuntimeError('operator torchvision::nms does not exist')", "RuntimeError: oper"),
        ("", "AttributeError: module 'broken_plugin' has no attribute 'Adapter'"),
        (
            "class Adapter:\n    name = 'fake'",
            "broken_plugin:Adapter is not an adapter: it has no conv",
        ),
        ("from fake_tools import Other as Adapter", "broken_plugin:Adapter is the adapter of oth"),
    ],
)
def test_a_broken_plugin_is_a_failure(plugins, tmp_path, monkeypatch, source, message):
    """Whatever a plugin raises while it is loaded, the others can still be used."""
    (tmp_path / "broken_plugin.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "broken_plugin", raising=False)
    plugins(point("fake", "broken_plugin:Adapter"), point("other", "fake_tools:Other"))
    failure = discovery.load_plugin_adapter("fake")
    assert isinstance(failure, Failure)
    assert failure.stage == "load"
    assert failure.message.startswith(message)
    assert discovery.load_plugin_adapter("other").name == "other"


REQUIRES = [
    "click>=8",
    "crossflops[thop,torch-flop-counter] ; extra == 'tools'",
    'crossflops-thop ; extra == "thop"',
    "crossflops-torch; extra == 'torch-flop-counter'",
]


@pytest.mark.parametrize(
    ("tool", "message", "hint"),
    [
        ("nosuch", "no installed plugin has", "pip install crossflops-thop crossflops-torch"),
        ("torch-flop-counter", "the plugin of torch-flop-counter is not installed", "pip install"),
    ],
)
def test_an_unknown_tool_lists_the_known_ones(plugins, monkeypatch, tool, message, hint):
    """What is installed, and the command that installs plugins, as the extras name them."""
    monkeypatch.setattr(discovery, "requires", lambda name: REQUIRES)
    plugins(point("fvcore", "a:A"), point("fake", "b:B"))
    with pytest.raises(UnknownNameError) as caught:
        discovery.load_plugin_adapter(tool)
    assert message in caught.value.message
    assert "(installed: fake, fvcore)" in caught.value.message
    assert hint in caught.value.hint


def test_a_source_tree_has_no_extras(plugins, monkeypatch):
    """Run without being installed, the hint still names a command."""

    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(discovery, "requires", missing)
    plugins()
    with pytest.raises(UnknownNameError, match=r"installed: none") as caught:
        discovery.load_plugin_adapter("thop")
    assert "pip install 'crossflops[tools]'" in caught.value.hint


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
    first = plugin(tmp_path, "one", ["a", "b"])
    two = plugin(tmp_path, "two", ["c"])
    assert shlex.split(plugin_install_command(["a", "b"], tmp_path)) == [*PIP, "-e", first]
    assert shlex.split(plugin_install_command(None, tmp_path)) == [*PIP, "-e", first, "-e", two]


def test_elsewhere_the_extras_are_installed(tmp_path, monkeypatch):
    """Without the sources the extra that bears the tool's id is installed, or all tools."""
    monkeypatch.setattr(discovery, "_names_of_extras", lambda: ["torch", "tools", "thop"])
    assert shlex.split(plugin_install_command(["thop"], tmp_path)) == [*PIP, "crossflops[thop]"]
    assert shlex.split(plugin_install_command(None, tmp_path)) == [*PIP, "crossflops[tools]"]
    assert shlex.split(extra_install_command("torch", tmp_path)) == [*PIP, "crossflops[torch]"]


def test_the_tool_tensorflow_is_its_plugin_alone(plugins, tmp_path, monkeypatch):
    """The extra of its name is the framework, which is no tool."""
    monkeypatch.setattr(discovery, "_names_of_extras", lambda: ["tensorflow", "tools", "thop"])
    assert shlex.split(plugin_install_command(["tensorflow"], tmp_path)) == [
        *PIP,
        "crossflops-tensorflow",
    ]
    monkeypatch.setattr(discovery, "requires", lambda name: REQUIRES)
    plugins(point("fake", "a:A"))
    with pytest.raises(UnknownNameError) as caught:
        discovery.load_plugin_adapter("tensorflow")
    assert caught.value.hint == "pip install crossflops-tensorflow"


def test_a_tool_without_a_plugin_has_no_command(tmp_path, monkeypatch):
    """Where there is nothing to install, nothing is claimed."""
    monkeypatch.setattr(discovery, "_names_of_extras", list)
    assert plugin_install_command(["torchstat"], tmp_path) == ""
