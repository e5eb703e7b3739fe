"""ONNX's own node tests: 1884 small models that come with the package, and what they tell."""

import functools
import re
import warnings
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from crossflops.ir.graph import TensorSpec

_TWIN = re.compile(r"_expanded(_ver\d+)?$")


@functools.cache
def cases() -> dict[str, Any]:
    """The node tests of the installed onnx, by name."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return {case.name: case for case in load_model_tests(kind="node")}


def pairs() -> list[tuple[str, str]]:
    """The tests that ONNX also has with the operator replaced by its function body."""
    twins = ((_TWIN.sub("", name), name) for name in cases() if _TWIN.search(name))
    return [(whole, expanded) for whole, expanded in twins if whole in cases()]


def specs(case: Any) -> tuple[TensorSpec, ...]:
    """The shapes of a test's inputs, those that are tensors."""
    tensors = {v.name for v in case.model.graph.input if v.type.HasField("tensor_type")}
    return tuple(
        TensorSpec(name, "", value.shape)
        for name, value in fed(case).items()
        if name in tensors and isinstance(value, np.ndarray)
    )


def fed(case: Any) -> dict[str, np.ndarray]:
    """The first data of a test, by the names of its inputs."""
    names = [value.name for value in case.model.graph.input]
    return dict(zip(names, case.data_sets[0][0], strict=False))


def with_learned_shapes(case: Any) -> onnx.ModelProto:
    """The model with the shapes in it that ONNX's reference implementation finds on its data."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        known = ReferenceEvaluator(model).run(None, fed(case), intermediate=True)
    outputs = {value.name: value for value in model.graph.output}
    made = {name for node in model.graph.node for name in node.output}
    del model.graph.value_info[:]
    for name in made & known.keys():
        if isinstance(known[name], np.ndarray | np.generic):
            array = np.asarray(known[name])
            kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
            value = onnx.helper.make_tensor_value_info(name, kind, array.shape)
            if name in outputs:
                outputs[name].CopyFrom(value)
            else:
                model.graph.value_info.append(value)
    return model
