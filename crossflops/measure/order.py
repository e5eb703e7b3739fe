"""What a measuring worker is asked, and what it answers."""

from typing import Any, TypeAlias

import msgspec

from crossflops.core.measurement import Measurement, Unfit
from crossflops.core.observation import Seen
from crossflops.core.tensor import TensorSpec
from crossflops.core.trace import Setting
from crossflops.measure.timing import USUAL, Limits


class FileOrder(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Run an ONNX file in onnxruntime.

    Weights without values get random ones if they are to be `allocated`. `profiled` asks for runs
    with the runtime's profiler after those that are timed; the profile and the graph that ran are
    left in `folder`. With `unrun` the graph alone is made. `memory` bounds the worker, in bytes.
    """

    path: str
    dims: dict[str, int] = {}
    specs: tuple[TensorSpec, ...] = ()
    inputs_file: str | None = None
    allocated: bool = False
    batch: int
    optimization: str = "all"
    threads: int
    limits: Limits = USUAL
    profiled: bool = False
    unrun: bool = False
    memory: int | None = None
    folder: str


class ModelOrder(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Run a model in its own framework, `runtime`, built afresh from its target.

    `trace` is the file or the folder to which a trace of some runs is written, None for none.
    """

    target: str
    arguments: dict[str, Any] = {}
    specs: tuple[TensorSpec, ...] = ()
    inputs_file: str | None = None
    allow_pickle: bool = False
    setting: Setting
    runtime: str
    batch: int
    threads: int
    limits: Limits = USUAL
    trace: str | None = None
    memory: int | None = None
    paths: tuple[str, ...] = ()


class Ran(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="ran"):
    """A model that ran: in what, on which inputs, how fast.

    `profile` is the file that the runtime's profiler wrote, `graph` that of the graph which ran,
    of whose runs
    the first `dropped` do not count.
    """

    runtime: str
    device: str
    inputs: dict[str, Seen]
    measurement: Measurement | None = None
    profile: str | None = None
    graph: str | None = None
    dropped: int = 0


class Refusal(msgspec.Struct, frozen=True, tag_field="kind", tag="refused"):
    """The request is wrong, whatever the batch."""

    message: str
    hint: str


Order: TypeAlias = FileOrder | ModelOrder
Answer: TypeAlias = Ran | Unfit | Refusal
