"""An OpenVINO IR file (.xml, with its .bin) -> its graph, and the modules that its names tell of.

In: an `OpenvinoFile`. Out: a `Graph`, and a `Trace` without calls. The file is read without
OpenVINO.
May import: frontends, load, operators, ir, errors.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from crossflops.errors import InputError, TargetError
from crossflops.frontends.frontend import Frontend, Program, Recording, Run, Source
from crossflops.frontends.inputs import ProvidedInputs

if TYPE_CHECKING:
    from crossflops.frontends.openvino.file import OpenvinoFile

_FILE = f"{__name__}.file"  # imported once there is such a target


class Openvino(Frontend):
    """The frontend of OpenVINO IR files, which are read and counted by shapes alone."""

    name = "openvino"
    title = "OpenVINO"
    models = ()
    converted_by = "the exporter of its framework"
    suffixes = (".xml",)
    has_control = True

    def recognizes(self, value: object) -> bool:
        """Return whether the value is an OpenVINO IR file."""
        module = sys.modules.get(_FILE)
        return module is not None and isinstance(value, module.OpenvinoFile)

    def can_read(self, target: str) -> bool:
        """Return whether a target is an OpenVINO IR file."""
        return target.endswith(".xml")

    def read_model(
        self, target: str, arguments: Mapping[str, object], allow_pickle: bool
    ) -> "OpenvinoFile":
        """Return a reference to the file that a target names; its content is read later. Raises
        TargetError.
        """
        from crossflops.frontends.openvino.file import OpenvinoFile

        if arguments:
            raise TargetError(
                f"{target} is a file, not a callable, so --arg cannot be used", "leave out --arg"
            )
        if not Path(target).is_file():
            raise TargetError(
                f"file {target} does not exist", "give the path of the .xml file of a model"
            )
        return OpenvinoFile(path=target)

    def require_packages_for(self, model: Any) -> None:
        """Do nothing: the file needs only packages that crossflops always installs."""
        return

    def prepare_source(
        self, model: "OpenvinoFile", provided: ProvidedInputs, owned: bool
    ) -> Source:
        """Return the file with the shapes of its inputs as the source. Raises InputError."""
        if provided.file is not None or not provided.have_only_shapes:
            raise InputError(
                "an OpenVINO file is counted from the shapes of its inputs, but values are given",
                "give shapes instead: --input NAME=1x3x224x224",
            )
        return Source(msgspec.structs.replace(model, specs=tuple(provided.specs)), (), {})

    def convert(self, recording: Recording, run: Run | None) -> Program:
        """Return (None, the graph of the file, the trace of its modules); None since there is no
        converted model.
        """
        from crossflops.frontends.openvino.graph import build_openvino_graph

        source = recording.source
        return None, *build_openvino_graph(source.model, source.control, recording.setting)


FRONTEND: Frontend = Openvino()
