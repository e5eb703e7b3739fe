"""Estimators that skl2onnx refuses for what does not change their prediction: counted by hand."""

import numpy as np
import pytest

import crossflops
from crossflops.errors import NormalizeError
from crossflops.frontends import normalize
from crossflops.frontends.inputs import ProvidedInputs, parse_inputs
from crossflops.ir.trace import Setting
from crossflops.ledger.count import count
from crossflops.targets import model_source, source_from_object

pytest.importorskip("sklearn")
pytest.importorskip("skl2onnx")

from tests.estimators import data, made

pytestmark = pytest.mark.sklearn

X, Y = data()
LINEAR = 4 * 3  # MACs of four features and three classes


def counted(model):
    """Graph, trace and ledger for one row; no node is left out."""
    graph, trace = normalize(source_from_object(model, X[:1]), Setting())
    ledger = count(graph)
    assert not ledger.uncounted
    return graph, trace, ledger


@pytest.mark.parametrize("voting", ["hard", "soft"])
def test_a_vote_as_it_is_made_by_default(voting):
    """`flatten_transform` is about `transform`; afterwards it is what it was."""
    members = [("one", made("LogisticRegression")), ("two", made("LogisticRegression", C=9.0))]
    model = made("VotingClassifier", estimators=members, voting=voting).fit(X, Y)
    _, trace, ledger = counted(model)
    assert ledger.total.macs == 2 * LINEAR
    assert {"one", "two"} <= {row.path for row in trace.modules}
    assert model.flatten_transform is True


def test_steps_that_pass_their_input_through():
    """They do nothing, and are there again afterwards."""
    steps = [("nothing", "passthrough"), ("last", made("LogisticRegression"))]
    model = made("Pipeline", steps=steps).fit(X, Y)
    assert counted(model)[2].total.macs == LINEAR
    assert [name for name, _ in model.steps] == ["nothing", "last"]


@pytest.mark.parametrize("inside", [False, True])
def test_a_random_search(inside):
    """What it predicts with is its best estimator, alone or in a pipeline."""
    search = made(
        "RandomizedSearchCV", estimator=made("LogisticRegression"), cv=2, n_iter=2,
        param_distributions={"C": [0.1, 1.0]}, random_state=0,
    )  # fmt: skip
    model = made("Pipeline", steps=[("search", search)]) if inside else search
    graph, trace, ledger = counted(model.fit(X, Y))
    assert ledger.total.macs == LINEAR
    assert graph.params == LINEAR + 3
    path = "search.best_estimator" if inside else "best_estimator"
    assert path in {row.path for row in trace.modules}


def test_pipelines_of_transformers_in_columns():
    """Two features are scaled, two pass: 2 subtractions and 2 muls before 4 x 3 MACs."""
    scaled = made("Pipeline", steps=[("a", made("MinMaxScaler")), ("b", made("StandardScaler"))])
    columns = made(
        "ColumnTransformer", transformers=[("scaled", scaled, [0, 1])], remainder="passthrough"
    )
    model = made("Pipeline", steps=[("columns", columns), ("last", made("LogisticRegression"))])
    _, trace, ledger = counted(model.fit(X, Y))
    assert ledger.total.macs == LINEAR
    by_path = {row.node.path: row.cost for row in ledger.counted if row.node.op.type == "Scaler"}
    assert by_path["columns.scaled.b"].adds == by_path["columns.scaled.b"].muls == 2
    assert "columns.scaled.a" in {row.path for row in trace.modules}


def test_histograms_of_gradients():
    """To the deepest leaf of every tree, whose value is added up, as is the baseline: a bound."""
    model = made("HistGradientBoostingRegressor", max_iter=4, min_samples_leaf=3, random_state=0)
    model.fit(X, X[:, 0] + np.abs(X[:, 1]))
    trees = [tree for (tree,) in model._predictors]
    graph, _, ledger = counted(model)
    assert ledger.total.compares == sum(tree.get_max_depth() for tree in trees)
    assert ledger.total.adds == len(trees) + 1
    assert [row.exactness for row in ledger.counted] == ["bound"]
    # as many thresholds as inner nodes, a value for each leaf, and the baseline
    assert graph.params == sum(tree.get_n_leaf_nodes() * 2 - 1 for tree in trees) + 1


def test_what_follows_a_text():
    """Splitting it has no count; a product of 7 words and 3 classes for each of two rows does."""
    texts = ["some words here", "other words there", "some more text"]
    steps = [("words", made("TfidfVectorizer")), ("last", made("LogisticRegression"))]
    model = made("Pipeline", steps=steps).fit(texts, [0, 1, 2])
    source = model_source(model, ProvidedInputs(specs=parse_inputs(["2x1:string"])))
    ledger = count(normalize(source, Setting())[0])
    names = {gap.node.op.type for gap in ledger.uncounted}
    assert names == {"StringNormalizer", "Tokenizer", "TfIdfVectorizer"}
    assert len(model[0].vocabulary_) == 7
    assert ledger.total.macs == 2 * 7 * 3


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("name", ["KMeans", "MiniBatchKMeans"])
@pytest.mark.parametrize("scaled", [False, True])
def test_clusters_of_any_number_of_rows(name, rows, scaled):
    """A product of four features and four centers for each row, also behind another step."""
    model = made(name, n_clusters=4, n_init=1)
    if scaled:
        model = made("Pipeline", steps=[("scaled", made("StandardScaler")), ("last", model)])
    source = model_source(model.fit(X), ProvidedInputs(specs=parse_inputs([f"{rows}x4"])))
    ledger = count(normalize(source, Setting())[0])
    assert not ledger.uncounted
    assert ledger.total.macs == rows * 4 * 4


@pytest.mark.parametrize(
    ("name", "products"),
    [("middle", 3 * 4 + 3), ("union", 3 * 4 + 7), ("columns", 3 * 2 + 5), ("last", 3 * 4)],
)
def test_clusters_as_a_step_give_distances(name, products):
    """Rows x 3 centers x features, and one weight for each feature of the classifier behind."""
    from sklearn.cluster import KMeans
    from sklearn.compose import ColumnTransformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import FeatureUnion, make_pipeline
    from sklearn.preprocessing import StandardScaler

    clusters, scaler = KMeans(3, n_init=1, random_state=0), StandardScaler()
    pair = [("clusters", clusters), ("scaler", scaler)]
    sides = [(*pair[0], [0, 1]), (*pair[1], [2, 3])]
    steps = {
        "middle": [scaler, clusters, LogisticRegression()],
        "union": [FeatureUnion(pair), LogisticRegression()],
        "columns": [ColumnTransformer(sides), LogisticRegression()],
        "last": [clusters, "passthrough"],
    }
    rows = np.random.default_rng(0).random((40, 4)).astype("float32")
    model = make_pipeline(*steps[name]).fit(rows, rows[:, 0] > 0.5)
    report = crossflops.count(model, inputs=["7x4"])
    assert report.totals.macs == 7 * products
    # one compare labels a row of two classes; which center is nearest is not asked
    assert report.totals.compares == (0 if name == "last" else 7)


def test_a_transform_without_a_converter_is_named():
    """skl2onnx knows what discriminants predict, and would hand labels on."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.pipeline import FeatureUnion

    rows = np.random.default_rng(0).random((40, 4)).astype("float32")
    model = FeatureUnion([("lda", LinearDiscriminantAnalysis())]).fit(rows, rows[:, 0] > 0.5)
    with pytest.raises(NormalizeError, match=r"LinearDiscriminantAnalysis\.transform"):
        crossflops.count(model, inputs=["7x4"])
