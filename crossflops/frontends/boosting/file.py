"""A file of XGBoost, LightGBM or CatBoost that is to be counted, not opened yet."""

import msgspec


class BoostedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that `save_model` of XGBoost, LightGBM or CatBoost wrote."""

    path: str
