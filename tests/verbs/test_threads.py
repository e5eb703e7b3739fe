"""Counting from threads: the counts of a serial run, and all that others print, warn and log."""

import contextlib
import io
import logging
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import crossflops
from crossflops import CrossflopsError, threads
from tests.onnx_files import parsed, saved

WAIT = 60.0


@contextlib.contextmanager
def other_thread(work) -> Iterator[threading.Thread]:
    """Run it beside the block, and wait for its end."""
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield thread
    finally:
        thread.join(WAIT)


def in_another(work) -> None:
    """Run it in a thread, and wait for its end."""
    with other_thread(work):
        pass


def test_only_the_silenced_thread_is_silent(monkeypatch):
    """Prints of another thread arrive."""
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stdout", shown)
    with threads.silence_streams():
        kept = sys.stdout
        print("mine")
        in_another(lambda: print("theirs"))
    print("after", file=kept)  # whoever kept the stream still writes to the real one
    assert shown.getvalue() == "theirs\nafter\n"
    assert sys.stdout is shown


def test_a_stream_that_another_thread_put_there_stays(monkeypatch):
    """It is not replaced at the end of the block."""
    theirs = io.StringIO()
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    with threads.silence_streams():
        in_another(lambda: setattr(sys, "stdout", theirs))
    assert sys.stdout is theirs


def test_a_stream_that_is_not_there_is_written_to_by_nobody(monkeypatch):
    """A process without stdout stays without."""
    monkeypatch.setattr(sys, "stdout", None)
    with threads.silence_streams():
        print("mine")
        in_another(lambda: print("theirs", flush=True))
    assert sys.stdout is None


def test_only_the_filtered_thread_misses_warnings():
    """Warnings of another thread are shown."""
    filters = list(warnings.filters)
    with warnings.catch_warnings(record=True) as shown, threads.filter_warnings("ignore"):
        warnings.warn("mine", stacklevel=1)
        in_another(lambda: warnings.warn("theirs", stacklevel=1))
    assert [str(warning.message) for warning in shown] == ["theirs"]
    assert warnings.filters == filters


def test_a_filter_that_outlives_its_block_filters_nothing():
    """Another thread whose `catch_warnings` began within the block puts our filter back."""
    with warnings.catch_warnings():
        with threads.filter_warnings("ignore"):
            held = list(warnings.filters)
        warnings.filters[:] = held
        with pytest.warns(UserWarning, match="mine"):
            warnings.warn("mine", stacklevel=1)


def test_a_library_makes_filters_of_ours_for_its_workers():
    """From the expressions of all filters, as sklearn.utils.parallel does where a model fits."""
    with threads.filter_warnings("ignore", message_start="a (bracket"):
        action, held, category, _, _ = warnings.filters[0]
    with threads.filter_warnings("ignore", message_start="a (bracket"):
        now = warnings.filters[0][1].pattern
    for pattern, shown_texts in ((now, ["another"]), (held.pattern, ["a (bracket", "another"])):
        with warnings.catch_warnings(record=True) as shown:
            warnings.resetwarnings()
            warnings.filterwarnings(action, pattern, category)
            for text in ("a (bracket", "another"):
                in_another(lambda said=text: warnings.warn(said, stacklevel=1))
        assert [str(warning.message) for warning in shown] == shown_texts


def test_only_warnings_of_the_recording_thread_are_recorded():
    """Those of another thread are shown as before."""
    before = warnings.showwarning
    with (
        warnings.catch_warnings(record=True) as shown,
        threads.record_warnings(UserWarning) as recorded,
    ):
        warnings.warn("mine", stacklevel=1)
        in_another(lambda: warnings.warn("theirs", stacklevel=1))
    assert [str(warning.message) for warning in recorded] == ["mine"]
    assert [str(warning.message) for warning in shown] == ["theirs"]
    assert warnings.showwarning is before


def test_only_the_silenced_thread_logs_nothing(caplog):
    """Records of another thread, and of other loggers, arrive."""
    logger, before = logging.getLogger("some.library"), logging.Logger.handle
    with threads.silence_logs(lambda record: record.name.startswith("some")):
        logger.error("mine")
        in_another(lambda: logger.error("theirs"))
        logging.getLogger("other").error("kept")
    assert [record.message for record in caplog.records] == ["theirs", "kept"]
    assert logging.Logger.handle is before


