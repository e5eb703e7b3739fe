"""Causes of numbers that a tool cannot hold exactly."""

from crossflops.core.convention import Cause

CAUSES = (
    Cause(
        id="precision.rounded",
        title="rounded or cut off",
        page="The tool computes with floats or cuts fractions off, and what it prints differs "
        "from the exact value of its own formula.",
        recognise="The amount is below one for each layer, or far below a millionth of the total.",
    ),
)
