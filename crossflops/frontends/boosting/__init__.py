"""A model of XGBoost, LightGBM or CatBoost, or a file of one -> its graph of trees.

In: a fitted model or a `BoostedFile`. Out: a `Graph` whose nodes are those of ai.onnx.ml, and a
`Trace` without calls. Files are read by their own formats, without the library that wrote them
except .cbm.
May import: frontends, load, operators, ir, errors.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossflops.errors import InputError, TargetError
from crossflops.frontends.frontend import Frontend, Program, Recording, Run, Source
from crossflops.frontends.inputs import ProvidedInputs
from crossflops.frontends.named import NamedModel

if TYPE_CHECKING:
    from crossflops.frontends.boosting.file import BoostedFile

_FILE = f"{__name__}.file"  # imported once there is such a target
# The classes of models, by the module that is imported where there is one.
_CLASSES = {
    "xgboost": ("XGBModel", "Booster"),
    "lightgbm": ("LGBMModel", "Booster"),
    "catboost": ("CatBoost",),
}


class Boosting(Frontend):
    """The frontend of gradient boosted trees, which are counted as tree ensembles of ONNX."""

    name = "boosting"
    title = "XGBoost, LightGBM or CatBoost"
    models = ("XGBoost", "LightGBM", "CatBoost")
    versions = tuple((library, library) for library in _CLASSES)
    suffixes = (".json", ".ubj", ".cbm", ".txt")

    def recognizes(self, value: object) -> bool:
        """Return whether the value is a model of one of these libraries, or a file of one."""
        module = sys.modules.get(_FILE)
        if module is not None and isinstance(value, module.BoostedFile):
            return True
        if isinstance(value, type):
            return False
        return any(
            isinstance(value, kind)
            for library, names in _CLASSES.items()
            if library in sys.modules
            for name in names
            if isinstance(kind := getattr(sys.modules[library], name, None), type)
        )

    def can_read(self, target: str) -> bool:
        """Return whether a target is a file of one of these libraries, by its suffix."""
        return target.endswith(self.suffixes) and Path(target).is_file()

    def read_model(
        self, target: str, arguments: Mapping[str, object], allow_pickle: bool
    ) -> "BoostedFile":
        """Return a reference to the file that a target names; its content is read later."""
        from crossflops.frontends.boosting.file import BoostedFile

        if arguments:
            raise TargetError(
                f"{target} is a file, not a callable, so --arg cannot be used", "leave out --arg"
            )
        return BoostedFile(path=target)

    def require_packages_for(self, model: Any) -> None:
        """Do nothing: the libraries are there if a model is, and files need none."""
        return

    def default_input(self, model: Any, sizes: Mapping[str, int] = {}) -> NamedModel | None:
        """Return an input of one row, or of a batch of rows, with as many features as the model
        was fitted on; None if the value is not such a model.
        """
        if not self.recognizes(model):
            return None
        from crossflops.frontends.boosting.graph import one_row_spec, read_boosted_trees

        return NamedModel(
            model=model,
            specs=(one_row_spec(read_boosted_trees(model), sizes.get("batch", 1)),),
            origin="its own features",
            sizes=("batch",),
        )

    def prepare_source(self, model: Any, provided: ProvidedInputs, owned: bool) -> Source:
        """Return the source of the model, with the shape of its input rows. Raises InputError."""
        from crossflops.frontends.boosting.graph import input_rows_spec, read_boosted_trees

        trees = read_boosted_trees(model)
        if provided.file is not None:
            raise InputError(
                "a model of trees is counted from the shape of its rows, but a file of values is "
                "given with --inputs",
                f"leave out --inputs, or give the shape instead: --input 1x{trees.features}",
            )
        return Source(model, (input_rows_spec(trees, provided),), {})

    def convert(self, recording: Recording, run: Run | None) -> Program:
        """Return (None, the graph of the trees, a trace with one module); None since there is no
        converted model.
        """
        from crossflops.frontends.boosting.graph import build_tree_graph

        source = recording.source
        return None, *build_tree_graph(source.model, source.args[0], recording.setting)


FRONTEND: Frontend = Boosting()
