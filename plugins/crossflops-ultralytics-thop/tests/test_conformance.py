"""ultralytics-thop's convention predicts ultralytics-thop."""

from crossflops_ultralytics_thop import UltralyticsThop

from crossflops.testing.conformance import Conformance


class TestConformance(Conformance):
    """The whole kit."""

    adapter = UltralyticsThop()
