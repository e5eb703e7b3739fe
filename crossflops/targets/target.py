"""Turn `pkg.module:callable`, `path/file.py:callable`, `timm:NAME` or a pickle into a model."""

import ast
import dis
import functools
import importlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from crossflops.errors import (
    TRACEBACK,
    CrossflopsError,
    MissingExtraError,
    TargetError,
    error_location,
    error_words,
    nearest_name_hint,
    unreadable_file_error,
)
from crossflops.frontends import (
    FRONTENDS,
    building_any_model,
    building_any_model_without_values,
    candidate_targets,
    hint_for_unsupported_value,
    library_of_target,
    load_with_retry,
    model_and_inputs_of_value,
    model_packages_to_install,
    similar_model_names_hint,
)
from crossflops.frontends.named import make_library_model
from crossflops.load import reject_pointer_or_web_page
from crossflops.threads import counting_one_at_a_time

_HINT = "write pkg.module:callable or path/file.py:callable; the callable returns the model"
_CALLABLE = "write file.py:callable or pkg.module:callable"
_RELATIVE = "attempted relative import"
_NAMED = 5  # callables of a file that a hint names
_BARE = r"[A-Za-z][\w-]*"
_PREFERRED = "CROSSFLOPS_LIBRARY"
_TEXTS: dict[str, bytes] = {}  # of files that were run, by the names of their modules


def build_target(
    target: str,
    arguments: Mapping[str, object],
    allow_pickle: bool = False,
    sizes: Mapping[str, int] = {},
    values: bool = True,
) -> tuple[Any, Any]:
    """Return the model of a target, and its inputs; None for these if the target has none.

    Of a model that a library knows by name the second is the `Named`, whose usual input is at
    these `sizes`. This runs the code that the target names. Without `values` a framework that can
    do so builds it without numbers. Raises TargetError or MissingExtraError, and without values
    ValuesNeededError.
    """
    with building_any_model(), _seeding_random_weights():
        return _resolve_and_build(target, arguments, allow_pickle, sizes, values)


@contextmanager
def _seeding_random_weights() -> Iterator[None]:
    """Return a context in which random weights are the same in every process.

    A path that depends on values is one that weights choose. NumPy and Python begin at seed 0, a
    framework where it says (`Frontend.building_model`).
    """
    import random

    import numpy as np  # not for `--help`

    python, numpy = random.getstate(), np.random.get_state()
    random.seed(0)
    np.random.seed(0)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


def _resolve_and_build(
    target: str,
    arguments: Mapping[str, object],
    allow_pickle: bool,
    sizes: Mapping[str, int],
    values: bool,
) -> tuple[Any, Any]:
    """Return the model of a target, and its inputs or its NamedModel; None without either."""
    refuse_url(target)
    _add_working_folder_to_path()
    target = full_target_name(target)
    library = library_of_target(target)
    if library is not None:
        with nullcontext() if values else building_any_model_without_values((library.package,)):
            named = load_with_retry(lambda: make_library_model(library, target, arguments, sizes))
        return named.model, named
    if Path(target).suffix in PICKLES:
        _refuse_arguments(arguments, target)
        return _model_with_inputs(load_pickle_file(Path(target), allow_pickle), None)
    reader = next((frontend for frontend in FRONTENDS if frontend.can_read(target)), None)
    if reader is not None:
        return load_with_retry(lambda: reader.read_model(target, arguments, allow_pickle)), None
    index, colon, name = target.rpartition(":")
    if not colon or not index or not name:
        raise _unreadable_target_error(target)
    value = _target_attribute(_import_target_module(index), name, target)
    full = _is_model(value, arguments)
    if full:
        _refuse_arguments(arguments, target)
    with (
        nullcontext()
        if values or full
        else building_any_model_without_values(_packages_imported_by(value))
    ):
        model = value if full else _call_target(value, arguments, target)
    if isinstance(model, tuple) and len(model) == 2 and not hint_for_unsupported_value(model):
        return _model_with_inputs(*model)
    return _model_with_inputs(model, None)


def alternative_target_arguments(target: str) -> Sequence[Mapping[str, object]]:
    """Return other arguments with which its library builds the model of a target for weights; ()
    for a target without a library, or without such arguments.
    """
    target = full_target_name(target)
    library = library_of_target(target)
    if library is None:
        return ()
    name = target.removeprefix(f"{library.prefix}:")
    return load_with_retry(lambda: library.alternative_arguments(name))


