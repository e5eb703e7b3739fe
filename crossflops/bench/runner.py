"""`python -m crossflops.bench.runner`: runs one model in onnxruntime, in a process of its own.

Reads an order from stdin, and writes an observation, or what is wrong, to the file in it.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from crossflops.bench import profile, session
from crossflops.bench.order import Refusal
from crossflops.errors import CrossflopsError, print_traceback
from crossflops.frontends.inputs import from_archive
from crossflops.ir.measurement import Observation, SteadyTensor
from crossflops.ir.tensor import TensorSpec
from crossflops.workers.memory import limit_memory


class RunOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Which model to run on what, and where the answer goes. `memory` bounds it, in bytes."""

    path: str
    specs: tuple[TensorSpec, ...]
    dims: dict[str, int]
    inputs_file: str | None
    memory: int | None
    answer: str


class Observed(msgspec.Struct, frozen=True, tag_field="kind", tag="observed"):
    """What was observed."""

    observation: Observation


def main() -> None:
    """Answer the one order."""
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=RunOrder)
    limit_memory(order.memory)
    answer: Observed | Refusal
    try:
        answer = Observed(observed(order))
    except CrossflopsError as error:
        print_traceback(error)
        answer = Refusal(error.message, error.hint)
    except MemoryError:
        answer = Refusal("the run needs more memory than it may have", "give smaller inputs")
    except Exception as error:  # whatever the runtime raises is its word on the model
        print_traceback(error)
        answer = Refusal(f"onnxruntime: {error}", "see whether the model runs there at all")
    Path(order.answer).write_bytes(msgspec.json.encode(answer))


def observed(order: RunOrder) -> Observation:
    """Run the model once, unoptimized, so that every node of the file runs by itself."""
    module = session.runtime()
    given = from_archive(order.inputs_file) if order.inputs_file else {}
    model = session.prepared(order.path, order.dims, order.specs, given)
    feeds = session.feed(model, given)
    profile.name_nodes(model.graph)
    ran = _run(module, model, feeds, str(Path(order.path).resolve().parent))
    runs = profile.counted(ran)
    return Observation(
        runtime=f"onnxruntime {module.__version__}",
        inputs={
            name: SteadyTensor(str(value.dtype), value.shape) for name, value in feeds.items()
        },
        values=profile.values(model.graph, ran),
        trips=profile.trips(model.graph, runs),
        branches=profile.branches(model.graph, runs),
        draws=profile.draws(model.graph),
    )


def _run(module: Any, model: Any, feeds: dict[str, Any], folder: str) -> list[profile.Event]:
    options = session.options(module, folder, threads=1, optimization="off")
    options.enable_profiling = True
    with tempfile.TemporaryDirectory() as place:
        options.profile_file_prefix = os.path.join(place, "run")
        data = session.serialized(model)
        run = module.InferenceSession(data, options, providers=session.PROVIDERS)
        run.run(None, feeds)
        written = Path(run.end_profiling()).read_text(encoding="utf-8")
    return list(profile.events(json.loads(written)))


if __name__ == "__main__":
    main()
