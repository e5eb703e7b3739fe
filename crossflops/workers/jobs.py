"""The job of a worker process, and the model that is sent to it."""

import importlib
import os
import pickle
from pathlib import Path
from typing import Any, Literal

import msgspec

from crossflops.frontends import load_with_retry
from crossflops.ir.graph import TensorSpec
from crossflops.ir.trace import Setting
from crossflops.plugins.adapter import is_module


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One tool on one model, built anew in the worker.

    The model comes from a target string, called with `arguments`, and the inputs from a file,
    from specs, or from the target itself; or model and inputs come from the file
    `pickle_path`. A tool that takes an ONNX file gets the path `onnx_path`, where a file has to
    lie when the tools are let go, not before. `adapter` is the value of the tool's entry point
    ("module:attribute"); when it is None, the worker looks the tool up in its own environment.

    Jobs share a warm parent, unless `own_process` says that this tool cannot be forked. Those of
    one number `model` are on one model, which that parent builds once. `weights` says whether the
    model has values ("real", "fake"; None: by its size, see `crossflops.targets.weights`); one
    that was pickled without any has "fake". `framework` names the module that the parent imports
    before it loads any tool. `taught` are the operators whose formulas the tool is handed, and
    `formulas` the files and modules that have them.
    """

    tool: str
    setting: Setting
    model: int = 0
    adapter: str | None = None
    target: str | None = None
    arguments: dict[str, Any] = {}
    inputs: tuple[TensorSpec, ...] = ()
    inputs_file: str | None = None
    allow_pickle: bool = False
    sizes: dict[str, int] = {}
    pickle_path: str | None = None
    onnx_path: str | None = None
    own_process: bool = False
    weights: Literal["real", "fake"] | None = "real"
    framework: str = ""
    taught: tuple[str, ...] = ()
    formulas: tuple[str, ...] = ()

    @property
    def needs_contents(self) -> bool:
        """Whether the caller's model object must be sent to the worker, since there is no target
        to build it from.
        """
        return self.target is None and self.pickle_path is None and self.onnx_path is None


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A job with the conditions of one worker.

    The answer is written to the file `answer_path`. `paths` are appended to the worker's sys.path,
    so that they shadow nothing. `memory_limit` is the limit of its address space in bytes.

    A worker that a warm parent forks has its conversation on the pipes of `link`, the first for
    what it hears, inherited under these numbers, and writes what the tool prints to the file
    `log`. `variables` are those of the environment that its parent could not have: how many
    threads a tool may start.
    """

    job: Job
    answer_path: str
    paths: tuple[str, ...] = ()
    memory_limit: int | None = None
    link: tuple[int, int] | None = None
    log: str = os.devnull
    variables: dict[str, str] = {}


# A model object and its inputs on their way into a worker process.

Contents = tuple[Any, tuple[Any, ...], dict[str, Any]]
_ZIP = b"PK\x03\x04"

HINT = (
    "define the class in an importable module, give a target string such as "
    "'pkg.module:callable', or pass isolate=False"
)


def write_model_contents(path: Path, contents: Contents) -> None:
    """Write a model with its positional and keyword inputs to a file, by PyTorch or pickle.

    A PyTorch model is written by PyTorch, whose files can be mapped into several processes at
    once. Raises whatever pickle raises on an object that cannot be pickled.
    """
    if is_module(contents[0]):
        importlib.import_module("torch").save(contents, path)
    else:
        with path.open("wb") as file:
            pickle.dump(contents, file, protocol=pickle.HIGHEST_PROTOCOL)


def read_model_contents(path: Path) -> Contents:
    """Return the model and its inputs that `write_model_contents` wrote. The file is trusted: the
    parent process wrote it.

    The classes in it are imported on the way, torchvision's with what it needs.
    """
    return load_with_retry(lambda: _read_job_contents(path))


def _read_job_contents(path: Path) -> Contents:
    """Return the model and its inputs from a file, either a zip of PyTorch or a pickle."""
    contents: Contents
    with path.open("rb") as file:
        # what PyTorch writes is a zip; a model of Keras is a pickle that ends with one
        if file.read(len(_ZIP)) == _ZIP:
            load = importlib.import_module("torch").load
            contents = load(path, weights_only=False, mmap=True)
        else:
            file.seek(0)
            contents = pickle.load(file)
    return contents
