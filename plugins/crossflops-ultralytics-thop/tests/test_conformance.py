"""ultralytics-thop's convention predicts ultralytics-thop."""

import pytest
from crossflops_ultralytics_thop import UltralyticsThop

from crossflops.testing.conformance import Conformance

pytestmark = pytest.mark.ultralytics_thop


class TestConformance(Conformance):
    """The whole kit."""

    adapter = UltralyticsThop()
