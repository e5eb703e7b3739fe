"""Models without values: they are built on PyTorch's fake tensors, which have a shape and a dtype
alone.

A count looks at shapes, so it needs neither the memory of the weights nor the time to draw them.
Whatever asks a fake tensor for a value is heard, also where the model catches what it raises: it
would take another path than with numbers.
Source: torch/_subclasses/fake_tensor.py.
"""

import copy
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from types import ModuleType
from typing import Any

from crossflops.errors import TargetError, ValuesNeededError
from crossflops.frontends.conversion import silencing_loggers
from crossflops.frontends.pytorch.load.refusals import brief_error_text
from crossflops.frontends.pytorch.load.tensors import tensor_attributes
from crossflops.frontends.pytorch.load.tool_replacements import (
    AttributesByOwner,
    restoring_original_functions,
    torch_owner_attributes,
)
from crossflops.ir.provenance import FAKE, META, REAL
from crossflops.patches import inventory
from crossflops.patches.patching import original_attribute, patching_attribute

READS = "reads values"
_OF_CUDNN = (False, False, True, True)  # benchmark, deterministic, enabled, TF32: the defaults
_KEPT_VALUES = 2**12  # of a range, while a model is built; ranges of layers have fewer
_SCRIPTED = "parts of the model are TorchScript, which cannot run without values"


@contextmanager
def faking_grouped_products() -> Iterator[None]:
    """Let fake tensors accept grouped products of float32 and float16, as a CPU does, and with
    rows of any length, inside the block.

    PyTorch's fake kernel takes bfloat16 alone, the kernel of a CPU all three (as of 2.9). Both
    want rows of a multiple of 16 bytes, but the number of products is the same without. Source:
    torch/_meta_registrations.py (`_meta_grouped_mm_common`), GroupedBlas.cpp.
    """
    import torch
    from torch import _meta_registrations

    kernels: Any = _meta_registrations
    usual, name = getattr(kernels, _GROUPED, None), _GROUPED
    if usual is None:  # a PyTorch without the operator
        yield
        return

    def infer_grouped_product(mat_a: Any, mat_b: Any, *scales: Any, **options: Any) -> Any:
        """Return the fake result of a grouped matrix product of two matrices of one float type."""
        unscaled = not any(options.get(scale) is not None for scale in ("scale_a", "scale_b"))
        floats = (torch.float32, torch.float16, torch.bfloat16)
        if scales or not unscaled or mat_a.dtype not in floats or mat_a.dtype != mat_b.dtype:
            return usual(mat_a, mat_b, *scales, **options)
        return kernels._create_grouped_mm_output_tensor(
            mat_a, mat_b, options.get("offs"), options.get("out_dtype")
        )

    with patching_attribute(kernels, name, infer_grouped_product, inventory.GROUPED_PRODUCTS):
        yield


_GROUPED = "_meta_grouped_mm_common"


@contextmanager
def building_fake_tensors() -> Iterator[None]:
    """Make all new tensors inside the block fake. Raises ValuesNeededError if the code needs
    values.

    Modules that are imported meanwhile make real ones, which they may keep. What the code computes
    from ranges of numbers alone (rates of layers, for one) has values until the end of the block.
    """
    mode = _new_fake_mode()
    try:
        with (
            _importing_with_real_tensors(),
            _rejecting_new_torchscript(mode),
            _keeping_values_of_ranges(mode),
            _copying_fake_tensors(),
            silencing_loggers("torch._subclasses.fake_tensor"),  # its traceback before it raises
            mode,
        ):
            yield
    except (Exception, SystemExit) as error:
        if isinstance(error, TargetError) and error.__cause__ is None:
            raise  # what is wrong with the target is so with values, too
        reason = (
            f"the model cannot be built without values: it raises {type(error).__name__}: "
            f"{brief_error_text(error)}"
        )
        raise ValuesNeededError(mode.asked or reason) from error
    if mode.asked:
        raise ValuesNeededError(mode.asked)


