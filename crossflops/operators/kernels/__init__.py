"""The cost of known kernels of other libraries, found by the names of their operators or classes.

In: calls of operators whose library need not be installed. Out: their work, each formula with its
source and a reference in plain PyTorch.
May import: ir, errors, operators.

Importing the folder registers all of them: one file for each library, in `_FILES`.
"""

from importlib import import_module

_FILES: tuple[str, ...] = (
    "attention",
    "flashinfer",
    "layers",
    "linear_attention",
    "quantized",
    "sparse",
    "state_space",
    "vision",
)

for _file in _FILES:
    import_module(f"{__name__}.{_file}")
