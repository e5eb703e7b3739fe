"""A model run in a process of its own, timed or watched: the parent's side."""

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from crossflops.bench.runner import Observed, RunOrder
from crossflops.bench.timing import Answer, Order, Ran, Refusal
from crossflops.errors import NormalizeError, relay
from crossflops.ir.graph import TensorSpec
from crossflops.ir.measurement import Observation, Unfit
from crossflops.plugins.failures import shortened, speaks_of_memory

SECONDS = 300.0  # a run that is watched may take so long,
MEMORY = 16 << 30  # and so many bytes
_QUOTED = 300
_QUOTED_OF_RUN = 200
# -P keeps the current directory off the front of sys.path
_PYTHON = (sys.executable, "-P", "-m")


def bench(order: Order, seconds: float, folder: str) -> Ran | Unfit:
    """Run the order in a process of its own, which may take so many seconds.

    Whatever becomes of that process is an Unfit; raises NormalizeError where the request is
    wrong at any batch. Files of the run lie in `folder`.
    """
    with tempfile.TemporaryDirectory(dir=folder) as place:
        order_file, answer = Path(place, "order.json"), Path(place, "answer.json")
        order_file.write_bytes(msgspec.json.encode(order))
        try:
            done = subprocess.run(
                [*_PYTHON, "crossflops.bench.bencher", str(order_file), str(answer)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=seconds,
            )
        except subprocess.TimeoutExpired:
            return Unfit(batch=order.batch, stage="time", message=f"stopped after {seconds:g} s")
        stderr = done.stderr.decode(errors="replace")
        relay(stderr)
        if not answer.is_file():
            return _ended(order.batch, done.returncode, stderr)
        answered: Answer = msgspec.json.decode(answer.read_bytes(), type=Answer)
    if isinstance(answered, Refusal):
        raise NormalizeError(answered.message, answered.hint)
    return answered


def _ended(batch: int, status: int, stderr: str) -> Unfit:
    """Why a process ended without an answer."""
    if speaks_of_memory(stderr):
        return Unfit(batch=batch, stage="memory", message="ran out of memory")
    if status == -signal.SIGKILL:
        message = "was killed: often the system ran out of memory"
        return Unfit(batch=batch, stage="memory", message=message)
    how = f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
    message = f"the process ended {how}: {' '.join(stderr.split())[-_QUOTED:]}"
    return Unfit(batch=batch, stage="crash", message=shortened(message, 2 * _QUOTED))


def observe(
    path: str,
    specs: tuple[TensorSpec, ...] = (),
    dims: dict[str, int] | None = None,
    inputs_file: str | None = None,
    seconds: float = SECONDS,
    memory: int | None = MEMORY,
) -> Observation:
    """What a run of the file in onnxruntime shows: shapes of all values, iterations, branches.

    Inputs come from `inputs_file`; else floats are random and everything else is zero. Raises
    NormalizeError when onnxruntime is missing, refuses the model, crashes, or exceeds a limit.
    """
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "answer.json")
        order = RunOrder(
            path=path,
            specs=specs,
            dims=dims or {},
            inputs_file=inputs_file,
            memory=memory,
            answer=str(answer),
        )
        status, stderr = _process(order, seconds)
        if not answer.is_file():
            how = f"signal {-status}" if status < 0 else f"status {status}"
            raise NormalizeError(f"the run ended with {how}: {stderr}", "give smaller inputs")
        answered = msgspec.json.decode(answer.read_bytes(), type=Observed | Refusal)
    if isinstance(answered, Refusal):
        raise NormalizeError(answered.message, answered.hint)
    return answered.observation


def _process(order: RunOrder, seconds: float) -> tuple[int, str]:
    """How the worker ended, and the end of what it said."""
    command = [*_PYTHON, "crossflops.bench.runner"]
    try:
        done = subprocess.run(
            command, input=msgspec.json.encode(order), capture_output=True, timeout=seconds
        )
    except subprocess.TimeoutExpired as error:
        message = f"the run takes longer than {seconds:g} s"
        raise NormalizeError(message, "give smaller inputs, or the sizes without a run") from error
    stderr = done.stderr.decode(errors="replace")
    relay(stderr)
    return done.returncode, " ".join(stderr.split())[-_QUOTED_OF_RUN:]
