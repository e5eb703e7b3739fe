"""Estimators of scikit-learn: what is counted, by hand, where it stands, and what is refused."""

import sys

import numpy as np
import pytest

from crossflops.errors import CrossflopsWarning, InputError, MissingExtraError, NormalizeError
from crossflops.frontends import normalize
from crossflops.frontends.inputs import ProvidedInputs, parse_inputs
from crossflops.ir.trace import Setting
from crossflops.ledger.count import count
from crossflops.targets import model_source, source_from_object

pytest.importorskip("sklearn")
pytest.importorskip("skl2onnx")

from tests.estimators import FEATURES, data, fitted, made

pytestmark = pytest.mark.sklearn

X, Y = data()
CLASSES = 3


def counted(model, *texts):
    """Graph, trace and ledger of an estimator on inputs of these texts."""
    source = model_source(model, ProvidedInputs(specs=parse_inputs(texts or ("1x4",))))
    graph, trace = normalize(source, Setting())
    return graph, trace, count(graph)


def work(model, *texts):
    """The cost of an estimator, with no node left out, as a tuple by kind."""
    ledger = counted(model, *texts)[2]
    assert not ledger.uncounted
    cost = ledger.total
    return cost.macs, cost.adds, cost.muls, cost.divs, cost.compares, cost.specials


class TestByHand:
    """All work of one row, written out."""

    def test_logistic_regression(self):
        """Scores of 4 features for 3 classes, the largest of them, softmax, then L1 norms.

        Softmax as the counter has it: 2 compares, 3 subtractions, 3 exp, 2 adds, 3 divs. The
        norm of the three probabilities: 3 |p| as compares, 2 adds, 3 divs.
        """
        model = made("LogisticRegression").fit(X, Y)
        adds = CLASSES + (3 + 2) + 2
        assert work(model) == (4 * 3, adds, 0, 3 + 3, 2 + 2 + 3, 3)
        assert counted(model)[0].params == model.coef_.size + model.intercept_.size == 15

    def test_logistic_regression_of_two_classes(self):
        """One column of 4 weights and a bias; its negative, beside it, is skl2onnx's."""
        model = made("LogisticRegression").fit(X, Y % 2)
        graph, _, ledger = counted(model)
        assert ledger.total.macs == 4
        assert sum(row.converter_macs for row in ledger.counted) == 4
        assert graph.params == 5

    def test_multi_layer_perceptron(self):
        """4 -> 5 -> 3: two products with biases, 5 ReLUs, softmax of 3 and the largest."""
        model = fitted("MLPClassifier")[0]
        macs = 4 * 5 + 5 * 3
        assert work(model) == (macs, 5 + 3 + (3 + 2), 0, 3, 5 + 2 + 2, 3)
        assert counted(model)[0].params == macs + 5 + 3

    def test_rows_multiply(self):
        """Seven rows cost seven times as much."""
        model = fitted("MLPClassifier")[0]
        assert work(model, "7x4") == tuple(7 * amount for amount in work(model))

    def test_random_forest_is_a_bound(self):
        """To the deepest leaf of every tree, whose three values are added, and the largest."""
        model = made("RandomForestClassifier", n_estimators=5, random_state=0).fit(X, Y)
        deepest = sum(estimator.tree_.max_depth for estimator in model.estimators_)
        graph, _, ledger = counted(model)
        # every leaf that is pure holds one class, the others more: at most all that a leaf has
        values = [
            estimator.tree_.value[estimator.tree_.children_left < 0][:, 0]
            for estimator in model.estimators_
        ]
        entries = sum(int((leaf > 0).sum(axis=1).max()) for leaf in values)
        assert ledger.total.compares == deepest + (CLASSES - 1)
        assert entries <= ledger.total.adds <= 5 * CLASSES
        assert [row.exactness for row in ledger.counted] == ["bound"]
        inner = sum(
            int((estimator.tree_.children_left >= 0).sum()) for estimator in model.estimators_
        )
        leaves = sum(estimator.tree_.n_leaves for estimator in model.estimators_)
        assert graph.params == inner + CLASSES * leaves

    def test_no_row_walks_further(self):
        """The path of every row of the training data is at most as long as what is counted."""
        model = made("RandomForestClassifier", n_estimators=5, random_state=0).fit(X, Y)
        walked = model.decision_path(X)[0].sum(axis=1).max() - 5  # nodes, leaves among them
        assert walked <= counted(model)[2].total.compares - (CLASSES - 1)

    def test_support_vectors(self):
        """V kernels of 4 features, (E-1) V weights, E (E-1) / 2 decisions; then one-vs-rest.

        RBF: 4 + 3 adds, 4 + 1 muls, an exp.
        """
        model = made("SVC").fit(X, Y)
        vectors = len(model.support_vectors_)
        ledger = counted(model)[2]
        assert not ledger.uncounted
        machine = next(row for row in ledger.counted if row.node.op.type == "SVMClassifier")
        cost = machine.cost
        assert cost.macs == (CLASSES - 1) * vectors
        assert cost.adds == 7 * vectors + 3
        assert (cost.muls, cost.specials) == (5 * vectors, vectors)
        assert cost.compares == 3 + (CLASSES - 1)
        assert machine.exactness == "exact"

    def test_probabilities_of_support_vectors_are_an_estimate(self):
        """Coupling them iterates, as often as it takes."""
        model = made("NuSVC", probability=True, random_state=0).fit(X, Y)
        assert "estimate" in {row.exactness for row in counted(model)[2].counted}

    def test_neighbours(self):
        """30 distances of 4 features (4 subtractions, 4 squares, 3 adds, a root), then votes."""
        model = made("KNeighborsClassifier", n_neighbors=5).fit(X, Y)
        graph, _, ledger = counted(model)
        assert not ledger.uncounted
        by_type = {}
        for row in ledger.counted:
            by_type.setdefault(row.node.op.type, []).append(row.cost)
        assert sum(cost.adds for cost in by_type["Sub"]) == 30 * 4
        squares = by_type["ReduceSumSquare"][0]
        assert (squares.muls, squares.adds) == (30 * 4, 30 * 3)
        assert by_type["Sqrt"][0].specials == 30
        assert sum(cost.compares for cost in by_type["Equal"]) == CLASSES * 5
        assert sum(cost.divs for cost in by_type["Div"]) == CLASSES
        assert graph.params == 30 * 4  # the examples

    def test_pipeline_with_scaling(self):
        """4 subtractions and 4 muls before the classifier; each step is a module."""
        model = fitted("Pipeline")[0]
        bare = work(model[-1])
        scaled = work(model)
        assert scaled == (bare[0], bare[1] + 4, bare[2] + 4, *bare[3:])
        graph, trace, ledger = counted(model)
        places = {row.node.op.type: row.node.path for row in ledger.counted}
        assert places["Scaler"] == "standardscaler"
        assert places["LinearClassifier"] == "logisticregression"
        assert [(module.path, module.class_name) for module in trace.modules] == [
            ("", "Pipeline"),
            ("standardscaler", "StandardScaler"),
            ("logisticregression", "LogisticRegression"),
        ]
        scaler = trace.modules[1]
        assert {param.name for param in scaler.params} == {"mean_", "scale_"}
        assert graph.params == 2 * FEATURES + 15


