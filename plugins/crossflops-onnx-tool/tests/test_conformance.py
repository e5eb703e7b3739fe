"""onnx-tool's convention predicts onnx-tool."""

from crossflops_onnx_tool import OnnxTool

from crossflops.testing.conformance import Conformance


class TestConformance(Conformance):
    """The whole kit, on the files of the probes."""

    adapter = OnnxTool()
