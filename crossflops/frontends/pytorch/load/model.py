"""The preparation of a model to be counted (unwrapped, complete, copied), which leaves the user's
model unchanged.
"""

import copy
import functools
import gc
import io
import keyword
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from types import CellType, FunctionType
from typing import TYPE_CHECKING, Any

from crossflops.errors import (
    InputError,
    NormalizeError,
    ValuesNeededError,
    error_location,
    error_remedy,
    error_words,
)
from crossflops.frontends.frontend import RUN, RunnableModel, Source
from crossflops.frontends.pytorch.load.compiled import bind_uncompiled_methods
from crossflops.frontends.pytorch.load.fakes import has_own_fake_tensor
from crossflops.frontends.pytorch.load.flexible_attention import FlexAttentionRunner
from crossflops.frontends.pytorch.load.keras_models import (
    copying_keras_attributes,
    registering_keras_classes,
)
from crossflops.frontends.pytorch.load.tensors import registering_input_containers
from crossflops.frontends.seeds import restoring_random_states
from crossflops.ir.trace import Setting
from crossflops.limits import trim_memory
from crossflops.patches import inventory
from crossflops.patches.patching import patching_attribute, restore_attribute
from crossflops.threads import filter_warnings, silence_logs, silence_streams

if TYPE_CHECKING:
    from logging import LogRecord

    from torch import nn


_KINETO = "KINETO_LOG_LEVEL"  # of the library behind PyTorch's profiler

# What a caller finds as it was: the state of random generators, inputs, the log.


def build_compiler_tables() -> None:
    """Let PyTorch's compiler and export build their tables of functions now, before a run is
    recorded.

    If they were built in a recorded export, the lists would hold wrappers, and these the model.
    """
    import torch._dynamo.trace_rules as rules

    import_module("torch.export._trace")
    for table in ("get_torch_obj_rule_map", "get_tensor_method"):
        getattr(rules, table, lambda: None)()


def reset_compiler() -> None:
    """Reset PyTorch's compiler and its cache of results on fake tensors.

    Functions that it replaced (torch.cond) while a run was observed would raise in every other
    run. While it compiles, it runs the model's operators on fake tensors, and fewer of them every
    time.
    """
    import torch._dynamo
    from torch._subclasses.fake_tensor import FakeTensorMode

    torch._dynamo.reset()
    FakeTensorMode.cache_clear()


