"""A model run once in a worker process, within limits: what shapes alone do not tell."""

import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from crossflops.bench.order import Refusal
from crossflops.bench.runner import Observed, RunOrder
from crossflops.errors import NormalizeError, relay
from crossflops.ir.measurement import Observation
from crossflops.ir.tensor import TensorSpec

SECONDS = 300.0
MEMORY = 16 << 30
_QUOTED = 200


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
    command = [sys.executable, "-P", "-m", "crossflops.bench.runner"]
    try:
        done = subprocess.run(
            command, input=msgspec.json.encode(order), capture_output=True, timeout=seconds
        )
    except subprocess.TimeoutExpired as error:
        message = f"the run takes longer than {seconds:g} s"
        raise NormalizeError(message, "give smaller inputs, or the sizes without a run") from error
    stderr = done.stderr.decode(errors="replace")
    relay(stderr)
    return done.returncode, " ".join(stderr.split())[-_QUOTED:]