@contextmanager
def _keeping_values_of_ranges(mode: Any) -> Iterator[None]:
    """Let small ranges, and what is computed from them alone, have values inside the block.

    Models compute settings of their layers by `torch.linspace(0, rate, depth).tolist()`. A weight
    has no values: it is neither a range nor computed from ranges alone.
    """
    mode.keeps_ranges = True
    try:
        yield
    finally:
        mode.keeps_ranges = False
        constants = mode.fake_tensor_converter.constant_storage_mapping
        for references in list(constants.values()):
            for tensor in (reference() for reference in references):
                if tensor is not None:
                    tensor.constant = None
        constants.clear()


@contextmanager
def _copying_fake_tensors() -> Iterator[None]:
    """Let `copy.deepcopy` copy fake tensors inside the block, as modules that repeat a layer do.

    PyTorch copies the storage of a tensor, which a fake one does not have. Parameters have a copy
    of their own. Source: torch/_tensor.py (`__deepcopy__`).
    """
    import torch

    usual = original_attribute(torch.Tensor, "__deepcopy__", inventory.TENSOR_COPIES)

    def copy_tensor(tensor: Any, memo: dict[int, Any]) -> Any:
        """Return a copy of a tensor, the same one for the same tensor."""
        if not (is_own_fake_tensor(tensor) and tensor.is_leaf):
            return usual(tensor, memo)
        if id(tensor) not in memo:
            copied = tensor.detach().clone().requires_grad_(tensor.requires_grad)
            known = vars(copied).keys()
            added = {name: value for name, value in vars(tensor).items() if name not in known}
            memo[id(tensor)] = copied
            vars(copied).update(copy.deepcopy(added, memo))
        return memo[id(tensor)]

    with patching_attribute(torch.Tensor, "__deepcopy__", copy_tensor, inventory.TENSOR_COPIES):
        yield


def with_fake_tensors(model: Any, args: Any = (), kwargs: Any = None) -> tuple[Any, Any, Any]:
    """Return the module with its tensors made fake, and its inputs with meta tensors made fake.

    The module is changed. Meta tensors become fake CPU tensors: code may read a tensor's device
    and take another path on the meta device.
    """
    import torch
    from torch.utils._pytree import tree_map_only

    modes = filter(
        None, map(_own_fake_mode, _flat_attributes_and_inputs(model, args, kwargs))
    )  # tensors of two do not meet
    mode, known = next(modes, None) or _new_fake_mode(), {}

    def to_fake_tensor(tensor: Any) -> Any:
        """Return a fake tensor of the same size, stride and dtype; the same one for the same
        tensor.
        """
        if is_fake_tensor(tensor) and not _is_plain_meta_tensor(tensor):
            return tensor
        if id(tensor) not in known:
            with mode:
                plain = torch.empty_strided(
                    tensor.size(), tensor.stride(), dtype=tensor.dtype, device="cpu"
                )
            if isinstance(tensor, torch.nn.Parameter):
                plain = torch.nn.Parameter(plain, tensor.requires_grad)
            known[id(tensor)] = plain
        return known[id(tensor)]

    for module in model.modules():
        stored = vars(module)
        for owner in (stored, module._parameters, module._buffers):
            owner.update(
                {k: to_fake_tensor(v) for k, v in owner.items() if isinstance(v, torch.Tensor)}
            )
    provided = tree_map_only(
        torch.Tensor,
        lambda x: to_fake_tensor(x) if _is_plain_meta_tensor(x) else x,
        (args, kwargs),
    )
    return model, *provided


def fake_tensor_factory() -> Callable[[Any], Any]:
    """Return a function that returns for a tensor a fake CPU tensor of its shape and dtype."""
    import torch

    mode = _new_fake_mode()

    def to_fake_tensor(value: Any) -> Any:
        """Return a fake tensor of the same shape and dtype; another value as it is."""
        if not isinstance(value, torch.Tensor):
            return value
        with mode:
            plain = torch.empty(value.shape, dtype=value.dtype, device="cpu")
        if isinstance(value, torch.nn.Parameter):
            return torch.nn.Parameter(plain, value.requires_grad)
        return plain

    return to_fake_tensor


@contextmanager
def watching_value_reads(model: Any) -> Iterator[Callable[[], str]]:
    """Yield a function that returns the text of which operation needed values in a run, "" if none
    did.
    """
    modes = _own_fake_modes(model)
    for mode in modes:
        mode.asked, mode.doing = "", "running"
    try:
        yield lambda: next((mode.asked for mode in modes if mode.asked), "")
    finally:
        for mode in modes:
            mode.doing = "building"