def test_what_is_in_ensembles_and_unions_is_a_module():
    """Names that users gave are paths; parameters of trees are those of their forest."""
    union = made("FeatureUnion", transformer_list=[("a.b", made("PCA", n_components=2))])
    forest = made("RandomForestClassifier", n_estimators=2, random_state=0)
    model = made("Pipeline", steps=[("both", union), ("forest", forest)]).fit(X, Y)
    _, trace, ledger = counted(model)
    assert not ledger.uncounted
    rows = {module.path: module for module in trace.modules}
    assert list(rows) == ["", "both", "both.a_b", "forest"]
    assert sum(param.numel for param in rows["both.a_b"].params) == 2 * 4 + 4
    assert rows["forest"].params[0].name == "estimators.0.tree_.threshold"
    assert {row.node.path for row in ledger.counted} >= {"both.a_b", "forest"}


def test_shapes_are_checked_before_anything_is_converted():
    """The number of features that was fitted is known."""
    model = made("LogisticRegression").fit(X, Y)
    with pytest.raises(InputError, match="but the input has the shape 1x5") as caught:
        counted(model, "1x5")
    assert "--input 1x4" in caught.value.hint
    with pytest.warns(CrossflopsWarning, match="--batch changes it"):
        graph, _ = normalize(source_from_object(model, ()), Setting())
    assert graph.inputs[0].shape == (1, 4)
    model.feature_names_in_ = np.array(list("abcd"))  # whose types are not known
    with pytest.raises(InputError, match="shape of the model's input is missing"):
        normalize(source_from_object(model, ()), Setting())


def test_arrays_and_columns_are_inputs():
    """X itself, a list of rows, or one input for each column, of its own type."""
    model = made("LogisticRegression").fit(X, Y)
    for given in (X[:1], X[:1].tolist()):
        graph, _ = normalize(source_from_object(model, given), Setting())
        assert graph.inputs[0].shape == (1, 4)
        assert count(graph).total.macs == 12
    pairs = [("left", made("StandardScaler"), [0]), ("right", made("OneHotEncoder"), [1])]
    columns = made("ColumnTransformer", transformers=pairs).fit(np.stack([X[:, 0], Y], axis=1))
    graph, _, ledger = counted(columns, "size=1x1", "kind=1x1")
    assert [value.name for value in graph.inputs] == ["size", "kind"]
    assert not ledger.uncounted


@pytest.mark.parametrize(
    "model",
    [made("LogisticRegression"), made("Pipeline", steps=[("scaler", made("StandardScaler"))])],
)
def test_what_is_not_fitted_is_refused(model):
    """One line what, one line what to do."""
    with pytest.raises(InputError, match="is not fitted") as caught:
        source_from_object(model, X[:1])
    assert ".fit(X, y)" in caught.value.hint


def test_what_skl2onnx_cannot_convert_is_named():
    """It has no converter for this one, and says so in three lines."""
    model = made("NMF", n_components=2).fit(np.abs(X))
    with pytest.raises(NormalizeError, match="cannot convert NMF: it has no converter") as caught:
        counted(model)
    assert "supported_converters" in caught.value.hint


def test_without_the_converter_the_extra_is_named(monkeypatch):
    """An estimator can be made without skl2onnx."""
    monkeypatch.setitem(sys.modules, "skl2onnx", None)
    with pytest.raises(MissingExtraError, match="skl2onnx is needed") as caught:
        source_from_object(made("LogisticRegression").fit(X, Y), X[:1])
    assert caught.value.hint == "pip install 'crossflops[sklearn]'"
