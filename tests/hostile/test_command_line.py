"""Every hostile file as a user meets it: one line of what, one of what to do, soon, in little."""

import os
import resource
import subprocess
import sys

import pytest

from tests.hostile.files import FILES, outside
from tests.onnx_files import parsed, saved

SECONDS, BYTES = 15, 512 << 20  # of processor time, and of address space: also of a child
PATIENCE = 120  # by the clock, of a machine that may be busy


def count(path, *options, beyond=0):
    """Exit status, stdout and stderr of the command. `beyond`: bytes of a file that it may map."""

    def limit():
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (BYTES + beyond, BYTES + beyond))

    done = subprocess.run(
        [sys.executable, "-m", "crossflops", "count", str(path), *options],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        preexec_fn=limit,
        stdin=subprocess.DEVNULL,
    )
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 2), done.stderr
    return done.returncode, done.stdout, done.stderr


def refused(path, words, **options):
    """The command ends with status 2, and says so in two lines."""
    status, _, err = count(path, **options)
    lines = [line for line in err.splitlines() if not line.startswith("warning:")]
    assert status == 2
    assert [line.partition(":")[0] for line in lines] == ["error", "hint"]
    assert words in lines[0]


@pytest.mark.parametrize("name", FILES)
def test_a_hostile_file(name, tmp_path):
    """It is counted, or refused with the words that say where."""
    content, words = FILES[name]
    path = saved(tmp_path, content)
    if words is not None:
        return refused(path, words)
    status, shown, err = count(path)
    assert status == 0, err
    assert "MACs" in shown
    return None


def test_external_data_is_never_opened(tmp_path):
    """A named pipe in place of the data would be waited for by whoever opened it."""
    os.mkfifo(tmp_path / "weights")
    status, _, _ = count(saved(tmp_path, outside("weights")))
    assert status == 0


def test_a_folder(tmp_path):
    """A folder with the suffix of a file."""
    (tmp_path / "folder.onnx").mkdir()
    refused(tmp_path / "folder.onnx", "folder.onnx: Is a directory")


def test_a_named_pipe(tmp_path):
    """Nobody writes into it, and nobody waits for that."""
    os.mkfifo(tmp_path / "pipe.onnx")
    refused(tmp_path / "pipe.onnx", "it is not a regular file")


def test_a_device(tmp_path):
    """It never ends, so it is not begun."""
    (tmp_path / "zero.onnx").symlink_to("/dev/zero")
    refused(tmp_path / "zero.onnx", "it is not a regular file")


@pytest.mark.parametrize("target", ["loop.onnx", "nowhere"])
def test_a_link_that_leads_nowhere(target, tmp_path):
    """To itself, or to what is not there."""
    (tmp_path / "loop.onnx").symlink_to(target)
    refused(tmp_path / "loop.onnx", "loop.onnx")


def test_a_link_to_a_file(tmp_path):
    """It counts as the file does."""
    path = saved(tmp_path, parsed("g (float[4] x) => (y) { y = Relu(x) }"))
    (tmp_path / "link.onnx").symlink_to(path)
    assert count(tmp_path / "link.onnx")[0] == 0


def test_a_file_of_ten_gigabytes(tmp_path):
    """A hole of zeros: nothing of it is a model."""
    path = tmp_path / "hole.onnx"
    with path.open("wb") as file:
        file.truncate(10 << 30)
    refused(path, "byte 0", beyond=10 << 30)
    refused(path, "cannot read")  # where so much may not even be mapped


def test_a_file_that_may_not_be_read(tmp_path):
    """No permission is an error like any other (whoever may read everything reads it)."""
    path = saved(tmp_path, parsed("g (float[4] x) => (y) { y = Relu(x) }"))
    os.chmod(path, 0)
    if os.access(path, os.R_OK):
        assert count(path)[0] == 0
    else:
        refused(path, "cannot read")


@pytest.fixture
def started(tmp_path):
    """Runs the command on a small file in a shell, with its streams as they are redirected."""
    saved(tmp_path, parsed("g (float[4] x) => (y) { y = Relu(x) }"))

    def run(arguments):
        command = f"'{sys.executable}' -m crossflops {arguments}; echo status $?"
        done = subprocess.run(
            ["sh", "-c", command],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        *out, status = done.stdout.splitlines()
        return int(status.removeprefix("status ")), out, done.stderr

    return run


@pytest.mark.parametrize("options", ["", "--json"])
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a system without a full device")
def test_stdout_that_cannot_be_written_is_an_error(started, options):
    """What is wrong and what to do, and Python has nothing to add when it ends."""
    status, _, err = started(f"count model.onnx {options} > /dev/full")
    assert status == 2
    wrong, remedy = err.splitlines()
    assert wrong == "error: cannot write to stdout: No space left on device"
    assert remedy.startswith("hint: ")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a system without a full device")
@pytest.mark.parametrize(
    ("arguments", "status"),
    [("count model.onnx -o report.json", 0), ("count missing.onnx", 2),
     ("count missing.onnx --debug", 2)],
)  # fmt: skip
def test_a_full_stderr_changes_no_status(started, arguments, status):
    """1 would say that a check did not hold."""
    assert started(f"{arguments} 2> /dev/full") == (status, [], "")


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_lead_nowhere(started, closed, tmp_path):
    """As a daemon starts its children: the result is in the file, and only there."""
    status, out, err = started(f"count model.onnx --json -o report.md {closed}")
    assert status == 0, err
    assert bool(out) is (">&-" not in closed.replace("2>&-", ""))
    assert "Error" not in err
    assert (tmp_path / "report.md").read_text().startswith("# model.onnx")


@pytest.mark.parametrize("arguments", ["count --help", "--help", "explain thop"])
def test_a_reader_that_is_gone_is_no_error(started, arguments, tmp_path):
    """`true` reads nothing of it."""
    line = f"'{sys.executable}' -m crossflops {arguments}"
    _, _, err = started(f"--version > /dev/null; {{ {line}; echo $? > status; }} | true")
    assert err == ""
    assert (tmp_path / "status").read_text() == "0\n"
