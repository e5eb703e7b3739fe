"""Turn a model with its inputs into its graph, and a trace of its calls.

In: a `Source`. Out: a `Graph` and a `Trace`. Every framework is a folder with an object that says
all that must be known of it (`frontend.Frontend`); its packages are imported once it has a model.
May import: load, operators, ir, patches, errors, limits, threads.
"""

import re
import warnings
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from crossflops.errors import CrossflopsWarning, InputError, NormalizeError, frameworks
from crossflops.frontends.conversion import announcing_converter
from crossflops.frontends.frontend import (
    Frontend,
    ModelRun,
    Program,
    Recording,
    Run,
    RunnableModel,
    Source,
)
from crossflops.frontends.inputs import GIVEN
from crossflops.frontends.named import Library, NamedModel
from crossflops.ir.graph import Control, Graph
from crossflops.ir.trace import Setting, Trace

__all__ = [
    "GIVEN",
    "Frontend",
    "ModelRun",
    "Program",
    "Recording",
    "Run",
    "RunnableModel",
    "Source",
]

# One line for each framework: its folder, which has the object FRONTEND.
_FOLDERS = (
    "onnx",
    "pytorch",
    "tensorflow",
    "jax",
    "boosting",
    "sklearn",
    "gguf",
    "tflite",
    "openvino",
)
FRONTENDS: tuple[Frontend, ...] = tuple(
    import_module(f"{__name__}.{folder}").FRONTEND for folder in _FOLDERS
)
frameworks.update(package for frontend in FRONTENDS for package in frontend.packages)

_Loaded = TypeVar("_Loaded")


def frontend_of(model: object) -> Frontend | None:
    """Return the frontend of a model's framework, or None if the value is not a model."""
    sure = (frontend for frontend in FRONTENDS if frontend.recognizes(model))
    likely = (
        frontend
        for frontend in FRONTENDS
        if frontend.may_be_model(model) and not _is_of_other_framework(model, frontend)
    )
    return next(sure, None) or next(likely, None)


def _is_of_other_framework(value: object, frontend: Frontend) -> bool:
    """Return whether the type of a value is defined in a package of another framework."""
    others = (other.packages for other in FRONTENDS if other is not frontend)
    return type(value).__module__.startswith(tuple(name for names in others for name in names))


def frontend_named(name: str) -> Frontend | None:
    """Return the frontend of this name, such as "pytorch", as traces and conventions have it; None
    if there is none.
    """
    return next((frontend for frontend in FRONTENDS if frontend.name == name), None)


def framework_title(name: str) -> str:
    """Return the framework's name as messages write it, such as "PyTorch" for "pytorch"."""
    frontend = frontend_named(name)
    return name if frontend is None else frontend.title


def knows_trainable_parameters(trace: Trace) -> bool:
    """Return whether a trace says which parameters of its graph are trained."""
    frontend = frontend_named(trace.framework)
    return frontend is not None and frontend.knows_trained and not _has_parameters_as_inputs(trace)


def _has_parameters_as_inputs(trace: Trace) -> bool:
    """Return whether a model gets its parameters as an input: no module in its trace has any."""
    frontend = frontend_named(trace.framework)
    takes = frontend is not None and frontend.takes_parameters
    return takes and not any(module.params for module in trace.modules)


def require_known_trainable_parameters(trace: Trace, trainable: Iterable[str] = ()) -> None:
    """Raise InputError if it is unknown which parameters are trained, also by `trainable`."""
    if knows_trainable_parameters(trace) or (_has_parameters_as_inputs(trace) and any(trainable)):
        return
    if _has_parameters_as_inputs(trace):
        raise InputError(
            "the model has no parameters, so it is unknown which inputs are trained",
            "name the argument that holds the parameters, by index or keyword, such as "
            "--trainable 0",
        )
    frontend = frontend_named(trace.framework)
    way = (frontend.converted_by if frontend else "") or "a converter to ONNX"
    raise InputError(
        f"a training step of a model of {framework_title(trace.framework)} is not counted yet",
        f"convert the model to ONNX with {way}, and count that file: all of its weights are "
        "trained, except the weights that --frozen names",
    )


def runtime_frontend(runtime: str) -> Frontend:
    """Return the frontend whose models run in the runtime of this `--runtime` value."""
    return next(frontend for frontend in FRONTENDS if frontend.runtime == runtime)


def may_be_of_other_framework(target: str, names: Iterable[str]) -> bool:
    """Return whether a target may be a model of a framework whose name is not in `names`.

    It is guessed from the words of the target, or of the file that it names: no code is run.
    """
    others = [
        frontend for frontend in FRONTENDS if (frontend.builds or frontend.name) not in names
    ]
    packages = [package for frontend in others for package in frontend.packages]
    path = Path(target.rpartition(":")[0] or target)
    if path.suffix != ".py":
        named = any(library_of_target(target) in frontend.model_libraries() for frontend in others)
        reads = named or any(frontend.can_read(target) for frontend in others)
        return reads or path.name.partition(".")[0] in packages
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return re.search(rf"^\s*(?:import|from)\s+(?:{'|'.join(packages)})\b", text, re.M) is not None


