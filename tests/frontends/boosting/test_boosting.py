"""Files of XGBoost, LightGBM and CatBoost: trees by a second walk, and wrong files refused.

`write_files.py` beside this file wrote them. None of the libraries is needed to read them.
"""

import json
import re
from pathlib import Path

import pytest

import crossflops
from crossflops.cli import main
from crossflops.errors import InputError

FILES = Path(__file__).parent / "files"
pytestmark = pytest.mark.filterwarnings("ignore:using the default input")


def xgboost_depths(name: str) -> list[int]:
    """The depth of each tree of XGBoost, by recursion."""
    learner = json.loads((FILES / name).read_bytes())["learner"]
    booster = learner["gradient_booster"]
    model = booster.get("gbtree", booster)["model"]

    def depth(tree: dict, node: int = 0) -> int:
        left, right = tree["left_children"][node], tree["right_children"][node]
        return 0 if left < 0 else 1 + max(depth(tree, left), depth(tree, right))

    return [depth(tree) for tree in model["trees"]]


def lightgbm_depths(name: str) -> list[int]:
    """The depth of each tree of LightGBM, by recursion."""
    text = (FILES / name).read_text()
    sides = [
        [[int(word) for word in row.split()] for row in re.findall(rf"^{key}=(.*)$", text, re.M)]
        for key in ("left_child", "right_child")
    ]

    def depth(tree: int, node: int) -> int:
        return 0 if node < 0 else 1 + max(depth(tree, side[tree][node]) for side in sides)

    return [depth(tree, 0) for tree in range(len(sides[0]))]


def catboost_depths(name: str) -> list[int]:
    """The depth of each tree of CatBoost."""
    content = json.loads((FILES / name).read_bytes())

    def depth(node: dict) -> int:
        return 1 + max(depth(node["left"]), depth(node["right"])) if "split" in node else 0

    if "trees" in content:
        return [depth(tree) for tree in content["trees"]]
    return [len(tree["splits"]) for tree in content["oblivious_trees"]]


# file -> the depths of its trees, its classes, the values of a leaf, and whether all leaves are
# as deep
CASES = {
    "binary.json": (xgboost_depths, 2, 1, "bound"),
    "classes.json": (xgboost_depths, 3, 1, "bound"),
    "dart.json": (xgboost_depths, 0, 1, "exact"),
    "classes.txt": (lightgbm_depths, 3, 1, "bound"),
    "symmetric.json": (catboost_depths, 3, 3, "exact"),
    "grown.json": (catboost_depths, 0, 1, "bound"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_row_is_compared_at_each_level(name: str) -> None:
    """And once for each other class; each tree adds the values of one leaf."""
    depths_of, classes, width, exactness = CASES[name]
    depths = depths_of(name)
    assert len(depths) > 2
    report = crossflops.count(str(FILES / name), ["10x4"])
    row = next(row for row in report.nodes if "TreeEnsemble" in row.op)
    assert report.macs == 0
    assert row.exactness == exactness
    softmax = 10 * (classes - 1) if classes > 2 else 0  # which finds the largest score
    assert report.totals.compares == 10 * (sum(depths) + max(classes - 1, 0)) + softmax
    assert report.totals.adds >= 10 * len(depths) * width
    assert not report.uncounted


def test_both_forms_of_xgboost_are_alike() -> None:
    """The .ubj file has what the .json file has."""
    text, binary = (crossflops.count(str(FILES / f"binary.{form}")) for form in ("json", "ubj"))
    assert text.totals == binary.totals
    assert text.params == binary.params > 10


def test_trees_that_are_dropped_have_a_factor_each() -> None:
    """DART multiplies the leaf of each of its three trees."""
    report = crossflops.count(str(FILES / "dart.json"), ["10x4"])
    assert report.totals.muls == 10 * 3


def test_a_linear_booster_multiplies() -> None:
    """Four coefficients and a bias."""
    report = crossflops.count(str(FILES / "linear.ubj"), ["10x4"])
    assert (report.macs, report.params) == (40, 5)


def test_parameters_are_thresholds_and_leaves() -> None:
    """CatBoost: 3 borders and 8 leaves of 3 values for each of 4 trees, in float64."""
    report = crossflops.count(str(FILES / "symmetric.json"))
    assert report.params == 4 * (3 + 8 * 3)
    assert report.memory.param_bytes_by_type == {"float64": 8 * report.params}


def test_trees_have_no_loops_that_could_be_named() -> None:
    """All kinds of models whose loops have names are listed, files among them."""
    expected = "files of ONNX, TFLite and OpenVINO, and models of JAX, Keras and TensorFlow"
    with pytest.raises(InputError, match=expected):
        crossflops.count(str(FILES / "binary.json"), trips={"loop": 2})


def test_two_inputs_of_trees_are_refused() -> None:
    """Their number is named, and not the shape of the first."""
    with pytest.raises(InputError, match="but the input is 2 arrays"):
        crossflops.count(str(FILES / "binary.json"), ["1x4", "1x4"])


def test_rows_of_another_width_are_refused() -> None:
    """The file says how many features it has."""
    with pytest.raises(InputError, match="but the input has the shape 1x5"):
        crossflops.count(str(FILES / "binary.json"), ["1x5"])


WRONG = {
    "other.json": (b"{}", "is not a model of XGBoost or CatBoost"),
    "config.json": (b'{"model_type": "bert"}', "is not a model of XGBoost or CatBoost"),
    "text.json": (b"tree", "is not valid JSON"),
    "half.json": (b'{"learner": {}}', "cannot be read as a model of trees"),
    "notes.txt": (b"hello", "is not a model of LightGBM"),
    "half.txt": (b"tree\nversion=v4\n", "cannot be read as a model of trees"),
    "cut.ubj": (b"{L\x00", "cannot be read as a model of trees"),
    "empty.ubj": (b"", "cannot be read as a model of trees"),
    "other.cbm": (b"XXXX", "is not a model of CatBoost"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_files_are_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In two lines that name what is wrong."""
    content, message = WRONG[name]
    path = tmp_path / name
    path.write_bytes(content)
    assert main(["count", str(path)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert message in lines[0]


def test_a_training_step_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Trees are not trained by gradients of their numbers."""
    assert main(["count", str(FILES / "binary.json"), "--train"]) == 2
    assert "a training step of a model of XGBoost, LightGBM or CatBoost" in capsys.readouterr().err


@pytest.mark.frameworks
def test_fitted_models_count_as_their_files() -> None:
    """An estimator of each library, and the error for one that is not fitted."""
    xgboost = pytest.importorskip("xgboost", reason="XGBoost is not installed")
    lightgbm = pytest.importorskip("lightgbm", reason="LightGBM is not installed")
    import numpy as np

    rows = np.random.default_rng(0).normal(size=(200, 4)).astype("float32")
    labels = (rows[:, 0] + rows[:, 1] > 0).astype(int)
    boosted = xgboost.XGBClassifier(n_estimators=5, max_depth=3)
    with pytest.raises(InputError, match="XGBClassifier is not fitted"):
        crossflops.count(boosted, rows)
    report = crossflops.count(boosted.fit(rows, labels), rows)
    assert report.totals.flops == 200 * crossflops.count(str(FILES / "binary.json")).totals.flops
    leaves = lightgbm.LGBMClassifier(n_estimators=5, verbose=-1).fit(rows, labels)
    assert crossflops.count(leaves, rows).totals.compares > 200 * 5
