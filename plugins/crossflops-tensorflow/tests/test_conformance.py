"""The convention of TensorFlow's profiler predicts TensorFlow's profiler."""

import pytest

pytest.importorskip("tensorflow")

from crossflops_tensorflow import TensorFlowProfiler

from crossflops.testing.tensorflow import TensorFlowConformance

pytestmark = pytest.mark.tensorflow


class TestConformance(TensorFlowConformance):
    """The whole kit."""

    adapter = TensorFlowProfiler()
    # A training step is no setting of the kit: see test_training_steps.py.
    held_apart = frozenset(
        f"tensorflow.{name}"
        for name in (
            *("image-gradient", "filter-gradient", "filter-gradient-odd"),
            "gradient-arithmetic",
        )
    )
