"""Estimators of scikit-learn in files, and their bounds in reports."""

import numpy as np
import pytest

import crossflops
from crossflops.errors import CrossflopsError
from crossflops.frontends import build_model_program, normalize
from crossflops.frontends.inputs import parse_inputs
from crossflops.ir.trace import Setting
from crossflops.ledger.count import count
from crossflops.render.terminal import terminal
from crossflops.targets import load_target_source, source_from_object

pytest.importorskip("sklearn")
pytest.importorskip("skl2onnx")

from tests.estimators import data, fitted, made

pytestmark = pytest.mark.sklearn

X, Y = data()


def test_pickles_are_read_on_demand_only(tmp_path):
    """A `.joblib` file runs code when it is read."""
    joblib = pytest.importorskip("joblib")
    path = tmp_path / "model.joblib"
    joblib.dump(made("LogisticRegression").fit(X, Y), path)
    with pytest.raises(CrossflopsError, match="is a pickle"):
        load_target_source(str(path), {}, parse_inputs(["1x4"]))
    source = load_target_source(str(path), {}, parse_inputs(["1x4"]), allow_pickle=True)
    assert count(normalize(source, Setting())[0]).total.macs == 12


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("LogisticRegression", 12 + 3),
        ("StandardScaler", 4 + 4),
        ("Ridge", 4 + 1),
        ("MLPClassifier", 4 * 5 + 5 + 5 * 3 + 3),
    ],
)
def test_a_file_tells_of_the_same_parameters(name, params, tmp_path):
    """Of a bare file they stand in attributes, where the operator is of ai.onnx.ml."""
    model = fitted(name)[0]
    data, graph, _ = build_model_program(source_from_object(model, X[:1]), Setting())
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    file, _ = normalize(load_target_source(str(path), {}, ()), Setting())
    assert (file.params, graph.params) == (params, params)
    assert file.param_bytes >= 4 * params


def test_a_file_of_a_tree_has_thresholds_and_values(tmp_path):
    """A threshold for each inner node, and what is stored of the leaves."""
    model = made("DecisionTreeRegressor", max_depth=2, random_state=0).fit(X, X[:, 0])
    path = tmp_path / "tree.onnx"
    path.write_bytes(
        build_model_program(source_from_object(model, X[:1].astype(np.float32)), Setting())[0]
    )
    file, _ = normalize(load_target_source(str(path), {}, ()), Setting())
    assert file.params == 3 + 4


def test_a_bound_is_marked_in_text_and_json():
    """At the node and at the total of FLOPs; the MACs of the same model are exact."""
    model = made("RandomForestClassifier", n_estimators=3, random_state=0).fit(X, Y)
    pipeline = made("Pipeline", steps=[("linear", made("PCA", n_components=2)), ("forest", model)])
    report = crossflops.count(pipeline.fit(X, Y), X[:1])
    plain = report.to_dict()
    assert plain["totals"]["exactness"] == {"macs": "exact", "flops": "bound"}
    by_op = {node["op"]: node["exactness"] for node in plain["nodes"]}
    assert by_op["ai.onnx.ml.TreeEnsembleClassifier"] == "bound"
    assert by_op["MatMul"] == "exact"
    text = terminal(report, 100)
    assert "native, an upper bound" in text
    assert "at most: 2 x MACs" in text
    assert "Bounds and estimates" in text
    exact = terminal(crossflops.count(fitted("Pipeline")[0], X[:1]), 100)
    assert "at most" not in exact


FITTING = """
import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

x = np.random.default_rng(0).normal(size=(30, 4)).astype("float32")
y = (x[:, 0] > 0).astype(int)


def forest():
    return RandomForestClassifier(3, max_depth=2, n_jobs=2).fit(x, y)


def search():
    return GridSearchCV(LogisticRegression(), {"C": [1.0, 2.0]}, n_jobs=1).fit(x, y)
"""


@pytest.mark.parametrize(("name", "macs"), [("forest", 0), ("search", 3 * 4)])
def test_a_callable_that_fits_in_parallel(name, macs, tmp_path):
    """scikit-learn reads the filters of warnings for its workers: ours are among them."""
    path = tmp_path / "fitting.py"
    path.write_text(FITTING, "utf-8")
    assert crossflops.count(f"{path}:{name}", "3x4").totals.macs == macs
