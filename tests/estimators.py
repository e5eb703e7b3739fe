"""Small fitted estimators of scikit-learn: one of each kind that skl2onnx converts."""

import importlib
import warnings

import numpy as np

FEATURES = 4
ROWS = 30


def data(positive=False):
    """X [30, 4] of float32, and labels of three classes."""
    random = np.random.default_rng(0)
    x = random.normal(size=(ROWS, FEATURES)).astype(np.float32)
    return (np.abs(x) if positive else x), np.arange(ROWS) % 3


def made(name, **arguments):
    """An estimator of that name, from whichever module of scikit-learn has it."""
    for place in _MODULES:
        kind = getattr(importlib.import_module(f"sklearn.{place}"), name, None)
        if kind is not None:
            return kind(**arguments)
    raise LookupError(name)


_MODULES = (
    *("linear_model", "ensemble", "svm", "neighbors", "neural_network", "naive_bayes", "tree"),
    *("preprocessing", "decomposition", "cluster", "mixture", "gaussian_process", "multiclass"),
    *("multioutput", "calibration", "feature_selection", "impute", "discriminant_analysis"),
    *("cross_decomposition", "random_projection", "compose", "pipeline", "model_selection"),
    *("feature_extraction", "feature_extraction.text"),
)


def _inner(name="LogisticRegression"):
    return made(name)


def _named(*names):
    return [(name.lower(), made(name)) for name in names]


def _columns():
    pairs = [("left", made("StandardScaler"), [0, 1]), ("right", made("MinMaxScaler"), [2, 3])]
    return made("ColumnTransformer", transformers=pairs)


# What needs arguments.
_MADE = {
    "BaggingClassifier": lambda: made("BaggingClassifier", n_estimators=3),
    "BaggingRegressor": lambda: made("BaggingRegressor", n_estimators=3),
    "ColumnTransformer": _columns,
    "FeatureUnion": lambda: made("FeatureUnion", transformer_list=_named("PCA", "MinMaxScaler")),
    "GaussianRandomProjection": lambda: made("GaussianRandomProjection", n_components=2),
    "GridSearchCV": lambda: made(
        "GridSearchCV", estimator=_inner(), param_grid={"C": [0.1, 1.0]}, cv=2
    ),
    "KBinsDiscretizer": lambda: made("KBinsDiscretizer", encode="onehot-dense"),
    "KernelPCA": lambda: made("KernelPCA", n_components=2),
    "KNeighborsTransformer": lambda: made("KNeighborsTransformer", n_neighbors=3),
    "MLPClassifier": lambda: made("MLPClassifier", hidden_layer_sizes=(5,), max_iter=20),
    "MLPRegressor": lambda: made("MLPRegressor", hidden_layer_sizes=(5,), max_iter=20),
    "MultiOutputClassifier": lambda: made("MultiOutputClassifier", estimator=_inner()),
    "MultiOutputRegressor": lambda: made("MultiOutputRegressor", estimator=_inner("Ridge")),
    "LocalOutlierFactor": lambda: made("LocalOutlierFactor", novelty=True),
    "NearestNeighbors": lambda: made("NearestNeighbors", n_neighbors=3, radius=None),
    **{
        name: lambda name=name: made(name, alpha=1.0)
        for name in ("SelectFdr", "SelectFpr", "SelectFwe")
    },
    "OneVsOneClassifier": lambda: made("OneVsOneClassifier", estimator=_inner()),
    "OneVsRestClassifier": lambda: made("OneVsRestClassifier", estimator=_inner()),
    "Pipeline": lambda: made("Pipeline", steps=_named("StandardScaler", "LogisticRegression")),
    "QuantileTransformer": lambda: made("QuantileTransformer", n_quantiles=5),
    "RadiusNeighborsClassifier": lambda: made("RadiusNeighborsClassifier", radius=9.0),
    "RadiusNeighborsRegressor": lambda: made("RadiusNeighborsRegressor", radius=9.0),
    "RFE": lambda: made("RFE", estimator=_inner()),
    "RFECV": lambda: made("RFECV", estimator=_inner(), cv=2),
    "SelectFromModel": lambda: made("SelectFromModel", estimator=_inner()),
    "SelectKBest": lambda: made("SelectKBest", k=2),
    "StackingClassifier": lambda: made(
        "StackingClassifier", estimators=_named("LogisticRegression", "GaussianNB"), cv=2
    ),
    "StackingRegressor": lambda: made(
        "StackingRegressor", estimators=_named("Ridge", "DecisionTreeRegressor"), cv=2
    ),
    "TunedThresholdClassifierCV": lambda: made(
        "TunedThresholdClassifierCV", estimator=_inner(), cv=2
    ),
    "VotingClassifier": lambda: made(
        "VotingClassifier",
        estimators=_named("LogisticRegression", "GaussianNB"),
        flatten_transform=False,
    ),
    "VotingRegressor": lambda: made(
        "VotingRegressor", estimators=_named("Ridge", "DecisionTreeRegressor")
    ),
    **{
        name: lambda name=name: made(name, n_estimators=3)
        for name in (
            *("AdaBoostClassifier", "AdaBoostRegressor", "ExtraTreesClassifier"),
            *("ExtraTreesRegressor", "GradientBoostingClassifier", "GradientBoostingRegressor"),
            *("IsolationForest", "RandomForestClassifier", "RandomForestRegressor"),
            "RandomTreesEmbedding",
        )
    },
}
# Labels as they have to be: two classes, several targets, none but X.
_TWO = ("TunedThresholdClassifierCV", "GaussianProcessClassifier")
_SEVERAL = ("MultiOutputClassifier", "MultiOutputRegressor", "MultiTaskElasticNet",
            "MultiTaskElasticNetCV", "MultiTaskLasso", "MultiTaskLassoCV")  # fmt: skip
_POSITIVE = ("CategoricalNB", "ComplementNB", "MultinomialNB", "PoissonRegressor",
             "GammaRegressor", "TweedieRegressor")  # fmt: skip
_LABELS = ("LabelBinarizer", "LabelEncoder")
_TEXTS = ("CountVectorizer", "TfidfVectorizer")


def fitted(name):
    """The fitted estimator, and the texts of `--input` for one row of what it takes."""
    x, y = data(name in _POSITIVE)
    estimator = _MADE[name]() if name in _MADE else made(name)
    if "random_state" in estimator.get_params():
        estimator.set_params(random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name == "FeatureHasher":
            return estimator.fit([{"a": 1.0}]), ["1x1"]
        if name in _LABELS:
            return estimator.fit(y), ["1:int64"]
        if name in _TEXTS:
            return estimator.fit(["a few words", "more words", "none of a few"]), ["1x1:string"]
        if name == "KernelCenterer":
            return estimator.fit(x[:FEATURES]), ["1x4"]
        if name == "CategoricalNB":
            return estimator.fit((x * 2).astype(np.int64) % 3, y), ["1x4:int64"]
        if name in ("OneHotEncoder", "OrdinalEncoder"):
            return estimator.fit((x * 2).astype(np.int64) % 3), ["1x4:int64"]
        if name == "TargetEncoder":
            return estimator.fit((np.abs(x) * 2).astype(np.int64) % 3, y % 2), ["1x4:int64"]
        if name in _SEVERAL:
            y = np.stack([y, y % 2], axis=1)
        if name in _TWO:
            y = y % 2
        if name == "GammaRegressor":
            y = y + 1.0
        return estimator.fit(x, y), ["1x4"]
