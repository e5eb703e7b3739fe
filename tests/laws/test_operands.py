"""A count holds only for a graph that can run: what a runtime refuses for its sizes, so do we.

The oracle is onnxruntime, and ONNX's reference implementation for what that does not know.
"""

import functools
import os
import re
from collections import defaultdict

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from crossflops.errors import CrossflopsError
from crossflops.frontends.onnx.reading import normalize_onnx_bytes
from crossflops.ir.trace import Setting
from crossflops.ledger.count import count
from crossflops.operators import reasons_for_missing_rules
from tests.node_tests import cases, fed
from tests.onnx_files import parsed
from tests.operand_cases import models
from tests.runs import obstacle, with_operands

pytest.importorskip("onnxruntime")
pytestmark = [
    pytest.mark.onnxruntime,
    pytest.mark.filterwarnings("ignore::crossflops.errors.CrossflopsWarning"),
]

# What onnxruntime runs although the specification rules it out: it computes these by reshaping.
LAXER = {
    "GatherND": "batches of the indices that the data does not have",
    "GroupNormalization": "scale and bias of any shape with the right number of elements",
    "QLinearSoftmax": "scales and zero points of several elements, of which it reads the first",
    "NegativeLogLikelihoodLoss": "weights for other classes than there are",
    "SoftmaxCrossEntropyLoss": "weights for other classes than there are",
}
# What onnxruntime does not run although the specification has it, or on some processors.
LACKS = re.compile(
    "supported blocked layout|"
    "inconsistent q_sequence_length|inconsistent total_sequence_length|"
    "Dilation not supported for AutoPadType|padding values must be non-negative|"
    "attn_mask must be 2D or 3D or 4D|QLinearMatmul : input (scale|zero point) must be a scalar"
)
few = settings(max_examples=250, suppress_health_check=list(HealthCheck))


def refusal(model):
    """What the counter says is wrong with a model, or ""."""
    fork = os.fork
    del os.fork
    try:
        count(normalize_onnx_bytes(model.SerializeToString(), "m", Setting())[0])
    except CrossflopsError as error:
        return error.message
    finally:
        os.fork = fork
    return ""


@functools.cache
def nodes():
    """Models of one node with operands that fit, by operator."""
    by_operator = defaultdict(list)
    for case in cases().values():
        arrays, (first, *more) = fed(case), case.model.graph.node
        arrays = {
            name: np.asarray(value) if isinstance(value, np.generic) else value
            for name, value in arrays.items()
        }
        if not more and all(isinstance(value, np.ndarray) for value in arrays.values()):
            by_operator[f"{first.domain}.{first.op_type}"].append((case.model, arrays))
    rng = np.random.default_rng(0)
    for model in models().values():
        arrays = {}
        for value in model.graph.input:
            tensor = value.type.tensor_type
            dims = [dim.dim_value for dim in tensor.shape.dim]
            kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
            arrays[value.name] = np.asarray(rng.random(dims) * (kind.kind == "f"), kind)
        (node,) = model.graph.node
        by_operator[f"{node.domain}.{node.op_type}"].append((model, arrays))
    return {
        op: of_it
        for op, of_it in by_operator.items()
        if op.removeprefix(".") not in reasons_for_missing_rules()
    }


def small(model, arrays):
    """The inputs behind the first that are lists of a few whole numbers: their values matter."""
    first = next(iter(model.graph.node[0].input), "")
    return {
        name
        for name, array in arrays.items()
        if name != first and array.dtype.kind == "i" and array.ndim < 2 and array.size <= 16
    }


@functools.cache
def needs_reference(op, number):
    """Whether onnxruntime does not run this case; None when the reference does not, either."""
    model, arrays = nodes()[op][number]
    base = with_operands(model, arrays, small(model, arrays))
    for reference in (False, True):
        if obstacle(base, arrays, reference) == "":
            return reference
    return None


def changed(draw, shape):
    """Another shape, a little away from this one, with nothing empty in it."""
    shapes = [(*shape, 1), (1, *shape), (2, *shape)]
    shapes += [shape[1:], shape[:-1]] if shape else []
    for axis, size in enumerate(shape):
        others = {size + 1, max(size - 1, 1), 2 * size, 1} - {size}
        shapes += [(*shape[:axis], other, *shape[axis + 1 :]) for other in sorted(others)]
    return draw(st.sampled_from(shapes))


@few
@given(st.data())
def test_what_a_runtime_refuses_is_refused(data):
    """One operand of a node that runs gets another shape: it still runs, or we refuse it, too."""
    op = data.draw(st.sampled_from(sorted(nodes())))
    number = data.draw(st.integers(0, len(nodes()[op]) - 1))
    model, arrays = nodes()[op][number]
    reference = needs_reference(op, number)
    assume(arrays)
    name = data.draw(st.sampled_from(sorted(arrays)))
    assume(arrays[name].size)
    shape = changed(data.draw, arrays[name].shape)
    arrays = {**arrays, name: np.resize(arrays[name], shape)}
    altered = with_operands(model, arrays, small(model, nodes()[op][number][1]))
    theirs = obstacle(altered, arrays, reference)
    assume(theirs is not None and not LACKS.search(theirs))
    ours = refusal(altered)
    if theirs:
        assert ours, (op, {key: value.shape for key, value in arrays.items()}, theirs)
    elif not reference and op.partition(".")[2] not in LAXER:
        assert not ours, (op, {key: value.shape for key, value in arrays.items()}, ours)