@contextmanager
def hiding_tool_replacements(model: Any) -> Iterator[None]:
    """Let the kernels of fake tensors call PyTorch's own functions, also those that a tool has
    replaced, inside the block.

    The tool would otherwise see calls that the model does not make.
    """
    modes, own = _own_fake_modes(model), torch_owner_attributes()
    for mode in modes:
        mode.own = own
    try:
        yield
    finally:
        for mode in modes:
            mode.own = []


def _own_fake_modes(model: Any) -> list[Any]:
    """Return the fake modes of crossflops that the tensors of a module have, each once."""
    modes = {
        id(mode): mode
        for mode in map(_own_fake_mode, _flat_attributes_and_inputs(model))
        if mode is not None
    }
    return list(modes.values())


def _own_fake_mode(tensor: Any) -> Any:
    """Return the fake mode of a tensor if crossflops made it; None otherwise."""
    mode = getattr(tensor, "fake_mode", None)
    return mode if getattr(mode, "of_crossflops", False) else None


def _flat_attributes_and_inputs(model: Any, *inputs: Any) -> list[Any]:
    """Return all attributes of the modules of a model, and its inputs, as one flat list."""
    from torch.utils._pytree import tree_leaves

    attributes = [value for module in model.modules() for value in tensor_attributes(module)]
    leaves: list[Any] = tree_leaves([attributes, inputs])
    return leaves


def is_own_fake_tensor(tensor: Any) -> bool:
    """Return True if a tensor is fake and was made by crossflops."""
    return _own_fake_mode(tensor) is not None


def has_own_fake_tensor(model: Any, *inputs: Any) -> bool:
    """Return True if a tensor of the module or its inputs is fake and was made by crossflops."""
    return any(map(is_own_fake_tensor, _flat_attributes_and_inputs(model, *inputs)))


def weights_kind(model: Any, args: Any, kwargs: Any) -> str:
    """Return the kind of a model's weights: "fake" (shapes alone), "meta" (on that device) or
    "real".
    """
    if any(map(_is_plain_meta_tensor, model.parameters())):
        return META
    return FAKE if has_own_fake_tensor(model, args, kwargs) else REAL


def _is_plain_meta_tensor(tensor: Any) -> bool:
    """Return True if a tensor is on the meta device and is not a fake tensor."""
    return bool(tensor.device.type == "meta")


def is_building_fake_model() -> bool:
    """Return True if a model is being built with fake tensors now."""
    from torch.utils._python_dispatch import _get_current_dispatch_mode

    return getattr(_get_current_dispatch_mode(), "of_crossflops", False)


def reject_torchscript(model: Any) -> None:
    """Raise ValuesNeededError if a part of the model is TorchScript, which stores tensors
    itself.
    """
    import torch

    if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
        raise ValuesNeededError(_SCRIPTED)


def is_fake_tensor(tensor: Any) -> bool:
    """Return True if a tensor is a fake tensor: it has a shape and no data."""
    return type(tensor).__name__ == "FakeTensor"


def _new_fake_mode() -> Any:
    """Return a new fake mode of crossflops; it accepts real tensors as operands."""
    return _fake_mode_class()(allow_non_fake_inputs=True)


