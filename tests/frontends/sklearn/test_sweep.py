"""Every estimator that skl2onnx converts: counted, and of the shapes that onnxruntime makes."""

import pytest

from crossflops.errors import NormalizeError
from crossflops.frontends import build_model_program
from crossflops.frontends.inputs import ProvidedInputs, parse_inputs
from crossflops.ir.trace import Setting
from crossflops.ledger.count import count
from crossflops.targets import model_source

pytest.importorskip("sklearn")
skl2onnx = pytest.importorskip("skl2onnx")

from skl2onnx._supported_operators import sklearn_operator_name_map  # noqa: E402

from tests.estimators import fitted  # noqa: E402

pytestmark = pytest.mark.sklearn

# Of skl2onnx, no estimators of scikit-learn that one could fit; and one of dictionaries, which
# have no shape.
HELPERS = {"CastRegressor", "CastTransformer", "ReplaceTransformer", "_ConstantPredictor"}
HELPERS |= {"DictVectorizer"}
# What skl2onnx does not convert, with a word of why.
REFUSED = {
    "FeatureHasher": "type",
    "RandomTreesEmbedding": "sparse",
    "TunedThresholdClassifierCV": "a threshold that was found",
}
# What stays uncounted: operators on text, and what searches for missing values in the data.
UNCOUNTED = {
    "CountVectorizer": {"StringNormalizer", "Tokenizer", "TfIdfVectorizer"},
    "TfidfVectorizer": {"StringNormalizer", "Tokenizer", "TfIdfVectorizer"},
    "KNNImputer": None,
}
# What is counted and does not run: skl2onnx writes com.microsoft.Solve, which onnxruntime lacks.
WITHOUT_KERNEL = {"GaussianProcessClassifier"}
NAMES = sorted({estimator.__name__ for estimator in sklearn_operator_name_map} - HELPERS)


@pytest.mark.parametrize("name", NAMES)
def test_every_estimator_is_counted_or_says_why(name):
    """No node is without a count, but for what is named above."""
    model, texts = fitted(name)
    source = model_source(model, ProvidedInputs(specs=parse_inputs(texts)))
    if name in REFUSED:
        with pytest.raises(NormalizeError, match=REFUSED[name]):
            build_model_program(source, Setting())
        return
    data, graph, trace = build_model_program(source, Setting())
    ledger = count(graph)
    left = {gap.node.op.type for gap in ledger.uncounted}
    if name not in UNCOUNTED:
        assert not ledger.uncounted, [gap.reason for gap in ledger.uncounted]
        if name not in WITHOUT_KERNEL:
            _compare_shapes(data, graph)
    elif UNCOUNTED[name] is not None:
        assert left <= UNCOUNTED[name]
    assert left or name not in UNCOUNTED
    assert {row.node.path for row in ledger.counted} <= {row.path for row in trace.modules}


def _compare_shapes(data, graph):
    """Every tensor of the main graph has the shape that it has when it is computed."""
    onnxruntime = pytest.importorskip("onnxruntime")
    import numpy as np
    import onnx

    model = onnx.load_from_string(data)
    wanted = {
        output.name: output.shape for node in graph.nodes for output in node.outputs if output
    }
    there = {value.name for value in model.graph.output}
    model.graph.output.extend(
        onnx.ValueInfoProto(name=name) for name in wanted if name not in there
    )
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    kinds = {"tensor(float)": np.float32, "tensor(int64)": np.int64}
    given = {value.name: np.ones(value.shape, kinds[value.type]) for value in session.get_inputs()}
    names = [value.name for value in session.get_outputs()]
    outputs = dict(zip(names, session.run(names, given), strict=True))
    made = {name: outputs[name].shape for name in wanted if hasattr(outputs[name], "shape")}
    assert made == {name: wanted[name] for name in made}
    assert len(made) > len(wanted) / 2  # the others are sequences
