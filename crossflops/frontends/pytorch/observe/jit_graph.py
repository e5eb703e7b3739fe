"""The graph that torch.jit traces of a model, which tools that trace with it read.

It is not the export's: a convolution is `aten::_convolution`, a cell its products and gates,
shape arithmetic is traced with the tensors, work that no output needs is gone, and a fused path
is taken where the setting has one.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from crossflops.frontends.inputs import positional
from crossflops.frontends.pytorch.load.tensors import plain_json_value
from crossflops.frontends.pytorch.observe.alignment import (
    RUN,
    WatchedCall,
    enclosing_keys_of_frames,
    keeping_empty_hooks,
)
from crossflops.frontends.pytorch.record.entry_points import APPLY, recording_entry_points
from crossflops.frontends.pytorch.record.modules import ModuleIndex
from crossflops.frontends.pytorch.record.recorder import Recorder
from crossflops.ir.graph import TensorSpec
from crossflops.ir.trace import UNWATCHED, Scalar, Setting

if TYPE_CHECKING:
    from torch import nn

UNTRACED = "untraced"
UNDEFINED = "undefined"  # the setting of a node with a tensor that was never made
# the setting of a node with an attribute that Python cannot read: a complex number
UNREADABLE = "unreadable"

# ScalarType's names where they are not numpy's
_DTYPES = {"Float": "float32", "Double": "float64", "Half": "float16", "Long": "int64",
           "Int": "int32", "Short": "int16", "Char": "int8", "Byte": "uint8", "ComplexFloat":
           "complex64", "ComplexDouble": "complex128"}  # fmt: skip


def observe_jit_nodes(
    model: "nn.Module", args: tuple[Any, ...], kwargs: Mapping[str, Any], setting: Setting
) -> list[WatchedCall]:
    """Return the nodes of the model's `torch.jit` trace in order, or one entry with the error if
    it cannot be traced.

    The first entry is the run itself. Where tracing raises only because it is observed, there is
    one `UNWATCHED` with the reason.

    The run may change the model (buffers in training mode): pass a copy. Inputs go by position, as
    tools that trace pass them.
    """
    return _trace_jit_nodes(_with_flat_result(model), model, args, kwargs, setting)


def observe_traced_nodes(
    model: "nn.Module", args: tuple[Any, ...], kwargs: Mapping[str, Any], setting: Setting
) -> list[WatchedCall]:
    """Return the nodes of the `torch.jit` trace of the unchanged model; `observe_jit_nodes` traces
    it with its result as a flat list.

    The tracer accepts only results of tensors, and lists, tuples and dicts of them.
    """
    return _trace_jit_nodes(model, model, args, kwargs, setting)


def _trace_jit_nodes(
    wrapped: "nn.Module",
    model: "nn.Module",
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    setting: Setting,
) -> list[WatchedCall]:
    """Return the nodes of the `torch.jit` trace of `wrapped`, which may wrap the model, or one
    entry with the error.
    """
    try:
        return _observe_trace(
            wrapped, model, args, kwargs, setting, outer_scopes=("module", "function")
        )
    except (Exception, SystemExit) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
    if not _is_traceable_unrecorded(wrapped, model, args, kwargs, setting):
        return [WatchedCall(UNTRACED, settings={"reason": reason})]
    # `f = Function.apply`, taken before the recording began, hides where that function runs
    with suppress(Exception, SystemExit):
        return _observe_trace(wrapped, model, args, kwargs, setting, outer_scopes=("module",))
    return [WatchedCall(UNWATCHED, settings={"reason": reason})]


def _observe_trace(
    wrapped: "nn.Module",
    model: "nn.Module",
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    setting: Setting,
    outer_scopes: tuple[str, ...],
) -> list[WatchedCall]:
    """Trace `wrapped` by `torch.jit` while the model is recorded; return its nodes, each with the
    frames of the levels in `outer_scopes`.

    Raises whatever tracing raises.
    """
    import torch

    recorder = Recorder(
        ModuleIndex(model),
        running_context=lambda number: _tracing_with_frame_scope(number, recorder, outer_scopes),
        without_wrappers=True,
    )
    inputs = positional(model.forward, args, kwargs)
    record = recording_entry_points(recorder, with_captured=False)
    with keeping_empty_hooks(model, setting), torch.set_grad_enabled(setting.grad), record:
        graph = torch.jit._get_trace_graph(wrapped, inputs)[0]
    frames = enclosing_keys_of_frames(recorder)
    return [WatchedCall(RUN), *(jit_node_to_watched_call(node, frames) for node in graph.nodes())]


def _is_traceable_unrecorded(
    wrapped: "nn.Module",
    model: "nn.Module",
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    setting: Setting,
) -> bool:
    """Return True if torch.jit can trace `wrapped` when the model is not recorded."""
    import torch

    try:
        inputs = positional(model.forward, args, kwargs)
        with keeping_empty_hooks(model, setting), torch.set_grad_enabled(setting.grad):
            torch.jit._get_trace_graph(wrapped, inputs)
    except (Exception, SystemExit):
        return False
    return True


@contextmanager
def _tracing_with_frame_scope(
    number: int, recorder: Recorder, outer_scopes: tuple[str, ...]
) -> Iterator[None]:
    """Give the nodes that torch.jit traces inside the block this frame number as their scope.

    This is not done inside a custom autograd function, which is one node: PyTorch assigns the
    nodes inside it by that node's scope.
    """
    import torch

    state = torch._C._get_tracing_state()
    unnamed = recorder.frames[number].level not in outer_scopes
    if state is None or unnamed or any(frame.target == APPLY for frame in recorder.stack):
        yield
        return
    state.push_scope(str(number))
    try:
        yield
    finally:
        state.pop_scope()


def _with_flat_result(model: "nn.Module") -> "nn.Module":
    """Return a module that calls the model and returns the tensors of its result as a flat list.

    Results other than tensors and lists, tuples or dicts of tensors are left out, and so is the
    work behind them, as the tools do.
    """
    import torch

    class FlatResultModel(torch.nn.Module):
        """A wrapper that calls the model."""

        def __init__(self) -> None:
            """Wrap a model, so that its tracing gives a flat list of tensors."""
            super().__init__()
            self.model = model

        def forward(self, *args: Any) -> list[Any]:
            """Return the model's result as a flat list of tensors."""
            return list(_jit_result_tensors(self.model(*args)))

    return FlatResultModel()


