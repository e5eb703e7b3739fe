"""The process that reads a file ahead and has ONNX's library: as if this one did it all."""

import os
import platform
import re
import signal
from pathlib import Path

import pytest

from crossflops.errors import TargetError
from crossflops.load import beside, protobuf, read_onnx_model, start_reading_ahead
from tests.onnx_files import parsed, saved

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="a system that cannot fork")
GEMM = "g (float[4,4] x) => (y) { h = MatMul(x, x) y = Relu(h) }"


@pytest.fixture
def other(tmp_path, monkeypatch):
    """One that has read a file, of which nothing is left when the test ends."""
    monkeypatch.setattr(protobuf, "_asked", [protobuf.look_up_schema_or_version])
    monkeypatch.setattr(beside, "_ready", [])
    path = saved(tmp_path, parsed(GEMM))
    start_reading_ahead(path)
    model = read_onnx_model(path)
    assert model == read_onnx_model(path)  # by this process: what was read ahead is given once
    process = beside.take_inference_process()
    assert process is not None
    yield process
    process.wait_for_exit_status(kill_first=True)


def test_it_says_the_same_of_operators(other):
    """Of known and unknown ones, and of domains."""
    for words in (("", "Gemm", 13), ("", "Dropout", 7), ("", "NoSuch", 1), ("no.such", "Add", 1)):
        assert other.look_up_schema_or_version(
            protobuf.SCHEMA, *words
        ) == protobuf.look_up_schema_or_version(protobuf.SCHEMA, *words)
    assert (
        other.look_up_schema_or_version(protobuf.NEWEST, "")
        == protobuf.look_up_schema_or_version(protobuf.NEWEST, "")
        > 20
    )
    assert protobuf._asked[-1] == other.look_up_schema_or_version


def test_it_infers_the_same(other):
    """Shapes, and what is asked afterwards."""
    data = parsed(GEMM).SerializeToString()
    other.send_inference_request(data, strict=True, follow=True)
    answer = other.receive_answer(60)
    assert answer == beside.infer_model_shapes(data, strict=True, follow=True)
    assert answer[:1] == b"+"
    assert other.look_up_schema_or_version(protobuf.NEWEST, "")  # it goes on


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="others keep what is free")
def test_what_inference_took_is_given_back(other):
    """It waits while the graph is counted, which takes as much memory again."""
    steps = " ".join(f"x{number + 1} = Relu(x{number})" for number in range(60_000))
    chain = parsed(f"g (float[4] x0) => (x60000) {{ {steps} }}")
    other.send_inference_request(chain.SerializeToString(), strict=True, follow=True)
    assert (other.receive_answer(60) or b"")[:1] == b"+"
    assert other.look_up_schema_or_version(protobuf.NEWEST, "")
    status = Path(f"/proc/{other._child}/status").read_text()
    peak, now = (re.search(rf"{key}:\s+(\d+) kB", status) for key in ("VmHWM", "VmRSS"))
    assert peak
    assert now
    assert int(peak[1]) - int(now[1]) > 50_000  # inference takes 1.3 kB for a node


def test_one_that_was_ended_is_done_without(other):
    """This process makes the schemas then."""
    os.kill(other._child, signal.SIGKILL)
    assert other.look_up_schema_or_version(protobuf.SCHEMA, "", "Relu", 14)[:3] == (14, 1, 1)
    assert other.receive_answer(60) == b""
    assert os.WTERMSIG(other.wait_for_exit_status(kill_first=False)) == signal.SIGKILL
    assert other.look_up_schema_or_version(protobuf.SCHEMA, "", "Relu", 13)[:3] == (13, 1, 1)


def test_one_that_does_not_answer_in_time(other):
    """None, as it was not asked anything."""
    assert other.receive_answer(0.01) is None


def test_what_cannot_be_read_is_refused_here(tmp_path):
    """The other process says nothing of what is wrong."""
    path = str(tmp_path / "no.onnx")
    start_reading_ahead(path)
    with pytest.raises(TargetError, match=r"cannot read .*: No such file"):
        read_onnx_model(path)
    assert beside.take_inference_process() is None
