"""What a worker process is asked to do, as it travels to it in JSON."""

from typing import Any

import msgspec

from crossflops.core.tensor import TensorSpec
from crossflops.core.trace import Setting


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One tool on one model, built afresh in the worker.

    The model comes from a target string, called with `arguments`, and the inputs from a file,
    from specs, or from the target itself; or model and inputs come from the file
    `pickle_path`. A tool that takes an ONNX file gets the path `onnx_path`, where a file has to
    lie when the tools are let go, not before. `adapter` is the value of the tool's entry point
    ("module:attribute"); when it is None, the worker looks the tool up in its own environment.
    """

    tool: str
    setting: Setting
    adapter: str | None = None
    target: str | None = None
    arguments: dict[str, Any] = {}
    inputs: tuple[TensorSpec, ...] = ()
    inputs_file: str | None = None
    allow_pickle: bool = False
    pickle_path: str | None = None
    onnx_path: str | None = None


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A job with the conditions of one worker.

    The answer is written to the file `result`. `paths` are appended to the worker's sys.path,
    so that they shadow nothing. `memory` is the limit of its address space in bytes.
    """

    job: Job
    result: str
    paths: tuple[str, ...] = ()
    memory: int | None = None
