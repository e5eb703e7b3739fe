"""Run a model in a process of its own, to time or to observe it: the side of the parent."""

import signal
import tempfile
from pathlib import Path

import msgspec

from crossflops.bench.runner import RunObservations, RunOrder
from crossflops.bench.timing import Answer, Order, Ran, Refusal
from crossflops.errors import NormalizeError
from crossflops.ir.graph import TensorSpec
from crossflops.ir.measurement import Observation, Unfit
from crossflops.plugins.failures import says_memory_ran_out, shorten_line
from crossflops.workers.process import ProcessEnd, run_single_process

SECONDS = 300.0  # a run that is watched may take so long,
MEMORY = 16 << 30  # and so many bytes
_QUOTED = 300
_QUOTED_OF_RUN = 200


_BENCHER = "crossflops.bench.bencher"


def run_bench_order(
    order: Order, seconds: float, folder: str, worker: str = _BENCHER
) -> Ran | Unfit:
    """Run a bench order in a new process for at most `seconds`; return its measurements, or why it
    could not run.

    `worker` is the module that answers it.

    Whatever becomes of that process is an Unfit; raises NormalizeError where the request is
    wrong at any batch. Files of the run lie in `folder`.
    """
    with tempfile.TemporaryDirectory(dir=folder) as index:
        order = msgspec.structs.replace(order, answer_path=str(Path(index, "answer.json")))
        ended = run_single_process(worker, order, Path(index), seconds)
        if ended.overdue:
            return Unfit(batch=order.batch, stage="time", message=f"stopped after {seconds:g} s")
        if not Path(order.answer_path).is_file():
            return _explain_missing_answer(order.batch, ended)
        answered: Answer = msgspec.json.decode(Path(order.answer_path).read_bytes(), type=Answer)
    if isinstance(answered, Refusal):
        raise NormalizeError(answered.message, answered.hint)
    return answered


def _explain_missing_answer(batch: int, ended: ProcessEnd) -> Unfit:
    """Return why a process ended without an answer: out of memory, killed or crashed."""
    if says_memory_ran_out(ended.output):
        return Unfit(batch=batch, stage="memory", message="ran out of memory")
    if ended.status == -signal.SIGKILL:
        message = "was killed, often because the system ran out of memory"
        return Unfit(batch=batch, stage="memory", message=message)
    message = (
        f"the process ended {ended.how_it_ended}: {' '.join(ended.output.split())[-_QUOTED:]}"
    )
    return Unfit(batch=batch, stage="crash", message=shorten_line(message, 2 * _QUOTED))


def observe_file_run(
    path: str,
    specs: tuple[TensorSpec, ...] = (),
    dims: dict[str, int] | None = None,
    inputs_file: str | None = None,
    seconds: float = SECONDS,
    memory: int | None = MEMORY,
) -> Observation:
    """Run an ONNX file once in onnxruntime; return the observed shapes of values, iterations of
    loops and chosen branches.

    Inputs come from `inputs_file`; else floats are random and everything else is zero. Raises
    NormalizeError when onnxruntime is missing, refuses the model, crashes, or exceeds a limit.
    """
    with tempfile.TemporaryDirectory() as folder:
        order = RunOrder(
            path=path,
            specs=specs,
            dims=dims or {},
            inputs_file=inputs_file,
            memory_limit=memory,
            answer_path=str(Path(folder, "answer.json")),
        )
        ended = run_single_process("crossflops.bench.runner", order, Path(folder), seconds)
        if ended.overdue:
            raise NormalizeError(
                f"the run did not finish within {seconds:g} s",
                "give smaller inputs, or leave out --observe",
            )
        if not Path(order.answer_path).is_file():
            quoted = " ".join(ended.output.split())[-_QUOTED_OF_RUN:]
            raise NormalizeError(
                f"the process that ran the model ended {ended.how_it_ended}: {quoted}",
                "give smaller inputs, such as --input x=1x3x64x64",
            )
        answered = msgspec.json.decode(
            Path(order.answer_path).read_bytes(), type=RunObservations | Refusal
        )
    if isinstance(answered, Refusal):
        raise NormalizeError(answered.message, answered.hint)
    return answered.observation
