"""onnx_opcounter's convention predicts onnx_opcounter."""

import pytest
from crossflops_onnx_opcounter import OnnxOpcounter

from crossflops.testing.conformance import FileConformance

pytestmark = pytest.mark.tools


class TestConformance(FileConformance):
    """The whole kit, on the files of the probes."""

    adapter = OnnxOpcounter()
