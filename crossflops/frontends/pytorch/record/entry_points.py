"""The recording of calls of Python entry points: `torch.add`, `Tensor.__matmul__`, `F.relu`,
`module.forward`.

Tools that patch functions replace attributes, so attributes are what is wrapped here: it tells
`x + y` from `torch.add(x, y)`. A TorchFunctionMode beside it catches functions that were captured
by reference before they could be wrapped.
"""

import functools
import importlib
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from inspect import getattr_static
from typing import Any

from crossflops.frontends.pytorch.load.running_models import RUNNING
from crossflops.frontends.pytorch.load.tensors import with_plain_dicts
from crossflops.frontends.pytorch.record.checkpoints import patch_checkpoints_to_record
from crossflops.frontends.pytorch.record.custom_functions import (
    apply_of_base_class,
    apply_under_name,
    apply_with_recording,
    custom_function_base_class,
    function_of_class_method,
    parameter_names_by_id,
)
from crossflops.frontends.pytorch.record.operators import (
    CHECKPOINT,
    GENERATOR,
    UNGRADED,
    mark_gradient_hooks,
    mark_gradient_request,
)
from crossflops.frontends.pytorch.record.recorder import Recorder
from crossflops.frontends.seeds import setting_torch_random_state
from crossflops.patches import inventory
from crossflops.patches.patching import Patch, patching_attribute, patching_attributes

# What stands around operators and is no function of torch: a tool may see it, or not see into it.
#
# A custom autograd function and a scripted function are one opaque call to a tool that traces with
# torch.jit; under `torch.vmap` Python sees one example of many; what a hook does is no part of the
# module's forward. einops.einsum calls torch.einsum: a tool may replace both.

APPLY = "torch.autograd.Function.apply"
SCRIPTED = "torch.jit.ScriptFunction.__call__"
VMAP = "torch.vmap"
EINOPS = "einops.einsum"

_HOOKS = {
    "_forward_pre_hooks": "torch.nn.Module.pre_hook",
    "_forward_hooks": "torch.nn.Module.hook",
}


def record_calls_that_enclose_operators(undo: ExitStack, recorder: Recorder) -> None:
    """Record calls of custom functions, vmap, scripted functions, hooks and einops until `undo`
    closes.
    """
    import torch
    from torch._functorch import apis

    function = torch.autograd.Function
    apply = vars(function)["apply"]
    by_name = apply_under_name(recorder, function_of_class_method(apply))
    wrapper = _wrap_entry_point(recorder, APPLY, apply_with_recording(recorder, by_name))
    _replace_attribute(undo, function, "apply", classmethod(wrapper), inventory.CUSTOM_FUNCTION)
    if (base := custom_function_base_class()) is not None:
        apply = function_of_class_method(getattr_static(base, "apply"))
        wrapper = _wrap_entry_point(recorder, APPLY, apply_with_recording(recorder, apply))
        wrapper = apply_of_base_class(recorder, apply, wrapper)
        declared = inventory.CUSTOM_FUNCTION_BASE
        _replace_attribute(undo, base, "apply", classmethod(wrapper), declared)
    scripted: Any = torch.jit.ScriptFunction
    for owner, attribute, name, declared in (
        (apis, "vmap_impl", VMAP, inventory.VMAP),
        (scripted, "__call__", SCRIPTED, inventory.SCRIPT_CALL),
    ):
        original = getattr(owner, attribute)
        wrapper = _wrap_entry_point(recorder, name, original, compiled=name == SCRIPTED)
        _replace_attribute(undo, owner, attribute, wrapper, declared)
    einops: Any = sys.modules.get("einops")
    if hasattr(einops, "einsum"):
        wrapper = _wrap_entry_point(recorder, EINOPS, einops.einsum)
        _replace_attribute(undo, einops, "einsum", wrapper, inventory.EINSUM)
    _wrap_hooks(undo, recorder)


