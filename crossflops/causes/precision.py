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
    Cause(
        id="precision.float32",
        title="added up in single precision",
        page="The tool adds up in 32-bit floats, which hold whole numbers exactly up to 2^24. "
        "Beyond that every addition rounds, and the order of the operations matters. The amount "
        "is exact: the additions are repeated as the tool does them.",
        recognise="The total is above 16 777 216 and is a multiple of a power of two: 138 077 011 "
        "968 for a product of 138 077 003 866 operations.",
    ),
)