@functools.cache
def _fake_mode_class() -> Any:
    """Return the class of our fake modes, which record the first operation that needed values."""
    import torch
    from torch import _C
    from torch._subclasses.fake_tensor import (
        DataDependentOutputException,
        DynamicOutputShapeException,
        FakeTensorMode,
    )
    from torch.utils._mode_utils import no_dispatch

    # torch.jit records not the first, but the second, which the kernel of the first calls: fake
    # tensors have a kernel of their own for it.
    # Source: tools/autograd/gen_trace_type.py (DONT_RECORD_TRACE), ATen/native/Convolution.cpp
    convolution = torch.ops.aten.convolution.default
    ranges = (torch.ops.aten.arange, torch.ops.aten.linspace)
    _convolution = torch.ops.aten._convolution.default

    class RecordingFakeMode(FakeTensorMode):
        """A fake mode that notes which operation needs values."""

        of_crossflops = True
        asked = ""
        doing = "building"
        keeps_ranges = False  # whether ranges have values
        own: AttributesByOwner = []  # the functions that kernels find, where they are said

        def __deepcopy__(self, memo: dict[int, Any]) -> Any:
            """Return the mode itself."""
            # A copy of a tensor has the same mode. A copied mode would hold its weak references
            # to storages twice, and each frees them: PyTorch crashes.
            return self

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            """Run an operator on fake tensors, and note if it would have read their values."""
            if func is convolution and _C._get_tracing_state() is not None:
                with _resuming_jit_trace():
                    return _convolution(*args, *_OF_CUDNN)
            if func is _convolution:
                func, args = convolution, args[: -len(_OF_CUDNN)]
            if self.keeps_ranges and getattr(func, "overloadpacket", None) in ranges:
                with no_dispatch():
                    values = func(*args, **(kwargs or {}))
                if self.may_turn_const(values):
                    return self.fake_tensor_converter.from_real_tensor(
                        self, values, make_constant=True
                    )
            try:
                with _suspending_jit_trace():
                    return super().__torch_dispatch__(func, types, args, kwargs)
            except (DataDependentOutputException, DynamicOutputShapeException):
                self.asked = self.asked or f"{self.doing} the model {READS} ({func})"
                raise

        def may_turn_const(self, t: Any) -> bool:
            """Return True if a tensor that is computed from known values keeps its values."""
            if self.keeps_ranges and t.numel() <= _KEPT_VALUES and type(t) is torch.Tensor:
                return bool(t.device.type != "meta" and t.layout is torch.strided)
            return bool(super().may_turn_const(t))

        def _dispatch_impl(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
            """Run the fake kernel of an operator, which accepts grouped products of all float
            types; return its result.
            """
            # runs a kernel, unless the mode remembers what an alike call gave
            with restoring_original_functions(self.own), faking_grouped_products():
                return super()._dispatch_impl(func, types, args, kwargs)

    return RecordingFakeMode


@contextmanager
def _suspending_jit_trace() -> Iterator[None]:
    """Suspend the tracing of torch.jit inside the block."""
    from torch import _C

    state = _C._get_tracing_state()
    if state is None:
        yield
        return
    with _resuming_jit_trace():  # tracing cannot be switched elsewhere
        _C._set_tracing_state(None)
    try:
        yield
    finally:
        with _resuming_jit_trace():
            _C._set_tracing_state(state)


def _resuming_jit_trace() -> Any:
    """Return a context in which the tracer of torch.jit sees operators again."""
    from torch import _C

    excluded = _C._dispatch_tls_local_exclude_set().remove(_C._parse_dispatch_key("Tracer"))
    return _C._ForceDispatchKeyGuard(_C._dispatch_tls_local_include_set(), excluded)


@contextmanager
def _rejecting_new_torchscript(fake_mode: Any) -> Iterator[None]:
    """Make the creation of a TorchScript module raise ValuesNeededError inside the block."""
    from torch.jit import RecursiveScriptModule

    def reject_script(*args: Any, **kwargs: Any) -> None:
        """Raise ValuesNeededError, since TorchScript needs real tensors, and record it in the
        mode.
        """
        fake_mode.asked = fake_mode.asked or _SCRIPTED
        raise ValuesNeededError(_SCRIPTED)

    with patching_attribute(
        RecursiveScriptModule, "__init__", reject_script, inventory.SCRIPT_MODULES
    ):
        yield


@contextmanager
def _importing_with_real_tensors() -> Iterator[None]:
    """Run the code of modules that are imported inside the block without dispatch modes, so that
    their tensors have values.

    Tensors that a module creates at import stay in it after this context.
    """
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes():  # it imports modules of its own when it is first entered
        usual = SourceFileLoader.exec_module

    def exec_module_with_real_tensors(loader: SourceFileLoader, module: ModuleType) -> None:
        """Execute the file of a module without dispatch modes, so that its tensors have values."""
        with _disable_current_modes():
            usual(loader, module)

    with patching_attribute(
        SourceFileLoader, "exec_module", exec_module_with_real_tensors, inventory.IMPORTS
    ):
        yield
