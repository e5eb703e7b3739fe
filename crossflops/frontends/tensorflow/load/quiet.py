"""Keep TensorFlow's log lines off stderr, unless the user wants them or an import fails."""

import contextlib
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from crossflops.frontends.conversion import silencing_loggers
from crossflops.patches import inventory
from crossflops.patches.patching import patching_attribute

_LEVEL = "TF_CPP_MIN_LOG_LEVEL"  # 0 everything, 1 no information, 2 no warnings
_LOGGERS = ("tensorflow", "absl", "tf2onnx")
_STDERR = 2


@contextmanager
def quieting_tensorflow() -> Iterator[None]:
    """Return a context in which TensorFlow logs only errors of its C++ code.

    If TF_CPP_MIN_LOG_LEVEL is set, the user wants the logs: then nothing is changed.
    """
    if _LEVEL in os.environ:
        yield
        return
    finder = _Quietly()
    os.environ[_LEVEL] = "2"
    sys.meta_path.insert(0, finder)
    try:
        with silencing_loggers(*_LOGGERS):
            yield
    finally:
        sys.meta_path.remove(finder)
        os.environ.pop(_LEVEL, None)


class _Quietly(MetaPathFinder):
    """An import hook that hides what TensorFlow writes to stderr while it is imported.

    Its libraries write to the descriptor before any setting is read: that oneDNN is on, twice.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the import spec of TensorFlow, whose loader hides stderr; None for others."""
        if fullname != "tensorflow":
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            stored: Any = spec.loader
            shown = _loader_that_shows_output_on_failure(stored.exec_module)
            patching_attribute(
                stored, "exec_module", shown, inventory.ONE_IMPORT
            ).patch_permanently()
        return spec


def _loader_that_shows_output_on_failure(
    load: Callable[[ModuleType], None],
) -> Callable[[ModuleType], None]:
    """Return a loader of a module that hides stderr, and shows it only if loading fails."""

    def load_and_show_output_on_failure(module: ModuleType) -> None:
        """Load a module with stderr hidden; show what it wrote if loading fails."""
        if threading.active_count() > 1:  # what others write to the descriptor would be lost
            load(module)
            return
        with tempfile.TemporaryFile() as spoken, _redirecting_stderr_to(spoken.fileno()) as shown:
            try:
                load(module)
            except BaseException:
                spoken.seek(0)
                os.write(shown, spoken.read())
                raise

    return load_and_show_output_on_failure


@contextmanager
def _redirecting_stderr_to(file: int) -> Iterator[int]:
    """Return a context in which stderr goes to a file; it yields the descriptor of the real
    stderr.
    """
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.flush()
    kept = os.dup(_STDERR)
    os.dup2(file, _STDERR)
    try:
        yield kept
    finally:
        os.dup2(kept, _STDERR)
        os.close(kept)