def _packages_imported_by(function: Any) -> frozenset[str]:
    """Return the names of the top-level packages that the body of a function imports."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    steps = dis.get_instructions(code) if code is not None else ()
    names = (str(step.argval) for step in steps if step.opname == "IMPORT_NAME")
    return frozenset(name.partition(".")[0] for name in names)


def load_target_function(target: str) -> Callable[..., Any]:
    """Return the function of "file.py:callable" or "package.module:callable", imported or run."""
    index, _, name = target.rpartition(":")
    if not index:
        raise TargetError(
            f"{target!r} is not of the form file.py:callable or pkg.module:callable",
            "write the file or the module, a colon, and the name of the callable",
        )
    _add_working_folder_to_path()
    value = _target_attribute(_import_target_module(index, _CALLABLE), name, target)
    if not callable(value):
        raise TargetError(
            f"{target} is a {type(value).__name__}, not a callable",
            _CALLABLE,
        )
    function: Callable[..., Any] = value
    return function


def is_batch_function(text: str) -> bool:
    """Return whether the text of --inputs names a function that returns inputs, and no file."""
    return ":" in text and not Path(text).is_file()


def call_batch_function(target: str) -> Any:
    """Return the batch that the function of "file.py:callable" returns. Raises TargetError."""
    batch = _call_target(load_target_function(target), {}, target)
    if batch is None:
        raise TargetError(
            f"{target} returned None, not the inputs of a model",
            "let it return a batch: a tensor, a tuple, or a dict with the names of parameters",
        )
    return batch


def full_target_name(target: str) -> str:
    """Return a bare model name with its library, `timm:resnet50` for `resnet50`, if one has it.

    CROSSFLOPS_LIBRARY names the libraries to prefer, in their order: "torchvision,timm". Any other
    target stays as it is. Raises TargetError where several libraries have one.
    """
    if not re.fullmatch(_BARE, target) or Path(target).exists():
        return target
    meant = candidate_targets(target)
    preferred = os.environ.get(_PREFERRED, "").split(",")
    order = [known for prefix in preferred for known in meant if known.startswith(f"{prefix}:")]
    if len(meant) > 1 and not order:
        names = " or ".join(meant)
        raise TargetError(
            f"{target} is ambiguous: {len(meant)} libraries have a model of this name",
            f"write {names}, or set {_PREFERRED}={meant[0].partition(':')[0]} to prefer one "
            "library",
        )
    return (*order, *meant, target)[0]


def _model_with_inputs(model: Any, own: Any) -> tuple[Any, Any]:
    """Return the model and its inputs: `own`, or if None the example inputs of its export."""
    module, example = model_and_inputs_of_value(model, own)
    return module, example if own is None else own


def refuse_url(target: str) -> None:
    """Raise TargetError for a URL: nothing is downloaded."""
    if "://" in target:
        raise TargetError(
            f"{target} is a URL; crossflops downloads nothing",
            "download the file and give its path",
        )


class _OtherFormat(NamedTuple):
    """A file format that crossflops does not read: a description, and what to count instead."""

    description: str
    remedy: str


_SOURCE = "count the model from which it was made: file.py:callable, or an ONNX file of it"
_EXECUTORCH = _OtherFormat("is a program of ExecuTorch, which crossflops does not read", _SOURCE)
_CORE_ML = _OtherFormat("is a model of Core ML, which crossflops does not read", _SOURCE)
_TENSORRT = _OtherFormat(
    "is an engine of TensorRT, compiled for one GPU, which crossflops does not read", _SOURCE
)
_OTHER_FORMATS = {
    ".pte": _EXECUTORCH,
    ".pdmodel": _OtherFormat(
        "is a model of PaddlePaddle, which crossflops does not read",
        "convert it: paddle2onnx --model_dir FOLDER --model_filename FILE --save_file model.onnx",
    ),
    ".pdiparams": _OtherFormat(
        "has the weights of a model of PaddlePaddle, which crossflops does not read",
        "convert the model: paddle2onnx --model_dir FOLDER --save_file model.onnx",
    ),
    ".mlmodel": _CORE_ML,
    ".mlpackage": _CORE_ML,
    ".engine": _TENSORRT,
    ".plan": _TENSORRT,
    ".msgpack": _OtherFormat(
        "has weights of Flax, and no model", "give the file.py:callable that builds the model"
    ),
    ".ckpt": _OtherFormat(
        "has weights, and no model", "give the file.py:callable that builds the model"
    ),
}


def _unreadable_target_error(target: str) -> TargetError:
    """Return the error that says why a target cannot be read, with similar names as its hint."""
    path = Path(target)
    if path.suffix in _OTHER_FORMATS and path.exists():
        other = _OTHER_FORMATS[path.suffix]
        return TargetError(f"{target} {other.description}", other.remedy)
    if target and path.is_dir():
        return TargetError(f"{target} is a folder without a SavedModel", _HINT)
    if path.suffix == ".py" and path.is_file():
        names = public_names_of_file(path)
        named = ", ".join(f"{target}:{name}" for name in names[:_NAMED])
        return TargetError(
            f"{target} must be followed by a colon and the name of a callable",
            f"write one that it defines, such as {named}"
            if names
            else "define a function in it that returns the model",
        )
    if path.suffix == ".safetensors" and path.is_file():
        folder = path.parent
        hint = (
            f"give its folder, which has a config.json: {folder}"
            if (folder / "config.json").is_file()
            else "give the path/file.py:callable that builds the model"
        )
        return TargetError(f"{path} has weights, and no model", hint)
    if path.is_file():
        suffixes = [suffix for frontend in FRONTENDS for suffix in frontend.suffixes]
        return TargetError(
            f"{path} has a file type that is not supported as a model",
            f"give {', '.join(suffixes[:-1])} or {suffixes[-1]}; for a file of weights, such "
            "as .safetensors, give the path/file.py:callable that builds the model",
        )
    if path.suffix and not path.exists():
        readable = {".py", *(suffix for frontend in FRONTENDS for suffix in frontend.suffixes)}
        additional = [str(file) for file in path.parent.glob("*") if file.suffix in readable]
        return TargetError(
            f"file {path} does not exist", nearest_name_hint(str(path), additional, _HINT)
        )
    near = similar_model_names_hint(target) if re.fullmatch(_BARE, target) else ""
    return TargetError(f"unknown target {target!r}", near or _library_install_hint(target))


def _library_install_hint(target: str) -> str:
    """Return a hint on which library to install, if one may have a model of this name."""
    missing = model_packages_to_install() if re.fullmatch(_BARE, target) else ()
    installs = " or ".join(f"`pip install {package}`" for package in missing)
    return f"{_HINT}; for a model by its name {installs}" if installs else _HINT


def _import_target_module(location: str, hint: str = _HINT) -> ModuleType:
    """Return the module of a target, imported or run from a file. Raises TargetError."""
    if location.endswith(".py"):
        return run_python_file(Path(location), hint)
    try:
        return load_with_retry(lambda: importlib.import_module(location))
    except ModuleNotFoundError as error:
        missing = error.name or location
        if (extra := missing_extra_error(missing)) is not None:
            raise extra from error
        if location == missing or location.startswith(f"{missing}."):
            raise TargetError(
                f"module {missing} is not installed", f"install it, or {hint}"
            ) from error
        raise TargetError(
            f"{location} needs the package {missing}", f"pip install {missing}"
        ) from error
    except (Exception, SystemExit) as error:
        raise TargetError(
            f"importing {location} failed: {error_words(error)}{error_location(error)}",
            TRACEBACK,
        ) from error


_LISTED = 8  # names that a refusal shows, where none is like the wrong one


def _similar_names_hint(holder: Any, name: str, target: str) -> str:
    """Return a hint with the names in a module or class that are similar to `name`."""
    owner = getattr(holder, "__name__", "")
    public = {
        other: value
        for other, value in vars(holder).items()
        if not other.startswith("_") and not isinstance(value, ModuleType)
    }
    own = [
        other
        for other, value in public.items()
        if (callable(value) and getattr(value, "__module__", "") == owner)
        or (not inspect.isroutine(value) and not inspect.isclass(value) and _is_model(value, {}))
    ]
    otherwise = f"correct the name after the colon in {target}"
    if 0 < len(own) <= _LISTED:
        otherwise = f"write one of its names after the colon: {', '.join(own)}"
    imported = [other for other, value in public.items() if callable(value) and other not in own]
    return nearest_name_hint(name, own, nearest_name_hint(name, imported, otherwise))


def _target_attribute(module: ModuleType, name: str, target: str) -> Any:
    """Return the attribute of a module that a target names, such as "models.Net"."""
    value: Any = module
    for part in name.split("."):
        if not hasattr(value, part):
            module_or_file = target.rpartition(":")[0]
            raise TargetError(
                f"{module_or_file} does not define {name!r}",
                _similar_names_hint(value, part, target),
            )
        value = getattr(value, part)
    return value


def _is_model(value: Any, arguments: Mapping[str, object]) -> bool:
    """Return whether the value is a model, and not a function that builds one."""
    if any(frontend.recognizes(value) for frontend in FRONTENDS):
        return True
    if inspect.isclass(value) or arguments or not callable(value):
        return False
    functions = any(frontend.is_model_function(value) for frontend in FRONTENDS)
    return functions and bool(_mandatory_parameters(value, arguments))


def _refuse_arguments(arguments: Mapping[str, object], target: str) -> None:
    """Raise TargetError if --arg is given for a target that is a model, not a callable."""
    if arguments:
        raise TargetError(
            f"{target} is a model, not a callable, so --arg cannot be used", "leave out --arg"
        )


def _call_target(
    function: Callable[..., Any], arguments: Mapping[str, object], target: str
) -> Any:
    """Call the function of a target with its arguments and return the model."""
    if not callable(function):
        raise TargetError(f"{target} is a {type(function).__name__}, not a callable", _HINT)
    _check_target_arguments(function, arguments, target)
    try:
        return load_with_retry(lambda: function(**arguments))
    except CrossflopsError:
        raise
    except (Exception, SystemExit) as error:
        missing = (error.name or "") if isinstance(error, ModuleNotFoundError) else ""
        if (absent := missing_extra_error(missing)) is not None:
            raise absent from error
        raise TargetError(
            f"{target} raised {error_words(error)}{error_location(error)}",
            f"install the package that it needs: pip install {missing}" if missing else TRACEBACK,
        ) from error


def _check_target_arguments(
    function: Callable[..., Any], arguments: Mapping[str, object], target: str
) -> None:
    """Raise TargetError if the arguments do not fit the signature of a target's function."""
    try:
        parameters = inspect.signature(function).parameters
    except (ValueError, TypeError):  # builtins do not tell
        return
    kinds = inspect.Parameter
    named = {
        name: parameter
        for name, parameter in parameters.items()
        if parameter.kind in {kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY}
    }
    strays = [name for name in arguments if name not in named]
    if strays and not any(
        parameter.kind is kinds.VAR_KEYWORD for parameter in parameters.values()
    ):
        raise TargetError(
            f"{target} has no {_quote_names('argument', strays)}",
            f"known arguments: {', '.join(named)}"
            if named
            else "it takes no arguments; leave out --arg",
        )
    if needed := _mandatory_parameters(function, arguments):
        missing_options = " ".join(f"--arg {name}=VALUE" for name in needed)
        raise TargetError(
            f"{target} needs {_quote_names('argument', needed)}",
            f"add {missing_options}, with each VALUE in JSON",
        )


