"""The trees of a fitted model, or of a file, of each of the three libraries."""

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crossflops.errors import CrossflopsError, InputError, MissingExtraError, TargetError
from crossflops.frontends.boosting.catboost import catboost_trees
from crossflops.frontends.boosting.file import BoostedFile
from crossflops.frontends.boosting.lightgbm import lightgbm_trees
from crossflops.frontends.boosting.trees import BoostedTrees
from crossflops.frontends.boosting.ubjson import read_ubjson
from crossflops.frontends.boosting.xgboost import xgboost_trees
from crossflops.load import reject_pointer_or_web_page

_SAVE = (
    "save the model again with save_model: XGBoost as .json or .ubj, LightGBM as .txt, "
    "CatBoost as .cbm"
)
_LONGEST_REASON = 160  # characters of what CatBoost says
_FIT = "call .fit(X, y) on the model before it is counted"


def read_file_trees(file: BoostedFile) -> BoostedTrees:
    """Return the trees of a model file of XGBoost, LightGBM or CatBoost. Raises TargetError,
    MissingExtraError.
    """
    path = Path(file.path)
    if not path.is_file():
        raise TargetError(f"file {path} does not exist", "give the path of the saved model")
    reject_pointer_or_web_page(path)
    try:
        return _READERS[path.suffix](path)
    except CrossflopsError:
        raise
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
        text = f"{type(error).__name__}: {error}"[:160]
        raise TargetError(f"{path} cannot be read as a model of trees: {text}", _SAVE) from error


def _read_json(path: Path) -> BoostedTrees:
    """Return the trees of a .json file of XGBoost or CatBoost."""
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise TargetError(f"{path} is not valid JSON: {error}", _SAVE) from error
    return _json_trees(content, path)


def _json_trees(content: Any, path: Path) -> BoostedTrees:
    """Return the trees in the content of a JSON or UBJSON file of XGBoost or CatBoost. Raises
    TargetError for other content.
    """
    keys: Mapping[str, Any] = content if isinstance(content, Mapping) else {}
    if "learner" in keys:
        return xgboost_trees(keys, path.stem, None)
    if "oblivious_trees" in keys or ("trees" in keys and "features_info" in keys):
        return catboost_trees(keys, path.stem)
    hint = _SAVE
    if "model_type" in keys or "architectures" in keys:
        hint = f"a config of Hugging Face is counted as hf:{path}"
    elif "schema" in keys:
        hint = f"a report of crossflops is shown by: crossflops render {path}"
    raise TargetError(f"{path} is not a model of XGBoost or CatBoost", hint)


def _read_ubj(path: Path) -> BoostedTrees:
    """Return the trees of a .ubj file of XGBoost."""
    return _json_trees(read_ubjson(path.read_bytes()), path)


def _read_text(path: Path) -> BoostedTrees:
    """Return the trees of a .txt file of LightGBM."""
    text = path.read_text("utf-8", "replace")
    if text.split("\n", 1)[0].strip() != "tree":
        raise TargetError(
            f"{path} is not a model of LightGBM: it does not begin with 'tree'", _SAVE
        )
    return lightgbm_trees(text, path.stem)


def _read_cbm(path: Path) -> BoostedTrees:
    """Return the trees of a .cbm file, which is read by the catboost package. Raises TargetError,
    MissingExtraError.
    """
    if not path.read_bytes()[:4] == b"CBM1":
        raise TargetError(f"{path} is not a model of CatBoost: it lacks the mark CBM1", _SAVE)
    try:
        import catboost
    except ImportError as error:
        raise MissingExtraError(
            f"catboost is needed to read {path.name}",
            'pip install catboost; or save the model with save_model(..., format="json")',
        ) from error
    model = catboost.CatBoost()
    try:
        model.load_model(str(path))
    except Exception as error:  # of a damaged file the library raises its own kinds
        raise TargetError(f"{path} cannot be read by CatBoost: {error}", _SAVE) from error
    return _trees_of_catboost_object(model, path.stem)


_READERS = {".json": _read_json, ".ubj": _read_ubj, ".txt": _read_text, ".cbm": _read_cbm}


def read_model_trees(model: Any) -> BoostedTrees:
    """Return the trees of a fitted model. Raises InputError if it is not fitted."""
    name = type(model).__name__
    libraries = {
        "xgboost": _trees_of_xgboost_object,
        "lightgbm": _trees_of_lightgbm_object,
        "catboost": _trees_of_catboost_object,
    }
    for library, read in libraries.items():
        names = (kind.__module__.partition(".")[0] for kind in type(model).__mro__)
        if library in sys.modules and library in names:
            return read(model, name)
    raise InputError(
        f"{name} is not a model of XGBoost, LightGBM or CatBoost",
        "give a fitted model of one of these libraries",
    )


def _not_fitted_error(name: str, error: Exception) -> InputError:
    """Return the error for a model that is not fitted and so has no trees."""
    del error
    return InputError(f"{name} is not fitted, so it has no trees to count", _FIT)


def _trees_of_xgboost_object(model: Any, name: str) -> BoostedTrees:
    """Return the trees of a fitted estimator or booster of XGBoost.

    An estimator that stopped early predicts with the rounds up to its best one.
    """
    booster, rounds = model, None
    if hasattr(model, "get_booster"):
        try:
            booster = model.get_booster()
        except Exception as error:
            raise _not_fitted_error(name, error) from error
        best = booster.attr("best_iteration")
        rounds = None if best is None else int(best) + 1
    return xgboost_trees(json.loads(bytes(booster.save_raw("json"))), name, rounds)


def _trees_of_lightgbm_object(model: Any, name: str) -> BoostedTrees:
    """Return the trees of a fitted estimator or booster of LightGBM, those after its best round
    excluded.
    """
    booster = model
    if hasattr(model, "booster_"):
        try:
            booster = model.booster_
        except Exception as error:
            raise _not_fitted_error(name, error) from error
    elif not hasattr(model, "model_to_string"):
        raise InputError(f"{name} is not fitted, so it has no trees to count", _FIT)
    return lightgbm_trees(booster.model_to_string(), name)


def _trees_of_catboost_object(model: Any, name: str) -> BoostedTrees:
    """Return the trees of a fitted CatBoost model, by saving it to a temporary JSON file."""
    if not model.is_fitted():
        raise InputError(f"{name} is not fitted, so it has no trees to count", _FIT)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.json")
        try:
            model.save_model(str(path), format="json")
        except Exception as error:
            raise InputError(
                f"CatBoost cannot save {name} as JSON: {str(error)[:_LONGEST_REASON]}",
                'save the model with model.save_model("model.json", format="json", pool=POOL), '
                "and count model.json",
            ) from error
        return catboost_trees(json.loads(path.read_bytes()), name)
