"""onnx-tool's convention predicts onnx-tool."""

import pytest
from crossflops_onnx_tool import OnnxTool

from crossflops.testing.conformance import Conformance

pytestmark = pytest.mark.tools


class TestConformance(Conformance):
    """The whole kit, on the files of the probes."""

    adapter = OnnxTool()
