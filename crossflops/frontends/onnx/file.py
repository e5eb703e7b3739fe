"""An ONNX file that is to be counted, not opened yet."""

from collections.abc import Mapping

import msgspec

from crossflops.ir.graph import Control, TensorSpec
from crossflops.ir.measurement import Observation


class OnnxFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file, and what makes the sizes in it definite.

    `dims` binds named dimensions, `specs` replaces shapes of inputs, `control` says what loops and
    branches do where the graph does not. What a run has `seen` fills what all this leaves open.
    With `inlined` false every call of a function stays one node, as in the file.
    """

    path: str
    specs: tuple[TensorSpec, ...] = ()
    dims: Mapping[str, int] = {}
    control: Control = Control()
    seen: Observation | None = None
    inlined: bool = True
