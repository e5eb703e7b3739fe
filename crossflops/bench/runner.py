"""`python -m crossflops.bench.runner`: runs one model in onnxruntime, in a process of its own.

The answer is an observation, or what is wrong. The conversation with it is that of all processes
(`crossflops.workers.conversation`).

Every kernel that runs leaves an event in onnxruntime's profile, with the name of its node and the
shapes of what it made: from these follow the shapes of values, and how often loops ran.
https://onnxruntime.ai/docs/performance/tune-performance/profiling-tools.html
"""

import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from crossflops.bench import session
from crossflops.bench.timing import Refusal
from crossflops.errors import CrossflopsError, print_traceback
from crossflops.ir.graph import TensorSpec
from crossflops.ir.measurement import Observation, SteadyTensor
from crossflops.load.order import node_subgraphs
from crossflops.targets.batch_arrays import arrays_of_inputs
from crossflops.workers.conversation import Wait, serve_order

_EVENT = "_kernel_time"
_LIFTED = ("Constant",)  # the runtime makes initializers of these: they leave no event
_DTYPES = {"float": "float32", "double": "float64"}
_RANDOM = (
    "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial",
    "Bernoulli",
)  # fmt: skip
Shapes = tuple[tuple[str, tuple[int, ...]], ...]


class Event(NamedTuple):
    """One kernel that ran: the node, and type and shape of each result."""

    node: str
    made: Shapes


def profile_events(trace: Iterable[Mapping[str, Any]]) -> Iterator[Event]:
    """Yield the kernels that ran according to a profile, in the order in which they ended."""
    for event in trace:
        if event.get("cat") == "Node" and str(event.get("name", "")).endswith(_EVENT):
            made = event.get("args", {}).get("output_type_shape", ())
            yield Event(
                str(event["name"]).removesuffix(_EVENT),
                tuple(
                    (_DTYPES.get(dtype, dtype), tuple(shape))
                    for item in made
                    for dtype, shape in item.items()
                ),
            )


def give_nodes_new_names(graph: Any, prefix: str = "n") -> None:
    """Give every node of an ONNX graph and its subgraphs a new unique name, in place."""
    for number, node in enumerate(graph.node):
        node.name = f"{prefix}{number}"
        for index, body in enumerate(node_subgraphs(node)):
            give_nodes_new_names(body, f"{node.name}.{index}.")


def steady_tensors(graph: Any, ran: Iterable[Event]) -> dict[str, SteadyTensor]:
    """Return the type and shape of each tensor, by name, if they were the same in every run of its
    node.
    """
    made: dict[str, set[Shapes]] = {}
    for event in ran:
        made.setdefault(event.node, set()).add(event.made)
    steady: dict[str, SteadyTensor] = {}
    for node in _all_proto_nodes(graph):
        names = [name for name in node.output if name]
        shapes = made.get(node.name, set())
        if len(shapes) == 1 and len(only := next(iter(shapes))) == len(names):
            steady |= {
                name: SteadyTensor(dtype, shape)
                for name, (dtype, shape) in zip(names, only, strict=True)
            }
    return steady


def draws_random_numbers(graph: Any) -> bool:
    """Return whether a node of the ONNX graph draws random numbers without a seed."""
    return any(
        node.op_type in _RANDOM and all(attr.name != "seed" for attr in node.attribute)
        for node in _all_proto_nodes(graph)
    )


def constant_trip_counts(graph: Any, runs: Mapping[str, int]) -> dict[str, int]:
    """Return the iterations of each Loop and Scan, by the name of its first output, if every run
    had the same number.

    Every node of a body runs once in an iteration. That none has run says that there was no
    iteration, unless the runtime replaced some node by others of its own.
    """
    counts = {}
    for node in _all_proto_nodes(graph):
        if node.op_type in ("Loop", "Scan") and runs.get(node.name) and node.output:
            (body,) = list(node_subgraphs(node))[:1]
            count = _body_run_count(body, runs)
            silent = not _nodes_with_kernel_events(body) or _has_unknown_kernels(graph, runs)
            if count % runs[node.name] == 0 and (count or not silent):
                counts[node.output[0]] = count // runs[node.name]
    return counts


