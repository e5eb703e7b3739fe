"""An OpenVINO IR file that is to be counted, not opened yet, and the shapes of its inputs."""

from pathlib import Path

import msgspec

from crossflops.ir.graph import TensorSpec

SUFFIX = ".xml"


class OpenvinoFile(msgspec.Struct, frozen=True, kw_only=True):
    """The .xml file of a model, and the caller's shapes for its inputs."""

    path: str
    specs: tuple[TensorSpec, ...] = ()

    @property
    def weights(self) -> Path:
        """The file that has the constants of the model."""
        return Path(self.path).with_suffix(".bin")
