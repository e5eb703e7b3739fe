"""F.interpolate and F.upsample, as far as DeepSpeed's profiler and calflops read them alike.

Sources: deepspeed/profiling/flops_profiler/profiler.py and calflops/pytorch_ops.py, both
`_upsample_flops_compute`, which takes the input by position and anything else either way.
"""

from collections.abc import Callable
from math import prod

from crossflops.ir.tensor import TensorSpec
from crossflops.ir.trace import Call, Module
from crossflops.tools.formulas.contraction import Formula

Resized = Callable[[Call], int]


def by_mode(tool: str, resized: Resized) -> dict[str, Formula]:
    """Two formulas of a tool: its amount where it copies neighbours, and where it interpolates."""

    def copied(call: Call, module: Module) -> int:
        return resized(call) if _copies(call) else 0

    def interpolated(call: Call, module: Module) -> int:
        return 0 if _copies(call) else resized(call)

    copied.__doc__ = interpolated.__doc__ = resized.__doc__
    return {f"{tool}.copied": copied, f"{tool}.interpolated": interpolated}


def source(call: Call) -> TensorSpec:
    """The input. Raises LookupError where it goes by keyword, or has no known shape."""
    found = call.input("0")
    if found is None or found.shape is None:
        raise LookupError("the tool's function takes the input by position")
    return found


def asked(call: Call) -> int | None:
    """prod(size), or None where no size is given: batch and channels are not in it."""
    size = call.settings.get("size", call.settings.get("1"))
    if isinstance(size, list):
        return prod(map(int, size))
    return int(size) if isinstance(size, int | float) else None


def scales(call: Call) -> list[float] | float:
    """The scale of each axis, or of all. Raises LookupError without one."""
    scale = call.settings.get("scale_factor", call.settings.get("2"))
    if not isinstance(scale, int | float | list):
        raise LookupError("neither size nor scale_factor")
    return scale


def _copies(call: Call) -> bool:
    mode = call.settings.get("mode", call.settings.get("3", "nearest"))
    return str(mode).startswith("nearest")
