"""A converter that does not end is ended, with a message, whatever it is busy with."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from functools import partial
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="a system that cannot fork")
_PROGRAM = """
    import sys, time
    from crossflops.cli.supervision import run_supervised, set_converter_timeout
    from crossflops.frontends.conversion import announcing_converter

    def refuse(message, hint, status):
        print(f"{message} | {hint}", file=sys.stderr)
        return status

    def wait():
        # Python hears a signal that comes between two of its instructions and a sleep after it
        while True:
            time.sleep(0.05)

    def run():
        BODY

    sys.exit(run_supervised(["count"], run, refuse))
"""


def _started(body: str) -> "subprocess.Popen[str]":
    lines = textwrap.indent(textwrap.dedent(body).strip(), "        ").strip()
    code = textwrap.dedent(_PROGRAM.replace("BODY", lines))
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # as in a terminal
    )


def _done(body: str) -> tuple[int, str, str]:
    process = _started(body)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_a_converter_that_runs_away_is_ended_with_a_message() -> None:
    """It sleeps, and hears Ctrl-C."""
    begin = time.monotonic()
    status, _, err = _done("""
        set_converter_timeout(0.3)
        with announcing_converter("jax2onnx"):
            wait()
    """)
    assert status == 2
    assert "jax2onnx did not finish within 0.3 s" in err
    assert "--timeout" in err
    assert time.monotonic() - begin < 30


def test_one_that_hears_no_signal_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Native code that holds every lock hears nothing: neither does who ignores Ctrl-C."""
    status, _, err = _done("""
        import crossflops.cli.supervision, signal
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        set_converter_timeout(0.2)
        with announcing_converter("tf2onnx"):
            wait()
    """)
    assert status == 2
    assert "tf2onnx did not finish within 0.2 s" in err


def test_what_takes_its_time_outside_a_converter_is_left_alone() -> None:
    """A tool, or a model that is built, has limits of its own."""
    status, out, err = _done("""
        set_converter_timeout(0.1)
        with announcing_converter("torch"):
            pass
        time.sleep(0.5)
        print("done")
        return 1
    """)
    assert (status, out, err) == (1, "done\n", "")


def test_every_conversion_has_its_own_time() -> None:
    """Three of 0.3 s are within 0.6 s each."""
    status, out, _ = _done("""
        set_converter_timeout(0.6)
        for _ in range(3):
            with announcing_converter("skl2onnx"):
                time.sleep(0.3)
        print("done")
        return 0
    """)
    assert (status, out) == (0, "done\n")


def test_a_process_that_the_system_kills_says_so() -> None:
    """As where memory is short."""
    status, _, err = _done("""
        import os, signal
        with announcing_converter("tf2onnx"):
            os.kill(os.getpid(), signal.SIGKILL)
    """)
    assert status == 2
    assert "SIGKILL while tf2onnx converted the model" in err
    assert "memory" in err


def test_a_signal_reaches_the_verb() -> None:
    """Whoever started the command ends the verb with it."""
    process = _started("""
        try:
            print("up", flush=True)
            wait()
        except KeyboardInterrupt:
            print("cleaned up", flush=True)
            return 130
    """)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "cleaned up\n")


def test_the_verb_ends_with_the_process_that_was_started() -> None:
    """Nothing runs on when the command was killed."""
    process = _started("""
        import os
        print(os.getpid(), flush=True)
        wait()
    """)
    assert process.stdout is not None
    verb = int(process.stdout.readline())
    process.kill()
    process.wait(timeout=60)
    for _ in range(600):
        try:
            os.kill(verb, 0)
        except ProcessLookupError:
            return
        state = Path(f"/proc/{verb}/stat")
        if state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.05)
    pytest.fail("the verb outlived its parent")


def test_a_signal_that_is_ignored_stays_so() -> None:
    """As under nohup, or in the background of a script: the verb goes on."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import signal, sys, time\n"
            "from crossflops.cli.supervision import run_supervised\n"
            "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
            "def run():\n"
            "    print('up', flush=True)\n"
            "    time.sleep(1)\n"
            "    return 7\n"
            "sys.exit(run_supervised(['count'], run, None))\n",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 7


def test_a_signal_that_was_asked_for_needs_no_words() -> None:
    """The status is that of a shell; nobody speaks of memory."""
    process = _started("""
        print("up", flush=True)
        wait()
    """)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (128 + signal.SIGTERM, "", "")


def test_native_code_that_crashes_is_told_from_a_lack_of_memory() -> None:
    """A segmentation fault of a library, or of the model."""
    status, _, err = _done("""
        import os, signal
        os.kill(os.getpid(), signal.SIGSEGV)
    """)
    assert status == 2
    assert "SIGSEGV" in err
    assert "native code crashed" in err
    assert "memory" not in err


def test_a_model_that_swallows_interrupts_is_killed_at_the_third() -> None:
    """Whoever presses Ctrl-C three times means it."""
    process = _started("""
        while True:
            try:
                print("up", flush=True)
                wait()
            except KeyboardInterrupt:
                pass
    """)
    assert process.stdout is not None
    for _ in range(3):
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "")


@pytest.mark.parametrize("status", [0, 1])
def test_a_model_that_ends_the_process_is_no_success(status: int) -> None:
    """Nothing was counted, whatever status the model chose."""
    exit_code, _, err = _done(f"""
        import os
        os._exit({status})
    """)
    assert exit_code == 2
    assert f"ended the process with exit status {status}" in err


def test_what_a_verb_left_for_its_end_is_done() -> None:
    """A thread that is no daemon finishes, what was registered runs, and all text is written."""
    run = subprocess.run(
        [
            sys.executable,
            "-c",
            "import atexit, sys, threading, time\n"
            "from crossflops.cli.supervision import run_supervised\n"
            "def later():\n"
            "    time.sleep(0.5)\n"
            "    print('thread')\n"
            "def run():\n"
            "    atexit.register(print, 'registered')\n"
            "    threading.Thread(target=later).start()\n"
            "    sys.stderr.write('no line')\n"
            "    return 7\n"
            "sys.exit(run_supervised(['count'], run, None))\n",
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (run.returncode, run.stdout, run.stderr) == (7, "thread\nregistered\n", "no line")