def _mandatory_parameters(
    function: Callable[..., Any], arguments: Mapping[str, object]
) -> list[str]:
    """Return the names of parameters that have no default and are not among the arguments."""
    kinds = inspect.Parameter
    try:
        parameters = inspect.signature(function).parameters
    except (ValueError, TypeError):
        return []
    return [
        name
        for name, parameter in parameters.items()
        if parameter.default is kinds.empty
        and parameter.kind not in {kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD}
        and name not in arguments
    ]


def _quote_names(word: str, names: list[str]) -> str:
    """Return the word, with an "s" if there are several names, followed by the names in quotes."""
    return f"{word}{'s' if len(names) > 1 else ''} {', '.join(map(repr, names))}"


@contextmanager
def restoring_imports() -> Iterator[None]:
    """Return a context that restores sys.path at its end, and that one thread at a time can enter.

    What targets add is gone after it, and not sooner: a model may import when it runs.
    """
    with counting_one_at_a_time():
        before = list(sys.path)
        try:
            yield
        finally:
            sys.path[:] = before


def _add_working_folder_to_path() -> None:
    """Add the working folder to sys.path, behind the installed modules.

    A folder called `torch` or `jax` there would else break every framework. They may be imported
    when the model runs, too, so that they stay until `restoring_imports` ends.
    """
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.append(folder)


