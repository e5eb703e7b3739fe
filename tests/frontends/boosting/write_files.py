"""Write the files of this folder with the libraries themselves.

pip install xgboost lightgbm catboost scikit-learn && python tests/frontends/boosting/write_files.py
"""  # noqa: E501

import tempfile
from pathlib import Path

import catboost
import lightgbm
import numpy as np
import xgboost

FILES = Path(__file__).parent / "files"


def main() -> None:
    """Fit small models on 200 rows of 4 features, and save them."""
    FILES.mkdir(exist_ok=True)
    rows = np.random.default_rng(0).normal(size=(200, 4)).astype("float32")
    binary = (rows[:, 0] + rows[:, 1] > 0).astype(int)
    classes = (rows[:, 0] * 2).round().clip(-1, 1).astype(int) + 1
    target = rows @ [1, 2, 3, 4]
    model = xgboost.XGBClassifier(n_estimators=5, max_depth=3).fit(rows, binary)
    model.save_model(FILES / "binary.ubj")
    model.save_model(FILES / "binary.json")
    model = xgboost.XGBClassifier(n_estimators=5, max_depth=3).fit(rows, classes)
    model.save_model(FILES / "classes.json")
    model = xgboost.XGBRegressor(n_estimators=3, max_depth=2, booster="dart").fit(rows, target)
    model.save_model(FILES / "dart.json")
    xgboost.XGBRegressor(booster="gblinear").fit(rows, target).save_model(FILES / "linear.ubj")
    model = lightgbm.LGBMClassifier(n_estimators=5, num_leaves=6, verbose=-1).fit(rows, classes)
    model.booster_.save_model(FILES / "classes.txt")
    with tempfile.TemporaryDirectory() as folder:
        options = {"depth": 3, "verbose": 0, "train_dir": folder}
        model = catboost.CatBoostClassifier(iterations=4, **options).fit(rows, classes)
        model.save_model(str(FILES / "symmetric.json"), format="json")
        options |= {"grow_policy": "Lossguide", "max_leaves": 5}
        model = catboost.CatBoostRegressor(iterations=4, **options).fit(rows, target)
        model.save_model(str(FILES / "grown.json"), format="json")
        for name in ("symmetric.json", "grown.json"):
            text = (FILES / name).read_text()  # it names the folder of the training
            (FILES / name).write_text(text.replace(folder, "catboost_info"))


if __name__ == "__main__":
    main()
