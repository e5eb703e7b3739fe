"""Whether a runtime takes a model of one node: onnxruntime, or else ONNX's reference."""

import functools
import os
import pickle
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

# What is wrong with values, or is missing in a kernel, is no word about sizes.
_OF_VALUES = re.compile(
    "out of data bounds|invalid ind|out of bounds|sequence_lens|Unexpected mode|"
    "index found|must be in the range|index (is )?out of range|gather_elements.cc|"
    "tensorscatter.cc|without antialias|mode only supports|"
    "duplicate value|Issues with types"
)

# `crossflops.bench` lets this process run operator sets that are not released, which onnxruntime
# then expands by their functions. Which of the two runtimes a case is held against must not
# depend on the tests before it.
_UNRELEASED = "ALLOW_RELEASED_ONNX_OPSET_ONLY"


def with_operands(
    model: onnx.ModelProto, arrays: dict[str, np.ndarray], stored: set[str]
) -> onnx.ModelProto:
    """The model with these inputs, some of which are stored in it; nothing is said of results."""
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    for value in list(copied.graph.input):
        array = arrays[value.name]
        if value.name in stored:
            copied.graph.input.remove(value)
            copied.graph.initializer.append(onnx.numpy_helper.from_array(array, value.name))
            continue
        shape = value.type.tensor_type.shape
        del shape.dim[:]
        shape.SetInParent()
        for size in array.shape:
            shape.dim.add().dim_value = size
    for value in copied.graph.output:
        if value.type.HasField("tensor_type"):  # what is not said of a type stays unsaid
            value.type.tensor_type.ClearField("shape")
    return copied


def obstacle(model: onnx.ModelProto, arrays: dict[str, np.ndarray], reference: bool) -> str | None:
    """Why the runtime does not run the model, "" if it does.

    None where it says nothing about sizes, or crashes: it runs in a process of its own.
    """
    runner = _runner()
    try:
        pickle.dump((model.SerializeToString(), arrays, reference), runner.stdin)
        runner.stdin.flush()
        message = pickle.load(runner.stdout)
    except (EOFError, BrokenPipeError):
        _runner.cache_clear()  # wrong sizes made the runtime read what is not there
        runner.wait()
        return None
    return None if _OF_VALUES.search(message) else message


@functools.cache
def _runner() -> subprocess.Popen:
    """The process that runs models, until one of them ends it."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.runs"],
        cwd=Path(__file__).parents[1],
        env={key: value for key, value in os.environ.items() if key != _UNRELEASED},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def _run(model: onnx.ModelProto, arrays: dict[str, np.ndarray], reference: bool) -> str:
    kept = {value.name for value in model.graph.input}
    given = {name: array for name, array in arrays.items() if name in kept}
    try:
        if reference:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                ReferenceEvaluator(model).run(None, given)
        else:
            _session(model).run(None, given)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _session(model: onnx.ModelProto):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    data = model.SerializeToString()
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def _serve() -> None:
    """Answer whoever started this process, until nobody asks."""
    while True:
        try:
            data, arrays, reference = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        answer = _run(onnx.ModelProto.FromString(data), arrays, reference)
        pickle.dump(answer, sys.stdout.buffer)
        sys.stdout.flush()


if __name__ == "__main__":
    _serve()