def constant_branches(graph: Any, runs: Mapping[str, int]) -> dict[str, str]:
    """Return the branch ("then" or "else") of each If, by the name of its first output, if every
    run took the same one.

    A branch of constants leaves no event: it ran if the If did, and the other branch did not.
    """
    taken_by_if = {}
    replaced = _has_unknown_kernels(graph, runs)
    for node in _all_proto_nodes(graph):
        times = runs.get(node.name, 0)
        if node.op_type != "If" or not times or not node.output:
            continue
        inner = [attr for attr in node.attribute if attr.HasField("g")]
        sides = {branch.name.removesuffix("_branch"): branch.g for branch in inner}
        ran = {side: _body_run_count(body, runs) for side, body in sides.items()}
        taken = [side for side in sides if ran[side] == times]
        if not any(ran.values()) and not replaced:
            taken = [side for side, body in sides.items() if not _nodes_with_kernel_events(body)]
        if len(taken) == 1:
            taken_by_if[node.output[0]] = taken[0]
    return taken_by_if


def _has_unknown_kernels(graph: Any, runs: Mapping[str, int]) -> bool:
    """Return whether a kernel ran that is not a node of the ONNX graph."""
    return not runs.keys() <= {node.name for node in _all_proto_nodes(graph)}


def count_node_runs(ran: Iterable[Event]) -> dict[str, int]:
    """Return how often each node ran, by the name of the node."""
    return dict(Counter(event.node for event in ran))


def _body_run_count(body: Any, runs: Mapping[str, int]) -> int:
    """Return how often a body ran: the highest number of runs of a node in it."""
    return max((runs.get(node.name, 0) for node in body.node), default=0)


def _nodes_with_kernel_events(body: Any) -> list[Any]:
    """Return the nodes of a body that leave an event when they run; a Constant does not."""
    return [node for node in body.node if node.op_type not in _LIFTED]


def _all_proto_nodes(graph: Any) -> Iterator[Any]:
    """Yield the nodes of an ONNX graph and of all its subgraphs, at every depth."""
    for node in graph.node:
        yield node
        for body in node_subgraphs(node):
            yield from _all_proto_nodes(body)


class RunOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The model to run, its inputs, and the file for the answer.

    `memory_limit` bounds it, in bytes.
    """

    path: str
    specs: tuple[TensorSpec, ...]
    dims: dict[str, int]
    inputs_file: str | None
    memory_limit: int | None
    answer_path: str


class RunObservations(msgspec.Struct, frozen=True, tag_field="kind", tag="observed"):
    """The observations of a run."""

    observation: Observation


def main() -> None:
    """Read a run order from stdin, run it, write its answer to a file, and exit."""
    serve_order(RunOrder, answer_run_order)


def answer_run_order(order: RunOrder, wait: Wait) -> RunObservations | Refusal:
    """Run the model of an order; return what was observed, or the error."""
    try:
        return RunObservations(observe_ordered_run(order))
    except CrossflopsError as error:
        print_traceback(error)
        return Refusal(error.message, error.hint)
    except MemoryError:
        return Refusal("the run needs more memory than its limit", "give smaller inputs")
    except Exception as error:  # whatever the runtime raises is its word on the model
        print_traceback(error)
        return Refusal(f"onnxruntime: {error}", "check that onnxruntime can run the model")


def observe_ordered_run(order: RunOrder) -> Observation:
    """Run the model of an order once, without optimizations, and return what was observed."""
    module = session.import_onnxruntime()
    provided = arrays_of_inputs(order.inputs_file) if order.inputs_file else {}
    model = session.prepare_session_model(order.path, order.dims, order.specs, provided)
    feeds = session.make_model_inputs(model, provided)
    give_nodes_new_names(model.graph)
    ran = _run_with_profiler(module, model, feeds, str(Path(order.path).resolve().parent))
    runs = count_node_runs(ran)
    return Observation(
        runtime=f"onnxruntime {module.__version__}",
        inputs={
            name: SteadyTensor(str(value.dtype), value.shape) for name, value in feeds.items()
        },
        values=steady_tensors(model.graph, ran),
        trips=constant_trip_counts(model.graph, runs),
        branches=constant_branches(model.graph, runs),
        draws=draws_random_numbers(model.graph),
    )


def _run_with_profiler(module: Any, model: Any, feeds: dict[str, Any], folder: str) -> list[Event]:
    """Run an ONNX model once with the profiler of onnxruntime, and return the kernel events."""
    options = session.build_session_options(module, folder, threads=1, optimization="off")
    options.enable_profiling = True
    with tempfile.TemporaryDirectory() as index:
        options.profile_file_prefix = os.path.join(index, "run")
        data = session.to_model_bytes(model)
        run = module.InferenceSession(data, options, providers=session.PROVIDERS)
        run.run(None, feeds)
        written = Path(run.end_profiling()).read_text(encoding="utf-8")
    return list(profile_events(json.loads(written)))


if __name__ == "__main__":
    main()