# Python files and pickles, and the extra that a missing package needs.


def missing_extra_error(package: str) -> MissingExtraError | None:
    """Return the error that says which extra installs a package; None if no extra does."""
    name = package.partition(".")[0]
    extra = next((frontend.extra for frontend in FRONTENDS if name in frontend.packages), None)
    if extra is None:
        return None
    return MissingExtraError(f"{name} is not installed", f"pip install 'crossflops[{extra}]'")


def run_python_file(path: Path, hint: str) -> ModuleType:
    """Run a Python file and return its module; a file with the same text is not run again.

    What it registers for good, as an operator of torch.library, cannot be registered again. The
    file may import what lies beside it, and by dots.

    Raises TargetError, MissingExtraError.
    """
    if not path.is_file():
        raise TargetError(f"file {path} does not exist", hint)
    sys.path.append(str(path.parent.resolve()))
    try:
        try:
            return _run_file_by_itself(path)
        except ImportError as error:
            if _RELATIVE not in str(error) or not (path.parent / "__init__.py").is_file():
                raise
            return _import_file_in_package(path.resolve())
    except TargetError:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, PermissionError) and error.filename == str(path):
            raise unreadable_file_error(path, error) from error
        absent = isinstance(error, ModuleNotFoundError) and missing_extra_error(error.name or "")
        if isinstance(absent, MissingExtraError):
            raise absent from error
        raise TargetError(
            f"running the file {path} failed: {error_words(error)}{error_location(error)}",
            TRACEBACK,
        ) from error


