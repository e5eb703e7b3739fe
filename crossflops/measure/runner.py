"""`python -m crossflops.measure.runner`: runs one model in onnxruntime, in a process of its own.

Reads an order from stdin, and writes an observation, or what is wrong, to the file in it.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from crossflops.adapters.limits import limit_memory
from crossflops.core.observation import Observation, Seen
from crossflops.core.tensor import TensorSpec
from crossflops.errors import CrossflopsError, InputError, MissingExtraError, NormalizeError
from crossflops.load.payload import ELEMENT_TYPES
from crossflops.load.protobuf import parse
from crossflops.load.validation import validate
from crossflops.measure import profile
from crossflops.normalize.onnx_file import binding, functions

_FOLDER = "session.model_external_initializers_file_folder_path"
_NEWEST = "ALLOW_RELEASED_ONNX_OPSET_ONLY"  # operator sets newer than the runtime are tried
_FORMAT = 10  # what later formats add (devices, notes) is no matter of a run, but is refused
INSTALL = "pip install 'crossflops[runtime]'"


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """Which model to run on what, and where the answer goes. `memory` bounds it, in bytes."""

    path: str
    specs: tuple[TensorSpec, ...]
    dims: dict[str, int]
    inputs_file: str | None
    memory: int | None
    answer: str


class Refusal(msgspec.Struct, frozen=True, tag=True):
    """Why there is no observation."""

    message: str
    hint: str


class Answer(msgspec.Struct, frozen=True, tag=True):
    """What was observed."""

    observation: Observation


def main() -> None:
    """Answer the one order."""
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    limit_memory(order.memory)
    answer: Answer | Refusal
    try:
        answer = Answer(observed(order))
    except CrossflopsError as error:
        answer = Refusal(error.message, error.hint)
    except MemoryError:
        answer = Refusal("the run needs more memory than it may have", "give smaller inputs")
    except Exception as error:  # whatever the runtime raises is its word on the model
        answer = Refusal(f"onnxruntime: {error}", "see whether the model runs there at all")
    Path(order.answer).write_bytes(msgspec.json.encode(answer))


def observed(order: Order) -> Observation:
    """Run the model once, unoptimized, so that every node of the file runs by itself."""
    os.environ[_NEWEST] = "0"
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError("onnxruntime is not installed", INSTALL) from error
    model = parse(Path(order.path).read_bytes())
    validate(model)
    feeds = _from_file(order.inputs_file) if order.inputs_file else {}
    given = [TensorSpec(name, "", array.shape) for name, array in feeds.items()]
    binding.bind(model.graph, order.dims, (*order.specs, *given))
    feeds = {one.name: _made(one, feeds) for one in binding.model_inputs(model.graph)}
    local = functions.local(model)
    if functions.expanded_size(model, local) <= functions.LIMIT:
        functions.inline(model, local)
    profile.name_nodes(model.graph)
    model.ir_version = min(model.ir_version, _FORMAT)
    ran = _run(onnxruntime, model, feeds, str(Path(order.path).resolve().parent))
    runs = profile.counted(ran)
    return Observation(
        runtime=f"onnxruntime {onnxruntime.__version__}",
        inputs={name: Seen(str(value.dtype), value.shape) for name, value in feeds.items()},
        values=profile.values(model.graph, ran),
        trips=profile.trips(model.graph, runs),
        branches=profile.branches(model.graph, runs),
    )


def _run(runtime: Any, model: Any, feeds: dict[str, Any], folder: str) -> list[profile.Event]:
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.enable_profiling = True
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.add_session_config_entry(_FOLDER, folder)
    with tempfile.TemporaryDirectory() as place:
        options.profile_file_prefix = os.path.join(place, "run")
        try:
            data = model.SerializeToString()
        except ValueError as error:
            what = "the model is too large to be run from memory"
            raise NormalizeError(what, "store its weights as external data") from error
        session = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        session.run(None, feeds)
        written = Path(session.end_profiling()).read_text(encoding="utf-8")
    return list(profile.events(json.loads(written)))


def _from_file(path: str) -> dict[str, Any]:
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as arrays:
            return dict(arrays.items())
    except (OSError, ValueError, TypeError, EOFError) as error:
        raise InputError(f"cannot read the inputs in {path}: {error}", "numpy.savez") from error


def _made(value: Any, given: dict[str, Any]) -> Any:
    """The value that is given, else random floats, and zeros of other types."""
    import numpy as np

    if value.name in given:
        return given[value.name]
    kind = value.type.tensor_type
    dtype = ELEMENT_TYPES.get(kind.elem_type, "")
    if value.type.WhichOneof("value") != "tensor_type" or not hasattr(np, dtype or "?"):
        what = f"no input {value.name!r} of type {dtype or 'sequence or optional'} can be made up"
        raise InputError(what, f"give it a tensor: --inputs FILE.npz with {value.name!r}")
    shape = tuple(dim.dim_value for dim in kind.shape.dim)
    if dtype.startswith("float"):
        return np.random.default_rng(0).standard_normal(shape).astype(dtype)
    return np.zeros(shape, dtype=dtype)


if __name__ == "__main__":
    main()
