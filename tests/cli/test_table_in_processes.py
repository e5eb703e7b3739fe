"""`crossflops table --jobs`: models of frameworks side by side, the same table as one by one."""

import json

import pytest

from crossflops.errors import InputError
from crossflops.targets.request import Request
from crossflops.verbs import table as verb
from crossflops.workers.series import run_series
from tests.onnx_files import parsed, saved

pytestmark = pytest.mark.torch

MODELS = """
import os

from torch import nn


def wide(): return nn.Linear(4, 50)
def narrow(): return nn.Linear(4, 3)
def broken(): raise ValueError("no weights here")
def ended(): os._exit(9)


def printing():
    print("built")
    return nn.Linear(4, 7)
"""
FILE = "graph (float[3, 4] x, float[4, 5] w) => (y) { y = MatMul(x, w) }"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with models of PyTorch and a file."""
    (tmp_path / "models.py").write_text(MODELS)
    saved(tmp_path, parsed(FILE), "file.onnx")
    monkeypatch.chdir(tmp_path)


def named(*names):
    """Targets of the file of models, on two rows."""
    return (*(f"models.py:{name}" for name in names), "--input", "2x4")


def test_the_same_table(line, folder):
    """2 x 4 x 50, 2 x 4 x 7 and 2 x 4 x 3 MACs, in the order in which they were typed."""
    alone = line("table", *named("wide", "printing", "narrow"), "--jobs", "1", "--json")
    beside = line("table", *named("wide", "printing", "narrow"), "--jobs", "2", "--json")
    assert alone[0] == beside[0] == 0
    assert alone[1] == beside[1]
    assert [row["macs"] for row in json.loads(beside[1])["rows"]] == [400, 56, 24]


def test_an_error_is_that_of_the_first_model_that_has_one(line, folder):
    """In two lines, as one by one."""
    for jobs in ("1", "2"):
        status, out, error = line("table", *named("wide", "broken", "narrow"), "--jobs", jobs)
        assert (status, out) == (2, "")
        assert "no weights here" in error
        assert "Traceback" not in error


def test_a_process_that_is_ended_is_named(line, folder):
    """As the system ends one for its memory."""
    status, out, error = line("table", *named("ended", "narrow"), "--jobs", "2")
    assert (status, out) == (2, "")
    assert "models.py:ended: the process that counted the model was killed" in error
    assert "--jobs 1" in error


def test_jobs_without_two_models_of_frameworks_are_refused(line, folder):
    """Nothing runs side by side there."""
    status, _, error = line("table", "file.onnx", "file.onnx", "--jobs", "2")
    assert status == 2
    assert "--jobs has no effect" in error
    assert line("table", "file.onnx", "file.onnx")[0] == 0


@pytest.mark.parametrize(
    ("cpus", "memory", "models", "jobs"),
    [
        (8, 64, 16, 8),  # each CPU
        (8, 12, 16, 3),  # 4 GiB for each
        (8, 64, 5, 2),  # two models for each
        (8, 64, 1, 1),
        (1, 64, 9, 1),
        (8, 2, 9, 1),
        (8, None, 9, 4),  # where the system does not say
    ],
)
def test_how_many_run_side_by_side(monkeypatch, cpus, memory, models, jobs):
    """By CPUs, GiB of memory and models."""
    monkeypatch.setattr(verb, "usable_cpus", lambda: cpus)
    monkeypatch.setattr(verb, "physical_memory_bytes", lambda: memory and memory * 1024**3)
    assert verb.choose_jobs(models) == jobs


def test_results_come_in_order_and_raise_in_order():
    """The second call raises; the third one is never asked for."""
    series = run_series(divmod, [(7, 2), (1, 0), (9, 4)], ["a", "b", "c"], 2)
    assert next(series) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        next(series)
    assert list(series) == []


def test_refusals_by_the_verb():
    """A request of a file is counted here."""
    models = [Request(target="models.py:wide"), Request(target="models.py:narrow")]
    with pytest.raises(InputError, match="only models of a framework"):
        verb.reject_jobs_without_effect([Request(target="a.onnx"), *models[:1]])
    verb.reject_jobs_without_effect(models)