def _wrap_hooks(undo: ExitStack, recorder: Recorder) -> None:
    """Record calls of the forward hooks of all modules until `undo` closes."""
    for module in recorder.index.module_objects:
        for kind, name in _HOOKS.items():
            hooks = getattr(module, kind)
            for key, hook in list(hooks.items()):
                undo.callback(hooks.__setitem__, key, hook)
                hooks[key] = _wrap_entry_point(recorder, name, hook, via="hook")


def _wrap_entry_point(
    recorder: Recorder,
    name: str,
    function: Callable[..., Any],
    via: str = "attribute",
    compiled: bool = False,
) -> Callable[..., Any]:
    """Return a function that calls `function` and records the call as `name`."""

    def call_without_inner_recording(*args: Any, **kwargs: Any) -> Any:
        """Call the function without recording what it calls, as a compiled function runs; return
        its result.
        """
        # The export runs the Python that it was compiled from, which no other caller does.
        with recorder.muting_recorder():
            return function(*args, **kwargs)

    inner = call_without_inner_recording if compiled else function

    @functools.wraps(function, assigned=("__name__", "__doc__"), updated=())
    def call_and_record_entry_point(*args: Any, **kwargs: Any) -> Any:
        """Call the function, recorded if recording is on, and return its result."""
        if not recorder.is_recording:
            return function(*args, **kwargs)
        return recorder.run_function(name, via, lambda: inner(*args, **kwargs), args, kwargs)

    return call_and_record_entry_point


_ARITHMETIC = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor",
    "lshift", "rshift", "lt", "le", "gt", "ge", "eq", "ne", "neg", "pos", "abs", "invert",
    "getitem", "setitem",
)  # fmt: skip
_OPERATORS = {f"__{prefix}{name}__" for name in _ARITHMETIC for prefix in ("", "r", "i")}

# Questions about a tensor, which no tool counts and tracing asks thousands of times.
_QUESTIONS = frozenset({
    "size", "dim", "stride", "numel", "ndimension", "element_size", "data_ptr", "storage_offset",
    "storage", "untyped_storage", "get_device", "register_hook", "requires_grad_", "type",
    "retain_grad",
})  # fmt: skip

# Assigned to a class in Python, it makes tensors sequences to PyTorch, which then asks a scalar
# for its length: `torch.tensor([a, b])` raises from then on, even after the assignment is undone.
# So none but the TorchFunctionMode sees it.
_NEVER_ASSIGNED = frozenset({"__getitem__"})

# Functions that only call another one, which torch lists as not to be overridden.
_FORWARDING = frozenset({"upsample"})


@contextmanager
def recording_entry_points(recorder: Recorder, with_captured: bool = True) -> Iterator[None]:
    """Record all calls of modules and functions inside the block, which runs the model.

    Without `with_captured` no TorchFunctionMode is set up, because PyTorch takes no fast path
    under one.
    """
    import torch
    from torch import nn

    with ExitStack() as undo:
        names: dict[int, str] = {}
        originals: list[tuple[Any, str, Callable[..., Any]]] = []
        for owner, label in _owners_of_recorded_functions():
            wrappers: dict[str, Callable[..., Any]] = {}
            for attribute, function in _overridable_functions(owner):
                name = f"{label}.{attribute}"
                names.setdefault(id(function), name)
                if attribute in _NEVER_ASSIGNED:
                    continue
                wrapper = wrappers[attribute] = _wrapper_from_cache(name, function)
                names[id(wrapper)] = name
                originals.append((owner, attribute, function))
            undo.enter_context(patching_attributes(owner, wrappers, inventory.FUNCTIONS))
        _make_jit_script_compile_originals(undo, originals)
        record_calls_that_enclose_operators(undo, recorder)
        if with_captured:
            _hide_autocast(undo)
            _replace_attribute(
                undo, nn.Module, "_apply", _cast_module_weights, inventory.MODULE_CALLS
            )
            _replace_attribute(
                undo, torch.Tensor, "__format__", _format_traced_number, inventory.FORMAT
            )
            patch_checkpoints_to_record(functools.partial(_replace_attribute, undo), recorder)
            _wrap_derivative_functions(undo, recorder)
        mode = _call_recording_mode_class(recorder, names) if with_captured else nullcontext
        _wrap_modules(undo, recorder, mode)
        for running in (RUNNING, _RECORDERS):
            running.append(recorder)
            undo.callback(running.remove, recorder)
        yield


