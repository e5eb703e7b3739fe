"""Turn an ONNX file into its graph, and a table of the modules that its nodes name.

In: an `OnnxFile`. Out: a `Graph`, and a `Trace` without calls.
May import: frontends, load, operators, ir, errors, threads.
"""

from typing import Any

from crossflops.errors import InputError
from crossflops.frontends.frontend import Frontend, Program, Recording, Run, Source
from crossflops.frontends.inputs import ProvidedInputs
from crossflops.frontends.onnx.binding import OnnxFile
from crossflops.ir.trace import Setting

__all__ = ["OnnxFile"]


class Onnx(Frontend):
    """The frontend of ONNX files: no framework runs them, they are read and counted by shapes
    alone.
    """

    name = "onnx"
    title = "ONNX"
    models = ()
    suffixes = (".onnx",)
    has_control = True

    def recognizes(self, value: object) -> bool:
        """Return whether the value is an ONNX file."""
        return isinstance(value, OnnxFile)

    def require_packages_for(self, model: Any) -> None:
        """Do nothing: ONNX files need only packages that crossflops always installs."""
        return

    def prepare_source(self, model: OnnxFile, provided: ProvidedInputs, owned: bool) -> Source:
        """Return the source of an ONNX file, which is the file itself without arguments."""
        return Source(model, (), {}, model.control)

    def check_inputs(self, source: Source, setting: Setting) -> None:
        """Raise an error if the file has other inputs, or cannot be counted with these."""
        from crossflops.frontends.onnx.binding import has_declared_input_sizes
        from crossflops.load import read_onnx_model

        if not has_declared_input_sizes(
            read_onnx_model(source.model.path).graph, source.model.specs
        ):
            raise InputError(
                "the shapes of the given inputs do not match those that the file declares",
                "give inputs with the shapes of the file, or leave out --input",
            )
        self.convert(self.record(source, setting, (), None), None)

    def convert(self, recording: Recording, run: Run | None) -> Program:
        """Return None (no converted model), the graph of the file, and a trace of its modules."""
        from crossflops.frontends.onnx.reading import normalize_onnx_file

        return None, *normalize_onnx_file(recording.source.model, recording.setting)


FRONTEND: Frontend = Onnx()
