"""A sweep: what it counts and keeps, what it refuses, and that it goes on after any end."""

import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

import crossflops
from crossflops.cli import main
from crossflops.errors import InputError, UnknownNameError
from crossflops.verbs.sweep.store import SweepStore
from crossflops.workers.warm_executor import WarmExecutor, WorkerEndedError
from tests.onnx_files import saved, with_weights

# Of a MatMul of [2, k] by [k, 5]: 10 k MACs, and 10 (2 k - 1) FLOPs without the first additions.
MODEL = "m (float[2,%d] x, float[%d,5] w) => (float[2,5] y) { y = MatMul(x, w) }"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Three models, in the current folder."""
    for k in (3, 4, 5):
        saved(tmp_path, with_weights(MODEL % (k, k), "w"), f"m{k}.onnx")
    monkeypatch.chdir(tmp_path)
    return tmp_path


SUITE = {"tools": [], "as": ["exact-2k-1"], "model": [{"target": ["m3.onnx", "m4.onnx"]}]}


def sweep(suite=SUITE, store="store", **options):
    """A sweep in this process."""
    with ThreadPoolExecutor(1) as executor:
        return crossflops.sweep(suite, store=store, executor=executor, **options)


def numbers(result):
    """The totals by target and tool."""
    return {(row.case.target, row.tool): row.total for row in result.rows}


def rows_of(store):
    """The contents of a store by key: no times are in them."""
    rows = SweepStore(Path(store))
    return rows.read_contents(rows.row_keys())


def test_each_model_is_counted_with_each_convention(folder):
    """2 x 5 x k MACs, and 2 x 5 x (2 k - 1) by the convention; causes add up."""
    result = sweep()
    assert numbers(result) == {
        ("m3.onnx", "native"): 30, ("m3.onnx", "exact-2k-1"): 50,
        ("m4.onnx", "native"): 40, ("m4.onnx", "exact-2k-1"): 70,
    }  # fmt: skip
    for row in result.rows:
        assert row.macs + sum(row.causes.values()) + row.residual == row.total
    [row] = [row for row in result.rows if row.total == 50]
    assert row.causes == {"unit.mac-vs-flop": 30, "unit.first-add-omitted": -10}
    assert [case.target for case in result.cases] == ["m3.onnx", "m4.onnx"]


def test_what_the_store_has_is_not_counted_again(folder, monkeypatch):
    """Also where a model is added: only that one is counted."""
    first = sweep()
    grown = {**SUITE, "model": [{"target": ["m3.onnx", "m5.onnx", "m4.onnx"]}]}
    second = sweep(grown)
    assert numbers(first).items() <= numbers(second).items()
    assert numbers(second)["m5.onnx", "native"] == 50
    assert set(SweepStore(Path("store")).computation_counts().values()) == {1}


def test_a_model_that_changed_is_counted_again(folder):
    """Another file under the same name, another version of what counts it: another key."""
    sweep()
    saved(folder, with_weights(MODEL % (6, 6), "w"), "m3.onnx")
    assert numbers(sweep())["m3.onnx", "native"] == 60


def test_a_failure_is_a_row(folder):
    """A file that is none, and a model without the inputs that it needs; the others are there."""
    (folder / "none.onnx").write_text("not a model")
    suite = {"tools": [], "model": [{"target": ["none.onnx", "absent.onnx", "m3.onnx"]}]}
    result = sweep(suite)
    failures = {row.case.target: row.failure for row in result.failures}
    assert set(failures) == {"none.onnx", "absent.onnx"}
    assert all(failures.values())
    assert numbers(result)["m3.onnx", "native"] == 30
    assert "absent.onnx" in str(result)


class EndingExecutor(ThreadPoolExecutor):
    """An executor whose workers end in the middle of each call."""

    def submit(self, *_):
        """Return a call whose process was killed."""
        future = Future()
        future.set_exception(WorkerEndedError("the process ended", "run the sweep again"))
        return future


def test_a_failure_is_tried_again_where_that_is_asked(folder):
    """The same command shows the failure, --retry-failures counts it; a number stays as it is."""
    both = {"tools": [], "model": [{"target": ["m3.onnx", "m4.onnx"]}]}
    sweep({"tools": [], "model": [{"target": "m4.onnx"}]})
    with EndingExecutor(1) as executor:
        result = crossflops.sweep(both, store="store", executor=executor)
    assert [row.failure for row in result.failures] == ["the process ended"]
    assert numbers(sweep(both)) == {("m3.onnx", "native"): None, ("m4.onnx", "native"): 40}
    again = sweep(both, retry_failures=True)
    assert numbers(again) == {("m3.onnx", "native"): 30, ("m4.onnx", "native"): 40}
    assert set(SweepStore(Path("store")).computation_counts().values()) == {1}


def test_inputs_and_sizes_are_axes(folder):
    """A list of lists is one run each, a table of dimensions binds them."""
    saved(folder, with_weights(MODEL.replace("float[2,%d] x", "float[rows,%d] x")
                               .replace("float[2,5] y", "float[rows,5] y") % (3, 3), "w"),
          "named.onnx")  # fmt: skip
    suite = {
        "tools": [],
        "model": [
            {"target": "named.onnx", "input": [["1x3"], ["4x3"]]},
            {"target": "named.onnx", "dim": {"rows": 2}},
        ],
    }
    assert [row.total for row in sweep(suite).rows] == [15, 60, 30]


def test_two_tables_of_one_case_are_one(folder):
    """It is counted once, for the conventions of both."""
    suite = {
        "tools": [],
        "model": [
            {"target": "m3.onnx", "as": ["exact-2k-1"]},
            {"target": "m3.onnx", "as": ["elementwise-1"]},
        ],
    }
    assert [row.tool for row in sweep(suite).rows] == ["native", "exact-2k-1", "elementwise-1"]


def test_only_and_limit_choose(folder):
    """The rest is left out, and said to be."""
    assert [row.case.target for row in sweep(only=["m4*"]).rows] == ["m4.onnx"] * 2
    result = sweep(limit=1)
    assert [row.case.target for row in result.rows] == ["m3.onnx"] * 2
    assert result.left_out == 1
    with pytest.raises(InputError, match="--only zzz matches no model"):
        sweep(only=["zzz"])


def test_what_changed_since_another_store(folder):
    """A number, a failure, a tool that was not there; not what is the same."""
    before = {"tools": [], "model": [{"target": ["m3.onnx", "m4.onnx"]}]}
    sweep(before, "before")
    saved(folder, with_weights(MODEL % (7, 7), "w"), "m4.onnx")
    result = sweep(compare_to="before")
    changes = {(row.case.target, row.tool): (row.before, row.after) for row in result.changes}
    assert changes == {
        ("m3.onnx", "exact-2k-1"): ("", 50),
        ("m4.onnx", "native"): (40, 70),
        ("m4.onnx", "exact-2k-1"): ("", 130),
    }
    with pytest.raises(InputError, match="is not the store of a sweep"):
        sweep(compare_to="absent")
    assert not Path("absent").exists()


@pytest.mark.parametrize(
    ("suite", "words"),
    [
        ({"model": [{"target": "m.onnx", "inputz": []}]}, "unknown key 'inputz' in model 1"),
        ({"modle": []}, "unknown key 'modle'"),
        ({}, "names no model"),
        ({"model": [{}]}, "has no target"),
        ({"model": [{"target": 3}]}, "must be a text or a list"),
        ({"model": [{"target": "m.onnx", "arg": 3}]}, "must be a table"),
        ({"model": [{"target": "m.onnx", "batch": 0}]}, "must be a positive integer"),
        ({"model": [{"target": "m.onnx", "input": "1x"}]}, "model 1 of the suite"),
        ({"model": [{"target": "m.onnx", "train": True, "as": "thop"}]}, "train and as"),
    ],
)
def test_a_suite_that_is_none_is_refused(folder, suite, words):
    """The message names the place and the key; nothing is written."""
    with pytest.raises(InputError, match=words):
        sweep(suite)
    assert not Path("store").exists()


def test_a_tool_that_is_not_installed_is_refused(folder):
    """Before anything is counted."""
    with pytest.raises(UnknownNameError):
        sweep({"tools": ["no-such-tool"], "model": [{"target": "m3.onnx"}]})
    assert not Path("store").exists()


def write_suite(folder, text='tools = []\nas = ["exact-2k-1"]\n'):
    """The suite of both models as a file."""
    (folder / "suite.toml").write_text(f'{text}[[model]]\ntarget = ["m3.onnx", "m4.onnx"]\n')


def test_the_command_says_its_pace_and_exports(folder, capsys):
    """JSON, CSV, a page; on stderr how many were counted; the second time none."""
    write_suite(folder)
    assert main(["sweep", "suite.toml", "--store", "store", "--json", "-o", "out.csv"]) == 0
    out, err = capsys.readouterr()
    assert {row["total"] for row in json.loads(out)["rows"]} == {30, 50, 40, 70}
    assert "2 models counted in" in err
    assert "0 taken from the store" in err
    with open("out.csv") as file:
        table = list(csv.DictReader(file))
    assert [row["total"] for row in table] == ["30", "50", "40", "70"]
    assert main(["sweep", "suite.toml", "--store", "store"]) == 0
    out, err = capsys.readouterr()
    assert "m3.onnx" in out
    assert "2 taken from the store" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("absent.toml --store s", "cannot read the suite absent.toml"),
        ("suite.toml", "Missing option '--store'"),
        ("suite.toml --store s --dask tcp://x:1 --ray", "--dask and --ray"),
        ("suite.toml --store s --ray --jobs 2", "--jobs has no effect"),
        ("suite.toml --store suite.toml", "suite.toml"),
        ("wrong.toml --store s", "not valid TOML"),
    ],
)
def test_a_wrong_command_ends_in_two_lines(folder, capsys, words, message):
    """An error, a hint, status 2."""
    write_suite(folder)
    (folder / "wrong.toml").write_text("[[model")
    assert main(["sweep", *words.split()]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.startswith("error: ")
    assert err.count("\n") == 2


def test_an_extra_that_is_not_installed_is_named(folder, capsys, monkeypatch):
    """Two lines, with the command that installs it."""
    write_suite(folder)
    for flag, module in (("--dask tcp://127.0.0.1:1", "distributed"), ("--ray", "ray")):
        monkeypatch.setitem(sys.modules, module, None)
        assert main(["sweep", "suite.toml", "--store", "s", *flag.split()]) == 2
        err = capsys.readouterr().err
        assert f"{module} is not installed" in err
        assert "pip install" in err


def test_integers_beyond_64_bits_stay(folder):
    """2**30 x 2**30 x 2**10 MACs, in the store, in JSON and in CSV."""
    side = 2**30
    shape = f"m (float[{side},{side}] x, float[{side},1024] w) => (float[{side},1024] y)"
    saved(folder, with_weights(f"{shape} {{ y = MatMul(x, w) }}"), "huge.onnx")
    result = sweep({"tools": [], "model": [{"target": "huge.onnx"}]})
    [row] = result.rows
    assert row.total == 2**70
    assert result.to_dict()["rows"][0]["total"] == row.total
    result.save("huge.csv")
    assert str(row.total) in Path("huge.csv").read_text()
    assert numbers(sweep({"tools": [], "model": [{"target": "huge.onnx"}]})) == numbers(result)


def start_sweep(store):
    """The command in a process of its own."""
    command = [sys.executable, "-m", "crossflops", "sweep", "suite.toml", "--store", store]
    return subprocess.Popen(
        [*command, "--jobs", "1"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
def test_a_sweep_that_is_killed_goes_on(folder):
    """Killed at random moments and resumed it has the rows of one that ran through, and none was
    computed twice.
    """
    moments = random.Random(40)
    names = [f"k{k}.onnx" for k in range(3, 43)]
    for k, name in enumerate(names, 3):
        saved(folder, with_weights(MODEL % (k, k), "w"), name)
    targets = ", ".join(f'"{name}"' for name in names)
    (folder / "suite.toml").write_text(
        f'tools = []\nas = ["exact-2k-1"]\n[[model]]\ntarget = [{targets}]\n'
    )
    killed = 0
    for _ in range(2):
        before = len(SweepStore(Path("killed")).row_keys())
        process = start_sweep("killed")
        deadline = time.monotonic() + 60
        while len(SweepStore(Path("killed")).row_keys()) == before:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        time.sleep(moments.random() / 20)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        killed += len(SweepStore(Path("killed")).row_keys()) < 2 * len(names)
        rows_of("killed")  # each can be read
    assert killed  # else nothing was tried
    crossflops.sweep("suite.toml", store="killed", jobs=1)
    sweep("suite.toml", "through")
    assert rows_of("killed") == rows_of("through")
    assert len(rows_of("killed")) == 2 * len(names)
    assert set(SweepStore(Path("killed")).computation_counts().values()) == {1}


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_process_that_ends_is_a_failure_of_its_call_alone():
    """The next call has a new process; one that takes too long is ended."""
    with WarmExecutor(1, timeout=0.5) as executor:
        assert executor.submit(pow, 2, 5).result() == 32
        with pytest.raises(WorkerEndedError, match="was killed"):
            executor.submit(os._exit, 3).result()
        assert executor.submit(pow, 2, 6).result() == 64
        with pytest.raises(WorkerEndedError, match=r"longer than 0\.5 seconds"):
            executor.submit(time.sleep, 60).result()
        with pytest.raises(ZeroDivisionError):
            executor.submit(divmod, 1, 0).result()