def _run_file_by_itself(path: Path) -> ModuleType:
    """Return the module of a Python file, run by itself; run again only if its text changed."""
    # Registered under a name of its own, so that what it defines can be pickled and inspected;
    # two files of one name in two folders are two modules.
    import hashlib  # which loads OpenSSL

    index = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]
    name = f"crossflops_target_{path.stem}_{index}"
    text = path.read_bytes()
    if name in sys.modules and _TEXTS.get(name) == text:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TargetError(f"{path} is not a Python file", "give a file that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    _TEXTS.pop(name, None)  # of one that raises there is none
    load_with_retry(functools.partial(spec.loader.exec_module, module))
    _TEXTS[name] = text
    return module


def _import_file_in_package(path: Path) -> ModuleType:
    """Return the module of a file with relative imports, imported as a part of its package."""
    parts, folder = [path.stem], path.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    name = ".".join(parts)
    sys.path.append(str(folder))
    module = load_with_retry(lambda: importlib.import_module(name))
    if Path(module.__file__ or "").resolve() != path:
        raise TargetError(
            f"{path} belongs to the package {parts[0]}, but another package of that name is "
            "imported",
            f"run the command in folder {folder} and write {name}:callable",
        )
    return module


def public_names_of_file(path: Path) -> list[str]:
    """Return the public names defined in a Python file, without running it; [] on errors."""
    try:
        body = ast.parse(path.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return []
    names = []
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            names.append(statement.name)
        elif isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Lambda):
            names += [target.id for target in statement.targets if isinstance(target, ast.Name)]
    return [name for name in names if not name.startswith("_")]


# A model that was pickled whole: read only on demand, since reading it runs its code.

_PLAIN = (".pkl", ".pickle")  # of no framework in particular
PICKLES = {
    **dict.fromkeys(_PLAIN, "is a pickle"),
    **{suffix: kind for frontend in FRONTENDS for suffix, kind in frontend.pickles.items()},
}


def may_contain_pickle(target: str) -> bool:
    """Return whether reading the target may run code that is pickled in it."""
    reads = any(frontend.can_read(target) for frontend in FRONTENDS)
    return Path(target).suffix in PICKLES or reads


_LONGEST = 300
_PICKLE_HINT = "give a callable that builds the model: file.py:callable"


def load_pickle_file(path: Path, allowed: bool) -> Any:
    """Return the model in a pickle file, if `allowed`. Raises TargetError."""
    if not path.is_file():
        raise TargetError(
            f"file {path} does not exist", f"give the path of the saved model, or {_PICKLE_HINT}"
        )
    reject_pointer_or_web_page(path)
    if not allowed:
        raise TargetError(
            f"{path} {PICKLES[path.suffix]}, and reading it can run any code",
            f"{_PICKLE_HINT}; if you trust the file, add --allow-pickle",
        )
    try:
        return load_with_retry(lambda: _read_pickle(path))
    except ModuleNotFoundError as error:
        raise missing_extra_error(error.name or "") or TargetError(
            f"{path} needs the package {error.name}", f"pip install {error.name}"
        ) from error
    except Exception as error:
        what = " ".join(str(error).split())[:_LONGEST]
        raise TargetError(
            f"{path} cannot be unpickled: {type(error).__name__}: {what}", _PICKLE_HINT
        ) from error


def _read_pickle(path: Path) -> Any:
    """Return the model in a pickle file, read by pickle or by the framework of its suffix."""
    if path.suffix in _PLAIN:
        import pickle

        with path.open("rb") as file:
            return pickle.load(file)
    frontend = next(known for known in FRONTENDS if path.suffix in known.pickles)
    return frontend.unpickle_model(path)
