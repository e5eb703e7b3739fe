"""What hostile files come to: exact numbers, and errors of an inference that hangs or crashes."""

import resource
import time

import pytest

from crossflops.errors import CrossflopsError
from crossflops.frontends.onnx import inference
from crossflops.load import beside
from tests.fuzz.loader import run
from tests.hostile.files import FILES, looped
from tests.onnx_files import ledger_of, parsed, saved


def test_huge_counts_are_exact(tmp_path):
    """2^62 runs, and products of 2^93 MACs, are whole numbers like any other."""
    assert ledger_of(saved(tmp_path, looped(2**62))).total.macs == 2**62 * 64
    assert ledger_of(saved(tmp_path, FILES["a huge product"][0])).total.macs == 2**93


@pytest.mark.filterwarnings("ignore::crossflops.errors.CrossflopsWarning")
@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda *_: time.sleep(60), "takes longer"),
        (lambda *_: resource.setrlimit(resource.RLIMIT_CPU, (0, 0)) or hot(), "crashed"),
        (lambda *_: bytearray(1 << 40), "cannot be inferred"),
    ],
)
def test_inference_that_hangs_or_crashes_is_an_error(act, words, tmp_path, monkeypatch):
    """What happens in the child stays there: time, a signal, memory."""

    class Library:
        class shape_inference:  # noqa: N801 - as it is called in onnx
            infer_shapes = staticmethod(act)

    monkeypatch.setattr(beside, "onnx_cpp_library", lambda: Library)
    monkeypatch.setattr(inference, "_SECONDS", 1.0)
    path = saved(tmp_path, looped(3))
    with pytest.raises(CrossflopsError, match=words):
        ledger_of(path)


def hot():
    """Compute until somebody stops it."""
    while True:
        pass


@pytest.mark.filterwarnings("ignore::crossflops.errors.CrossflopsWarning")
def test_mutants_end_in_a_count_or_an_error(tmp_path):
    """500 damaged files: no other exception, no hang."""
    assert min(run(500, tmp_path).values()) > 20


def test_long_vectors_that_are_concatenated(tmp_path):
    """Following the values of a vector of 2^40 would take all memory: its shape does not."""
    size = 2**40
    model = parsed(f"g (float[{size}] x) => (y) {{ c = Concat <axis = 0> (x, x) y = Relu(c) }}")
    assert ledger_of(saved(tmp_path, model)).total.compares == 2 * size
