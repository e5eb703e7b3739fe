"""The record of one run of a PyTorch model under export."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from crossflops.frontends.pytorch.record.recorder import AppliedFunction, Frame
from crossflops.ir.trace import Call, Trace


class ExportedRun(msgspec.Struct, frozen=True):
    """One run of a model under export: the program, its operators by node name, and the trace.

    `drawing` is set where random numbers may determine sizes: the states of generators other than
    PyTorch's that were used. `applied` are the custom autograd functions, `frames` all calls of
    modules and functions, `leaves` the values with a gradient that are not parameters (by name:
    whether it is an input), `turned` the parameters that the model freezes or trains, `packed` the
    number and bytes of those that quantized modules hold.
    """

    program: Any
    operators: dict[str, Call]
    trace: Trace
    drawing: Sequence[Any] | None = None
    applied: tuple[AppliedFunction, ...] = ()
    frames: Sequence[Frame] = ()
    leaves: Mapping[str, bool] = {}
    turned: frozenset[str] = frozenset()
    packed: tuple[int, int] = (0, 0)
