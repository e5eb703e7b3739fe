"""Causes of the order of a tensor's axes."""

from crossflops.core.convention import Cause

CAUSES = (
    Cause(
        id="layout.nchw-unsupported",
        title="channels first, counted as nothing",
        page="The tool has its rule for images with the channels last alone. Pools and transposed "
        "convolutions of images with the channels first count nothing, and nobody is told.",
        recognise="The number grows when the same layer is given data_format='channels_last'.",
    ),
)
