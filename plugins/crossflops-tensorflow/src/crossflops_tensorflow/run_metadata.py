"""Count a graph with the profiler after a run in a session, which tells it the open shapes
(RunMetadata).

Source: tensorflow/python/profiler/tfprof_logger.py, `_fill_missing_graph_shape`: a result whose
shape is open in the graph takes that of the operation of the same name in the run, if the run has
as many results of it.
"""

import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple


class RunCount(NamedTuple):
    """The numbers that the profiler prints for a graph after a run of it.

    `total` is `total_float_ops`; `by_type` the amounts by type of operation; `not_run` the
    operations with an open shape that the run did not show, which therefore count 0.
    """

    total: int
    by_type: dict[str, int]
    not_run: tuple[str, ...]


def profile_run(graph: Any, feeds: Mapping[str, Any], fetches: list[str]) -> RunCount:
    """Run `fetches` of a tf.Graph on `feeds` (arrays by tensor name); return what the profiler
    then prints.

    The shapes that the run shows are written into the graph, and those of the feeds: no run shows
    a tensor that is fed, so the profiler by itself would lose the first convolution. It runs with
    Grappler off, whose fusions would take operations out of the run. oneDNN's rewriting cannot be
    switched off for a session: set TF_ENABLE_ONEDNN_OPTS=0 before TensorFlow is imported, or
    convolutions with an open batch are in `not_run`. Raises what TensorFlow raises on wrong names
    and shapes.
    """
    v1 = importlib.import_module("tensorflow").compat.v1
    run = v1.RunMetadata()
    options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
    for name, value in feeds.items():
        graph.get_tensor_by_name(name).set_shape(value.shape)
    with v1.Session(graph=graph, config=_config_without_rewrites(v1)) as session:
        session.run(fetches, dict(feeds), options=options, run_metadata=run)
    profiled = _profile_run_metadata(v1, graph, run)
    return RunCount(
        total=int(profiled.total_float_ops),
        by_type=dict(_float_operations_by_type(profiled)),
        not_run=tuple(
            operation.name
            for operation in graph.get_operations()
            if not all(result.shape.is_fully_defined() for result in operation.outputs)
        ),
    )


def _config_without_rewrites(v1: Any) -> Any:
    """Return the configuration of a session that runs the operations of the graph and no
    others.
    """
    config = v1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = -1
    config.graph_options.optimizer_options.do_constant_folding = False
    return config


def _profile_run_metadata(v1: Any, graph: Any, run: Any) -> Any:
    """Return the profiler's result by type of operation, a chain of nodes
    (MultiGraphNodeProto).
    """
    builder = v1.profiler.ProfileOptionBuilder
    options = builder(builder.float_operation()).with_empty_output().build()
    return v1.profiler.profile(graph, run_meta=run, cmd="op", options=options)


def _float_operations_by_type(node: Any) -> list[tuple[str, int]]:
    """Return (type of operation, its float operations) for each type; the node of a type has the
    next type as its only child.
    """
    counts = []
    todo = [node]
    for descendant in todo:
        if descendant.float_ops:
            counts.append((descendant.name, int(descendant.float_ops)))
        todo.extend(descendant.children)
    return counts
