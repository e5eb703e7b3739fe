"""Exceptions of crossflops, and the line of a model where an exception comes from."""

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


TRACEBACK = "--debug, or CROSSFLOPS_DEBUG=1, shows the whole traceback"
_NEAR = 3  # names that a hint offers


class CrossflopsError(Exception):
    """The base class of the errors of crossflops.

    The command line prints both lines, and exits with `exit_status`.

    Args:
        message: One line about the problem.
        hint: One line about the remedy.
        reference: Where the problem is described, "" without such a place.

    Example:
        >>> import crossflops
        >>> try:
        ...     crossflops.count("absent.onnx")
        ... except crossflops.CrossflopsError as error:
        ...     print(error.exit_status, "absent.onnx" in error.message, bool(error.hint))
        2 True True
    """

    exit_status = 2

    def __init__(self, message: str, hint: str, reference: str = "") -> None:
        super().__init__(message)
        self.message = _one_line(message)
        self.hint = _one_line(hint)
        self.reference = reference

    def __reduce__(self) -> "tuple[Callable[..., CrossflopsError], tuple[Any, ...]]":
        """Return how to rebuild the error in another process, such as the caller of a worker."""
        return _rebuild_error, (type(self), self.args, dict(vars(self)))


def _rebuild_error(
    kind: type[CrossflopsError], args: tuple[Any, ...], attributes: dict[str, Any]
) -> CrossflopsError:
    """Return an exception of this class with these arguments and attributes, as pickle
    needs it.
    """
    error = kind.__new__(kind)
    error.args = args
    vars(error).update(attributes)
    return error


class TargetError(CrossflopsError):
    """An error of a model that cannot be found, loaded or built."""


class InputError(CrossflopsError):
    """An error of inputs that do not fit the model, or are written wrongly."""


class OperandError(CrossflopsError):
    """An error of a node with operands that its operator cannot take: the graph cannot run."""


class NormalizeError(CrossflopsError):
    """An error of a model that was built, but cannot be converted to a graph."""


class FormulaError(CrossflopsError):
    """A formula of one's own raises, returns what is no count, or contradicts another one."""


class UnknownNameError(CrossflopsError):
    """An error of an unknown or ambiguous name of a tool, cause, device, convention or format."""