def library_of_target(target: str) -> Library | None:
    """Return the library of a target such as `timm:resnet50` or a file, or None for others."""
    prefix, colon, name = target.partition(":")
    prefix, suffix = prefix if colon and name else "", Path(target).suffix
    is_folder = bool(target) and Path(target).is_dir()
    if not prefix and not suffix and not is_folder:
        return None
    libraries = [library for frontend in FRONTENDS for library in frontend.model_libraries()]
    named = (library for library in libraries if prefix and library.prefix == prefix)
    filed = (library for library in libraries if suffix and library.suffix == suffix)
    folders = (
        library
        for library in (libraries if is_folder and not _is_saved_model(target) else ())
        if library.config and Path(target, library.config).is_file()
    )
    return next(named, None) or next(filed, None) or next(folders, None)


def _is_saved_model(folder: str) -> bool:
    """Return whether a folder is a SavedModel, which may have a config next to it."""
    return Path(folder, "saved_model.pb").is_file()


def candidate_targets(name: str) -> tuple[str, ...]:
    """Return the targets, such as `timm:resnet50`, for which a bare model name may be short."""
    return tuple(
        f"{library.prefix}:{known}"
        for frontend in FRONTENDS
        for library in frontend.model_libraries()
        for known in library.model_names()
        if known.casefold() == name.casefold()
    )


def model_packages_to_install() -> tuple[str, ...]:
    """Return the uninstalled packages that would provide models by name, such as timm."""
    libraries = (library for frontend in FRONTENDS for library in frontend.model_libraries())
    return tuple(
        library.package
        for library in libraries
        if library.names_models and not library.model_names()
    )


def similar_model_names_hint(name: str) -> str:
    """Return a hint with installed models of nearly this name, or "" if there are none."""
    from difflib import get_close_matches  # most runs name nothing wrong

    folded = {
        known.casefold(): f"{library.prefix}:{known}"
        for frontend in FRONTENDS
        for library in frontend.model_libraries()
        for known in library.model_names()
    }
    near = [folded[match] for match in get_close_matches(name.casefold(), folded, n=3)]
    return f"did you mean {' or '.join(near)}?" if near else ""


def model_and_inputs_of_value(value: Any, inputs: Any = None) -> tuple[Any, Any]:
    """Return the model and inputs that a value contains, or the value itself and None.

    The inputs may show what a plain function is.
    """
    holders = (
        opening for frontend in FRONTENDS if (opening := frontend.model_and_inputs(value, inputs))
    )
    return next(holders, (value, None))


def default_model_input(model: Any, sizes: Mapping[str, int] = {}) -> NamedModel | None:
    """Return the default inputs that a model itself documents, in these sizes, or None if it
    documents none.
    """
    known = (frontend.default_input(model, sizes) for frontend in FRONTENDS)
    return next((named for named in known if named is not None), None)


@contextmanager
def building_any_model() -> Iterator[None]:
    """Enter, inside the block, the contexts in which all frameworks let the code of a target build
    a model (for example with reproducible random weights).
    """
    with ExitStack() as stack:
        for frontend in FRONTENDS:
            stack.enter_context(frontend.building_model())
        yield


@contextmanager
def building_any_model_without_values(packages: Container[str] = ()) -> Iterator[None]:
    """Return a context in which a model is built without weight values, in any framework.

    Raises ValuesNeededError where it cannot be built so.
    """
    with ExitStack() as stack:
        for frontend in FRONTENDS:
            own = (frontend.extra, *(library.package for library in frontend.model_libraries()))
            stack.enter_context(
                frontend.building_model_without_values(any(package in packages for package in own))
            )
        yield


def load_with_retry(load: Callable[[], _Loaded]) -> _Loaded:
    """Return load(); call it a second time if a framework can remove the cause of its error."""
    try:
        return load()
    except Exception as error:
        if not any(frontend.can_retry_after(error) for frontend in FRONTENDS):
            raise
    return load()


def require_frontend(model: Any) -> Frontend:
    """Return the frontend of a model. Raises an error if it is unknown or lacks packages.

    Raises MissingExtraError, and NormalizeError for a value that is not a model of any framework.
    """
    frontend = frontend_of(model)
    if frontend is None:
        kinds = [kind for known in FRONTENDS for kind in known.models]
        if hint := hint_for_unsupported_value(model):
            raise NormalizeError(
                f"the model is of the type {_value_type_name(model)}, which is not a model", hint
            )
        raise NormalizeError(
            f"the model is of the type {_value_type_name(model)}, which crossflops cannot read",
            f"give a model of {', '.join(kinds[:-1])} or {kinds[-1]}, or a callable that returns"
            " one, or (model, inputs)",
        )
    frontend.require_packages_for(model)
    return frontend