def _jit_result_tensors(result: Any) -> Iterator[Any]:
    """Yield the tensors in a result of nested lists, tuples and dicts, as torch.jit accepts it."""
    import torch

    if isinstance(result, torch.Tensor):
        yield result
    elif isinstance(result, list | tuple | dict):
        for item in result.values() if isinstance(result, dict) else result:
            yield from _jit_result_tensors(item)


def jit_node_to_watched_call(node: Any, frames: list[tuple[str, ...]]) -> WatchedCall:
    """Return a node of a torch.jit graph as a call: operator, enclosing frames, constants and
    tensors.
    """
    values = list(node.inputs())
    results = list(node.outputs())
    undefined = any(_is_tensor_never_made(value) for value in (*values, *results))
    names = _jit_input_names(node, len(values))
    constants = zip(names, map(_jit_constant_value, values), strict=True)
    settings: dict[str, Scalar] = {name: value for name, value in constants if value is not None}
    if undefined:
        settings[UNDEFINED] = True
    kinds = [node.kindOf(name) for name in node.attributeNames()]
    if unknown := [kind for kind in kinds if not hasattr(node, kind)]:
        settings[UNREADABLE] = True
        settings["reason"] = f"'torch._C.Node' object has no attribute '{unknown[0]}'"
    scope = node.scopeName().rpartition("/")[2]
    return WatchedCall(
        target=node.kind(),
        frames=frames[int(scope)] if frames and scope.isdigit() else (),
        settings=settings,
        inputs=tuple(_jit_tensor_specs(values, names)),
        outputs=tuple(_jit_tensor_specs(results, _position_names(results))),
    )


def _jit_input_names(node: Any, count: int) -> list[str]:
    """Return the names of a torch.jit node's inputs from its schema, or their positions as
    text.
    """
    import torch

    schema = node.schema()
    known = schema != "(no schema)"
    names = (
        [argument.name for argument in torch._C.parse_schema(schema).arguments] if known else []
    )
    return names if len(names) == count else _position_names(range(count))


def _position_names(values: Sequence[Any]) -> list[str]:
    """Return the positions of the values as text: "0", "1" and so on."""
    return [str(index) for index in range(len(values))]


def _jit_tensor_specs(values: list[Any], names: list[str]) -> Iterator[TensorSpec]:
    """Yield the spec of each tensor among torch.jit values, also in lists of them."""
    for name, value in zip(names, values, strict=True):
        if value.type().kind() == "TensorType":
            sizes = value.type().sizes()
            shape = None if sizes is None else tuple(sizes)
            yield TensorSpec(name, _jit_dtype_name(value), shape)
        elif value.node().kind() == "prim::ListConstruct":
            items = list(value.node().inputs())
            yield from _jit_tensor_specs(
                items, [f"{name}.{index}" for index in _position_names(items)]
            )


def _jit_dtype_name(value: Any) -> str:
    """Return the name of the dtype of a torch.jit value; "" if it has none."""
    name = value.type().scalarType() or ""
    return _DTYPES.get(name, name.lower())


def _is_tensor_never_made(value: Any) -> bool:
    """Return True if a torch.jit value is a tensor of unknown type, which was never made."""
    return value.type().kind() == "TensorType" and value.type().scalarType() is None


def _jit_constant_value(value: Any) -> Scalar:
    """Return the Python value of a torch.jit constant; None for a tensor or another value."""
    is_constant = value.node().kind() == "prim::Constant" and value.type().kind() != "TensorType"
    return plain_json_value(value.toIValue()) if is_constant else None