def test_the_turn_passes_on_after_an_error():
    """The lock is released by a call that raises, and may be taken twice."""

    def fail() -> None:
        with contextlib.suppress(ValueError), threads.counting_one_at_a_time():
            raise ValueError

    in_another(fail)
    with (
        threads.counting_one_at_a_time(),
        threads.counting_one_at_a_time(),
    ):  # the same thread goes on
        pass


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(("waits", "is_counted"), [(WAIT, True), (0.05, False)])
def test_a_process_is_forked_between_counts_or_refuses(monkeypatch, waits, is_counted):
    """The fork waits for the thread that counts; without its end the child counts nothing."""
    monkeypatch.setattr(threads, "_FORK_WAITS", waits)
    begun, over = threading.Event(), threading.Event()

    def hold() -> None:
        with threads.counting_one_at_a_time():
            begun.set()
            over.wait(0.5)

    with other_thread(hold):
        begun.wait(WAIT)
        child = os.fork()
        if not child:
            status = 1
            try:
                with threads.counting_one_at_a_time():
                    status = 0
            except CrossflopsError as error:
                status = 2 if "was forked while another thread" in error.message else 3
            os._exit(status)
        over.set()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == (0 if is_counted else 2)


def test_files_are_counted_from_threads(tmp_path: Path):
    """Counts of files are those of their shapes."""
    files = []
    for width in range(2, 8):
        text = f"graph (float[3, {width}] x, float[{width}, 5] w) => (y) {{ y = MatMul(x, w) }}"
        files.append(saved(tmp_path, parsed(text), f"{width}.onnx"))
    with ThreadPoolExecutor(4) as pool:
        macs = list(pool.map(lambda file: crossflops.count(file).macs, files))
    assert macs == [3 * width * 5 for width in range(2, 8)]  # (3, w) by (w, 5)


@pytest.mark.torch
def test_models_are_counted_from_threads_while_another_prints_and_computes(monkeypatch):
    """Counts are right, all prints arrive, and the process is as before."""
    import torch
    from torch import nn

    class Broken(nn.Module):
        def forward(self, x):
            print("silenced")
            raise RuntimeError

    def macs(width: int) -> int | str:
        if width == 6:
            with pytest.raises(CrossflopsError):
                crossflops.count(Broken(), x)
            return "broken"
        return crossflops.count(nets[width], x).macs

    def tick() -> None:
        while not stop.wait(0.01):
            nn.functional.linear(x, x)  # a call of no model that is counted
            lines.append("tick")
            print("tick")

    x, lines, stop, shown = torch.zeros(2, 9), [], threading.Event(), io.StringIO()
    nets = {width: nn.Sequential(nn.Linear(9, width), nn.ReLU()) for width in range(4, 9)}
    crossflops.count(nets[4], x)  # all is imported, and has added its filters of warnings
    monkeypatch.setattr(sys, "stdout", shown)
    state, relu, filters = torch.get_rng_state(), torch.relu, list(warnings.filters)
    with other_thread(tick):
        with ThreadPoolExecutor(3) as pool:
            counts = list(pool.map(macs, nets))
        stop.set()
    assert counts == [2 * 9 * 4, 2 * 9 * 5, "broken", 2 * 9 * 7, 2 * 9 * 8]
    assert shown.getvalue().splitlines() == lines
    assert sys.stdout is shown
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.relu is relu
    assert torch.is_grad_enabled()
    assert warnings.filters == filters


@pytest.mark.torch
def test_a_model_that_calls_crossflops_is_refused():
    """A count within a count is refused in words."""
    import torch
    from torch import nn

    class Nested(nn.Module):
        def forward(self, x):
            crossflops.count(nn.Linear(7, 3), torch.zeros(1, 7))
            return x @ x

    with pytest.raises(CrossflopsError, match="calls crossflops in its own forward"):
        crossflops.count(Nested(), torch.zeros(2, 2))
