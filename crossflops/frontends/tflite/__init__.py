"""A .tflite file -> its graph, and the table of the modules that its names tell of.

In: a `TfliteFile`. Out: a `Graph`, and a `Trace` without calls. The file is read by its schema,
without TensorFlow.
May import: frontends, load, operators, ir, errors.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossflops.errors import InputError, TargetError
from crossflops.frontends.frontend import (
    Frontend,
    Program,
    Recording,
    Run,
    Source,
    require_packages,
)
from crossflops.frontends.inputs import ProvidedInputs

if TYPE_CHECKING:
    from crossflops.frontends.tflite.file import TfliteFile

_FILE = f"{__name__}.file"  # imported once there is such a target


class Tflite(Frontend):
    """The frontend of .tflite files, which are read and counted by the shapes in them."""

    name = "tflite"
    title = "TFLite"
    models = ()
    extra = "tflite"
    packages = ("tflite",)
    versions = (("tflite", "tflite"),)
    suffixes = (".tflite",)
    has_control = True

    def recognizes(self, value: object) -> bool:
        """Return whether the value is a .tflite file."""
        module = sys.modules.get(_FILE)
        return module is not None and isinstance(value, module.TfliteFile)

    def can_read(self, target: str) -> bool:
        """Return whether a target is a .tflite file, or a signature of one."""
        if ".tflite" not in target:
            return False
        from crossflops.frontends.tflite.file import file_from_target

        return file_from_target(target) is not None

    def read_model(
        self, target: str, arguments: Mapping[str, object], allow_pickle: bool
    ) -> "TfliteFile":
        """Return the file that a target names, which is opened later."""
        from crossflops.frontends.tflite.file import file_from_target

        file = file_from_target(target)
        assert file is not None
        if arguments:
            raise TargetError(
                f"{target} is a file, not a callable, so --arg cannot be used", "leave out --arg"
            )
        if not Path(file.path).is_file():
            raise TargetError(
                f"file {file.path} does not exist", "give the path of a .tflite file"
            )
        return file

    def require_packages_for(self, model: Any) -> None:
        """Raise MissingExtraError unless the package with the schema is installed."""
        require_packages(("tflite",), "read a .tflite file", self.extra)

    def prepare_source(self, model: "TfliteFile", provided: ProvidedInputs, owned: bool) -> Source:
        """Return the file as the source. Raises InputError for inputs that are not the file's."""
        from crossflops.frontends.tflite.graph import check_tflite_inputs

        if provided.file is not None or not provided.have_only_shapes:
            raise InputError(
                "a .tflite file is counted from the shapes in it, but values of inputs are given",
                "leave out the values of inputs: the file contains the shapes",
            )
        if provided.specs:
            check_tflite_inputs(model, provided.specs)
        return Source(model, (), {})

    def convert(self, recording: Recording, run: Run | None) -> Program:
        """Return None, the graph of the file, and its modules."""
        from crossflops.frontends.tflite.graph import build_tflite_graph

        source = recording.source
        return None, *build_tflite_graph(source.model, source.control, recording.setting)


FRONTEND: Frontend = Tflite()
