"""Causes for which there is no number."""

from crossflops.core.convention import Cause

CAUSES = (
    Cause(
        id="tool.error",
        title="the tool raises",
        page="The tool has no number for this model: what it is built on, or its own rule, raises "
        "an exception. Nothing is predicted, and nothing is to be explained.",
        recognise="The tool's row says why it failed, and stands without a total.",
    ),
)
