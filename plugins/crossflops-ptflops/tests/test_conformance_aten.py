"""The convention of the backend "aten" predicts it."""

import pytest
from crossflops_ptflops import PtflopsAten

from crossflops.testing.conformance import Conformance

pytestmark = pytest.mark.tools


class TestConformance(Conformance):
    """The whole kit."""

    adapter = PtflopsAten()