def longer_or_shorter(draw, model):
    """The model with one list of whole numbers of its node a little away from what it was."""
    altered = onnx.ModelProto()
    altered.CopyFrom(model)
    (node,) = altered.graph.node
    lists = [
        attribute
        for attribute in node.attribute
        if attribute.type == onnx.AttributeProto.INTS and attribute.ints
    ]
    assume(lists)
    numbers = draw(st.sampled_from(lists)).ints
    change = draw(st.sampled_from(["longer", "shorter", "other"]))
    if change == "longer":
        numbers.append(1)
    elif change == "shorter":
        numbers.pop()
    else:
        numbers[draw(st.integers(0, len(numbers) - 1))] += draw(st.sampled_from([1, 5]))
    return altered


@few
@given(st.data())
def test_attributes_that_a_runtime_refuses_are_refused(data):
    """One list among the attributes of a node that runs gets another length, or number."""
    op = data.draw(st.sampled_from([op for op in sorted(nodes()) if with_list(op)]))
    number = data.draw(st.integers(0, len(nodes()[op]) - 1))
    model, arrays = nodes()[op][number]
    altered = longer_or_shorter(data.draw, with_operands(model, arrays, small(model, arrays)))
    reference = needs_reference(op, number)
    theirs = obstacle(altered, arrays, reference)
    assume(theirs is not None and not LACKS.search(theirs))
    ours = refusal(altered)
    if theirs:
        assert ours, (op, altered.graph.node, theirs)
    elif not reference:
        assert not ours, (op, altered.graph.node, ours)


@functools.cache
def with_list(op):
    """Whether any node of the operator has a list of whole numbers, and is no fitted model."""
    return not op.startswith("ai.onnx.ml") and any(
        attribute.type == onnx.AttributeProto.INTS and attribute.ints
        for model, _ in nodes()[op]
        for attribute in model.graph.node[0].attribute
    )


def test_every_case_runs():
    """A case that neither runtime runs would be held against nothing, in silence."""
    cases_ = [(op, number) for op in sorted(nodes()) for number in range(len(nodes()[op]))]
    assert [case for case in cases_ if needs_reference(*case) is None] == []


size = st.integers(1, 3)


kernel, channels, wide = st.integers(1, 3), st.sampled_from([2, 4]), st.sampled_from([1, 2])
features, hidden = st.sampled_from([2, 3]), st.sampled_from([2, 2, 3])
# Inputs with their sizes, some of which are drawn, and the node.
CONTRACTIONS = (
    (
        {"x": (1, channels, size, size), "w": (channels, wide, kernel, kernel), "b": (channels,)},
        "Conv <group={}> (x, w, b)",
    ),
    (
        {"x": (1, channels, size, size), "w": (channels, wide, kernel, kernel)},
        "ConvTranspose <group={}> (x, w)",
    ),
    ({"a": (size, size, features), "b": (features, 2)}, "MatMul (a, b)"),
    ({"a": (size, 2, features), "b": (size, features, 2)}, "MatMul (a, b)"),
    ({"a": (2, features), "b": (features, 3), "c": (size,)}, "Gemm <transA={}> (a, b, c)"),
    ({"a": (features, features), "b": (features, 2)}, 'Einsum <equation="ij,jk->ik"> (a, b)'),
    (
        {
            "x": (3, 1, features),
            "w": (1, hidden.map(lambda n: 4 * n), features),
            "r": (1, 8, hidden),
        },
        "LSTM <hidden_size=2> (x, w, r)",
    ),
    (
        {
            "x": (3, 1, features),
            "w": (1, hidden.map(lambda n: 3 * n), features),
            "r": (1, 6, hidden),
        },
        "GRU <hidden_size=2> (x, w, r)",
    ),
)


@st.composite
def contractions(draw):
    """A contraction with operands of sizes that are drawn one by one: some of them fit."""
    operands, words = draw(st.sampled_from(CONTRACTIONS))
    tensors = (
        (name, [dim if isinstance(dim, int) else draw(dim) for dim in dims])
        for name, dims in operands.items()
    )
    inputs = ", ".join(f"float[{','.join(map(str, dims))}] {name}" for name, dims in tensors)
    return inputs, words.format(draw(st.integers(0, 1) if "trans" in words else wide))


@few
@given(contractions())
def test_a_contraction_runs_where_it_counts(case):
    """Sizes that are drawn one by one fit by chance: onnxruntime and the counter agree on it."""
    inputs, words = case
    results = "y, h" if words.startswith(("LSTM", "GRU")) else "y"
    text = f"g ({inputs}) => ({results}) {{ {results} = {words} }}"
    model = parsed(text)
    arrays = {
        value.name: np.ones([d.dim_value for d in value.type.tensor_type.shape.dim], np.float32)
        for value in model.graph.input
    }
    theirs = obstacle(model, arrays, reference=False)
    assume(theirs is not None)
    assert bool(theirs) is bool(refusal(model)), (text, theirs)
