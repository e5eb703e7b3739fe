"""The command as a user meets it: statuses, streams, files."""

import json
import sys

import pytest

from crossflops import Report

pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch
MODEL = ("targets.py:linear", "--input", "2x4")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("count", "missing.py:f"), "file missing.py does not exist"),
        (("count", "no_such_module:f"), "module no_such_module is not installed"),
        (("count", "targets.py:nothing"), "does not define 'nothing'"),
        (("count", "targets.py:raises"), "targets.py:raises raised ValueError: no weights here"),
        (("count", "targets.py:linear", "--input", "2x5"), "the model raised on these inputs"),
        (("count", "targets.py:linear"), "missing a required argument: 'input'"),
        (("count", "targets.py:linear", "--input", "2y5"), "cannot read the input '2y5'"),
        (("count", *MODEL, "--as", "nobody"), "no convention is known for the tool 'nobody'"),
        (("count", "targets.py:linear", "--inputs", "missing.npz"), "missing.npz"),
        (
            ("count", *MODEL, "--inputs", "missing.npz"),
            "inputs and a file of inputs (--inputs) cannot be combined",
        ),
        (("compare", *MODEL, "--tool", "nobody"), "no installed plugin has the tool 'nobody'"),
        (
            ("count", *MODEL, "-o", "report.xyz"),
            "has the suffix '.xyz', which is not a known format",
        ),
        (("explain", "no.such.cause"), "no.such.cause"),
        (("frobnicate",), "frobnicate"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_wrong_request_is_two_lines(crossflops, arguments, message):
    """Status 2, what is wrong and what to do, nothing on stdout and never a traceback."""
    done = crossflops(*arguments)
    assert (done.status, done.out) == (2, "")
    wrong, remedy = done.err.splitlines()
    assert wrong.startswith("error: ")
    assert message in wrong
    assert remedy.startswith("hint: ")
    assert "Traceback" not in done.err


def test_an_unknown_device_is_two_lines(crossflops):
    """The same for efficiency, which lists what is known."""
    done = crossflops(
        "efficiency", "targets.py:linear", "--macs", "4.112G",
        "--examples-per-second", "1325", "--precision", "fp16", "--device", "nothing",
    )  # fmt: skip
    assert (done.status, done.out) == (2, "")
    assert len(done.err.splitlines()) == 2


def test_json_is_all_of_stdout(crossflops):
    """With the keys of the contract, also where the model prints while it is built."""
    done = crossflops("count", "targets.py:talkative", "--input", "2x4", "--json")
    assert done.status == 0, done.err
    data = json.loads(done.out)
    assert data["schema"] == "crossflops/1"
    assert data["totals"]["macs"] == 24
    assert set(data) >= {
        "schema", "model", "totals", "macs_by_precision", "as", "uncounted", "by_op", "modules",
        "nodes",
    }  # fmt: skip
    assert set(data["model"]) >= {"name", "digest", "inputs", "opset"}
    assert data["model"]["opset"] == {"": 23}
    assert set(data["totals"]) >= {
        "macs", "flops", "params", "adds", "muls", "divs", "compares", "specials", "bytes_read",
        "bytes_written", "constant_macs",
    }  # fmt: skip
    assert set(data["nodes"][0]) >= {
        "node", "op", "path", "macs", "flops", "bytes_read", "bytes_written", "precision",
        "exactness",
    }  # fmt: skip
    assert set(data["modules"][0]) >= {"path", "class", "macs", "flops", "params"}


def test_a_comparison_goes_to_files(crossflops, three_tools, tmp_path):
    """JSON with the keys of the contract; -o writes the format of the suffix and nothing else."""
    done = crossflops("compare", *MODEL, "--json", "-o", str(tmp_path / "report.md"))
    assert done.status == 0, done.err
    data = json.loads(done.out)
    assert set(data) >= {"setting", "profiles", "reconciliations"}
    tools = {profile["tool"] for profile in data["profiles"]}
    assert tools >= {"thop", "fvcore", "torch-flop-counter"}
    for entry in data["profiles"]:
        assert set(entry) >= {"tool", "version", "verified", "printed_as", "total", "entries"}
    for entry in data["reconciliations"]:
        assert set(entry) >= {
            "tool", "ours", "theirs", "predicted", "delta", "explanations", "residual", "by_path",
        }  # fmt: skip
    assert Report.from_json(done.out).to_json() == done.out
    assert (tmp_path / "report.md").read_text(encoding="utf-8").startswith("# targets.py:linear")
    assert [path.name for path in tmp_path.iterdir()] == ["report.md"]


@pytest.fixture(scope="module")
def plugin(tmp_path_factory):
    """A folder with an installed plugin whose tools fail, and one that is off by one."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "bad_tools.py").write_text(
        "from crossflops.plugins.adapter import is_module\n"
        "from crossflops.ir.profile import Profile\n"
        "class Fails:\n"
        "    name = convention = 'torch-flop-counter'\n"
        "    distribution = 'torch'\n"
        "    def version(self): return '2.13.0'\n"
        "    def load(self): pass\n"
        "    def accepts(self, model): return is_module(model)\n"
        "    def profile(self, model, args, kwargs, setting):\n"
        "        raise RuntimeError('out of order')\n"
        "class Fails1(Fails): name = 'fails'\n"
        "class OffByOne(Fails):\n"
        "    name = 'off-by-one'\n"
        "    def profile(self, model, args, kwargs, setting):\n"
        "        return Profile(tool=self.name, version='2.13.0', setting=setting, total=49,\n"
        "                       printed_as='FLOPs')\n"
    )
    info = folder / "bad_tools-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bad-tools\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[crossflops.adapters]\nfails = bad_tools:Fails1\noff-by-one = bad_tools:OffByOne\n"
    )
    return str(folder)


def test_when_every_tool_fails_the_status_is_3(crossflops, plugin):
    """The native count is printed all the same, with one line for the tool."""
    done = crossflops("compare", *MODEL, "--tool", "fails", path=plugin)
    assert done.status == 3, done.err
    assert "24 MACs" in done.out
    assert "out of order" in done.out
    assert done.err == "every tool failed\n"


def test_strict_asks_for_no_residual(crossflops, plugin):
    """49 for 2*24: one is left. That is status 0, and 1 with --strict; others that fail do not
    matter.
    """
    tools = ("--tool", "off-by-one", "--tool", "fails")
    loose = crossflops("compare", *MODEL, *tools, "--json", path=plugin)
    assert loose.status == 0, loose.err
    (account,) = json.loads(loose.out)["reconciliations"]
    assert (account["tool"], account["theirs"], account["residual"]) == ("off-by-one", 49, 1)
    strict = crossflops("compare", *MODEL, *tools, "--strict", path=plugin)
    assert strict.status == 1
    assert strict.err == "strict: off-by-one has a residual of 1\n"


def test_five_inputs_by_five_texts(crossflops):
    """Floats of four shapes and integers, each by name: features and boxes to 64, and so on.

    64*(50*2048 + 50*4 + 49*2048 + 49*50 + 19*99) MACs.
    """
    inputs = (
        "features=1x50x2048", "boxes=1x50x4", "grid=1x49x2048", "mask=1x49x50", "words=1x19:int64",
    )  # fmt: skip
    flags = [part for text in inputs for part in ("--input", text)]
    done = crossflops("count", "targets.py:Captioner", *flags, "--json")
    assert done.status == 0, done.err
    data = json.loads(done.out)
    assert data["totals"]["macs"] == 64 * (50 * 2048 + 50 * 4 + 49 * 2048 + 49 * 50 + 19 * 99)
    assert {spec["name"]: spec["dtype"] for spec in data["model"]["inputs"]}["words"] == "int64"
    assert len(data["model"]["inputs"]) == 5


_TRACED = """
import os
import torch


class Layer(torch.nn.Linear):
    def forward(self, x):
        note("run", x)
        return super().forward(x)


def note(what, x=None):
    if x is None or type(x) is torch.Tensor:
        with open(os.environ["TRACE"], "a") as trace:
            trace.write(f"{what} {os.getpid()}\\n")


def traced():
    note("built")
    return torch.nn.Sequential(Layer(4, 3), torch.nn.ReLU())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")
def test_a_comparison_builds_its_model_once_and_runs_it_elsewhere(
    crossflops, three_tools, tmp_path, monkeypatch
):
    """Tools and watched runs are forks of the command; the answers are those of processes."""
    (tmp_path / "once.py").write_text(_TRACED)
    reports = {}
    for fork in "10":
        monkeypatch.setenv("CROSSFLOPS_FORK", fork)
        monkeypatch.setenv("TRACE", str(tmp_path / fork))
        command = ("compare", f"{tmp_path / 'once.py'}:traced", "--input", "2x4", "--json")
        tools = (word for tool in ("thop", "fvcore") for word in ("--tool", tool))
        done = crossflops(*command, "--weights", "real", *tools)
        assert done.status == 0, done.err
        report = json.loads(done.out)
        accounts = {account["tool"]: account for account in report["reconciliations"]}
        reports[fork] = report["totals"], accounts
    assert reports["1"] == reports["0"]
    assert {account["residual"] for account in reports["1"][1].values()} == {0}
    events = [line.split() for line in (tmp_path / "1").read_text().splitlines()]
    builders = [process for what, process in events if what == "built"]
    assert len(builders) == 1
    assert builders[0] not in {process for what, process in events if what == "run"}
    assert (tmp_path / "0").read_text().count("built") == 3  # the command, and each tool
