"""Tools that other interpreters run, in one report with those of this one."""

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

from crossflops.ir.profile import Failure
from crossflops.ir.trace import Setting
from crossflops.verbs import api
from tests.environments import TESTS, environment, plugin, posix

pytestmark = [posix, pytest.mark.torch]


@pytest.fixture
def venvs(tmp_path, monkeypatch):
    """Two environments: each has a tool of its own, and a package `namesake` of its own."""
    monkeypatch.chdir(tmp_path)
    pythons = {}
    for tool, shift in (("mine", 1), ("yours", 20)):
        site = environment(tmp_path / tool)
        (site / "namesake.py").write_text(f"SHIFT = {shift}\n")
        (site / f"plugin_of_{tool}.py").write_text(
            "from fake_counters import Honest\n"
            "class One(Honest):\n"
            f"    name = {tool!r}\n"
            "    def load(self):\n"
            "        import namesake\n"
            "        self.shift = namesake.SHIFT\n"
        )
        plugin(site, tool, f"plugin_of_{tool}:One")
        pythons[tool] = str(tmp_path / tool / "bin" / "python")
        with (site / "seen.pth").open("a") as file:
            file.write(f"\n{TESTS / 'counters'}")
    return pythons


def test_two_namesakes_stand_in_one_report(tools, target, venvs):
    """Neither is installed here, both import a package of one name, each finds its own.

    An interpreter in the current folder is named from there.
    """
    tools("Honest")
    report = api.compare(f"{target}:make", "1x4", python=venvs)
    totals = {profile.tool: profile.total for profile in report.profiles}
    assert totals == {"honest": 24, "mine": 25, "yours": 44}
    assert report.residuals == {"honest": 0, "mine": 1, "yours": 20}
    places = {profile.tool: profile.python or None for profile in report.profiles}
    assert places == {"honest": None, "mine": "mine/bin/python", "yours": "yours/bin/python"}


def test_a_table_names_the_interpreters(tools, target, venvs, tmp_path):
    """Without a word in the call; the tools that are asked for are run, and no others."""
    tools("Honest")
    (tmp_path / "crossflops.toml").write_text('[python]\nmine = "mine"\nyours = "/nowhere"\n')
    report = api.compare(f"{target}:make", "1x4", tools=["mine", "yours"])
    mine, yours = report.profiles
    assert (mine.tool, mine.total, mine.python) == ("mine", 25, "mine/bin/python")
    assert isinstance(yours, Failure)
    assert yours.message.startswith("cannot start /nowhere")
    report = api.compare(f"{target}:make", "1x4", tools=["honest"])
    assert [profile.tool for profile in report.profiles] == ["honest"]


def test_a_model_object_goes_by_pickle(tools, venvs):
    """The other interpreter gets the model and the inputs of the caller."""
    torch = pytest.importorskip("torch")
    tools()
    report = api.compare(torch.nn.Linear(4, 3), torch.ones(2, 4), python={"mine": venvs["mine"]})
    [profile] = report.profiles
    assert (profile.total, profile.setting) == (49, Setting())


def test_an_interpreter_goes_over_a_plugin_here(tools, target, venvs, tmp_path):
    """A tool that is installed here, too, runs where the caller says."""
    tools("Honest")
    site = environment(tmp_path / "third")
    (site / "seen.pth").open("a").write(f"\n{TESTS / 'counters'}")
    plugin(site, "honest", "fake_counters:Shifted.__base__")
    python = {"honest": str(tmp_path / "third")}
    report = api.compare(f"{target}:make", "1x4", python=python)
    [profile] = report.profiles
    assert (profile.total, profile.python) == (24, "third/bin/python")


def test_a_tool_elsewhere_cannot_run_in_this_process(tools, target, venvs):
    """The others do, and this one says why not."""
    tools("Honest")
    report = api.compare(f"{target}:make", "1x4", python={"mine": venvs["mine"]}, isolate=False)
    honest, mine = report.profiles
    assert honest.total == 24
    assert (mine.tool, mine.stage) == ("mine", "load")
    assert "isolate=False" in mine.message