def copy_inputs(
    args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return copies of a model's positional and keyword inputs, since a run may change them."""
    import torch
    from torch.utils._pytree import tree_map_only

    provided = tuple(args), dict(kwargs)
    with registering_input_containers(provided):
        copied: tuple[tuple[Any, ...], dict[str, Any]] = tree_map_only(
            torch.Tensor, torch.clone, provided
        )
    return copied


@contextmanager
def suppressing_output() -> Iterator[None]:
    """Suppress warnings, log lines and printed output inside the block.

    Log lines of crossflops itself, which a user enables, are kept.
    """
    with (
        silence_logs(_is_library_record),
        filter_warnings("ignore"),
        silence_streams(),
    ):
        yield


def _is_library_record(record: "LogRecord") -> bool:
    """Return True if a log record is of a library, False if it is of crossflops."""
    return not record.name.startswith("crossflops.")


@contextmanager
def suppressing_profiler_output() -> Iterator[None]:
    """Suppress the lines that PyTorch's profiler prints at start and stop, inside the block.

    Their level is above errors. The level is read when the profiler first starts.
    """
    before = os.environ.get(_KINETO)
    os.environ.setdefault(_KINETO, "6")
    try:
        yield
    finally:
        if before is None:
            del os.environ[_KINETO]


@contextmanager
def tracing_without_stack_traces() -> Iterator[None]:
    """Trace operators without Python stack traces inside the block, which is faster.

    The search for lines takes a sixth of an export.
    """
    from torch.fx import config

    if not hasattr(config, "do_not_emit_stack_traces"):
        yield
        return
    with patching_attribute(config, "do_not_emit_stack_traces", True, inventory.STACK_TRACES):
        yield


@contextmanager
def tracing_without_tensor_metadata() -> Iterator[None]:
    """Trace operators without a second description of their results inside the block, which is
    faster.

    A node of a trace has the fake tensor of its result; the description repeats its shape, strides
    and dtype, for code generators. Source: torch/fx/experimental/proxy_tensor.py (set_meta).
    """
    from torch.fx.experimental import proxy_tensor

    (name,) = inventory.TENSOR_METADATA.names
    if not hasattr(proxy_tensor, name):
        yield
        return
    with patching_attribute(proxy_tensor, name, _empty_tensor_metadata, inventory.TENSOR_METADATA):
        yield


def _empty_tensor_metadata(*_: Any, **__: Any) -> None:
    """Return None as the description of a traced tensor."""


@contextmanager
def escaping_module_names() -> Iterator[None]:
    """Make PyTorch write module names that are no identifiers as valid Python, inside the block.

    PyTorch treats every word as an attribute, also a keyword such as "class", and quotes others
    without escaping: torch/fx/graph.py, `_format_target`.
    """
    import torch.fx.graph as written

    with patching_attribute(
        written, "_format_target", _attribute_path_source, inventory.WRITTEN_CODE
    ):
        yield


def _attribute_path_source(base: str, target: str) -> str:
    """Return the Python source that reads the attribute path `target` of the expression `base`."""
    for name in target.split("."):
        plain = name.isidentifier() and not keyword.iskeyword(name)
        base = f"{base}.{name}" if plain else f"getattr({base}, {name!r})"
    return base


def prepare_torch_model(
    model: "nn.Module", args: tuple[Any, ...], kwargs: Mapping[str, Any], owned: bool
) -> "nn.Module":
    """Return the model as it can be exported: the original of a compiled one, with lazy layers
    that have their sizes.

    A compiled model is replaced by the original. Lazy layers get their sizes by one run on these
    inputs, on a copy unless the model is `owned`. Raises InputError when that run raises.
    """
    import torch

    while isinstance(model, torch._dynamo.OptimizedModule if _is_compiler_imported() else ()):
        model = model._orig_mod
    if not _is_lazy(model):
        return model
    if has_own_fake_tensor(model):
        raise ValuesNeededError("lazy layers get their sizes only in a run of the model")
    model = model if owned else copy_torch_model(model)
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    with restoring_random_states(), suppressing_output():
        run_torch_model(model, args, kwargs, grad=False)
    for module, training in modes:
        module.training = training
    return model


def _is_compiler_imported() -> bool:
    """Return True if PyTorch's compiler has been imported."""
    import sys

    return "torch._dynamo" in sys.modules


def _is_lazy(model: "nn.Module") -> bool:
    """Return True if a model has lazy parameters or buffers, which have no shape yet."""
    from torch.nn.parameter import is_lazy

    return any(
        is_lazy(tensor)
        for module in model.modules()
        for tensor in (*module._parameters.values(), *module._buffers.values())
    )


def weight_storage_bytes(model: "nn.Module") -> int:
    """Return the bytes of a model's parameters and buffers; shared ones count once."""
    tensors = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def copy_torch_model(model: "nn.Module", exported: bool = False) -> "nn.Module":
    """Return a separate copy of a model, its parameters included.

    A copy that is only `exported` reads and writes no number, so its parameters share the model's
    memory, as other objects: a model may fill half of the memory.

    Shared are only tensors that were computed from others (weight_norm has such), which Python
    cannot copy and every run computes anew, and objects without a copy (a lock, an open file); but
    no iterator, which the first of several runs would use up.
    """
    import torch
    from torch.nn.parameter import UninitializedBuffer

    stored = (value for module in model.modules() for value in vars(module).values())
    derived = (value for value in stored if isinstance(value, torch.Tensor) and not value.is_leaf)
    memo = {id(tensor): tensor for tensor in derived}
    for module in model.modules():
        for tensor in module._parameters.values():
            if tensor is None or id(tensor) in memo:
                continue
            data = _parameter_copy_data(tensor, exported)
            if data is not None:
                memo[id(tensor)] = torch.nn.Parameter(data, tensor.requires_grad)
        for buffer in module._buffers.values():
            if isinstance(buffer, UninitializedBuffer):
                like: dict[str, Any] = {"device": buffer.device, "dtype": buffer.dtype}
                memo[id(buffer)] = UninitializedBuffer(**like)
            elif buffer is not None and buffer.layout != torch.strided:
                memo[id(buffer)] = buffer.detach().clone()  # Python copies storages, here none
    with registering_keras_classes(model):
        own = _deep_copy_with_shared(model, memo)
    bind_uncompiled_methods(model, own)
    return own


def _deep_copy_with_shared(model: "nn.Module", memo: dict[int, Any]) -> "nn.Module":
    """Return a deep copy of a model that shares the objects of `memo`, by id, and those that
    Python cannot copy.

    Layers of Keras are copied by their attributes; where a graph of many is too deep for that, as
    Keras copies them. Raises NormalizeError.
    """
    with copying_keras_attributes(model), suppress(Exception):
        return copy.deepcopy(model, memo=dict(memo))
    with suppress(Exception):
        return copy.deepcopy(model, memo=dict(memo))
    try:
        with copying_keras_attributes(model):
            memo |= {id(value): value for value in _uncopyable_attributes(model)}
            return copy.deepcopy(model, memo=memo)
    except Exception as error:
        raise NormalizeError(
            f"the model cannot be copied: {error}",
            "give the model as file.py:callable, which builds it again",
        ) from error


@contextmanager
def using_model_copy_for_one_run(model: "nn.Module", training: bool) -> Iterator["nn.Module"]:
    """Yield a copy of the model in training or evaluation mode for one run, and free its
    parameters afterwards.

    Leftovers of a run (hooks, frames of recorded calls) may hold the copy for longer.
    """
    import torch

    own = set_training_mode(copy_torch_model(model), training)
    kept = {_storage_id(parameter) for parameter in model.parameters()}
    try:
        with restoring_module_variables(model):
            yield own
    finally:
        for parameter in own.parameters():
            if type(parameter) is torch.nn.Parameter and _storage_id(parameter) not in kept:
                parameter.data = parameter.data.new_empty(0)
        trim_memory()


@contextmanager
def restoring_module_variables(model: "nn.Module") -> Iterator[None]:
    """Restore variables of the model's classes and files in which the block stores tensors.

    Code keeps anchors, masks and positions in caches of `functools`, or in variables of its
    modules and classes: these outlive every copy of the model. A tool has a process of its own,
    and sees the very first run; an export would leave tensors without values.
    """
    import torch

    clear_caches(model)
    before = {
        (id(space), name): _copy_of_container(value)
        for space, name, value in _class_and_file_variables(model)
    }
    stored = {id(leaf) for content in before.values() for leaf in _container_leaves(content)}
    try:
        yield
    finally:
        clear_caches(model)
        for space, name, value in list(_class_and_file_variables(model)):
            leaves = (leaf for leaf in _container_leaves(value) if isinstance(leaf, torch.Tensor))
            if any(id(leaf) not in stored for leaf in leaves):
                _restore_variable(space, name, value, before.get((id(space), name), _NOTHING))


_NOTHING = object()
_CACHE = functools._lru_cache_wrapper
_EMPTY = CellType()  # of a variable that has no value yet


def clear_caches(model: "nn.Module") -> None:
    """Clear the `functools` caches in this process that hold tensors, without those of PyTorch
    itself.
    """
    import torch

    for cache in {*_tensor_function_caches(len(sys.modules)), *_function_caches_of_model(model)}:
        if cache.cache_info().currsize:
            leaves = _container_leaves(gc.get_referents(cache))
            if any(isinstance(leaf, torch.Tensor) for leaf in leaves):
                cache.cache_clear()


@functools.lru_cache(maxsize=1)
def _tensor_function_caches(modules: int) -> list[Any]:
    """Return the `functools` caches in this process that may hold tensors of a model; the result
    is cached by `modules`, the number of imported modules.

    They are cached by the number of imported modules, since a search takes 50 ms.
    """
    kind = _CACHE  # a local: the loop is over all objects that there are
    caches = [value for value in gc.get_objects() if type(value) is kind]
    return [cache for cache in caches if _top_level_package(cache) not in _WITHOUT_MODEL_TENSORS]


def _function_caches_of_model(model: "nn.Module") -> Iterator[Any]:
    """Yield the `functools` caches in attributes of a model's modules, their classes and files."""
    stored = (value for module in model.modules() for value in vars(module).values())
    for value in (*stored, *(value for _, _, value in _class_and_file_variables(model))):
        # by their exact types: to ask anything else for an attribute may load a whole library
        function = value.__func__ if type(value) in (staticmethod, classmethod) else value
        closed = function.__closure__ or () if type(function) is FunctionType else ()
        cells = (cell.cell_contents for cell in closed if cell != _EMPTY)
        yield from (inner for inner in (function, *cells) if type(inner) is _CACHE)


# Packages whose caches are of thousands of types, names, expressions and formulas, and PyTorch's
# own, which it clears itself.
_WITHOUT_MODEL_TENSORS = frozenset(("crossflops", "importlib", "sympy", "torch", "typing"))


def _top_level_package(code: Any) -> str:
    """Return the top-level package of a function or class; "" if it has none."""
    return (getattr(code, "__module__", None) or "").partition(".")[0]


def _is_of_pytorch(code: Any) -> bool:
    """Return True if a function or class is from the package `torch`."""
    return _top_level_package(code) == "torch"


def _class_and_file_variables(model: "nn.Module") -> Iterator[tuple[Any, str, Any]]:
    """Yield (class or file, name, value) for each variable of a model's module classes and of
    their source files.
    """
    kinds = {kind for module in model.modules() for kind in type(module).__mro__[:-1]}
    own = [kind for kind in kinds if not _is_of_pytorch(kind)]
    files = {id(file): file for kind in own if (file := sys.modules.get(kind.__module__))}
    for space in (*own, *files.values()):
        for name, value in list(vars(space).items()):
            if not name.startswith("__"):
                yield space, name, value


def _copy_of_container(value: Any) -> Any:
    """Return a copy of a variable's value if it is a dict or a list, else the value, to restore it
    later.
    """
    return copy.copy(value) if isinstance(value, (dict, list)) else value


def _restore_variable(space: Any, name: str, value: Any, content: Any) -> None:
    """Set a variable to `content`, which it had before; dicts and lists are changed in place."""
    if isinstance(value, dict) and isinstance(content, dict):
        value.clear()
        value.update(content)
    elif isinstance(value, list) and isinstance(content, list):
        value[:] = content
    elif content is _NOTHING:
        restore_attribute(space, name)
    else:
        restore_attribute(space, name, content)


def _container_leaves(value: Any, depth: int = 3) -> Iterator[Any]:
    """Yield the values in nested dicts, lists, tuples and sets, down to `depth` levels."""
    inner = value.values() if isinstance(value, dict) else value
    if depth and isinstance(value, (dict, list, tuple, set)):
        for part in inner:
            yield from _container_leaves(part, depth - 1)
    else:
        yield value


def _parameter_copy_data(parameter: "nn.Parameter", exported: bool) -> Any:
    """Return the tensor for the copy of a parameter; None if Python's own copy is right.

    The numbers of a plain one are copied when one of the two is written.
    """
    import torch

    plain = type(parameter) is torch.nn.Parameter and not vars(parameter)
    if plain and exported:
        return parameter.data
    if parameter.layout != torch.strided:
        return parameter.detach().clone()
    if not plain or parameter.untyped_storage().device.type != "cpu":
        return None
    try:
        return torch._lazy_clone(parameter.data)
    except RuntimeError:  # it is memory of numpy, of a file or of several processes
        return None


def _storage_id(tensor: Any) -> int:
    """Return the id of a tensor's storage; 0 if it has none.

    The address would need write access.
    """
    try:
        storage = tensor.untyped_storage()
    except (RuntimeError, NotImplementedError):
        return 0
    return 0 if storage.device.type == "meta" else int(storage._cdata)


def _uncopyable_attributes(model: "nn.Module") -> Iterator[Any]:
    """Yield each attribute of the modules, other than parameters, that Python cannot copy."""
    modules: dict[int, Any] = {id(module): module for module in model.modules()}
    for module in model.modules():
        for name, value in vars(module).items():
            if name in ("_parameters", "_buffers", "_modules"):
                continue
            try:
                copy.deepcopy(value, memo=dict(modules))
            except Exception:
                if isinstance(value, io.IOBase) or not isinstance(value, Iterator):
                    yield value


def set_training_mode(model: "nn.Module", training: bool) -> "nn.Module":
    """Set the model to training or evaluation mode, if it has modes, and return it."""
    try:
        return model.train(training)
    except NotImplementedError:
        return model


def run_torch_model(
    model: "nn.Module", args: tuple[Any, ...], kwargs: Mapping[str, Any], grad: bool
) -> None:
    """Call the model on copies of its inputs. Raises InputError if it raises."""
    import torch

    args, kwargs = copy_inputs(args, kwargs)
    try:
        with torch.set_grad_enabled(grad):
            model(*args, **kwargs)
    except (Exception, SystemExit) as error:
        raise model_run_error(error) from error


def check_model_copy_runs(
    model: "nn.Module", args: tuple[Any, ...], kwargs: Mapping[str, Any], setting: Setting
) -> None:
    """Call a copy of the model in this setting. Raises InputError if it raises."""
    with (
        restoring_random_states(),
        suppressing_output(),
        using_model_copy_for_one_run(model, setting.training) as own,
    ):
        run_torch_model(own, args, kwargs, setting.grad)


def check_runs_without_observer(
    model: "nn.Module",
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    setting: Setting,
    error: BaseException,
) -> None:
    """Call a copy of the model without observation. Raises InputError with `error`, from the
    observed run, if it raises as well.
    """
    reset_compiler()
    try:
        with using_model_copy_for_one_run(model, setting.training) as own:
            run_torch_model(own, *copy_inputs(args, kwargs), setting.grad)
    except InputError:
        raise model_run_error(error, f"when run ({setting.id})") from error


_OF_VALUES = (
    "the model reads a value, which weights without values do not have: build it smaller "
    "(--arg), or with values"
)
_OF_TYPES = (
    "give float inputs the type of the weights (--input "
    "x=1x8:bfloat16), or build a model by name in "
    "another type: --arg dtype=float32"
)


def model_run_error(error: BaseException, where: str = "on these inputs") -> InputError:
    """Return the InputError that says on one line what the model raised, with a remedy."""
    leaves = isinstance(error, SystemExit)
    plain = "device meta" in str(error) or "meta tensor" in str(error)
    mistyped = re.search(r"dtype|BFloat16|Half|scalar type|not implemented for '", str(error))
    return InputError(
        f"the model raised {where}: {error_words(error)}{error_location(error)}",
        "remove the exit from the model: it would end the process that runs it"
        if leaves
        else _OF_VALUES
        if "item() cannot be called on meta" in str(error)
        else "give inputs without values where the weights have none (device='meta'), or shapes"
        if plain
        else _OF_TYPES
        if mistyped
        else error_remedy(error, "check the number, the shapes and the types of --input"),
    )


WITHIN = "model_within"  # the model's name in a module around it


def wrap_for_export(model: "nn.Module") -> "nn.Module":
    """Return the model, or a module that calls it if torch.export could not.

    torch.export interprets the nodes of a GraphModule, and refuses TorchScript, whose operators
    reach a tracer anyway. Its program is a GraphModule, which cannot hold a layer or a weight
    called `graph` or `code`. The model may be changed: pass a copy.
    """
    import torch

    class ModelCaller(torch.nn.Module):
        """A wrapper that calls the model."""

        def __init__(self) -> None:
            """Make a module whose only child is the model."""
            super().__init__()
            self.add_module(WITHIN, model)

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            """Return the model's result on these arguments."""
            return model(*args, **kwargs)

    _replace_torchscript_parameters(model)
    taken = set(dir(torch.fx.GraphModule)) - set(dir(torch.nn.Module))
    stored = {*model._modules.keys(), *model._parameters.keys(), *model._buffers.keys()}
    enclosing = isinstance(model, torch.fx.GraphModule | torch.jit.ScriptModule)
    return ModelCaller() if enclosing or taken & stored else model


def _replace_torchscript_parameters(model: "nn.Module") -> None:
    """Replace the TorchScript parameters of a model by Python parameters."""
    import torch
    from torch.nn import Parameter

    for module in model.modules():
        if isinstance(module, torch.jit.ScriptModule):
            for name, tensor in module.named_parameters(recurse=False):
                setattr(module, name, Parameter(tensor.detach(), tensor.requires_grad))


# A model that is timed in PyTorch itself.


def to_ready_model(source: Source, threads: int, setting: Setting) -> RunnableModel:
    """Return a function that runs the model on its inputs and waits for the device, with facts on
    the run.
    """
    import torch

    model, args, kwargs = source.model, source.args, source.kwargs
    torch.set_num_threads(threads)
    model.train(setting.training)
    weights = [*model.parameters(), *model.buffers()]
    device = weights[0].device if weights else torch.device("cpu")
    sync: Callable[[], Any] = {
        "cuda": torch.cuda.synchronize,
        "mps": lambda: torch.mps.synchronize(),
    }.get(device.type, lambda: None)

    attending = FlexAttentionRunner(model, setting.grad)

    def run_and_synchronize() -> None:
        """Run the model once, and wait for its device to finish."""
        with torch.set_grad_enabled(setting.grad), attending.running_as_operators():
            model(*args, **kwargs)
        sync()

    def write_chrome_trace(runs: int, path: str) -> str:
        """Profile this number of runs, write a Chrome trace to `path`, and return the path."""
        from torch import profiler

        kinds = [profiler.ProfilerActivity.CPU]
        kinds += [profiler.ProfilerActivity.CUDA] if device.type == "cuda" else []
        with (
            suppressing_profiler_output(),
            profiler.profile(
                activities=kinds, record_shapes=True, profile_memory=True
            ) as profiled,
        ):
            for _ in range(runs):
                with profiler.record_function(RUN):
                    run_and_synchronize()
        profiled.export_chrome_trace(path)
        return path

    config = (
        "module(*inputs), "
        f"{_run_mode_label(setting)}{', synchronized' if device.type != 'cpu' else ''}"
    )
    return RunnableModel(
        run_and_synchronize,
        f"torch {torch.__version__}",
        device.type,
        config,
        write_chrome_trace,
        lambda: attending.operator_run_note,
    )


def _run_mode_label(setting: Setting) -> str:
    """Return the mode of a run as text, such as "train, grad" or "eval, no grad"."""
    return f"{'train' if setting.training else 'eval'}, {'grad' if setting.grad else 'no grad'}"