class ValuesNeededError(CrossflopsError):
    """An error of a model whose shapes depend on values: it must be built with its weights.

    `reason` says what needs them, and is the end of the message.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"the model needs its weights, which --weights fake does not make: {reason}",
            "leave out --weights fake",
        )
        self.reason = _one_line(reason)


class MissingExtraError(CrossflopsError):
    """An error of a framework that is not installed."""


class PatchError(CrossflopsError):
    """An error of an attribute that crossflops replaces, and that the installed library lacks."""


class CrossflopsWarning(UserWarning):
    """A warning about a model that the reader of its count should know."""


def unreadable_file_error(path: str | Path, error: OSError) -> TargetError:
    """Return the error for a file that the operating system does not let this process read."""
    return TargetError(
        f"cannot read {path}: {error.strerror}", "check the path and the permissions of the file"
    )


def nearest_name_hint(wrong: str, known: "Iterable[str]", otherwise: str = "") -> str:
    """Return a hint for an unknown name: "did you mean ...?" with similar known names, else
    `otherwise`, else all known names.

    `otherwise` is what stands for all of them, where they are many.

    >>> nearest_name_hint("thpo", ["thop", "fvcore"]), nearest_name_hint("x", ["thop", "fvcore"])
    ('did you mean thop?', 'known: thop, fvcore')
    """
    from difflib import get_close_matches  # most runs name nothing wrong

    names = list(known)
    folded = {name.casefold(): name for name in names}
    near = [folded[close] for close in get_close_matches(wrong.casefold(), folded, n=_NEAR)]
    if near:
        return f"did you mean {' or '.join(near)}?"
    return otherwise or f"known: {', '.join(names) or 'none'}"


def _one_line(text: str) -> str:
    """Return the text on one line, with one space for each run of whitespace and line breaks."""
    return " ".join(text.split())


# What follows is for whoever debugs a framework: its stack, its backends, the pages on its errors.
_FOR_DEBUGGING = re.compile(
    r"Exception raised from |frame #0|\bTraceback \(most recent|C\+\+ CapturedTraceback"
    r"|Developer debug context:|For more details about this|For debugging consider"
    r"|[^.\n]*\bis only available for these backends|[^.\n]*\b(?:visit|see):? https?://"
    r"|\n\s*Hint: |from user code:|Detected at node|-{20}"
)
_LONGEST = 400


def error_words(error: BaseException) -> str:
    """Return the class name and the message of an exception on one line, shortened, without text
    for debugging.

    >>> error_words(RuntimeError("a != b\\nException raised from f at g.cpp:1"))
    'RuntimeError: a != b'
    """
    text = str(error)
    end = _FOR_DEBUGGING.search(text)
    text = _one_line(text[: end.start()] if end else text) or _one_line(text)
    text = text if len(text) <= _LONGEST else f"{text[:_LONGEST].rstrip()} ..."
    return f"{type(error).__name__}: {text}".removesuffix(": ")


# Where an exception comes from: the file and line of the model, whichever code was running it.

DEBUG = "CROSSFLOPS_DEBUG"  # the variable that asks for tracebacks; workers inherit it
_HERE = str(Path(__file__).resolve().parent)
_LIBRARIES = str(Path(os.__file__).parent)
_INSTALLED = r".*[\\/](?:site|dist)-packages[\\/]"
# what runs models, or this package, and is none; those of frameworks are added by `frontends`
_RUNNERS = (
    "numpy",
    "onnx",
    "onnx_ir",
    "crossflops",
    "click",
    "google",
    "msgspec",
    "rich",
    "sympy",
)
frameworks: set[str] = set()


def error_location(error: BaseException) -> str:
    """Return the line of the model's source that raised the error, as " (model.py:12, in
    forward)"; "" if it is unknown.

    That is a file of the user; else one of an installed library that is no framework. Of an error
    that another one led to, the first that tells is taken.
    """
    import traceback

    for cause in _error_chain(error):
        frames = traceback.extract_tb(cause.__traceback__)
        indices = [(frame, _error_file_label(frame.filename)) for frame in frames]
        native = [(frame, index) for frame, (index, own) in indices if index and own]
        places_known = native or [(frame, index) for frame, (index, _) in indices if index]
        if places_known:
            frame, index = places_known[-1]
            return f" ({index}:{frame.lineno}, in {frame.name})"
    return ""


_NO_MODULE = re.compile(r"No module named '([\w.]+)'")
_LIBRARY_LACKS = re.compile(
    r"^module '[\w.]+' has no attribute|'_OpNamespace' '\w+' object has no attribute"
    r"|^cannot import name|[Oo]perator [\w:.]+ does not exist|No such operator"
)
_NOT_HERE = re.compile(r"not (?:currently )?implemented|Could not run '")
_GPU = re.compile(
    r"Torch not compiled with CUDA|NVIDIA driver|CUDA (?:is|error)|(?:only|must be).* (?:CUDA|GPU)"
)


def error_remedy(error: BaseException, otherwise: str) -> str:
    """Return a hint about an exception that the model raised, or `otherwise` if its kind is not
    known.

    >>> error_remedy(ModuleNotFoundError("No module named 'einops'", name="einops"), "")
    'the model imports einops when it runs: pip install einops'
    """
    text = str(error)
    if isinstance(error, ModuleNotFoundError) and (match := _NO_MODULE.search(text)):
        package = (error.name or match[1]).partition(".")[0]
        return f"the model imports {package} when it runs: pip install {package}"
    if isinstance(error, ImportError) or _LIBRARY_LACKS.search(text):
        return "the model needs another release of that library, or a package that registers it"
    if _GPU.search(text):
        return "the model needs a GPU when it runs; change its code so that it runs on a CPU"
    if 'missing the required "forward"' in text:
        return (
            "give the module a forward, or give a callable that returns the part to be counted, "
            "such as its encoder"
        )
    if isinstance(error, NotImplementedError) or _NOT_HERE.search(text):
        return (
            "the model calls something that is not implemented here; implement that method, "
            "or use another operator, layout or device"
        )
    if isinstance(error, NameError):
        return "the code of the model uses an undefined name; correct it there"
    return otherwise


def print_traceback(error: BaseException) -> None:
    """Write the traceback of an error and its causes to stderr, if CROSSFLOPS_DEBUG is set."""
    import traceback

    print_worker_stderr("".join(traceback.format_exception(error)))


def print_worker_stderr(output: str, stream: TextIO | None = None) -> None:
    """Write the stderr output of a worker process, such as its traceback, to a stream, if
    CROSSFLOPS_DEBUG is set.

    What a terminal would obey is spelled out. The stream is stderr, or the given one.
    """
    if os.environ.get(DEBUG, "0") in ("", "0"):
        return
    for line in output.splitlines():
        plain = (char if char.isprintable() else ascii(char)[1:-1] for char in line)
        with contextlib.suppress(OSError):
            output_stream = stream or sys.stderr
            output_stream.write("".join(plain) + "\n")
            output_stream.flush()


def _error_chain(error: BaseException) -> Iterator[BaseException]:
    """Return the exception and the exceptions that led to it, the earliest first."""
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in chain:
        chain.append(current)
        current = current.__cause__ or current.__context__
    return reversed(chain)


def _error_file_label(file: str) -> tuple[str, bool]:
    """Return (short name, whether the user wrote it) of a source file; the name is "" for files
    that are not part of a model.
    """
    if file.startswith("<"):
        return "", False
    installed = re.match(_INSTALLED, file)
    if installed:
        rest = file[installed.end() :]
        top = re.split(r"[\\/]", rest)[0]
        return ("" if top in _RUNNERS or top in frameworks else rest), False
    if file.startswith((_HERE, _LIBRARIES)):
        return "", False
    folder = os.path.join(os.getcwd(), "")
    return file.removeprefix(folder), True
