"""Run TensorFlow's profiler (tensorflow/python/profiler/model_analyzer.py)."""

import contextlib
import importlib
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from crossflops.errors import InputError, MissingExtraError
from crossflops.frontends.tensorflow import FRONTEND
from crossflops.frontends.tensorflow.load.quiet import quieting_tensorflow
from crossflops.ir.profile import Entry, Profile
from crossflops.ir.trace import Setting
from crossflops.plugins.adapter import exact

# One installs TensorFlow under several names; the first that is there owns the package.
_DISTRIBUTIONS = ("tensorflow", "tensorflow-cpu", "tensorflow-macos", "tf-nightly")


class TensorFlowProfiler:
    """The adapter of `tf.compat.v1.profiler`, which counts the float operations of a frozen
    graph.
    """

    name = "tensorflow"
    convention = "tensorflow"
    distribution = "tensorflow"

    def version(self) -> str:
        """Return the version of the installed TensorFlow; raise MissingExtraError if it is not
        installed.
        """
        for name in _DISTRIBUTIONS:
            with contextlib.suppress(PackageNotFoundError):
                return version(name)
        raise MissingExtraError("TensorFlow is not installed", "pip install tensorflow")

    def load(self) -> None:
        """Import TensorFlow, Keras and the profiler."""
        self.version()
        for name in ("tensorflow", "keras", "tensorflow.python.profiler.model_analyzer"):
            importlib.import_module(name)

    def accepts(self, model: object) -> bool:
        """Return whether the model is a Keras model or layer, a function, a SavedModel or a frozen
        graph.
        """
        return FRONTEND.recognizes(model)

    @quieting_tensorflow()
    def profile(
        self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], setting: Setting
    ) -> Profile:
        """Return what the profiler prints for the frozen graph: `total_float_ops`, and the float
        operations of each module.

        Nothing is run, and the model stays as it is. Gradients on or off are the same to it, but
        for a training step: that is a graph with the gradients beside the outputs.
        """
        if setting.device != "cpu":
            raise InputError(
                f"this tool counts programs for the CPU only, not for {setting.device}",
                "write Setting(device='cpu'), or leave out device",
            )
        whole = importlib.import_module("crossflops.frontends.tensorflow.program")
        steps = importlib.import_module("crossflops.frontends.tensorflow.observe.training_step")
        seen = whole.record_frozen_model(model, args, kwargs, setting)
        frozen = seen.operation_graph
        if setting.step:
            frozen = steps.freeze_training_step(seen.traced, seen.layers, setting.step)
        printed = _profile_graph(frozen)
        amounts: Counter[str] = Counter()
        for name, amount in _float_operations_by_name(printed):
            path = seen.layers.rows[seen.layers.operation_scope(name)[1]].path
            for around in _path_and_ancestors(path):
                amounts[around] += amount
        return Profile(
            tool=self.name,
            version=self.version(),
            setting=setting,
            total=exact(printed.total_float_ops),
            printed_as="float_ops",
            entries=tuple(Entry(path, amount) for path, amount in sorted(amounts.items())),
        )


def _profile_graph(graph: Any) -> Any:
    """Return the profiler's tree of name scopes with their float operations (GraphNodeProto)."""
    profiler = importlib.import_module("tensorflow").compat.v1.profiler
    builder = profiler.ProfileOptionBuilder
    options = (
        builder(builder.float_operation())
        .with_empty_output()
        .with_max_depth(100_000)
        .order_by("name")
        .build()
    )
    return profiler.profile(graph, cmd="scope", options=options)


def _float_operations_by_name(node: Any) -> Iterator[tuple[str, int]]:
    """Yield (operation name, its float operations) for each operation below the node that has any;
    scopes have none of their own.
    """
    todo = [node]
    for descendant in todo:
        if descendant.float_ops:
            yield descendant.name, int(descendant.float_ops)
        todo.extend(descendant.children)


def _path_and_ancestors(path: str) -> tuple[str, ...]:
    """Return the path of a module and the paths of its ancestors, the innermost first and the
    model "" last.
    """
    paths = [path]
    while path:
        path = path.rpartition(".")[0]
        paths.append(path)
    return tuple(paths)