def _wrap_derivative_functions(undo: ExitStack, recorder: Recorder) -> None:
    """Make the recorder note if the model computes derivatives while it runs, until `undo` closes.

    A tangent outside of torch.func transforms is lost in the export, silently.
    """
    import torch
    from torch._functorch import eager_transforms
    from torch.autograd import forward_ad

    transforms: Any = eager_transforms
    for owner, attribute, name in (
        (torch.autograd, "grad", "torch.autograd.grad"),
        (torch.autograd, "backward", "torch.autograd.backward"),
        (transforms, "_jvp_with_argnums", "torch.func.jvp"),
    ):
        original = getattr(owner, attribute)

        def record_derivative_call(
            *args: Any, original: Any = original, name: str = name, **kwargs: Any
        ) -> Any:
            """Call a function that computes derivatives and return its result; store its name in
            the recorder.
            """
            if recorder.is_recording:
                recorder.derives = name
            return original(*args, **kwargs)

        _replace_attribute(undo, owner, attribute, record_derivative_call, inventory.DERIVATIVES)
    make_dual = forward_ad.make_dual

    def make_dual_or_reject(*args: Any, **kwargs: Any) -> Any:
        """Return a dual tensor; raise RuntimeError inside the model, since an export loses
        tangents.
        """
        if recorder.is_recording and torch._C._functorch.peek_interpreter_stack() is None:
            recorder.derives = "torch.autograd.forward_ad"
            raise RuntimeError("a tangent is lost in the exported program")
        return make_dual(*args, **kwargs)

    _replace_attribute(undo, forward_ad, "make_dual", make_dual_or_reject, inventory.MAKE_DUAL)


def _owners_of_recorded_functions() -> tuple[tuple[Any, str], ...]:
    """Return (owner, its name) for each torch module and class whose functions are recorded."""
    import torch
    import torch.nn.functional

    return (
        (torch.nn.functional, "torch.nn.functional"),
        (torch.Tensor, "torch.Tensor"),
        (torch.linalg, "torch.linalg"),
        (torch.special, "torch.special"),
        (torch.fft, "torch.fft"),
        (torch, "torch"),
    )


