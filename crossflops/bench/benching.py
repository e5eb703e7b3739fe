"""A model run and timed in a worker process: the parent's side."""

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from crossflops.bench.order import Answer, Order, Ran, Refusal
from crossflops.errors import NormalizeError, relay
from crossflops.ir.measurement import Unfit
from crossflops.plugins.failures import shortened, speaks_of_memory

_QUOTED = 300


def bench(order: Order, seconds: float, folder: str) -> Ran | Unfit:
    """Run the order in a process of its own, which may take so many seconds.

    Whatever becomes of that process is an Unfit; raises NormalizeError where the request is
    wrong at any batch. Files of the run lie in `folder`.
    """
    with tempfile.TemporaryDirectory(dir=folder) as place:
        asked, answer = Path(place, "order.json"), Path(place, "answer.json")
        asked.write_bytes(msgspec.json.encode(order))
        # -P keeps the current directory off the front of sys.path
        command = [sys.executable, "-P", "-m", "crossflops.bench.bencher"]
        try:
            done = subprocess.run(
                [*command, str(asked), str(answer)],
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