# Values of libraries that are often given in the place of a model, by module and class.
_INSTEAD = {
    ("haiku", "Transformed"): "give its function with its parameters: "
    "(model.apply, (params, None, x))",
    ("haiku", "TransformedWithState"): "give its function with its parameters and state: "
    "(model.apply, (params, state, None, x))",
    ("torch_geometric", "Data"): "give the model, with its tensors as inputs: "
    "(model, (data.x, data.edge_index))",
    ("torch_geometric", "HeteroData"): "give the model, with its tensors as inputs: "
    "(model, (data.x_dict, data.edge_index_dict))",
    ("paddle", "Layer"): "write an ONNX file with paddle.onnx.export, and count it",
}


def hint_for_unsupported_value(value: Any) -> str:
    """Return what to give instead of a value of a known library, "" for others."""
    rows = ((kind.__module__.partition(".")[0], kind.__name__) for kind in type(value).__mro__)
    advice = next((_INSTEAD[row] for row in rows if row in _INSTEAD), "")
    return advice or (_OF_WEIGHTS if _is_checkpoint(value) else "")


_OF_WEIGHTS = (
    "these are weights without the model: give the file.py:callable that builds it, without "
    "loading them"
)


def _is_checkpoint(value: Any) -> bool:
    """Return whether a value is a dict of names and arrays, as a state_dict is, or holds one, as a
    checkpoint of a training does.
    """
    if not isinstance(value, Mapping) or not value:
        return False
    stored = list(value.values())
    return all(hasattr(item, "shape") for item in stored) or any(map(_is_checkpoint, stored))


def _value_type_name(value: Any) -> str:
    """Return a value's type name for messages, with its module unless it is a builtin."""
    kind = type(value)
    name = kind.__qualname__
    return name if kind.__module__ == "builtins" else f"{kind.__module__}.{name}"


def _list_in_words(names: Sequence[str]) -> str:
    """Return the names as a list in words: "A, B and C"."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def with_control(source: Source, control: Control) -> Source:
    """Return a copy of the source with the choices for its loops and branches.

    Raises InputError where its framework has no names for them.
    """
    frontend = frontend_of(source.model)
    if control and (frontend is None or not frontend.has_control):
        kinds = sorted(kind for known in FRONTENDS if known.has_control for kind in known.models)
        files = [known.title for known in FRONTENDS if known.has_control and not known.models]
        raise InputError(
            "--trips and --branch can be used only with files of "
            f"{_list_in_words(files)}, and models of {_list_in_words(kinds)}",
            "leave out --trips and --branch",
        )
    return msgspec.structs.replace(source, control=control)


def reject_unsupported_no_grad(source: Source, setting: Setting) -> None:
    """Raise InputError for `--no-grad` on a model whose framework has no gradient mode."""
    frontend = frontend_of(source.model)
    if frontend is not None and not setting.grad and not frontend.has_gradient_mode:
        raise InputError(
            f"--no-grad has no effect on a model of {frontend.title}", "leave out --no-grad"
        )


def record_model(
    source: Source,
    setting: Setting,
    views: Sequence[Setting] = (),
    runs: Callable[[], Any] | None = None,
) -> Recording:
    """Run or trace a model once, and return the recording of its calls."""
    frontend = require_frontend(source.model)
    with announcing_converter(frontend.converter):
        return frontend.record(source, setting, views, runs)


def convert_recording(recording: Recording, run: Run | None = None) -> Program:
    """Return the ONNX model of a recording, its graph, and the trace of its calls.

    The ONNX model is one of onnx_ir or the bytes of one, None for a file. See `Frontend.convert`.
    """
    frontend = require_frontend(recording.source.model)
    with announcing_converter(frontend.converter):
        made = frontend.convert(recording, run)
    if made[2].calls:
        from crossflops.frontends.whole_modules import with_modules_as_formula_nodes

        made = with_modules_as_formula_nodes(*made)
    if not made[1].outputs:
        message = (
            "the model returns no tensor, so nothing is counted: a count includes only work "
            "that a result depends on"
        )
        warnings.warn(message, CrossflopsWarning, stacklevel=2)
    return made


def build_model_program(
    source: Source, setting: Setting, views: Sequence[Setting] = (), run: Run | None = None
) -> Program:
    """Record and convert a model; return its ONNX model, its graph and the trace of its calls.

    Args:
        source: The model and its arguments.
        setting: How the model runs: its mode, with or without gradients.
        views: Settings in which other tools run the model; the trace has the calls of each.
        run: Runs the ONNX model of the conversion once, to find sizes and branches that depend
            on values; without it they stay unknown.
    """
    return convert_recording(record_model(source, setting, views), run)


def normalize(
    source: Source, setting: Setting, views: Sequence[Setting] = ()
) -> tuple[Graph, Trace]:
    """Return the graph of a model and the trace of its calls."""
    return build_model_program(source, setting, views)[1:]