def _overridable_functions(owner: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield (attribute, function) for each function of a module or class that is recorded."""
    overridable = _overridable_function_ids()
    for attribute in _callable_attribute_names(owner, len(vars(owner))):
        function = getattr(owner, attribute, None)
        named = attribute in _OPERATORS or attribute in _FORWARDING
        known = named or id(function) in overridable
        if known and callable(function) and not isinstance(function, type):
            yield attribute, function


@functools.lru_cache(maxsize=32)
def _callable_attribute_names(owner: Any, _attribute_count: int) -> tuple[str, ...]:
    """Return the attributes of a module or class that may be functions which a model calls.

    They are read again when the owner has another number of attributes.
    """
    return tuple(
        attribute
        for attribute in dir(owner)
        if attribute not in _QUESTIONS
        and not attribute.startswith("is_")
        and (not attribute.startswith("_") or attribute in _OPERATORS)
    )


@functools.cache
def _overridable_function_ids() -> frozenset[int]:
    """Return the ids of all functions that `__torch_function__` can override."""
    import torch

    by_owner = torch.overrides.get_overridable_functions()
    return frozenset(id(function) for functions in by_owner.values() for function in functions)


_RECORDERS: list[Recorder] = []  # the last one records what the wrappers see
_KEPT_WRAPPERS = 10_000  # PyTorch has 1 300 such functions
_WRAPPERS: dict[tuple[str, int], tuple[Callable[..., Any], Callable[..., Any]]] = {}


def _wrapper_from_cache(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that calls a torch function and records the call as `name`, from a
    cache.
    """
    known = _WRAPPERS.get((name, id(function)))
    if known is None:
        if len(_WRAPPERS) >= _KEPT_WRAPPERS:
            _WRAPPERS.clear()
        known = _WRAPPERS[name, id(function)] = function, _wrap_torch_function(name, function)
    return known[1]


def _wrap_torch_function(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls a torch function and records the call as `name` in the active
    recorder.
    """

    @functools.wraps(function)
    def call_and_record_torch_function(*args: Any, **kwargs: Any) -> Any:
        """Call the torch function, recorded if a recorder is active, and return its result."""
        recorder = _RECORDERS[-1] if _RECORDERS else None
        if recorder is None or not recorder.is_recording:
            return function(*args, **kwargs)

        run = functools.partial(
            _run_without_recording_inner_calls, recorder, function, args, kwargs
        )
        return _mark_gradient_start(
            recorder.run_function(name, "attribute", run, args, kwargs), kwargs
        )

    return call_and_record_torch_function


def _run_without_recording_inner_calls(
    recorder: Recorder, function: Callable[..., Any], args: Any, kwargs: Any
) -> Any:
    """Run a torch function and return its result; no calls inside a primitive are recorded.

    A primitive is not written in Python: whatever Python runs inside it is the tracer's own.
    """
    if isinstance(function, types.FunctionType):
        return function(*args, **kwargs)
    with recorder.recording_function_modes_only():
        return function(*args, **kwargs)


def _mark_gradient_start(result: Any, kwargs: Mapping[str, Any]) -> Any:
    """Return the result of a call; mark it as a start of gradients if the call had
    `requires_grad=True`.
    """
    if kwargs.get("requires_grad") is True:
        mark_gradient_request(result)
    return result


def _note_gradient_request(recorder: Recorder, tensor: Any, requires_grad: bool) -> None:
    """Record that the model requests the gradient of a tensor, freezes a parameter, or makes it
    trainable.
    """
    names = parameter_names_by_id(recorder).get(id(tensor), ())
    if names and tensor.requires_grad != requires_grad:
        recorder.turned.update(names)
    elif requires_grad and not names:
        mark_gradient_request(tensor)


def _call_recording_mode_class(recorder: Recorder, names: dict[int, str]) -> Any:
    """Return the class of a mode that records calls of functions that the model imported before
    they were replaced.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    class CapturedCalls(TorchFunctionMode):
        """A mode that sees calls of functions that were imported by name before they were
        replaced.
        """

        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            """Run a torch function, recorded, and mark tensors at which gradients begin."""
            kwargs = kwargs or {}
            result = self._call_function(func, args, kwargs)
            return _mark_gradient_start(result, kwargs) if recorder.is_recording else result

        def _call_function(self, func: Any, args: Any, kwargs: Any) -> Any:
            """Call a torch function in a form that an export can hold, record the call, and return
            its result.
            """
            if func in (torch.tensor, torch.as_tensor) and _is_list_with_tensors(*args[:1]):
                return _stack_tensor_list(*args, **kwargs)
            asked = (*args[1:2], *kwargs.values())  # whether it requires gradients; yes by default
            if func in asks and recorder.is_recording:
                _note_gradient_request(recorder, args[0], all(asked))
            if func is torch.Tensor.register_hook and recorder.is_recording:
                mark_gradient_hooks(args[0])
            if func is torch._C._set_grad_enabled:
                # It takes effect, but the export does not hear of them: it would put all that
                # runs under it into a graph of its own.
                with torch._C.DisableTorchFunction():
                    return func(*args, **kwargs)
            if isinstance(func, types_of_operators) and recorder.is_recording:
                with _marking_operator(recorder):
                    return func(*args, **kwargs)
            if kwargs.get("generator") is not None:
                with _using_default_generator(recorder, kwargs) as kwargs:
                    return self._record_call(func, args, kwargs)
            return self._record_call(func, args, kwargs)

        def _record_call(self, func: Any, args: Any, kwargs: Any) -> Any:
            """Run a torch function, recorded if it is one that models call."""
            name = names.get(id(func))
            if name is None or not recorder.is_recording:
                return func(*args, **kwargs)
            run = functools.partial(
                _run_without_recording_inner_calls, recorder, func, args, kwargs
            )
            return recorder.run_function(name, "reference", run, args, kwargs)

    types_of_operators = torch._ops.OpOverload, torch._ops.OpOverloadPacket
    grad: Any = torch.Tensor.requires_grad
    asks = torch.Tensor.requires_grad_, grad.__set__
    return CapturedCalls


def _marking_operator(recorder: Recorder) -> Any:
    """Return a context that marks traced nodes as without gradients if gradients are off, and with
    the number of the checkpoint that runs.
    """
    from torch.fx.traceback import annotate

    marks: dict[str, Any] = {} if recorder.are_gradients_on() else {UNGRADED: True}
    if recorder.checkpoint is not None:
        marks[CHECKPOINT] = recorder.checkpoint.number
    return annotate(marks) if marks else nullcontext()


@contextmanager
def _using_default_generator(
    recorder: Recorder, kwargs: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """Yield the keyword arguments without a random generator of the model's own; the default one
    has its state meanwhile.

    The default generator has the state of the other one meanwhile, which gets it back; traced
    nodes note which one it was.
    """
    import torch
    from torch.fx.traceback import annotate

    own, default = kwargs.get("generator"), torch.default_generator
    if own is None or own is default or own.device != default.device:
        yield kwargs
        return
    state = own.get_state()
    recorder.generators.append(state)
    with setting_torch_random_state(state), annotate({GENERATOR: len(recorder.generators) - 1}):
        yield {name: value for name, value in kwargs.items() if name != "generator"}
        own.set_state(default.get_state())


def _make_jit_script_compile_originals(
    undo: ExitStack, originals: Sequence[tuple[Any, str, Callable[..., Any]]]
) -> None:
    """Make `torch.jit.script` compile with the original torch functions until `undo` closes.

    `torch.jit.script_if_tracing` compiles in the middle of a trace.
    """
    script_module: Any = importlib.import_module("torch.jit._script")
    script = script_module._script_impl  # behind all references to torch.jit.script

    @functools.wraps(script)
    def script_with_original_functions(*args: Any, **kwargs: Any) -> Any:
        """Call `torch.jit.script` while the original torch functions are restored; return its
        result.
        """
        with ExitStack() as redo:
            for owner, attribute, function in originals:
                _replace_attribute(redo, owner, attribute, function, inventory.FUNCTIONS)
            # It looks names up in the frame of its caller, so many frames above.
            kwargs["_frames_up"] = kwargs.get("_frames_up", 0) + 1
            return script(*args, **kwargs)

    _replace_attribute(
        undo, script_module, "_script_impl", script_with_original_functions, inventory.SCRIPT
    )


def _wrap_modules(undo: ExitStack, recorder: Recorder, mode: Any) -> None:
    """Record the calls of modules and of their `forward` until `undo` closes."""
    from torch import nn

    call = nn.Module._call_impl

    @functools.wraps(call)
    def call_and_record_module(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a module, recorded, and return its result; the model itself is called under the
        recording mode.
        """
        if recorder.stack or not recorder.index.is_root(self):
            result = recorder.run_module_call(self, call, args, kwargs)
            if not recorder.bare and (self._backward_hooks or self._backward_pre_hooks):
                mark_gradient_hooks(result)
            return result
        # The export pushes modes of its own before it enters the model; ours must be on top.
        with mode():
            result = recorder.run_module_call(self, call, args, kwargs)
            return (
                result if recorder.bare else with_plain_dicts(result)
            )  # tracers see what the model gives

    _replace_attribute(
        undo, nn.Module, "_call_impl", call_and_record_module, inventory.MODULE_CALLS
    )
    owners = {base for cls in recorder.index.classes for base in cls.__mro__}
    for owner in owners:
        forward = vars(owner).get("forward") if issubclass(owner, nn.Module) else None
        # That of TorchScript is a descriptor, which no code calls by the class.
        if owner is not nn.Module and callable(forward):
            wrapper = _wrap_forward(recorder, forward)
            _replace_attribute(undo, owner, "forward", wrapper, inventory.FORWARDS)
            # transformers compares: only the forward of the class itself sets a checkpoint
            for cell in getattr(forward, "__closure__", None) or ():
                if cell != types.CellType() and cell.cell_contents is forward:
                    undo.callback(setattr, cell, "cell_contents", forward)
                    cell.cell_contents = wrapper


def _wrap_forward(recorder: Recorder, forward: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement of a module's `forward` that records direct calls."""

    @functools.wraps(forward)
    def run_and_record_forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Call the module's `forward`, recorded, and return its result."""
        return recorder.run_module_forward(self, forward, args, kwargs)

    return run_and_record_forward


def _hide_autocast(undo: ExitStack) -> None:
    """Hide autocast from torch.export until `undo` closes; the trace then has the dtypes without
    autocast.

    The trace then has the types without autocast: the work is the same, its precision is not.
    """
    import torch
    from torch.amp.autocast_mode import autocast

    for attribute in ("__enter__", "__exit__"):
        method = vars(autocast)[attribute]

        @functools.wraps(method)
        def call_without_torch_function(*args: Any, _method: Any = method, **kwargs: Any) -> Any:
            """Call the method with `__torch_function__` off; return its result."""
            with torch._C.DisableTorchFunction():
                return _method(*args, **kwargs)

        _replace_attribute(
            undo, autocast, attribute, call_without_torch_function, inventory.AUTOCAST
        )


def _is_list_with_tensors(data: Any = None) -> bool:
    """Return True if the data is a list with tensors in it, or in lists inside it."""
    import torch

    if not isinstance(data, list | tuple):
        return False
    return any(isinstance(item, torch.Tensor) or _is_list_with_tensors(item) for item in data)


def _stack_tensor_list(data: Any, dtype: Any = None, device: Any = None, **_: Any) -> Any:
    """Return what `torch.tensor` returns for nested lists with tensors, as a stack of these.

    A trace has no numbers to read.
    """
    import torch

    def stack_nested_items(item: Any) -> Any:
        """Return nested lists of numbers and tensors as one stacked tensor."""
        if isinstance(item, list | tuple):
            return torch.ops.aten.stack.default([stack_nested_items(part) for part in item])
        return item.detach() if isinstance(item, torch.Tensor) else torch.tensor(item)

    return stack_nested_items(data).to(device=device, dtype=dtype)


def _format_traced_number(self: Any, form: str) -> str:
    """Return the text of a traced tensor without axes, formatted as its number."""
    return format(self.item(), form) if self.dim() == 0 else object.__format__(self, form)


def _cast_module_weights(self: Any, fn: Callable[[Any], Any], recurse: bool = True) -> Any:
    """Replace weights by cast ones inside a forward, as `Module.to` and similar do; return the
    module.

    Traced weights cannot be swapped there.

    A cast weight replaces the original in the module, as in a run.
    """
    import torch

    for module in self.children() if recurse else ():
        module._apply(fn)
    for stored in (self._parameters, self._buffers):
        for name, tensor in stored.items():
            if tensor is None:
                continue
            with torch.no_grad():
                new = fn(tensor)
            if (new.dtype, new.device) != (tensor.dtype, tensor.device):
                stored[name] = new
    return self


def _replace_attribute(
    undo: ExitStack, owner: Any, attribute: str, value: Any, declared: Patch
) -> None:
    """Replace an attribute as the patch `declared` says, and restore it when `undo` closes."""
    undo.enter_context(patching_attribute(owner, attribute, value, declared))
