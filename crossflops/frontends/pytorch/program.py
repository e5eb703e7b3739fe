"""The way from a PyTorch model to an ONNX graph and a trace of its calls: record, then convert."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec
from msgspec import UNSET

from crossflops.errors import ValuesNeededError
from crossflops.frontends.collector import delaying_garbage_collection
from crossflops.frontends.frame_memory import with_frames_in_one_piece
from crossflops.frontends.pytorch.convert.graph import (
    non_parameter_leaves,
)
from crossflops.frontends.pytorch.convert.opened_bodies import add_custom_operator_bodies
from crossflops.frontends.pytorch.convert.protocol_checks import reusing_protocol_attributes
from crossflops.frontends.pytorch.convert.sparse import (
    mark_sparsity_dependent_calls,
)
from crossflops.frontends.pytorch.load.compiled import running_uncompiled
from crossflops.frontends.pytorch.load.fakes import (
    faking_grouped_products,
    has_own_fake_tensor,
    watching_value_reads,
)
from crossflops.frontends.pytorch.load.flexible_attention import (
    MaskedAttention,
    run_and_describe_masked_attention,
    sentence_on_masked_attention,
    unfusing_flex_attention,
)
from crossflops.frontends.pytorch.load.model import (
    build_compiler_tables,
    check_runs_without_observer,
    copy_inputs,
    escaping_module_names,
    reset_compiler,
    run_torch_model,
    suppressing_output,
    tracing_without_stack_traces,
    using_model_copy_for_one_run,
)
from crossflops.frontends.pytorch.load.refusals import brief_error_text
from crossflops.frontends.pytorch.load.tensors import registering_input_containers
from crossflops.frontends.pytorch.load.traced_code import forgetting_graph_code
from crossflops.frontends.pytorch.observe.alignment import (
    KernelRun,
    WatchedCall,
    align_observed_calls,
    depends_on_hooks,
    is_fused_kernel,
    kernel_name_by_fused_call,
    kernel_summary,
    observe_fused_kernels,
)
from crossflops.frontends.pytorch.observe.dispatched_operators import (
    observe_dispatched_calls,
    observe_operator_events,
)
from crossflops.frontends.pytorch.observe.jit_graph import observe_jit_nodes, observe_traced_nodes
from crossflops.frontends.pytorch.observe.operator_bodies import (
    with_custom_operator_marks,
    with_operator_bodies,
)
from crossflops.frontends.pytorch.passes import PIPELINE, Conversion
from crossflops.frontends.pytorch.record.data_dependence import (
    has_values,
    with_dependence_marks,
)
from crossflops.frontends.pytorch.record.operators import insert_autocast_casts, operator_calls
from crossflops.frontends.pytorch.record.recorder import frames_and_operators_as_calls
from crossflops.frontends.pytorch.record.recording import ExportedRun
from crossflops.frontends.pytorch.record.tracing import (
    ExportRequest,
    TracedProgram,
    checks_for_causal_mask,
    export_with_values_if_needed,
)
from crossflops.frontends.seeds import restoring_random_states, seeding_random_generators
from crossflops.ir.graph import Graph
from crossflops.ir.trace import UNWATCHED, Call, Kernel, Setting, Trace, View

if TYPE_CHECKING:
    from torch import nn

_DISPATCHED = ("operator", "dispatch")  # the runs in which kernels are seen
ObservedRunBySetting: TypeAlias = dict[Setting, "ObservedRun"]
# Operators that hold functions, which PyTorch's compiler traces in every run.
_COMPILED = {"associative_scan", "cond", "map_impl", "scan", "while_loop"}
_RUNS = {
    "jit": observe_jit_nodes,
    "traced": observe_traced_nodes,
    "event": observe_operator_events,
    "dispatch": observe_dispatched_calls,
}


class ObservedRun(NamedTuple):
    """The operators of an observed run, and its fused kernels; None if these are not known."""

    operators: list[WatchedCall]
    fused_kernels: list[KernelRun] | None


class _AlignedRuns(NamedTuple):
    """The calls of an export with the kernels of observed runs, and the calls of those runs."""

    calls: tuple[Call, ...]
    view_calls: tuple[Call, ...]
    kernels_by_setting: dict[str, tuple[Kernel, ...]]


def record_and_convert_torch(
    model: "nn.Module",
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    setting: Setting,
    views: Sequence[Setting] = (),
) -> tuple[Any, Graph, Trace]:
    """Record a model on these inputs and convert the recording; return its ONNX model, graph and
    trace.
    """
    return convert_torch_recording(model, record_torch_run(model, args, kwargs, setting, views))


@with_frames_in_one_piece
def convert_torch_recording(
    model: "nn.Module", recording: ExportedRun
) -> tuple[Any, Graph, Trace]:
    """Return the ONNX model (of onnx_ir) of a recording, its graph, and the trace of its calls.

    The nodes of the graph are those of the ONNX model, in their order and with their names as
    keys. Only the weights of the model are read. Raises NormalizeError when the recorded program
    has no ONNX form.
    """
    with (
        delaying_garbage_collection(),
        tracing_without_stack_traces(),
        forgetting_graph_code(),
        reusing_protocol_attributes(),
    ):
        results = PIPELINE.run(Conversion(model, recording, recording.trace))
        graph = _with_custom_operator_bodies(results, model, recording)
    return results.exported.model, graph, results.trace


def _with_custom_operator_bodies(
    results: Conversion, model: "nn.Module", recording: ExportedRun
) -> Graph:
    """Return the graph in which custom operators without a cost formula have bodies: the work of
    their Python kernels.
    """
    setting = msgspec.structs.replace(recording.trace.setting, step=UNSET)

    def record_and_convert_to_graph(module: Any, tensors: tuple[Any, ...]) -> Graph:
        """Record and convert a module on these tensors; return its graph."""
        return record_and_convert_torch(module, tensors, {}, setting)[1]

    def run_and_copy_arguments_by_operator(
        operators: frozenset[Any],
    ) -> Mapping[Any, list[tuple[Any, Any]]]:
        """Run the model; return the arguments of each call of these operators, by operator; {} if
        the model has no values.
        """
        args, kwargs = recording.program.example_inputs
        if not has_values(model, args, kwargs) or has_own_fake_tensor(model, args, kwargs):
            return {}
        with (
            seeding_random_generators(),
            using_model_copy_for_one_run(model, setting.training) as own,
        ):
            return _run_and_copy_operator_arguments(own, args, kwargs, operators)

    return add_custom_operator_bodies(
        results.current_graph,
        results.exported,
        record_and_convert_to_graph,
        run_and_copy_arguments_by_operator,
    )


def _copy_tensors(arguments: tuple[Any, Any]) -> tuple[Any, Any]:
    """Return positional and keyword arguments in which all tensors are detached copies."""
    import torch
    from torch.utils._pytree import tree_map_only

    copied = tree_map_only(torch.Tensor, lambda tensor: tensor.detach().clone(), arguments)
    return copied[0], copied[1]


def _run_and_copy_operator_arguments(
    model: "nn.Module", args: Any, kwargs: Mapping[str, Any], operators: frozenset[Any]
) -> Mapping[Any, list[tuple[Any, Any]]]:
    """Run the model; return copies of the arguments of each call, in order, for each of these
    operators.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: dict[Any, list[tuple[Any, Any]]] = {operator: [] for operator in operators}

    class Arguments(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            """Return an operator's result; store a copy of its arguments where asked for."""
            if func in seen:
                seen[func].append(_copy_tensors((args, kwargs or {})))
            return func(*args, **(kwargs or {}))

    with Arguments():
        run_torch_model(model, args, kwargs, grad=False)
    return seen


@with_frames_in_one_piece
def record_torch_run(
    model: "nn.Module",
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    setting: Setting,
    views: Sequence[Setting] = (),
    runs: Callable[[], ObservedRunBySetting | None] | None = None,
) -> ExportedRun:
    """Run a model under torch.export; return the exported program, its recorded calls and other
    facts of the run.

    For every setting in `views` the model is also run as it is, to see which calls become fused
    kernels there; `runs` waits for these runs where another process makes them. The caller's
    model, its mode, the inputs and the random state are untouched.

    Raises InputError when the model raises on these inputs, NormalizeError when it cannot be
    exported.
    """
    build_compiler_tables()
    with (
        delaying_garbage_collection(), tracing_without_stack_traces(), forgetting_graph_code(),
        restoring_random_states(), suppressing_output(),
        escaping_module_names(), faking_grouped_products(),
        registering_input_containers((args, kwargs)),
    ):  # fmt: skip
        recorded = _export_with_mask_note(ExportRequest(model, args, kwargs, setting))
        exported, recorder = recorded.program, recorded.recorder
        operators = operator_calls(
            exported, recorder.frames, recorder.checkpoint_by_number, recorder.policies
        )
        operators = mark_sparsity_dependent_calls(exported, operators)
        if recorded.valued:
            operators = with_dependence_marks(exported, operators, recorded.known)
        calls = with_custom_operator_marks(
            frames_and_operators_as_calls(recorder.frames, operators)
        )
        if recorder.autocast:
            operators = insert_autocast_casts(exported, operators)
        functions = {function.frame for function in recorder.applied}
        ran = runs() if runs else None
        if ran is None:
            compiles = any(call.level == "operator" and call.target in _COMPILED for call in calls)
            ran = _run_and_observe_settings(model, args, kwargs, views, compiles)
        calls, seen, kernels = _align_observed_runs(views, ran, calls, functions)
        if views:
            calls = with_operator_bodies(calls, model, args, kwargs, setting)
    trace = Trace(
        calls=calls,
        modules=recorded.index.module_descriptions,
        setting=setting,
        observed=seen,
        kernels=kernels,
        runtime=_torch_version_label() if recorded.valued else "",
        notes=recorded.notes,
        writes_detached=recorder.writes_detached,
    )
    drawing = recorder.generators if recorded.valued and recorded.draws else None
    applied = tuple(recorder.applied)
    leaves = non_parameter_leaves(exported, recorded.index)
    return ExportedRun(
        exported,
        operators,
        trace,
        drawing,
        applied,
        recorder.frames,
        leaves,
        frozenset(recorder.turned),
        recorded.packed,
    )


def _export_with_mask_note(request: ExportRequest) -> TracedProgram:
    """Export the model with torch.export and return the traced program. If the model uses
    FlexAttention with masks, a note in the program says how many MACs the masks skip.

    Raises ValuesNeededError where a model without values has such masks.
    """
    masked: list[MaskedAttention] = []
    with unfusing_flex_attention(masked):
        recorded = export_with_values_if_needed(request)
    if not masked or not has_values(request.model, request.args, request.kwargs):
        return recorded
    if has_own_fake_tensor(request.model, request.args, request.kwargs):
        raise ValuesNeededError(
            "the number of skipped blocks depends on the values of a FlexAttention mask"
        )
    with (
        seeding_random_generators(),
        using_model_copy_for_one_run(request.model, request.setting.training) as own,
    ):
        masked = run_and_describe_masked_attention(
            lambda: run_torch_model(own, request.args, request.kwargs, grad=False)
        )
    note = sentence_on_masked_attention(masked)
    return msgspec.structs.replace(recorded, notes=(*recorded.notes, note)) if note else recorded


def _torch_version_label() -> str:
    """Return the name and version of PyTorch without the build suffix, such as "PyTorch 2.9.0"."""
    import torch

    return f"PyTorch {torch.__version__.partition('+')[0]}"


def _align_observed_runs(
    settings: Sequence[Setting],
    runs: ObservedRunBySetting,
    calls: tuple[Call, ...],
    functions: set[str],
) -> _AlignedRuns:
    """Return the calls with the fused kernels that ran for them, the calls of other views, and the
    kernels by setting.
    """
    seen: list[Call] = []
    ran: dict[str, tuple[Kernel, ...]] = {}
    for setting in sorted(settings, key=_setting_sort_key):
        if setting not in runs:
            continue
        run_calls, kernels = runs[setting]
        if isinstance(setting, View):
            seen.extend(align_observed_calls(run_calls, calls, setting, functions))
        if kernels is None:
            continue
        if _setting_level(setting) != "module":
            ran[setting.id] = kernel_summary(kernels)
        fused = kernel_name_by_fused_call(kernels, calls)
        calls = tuple(
            msgspec.structs.replace(call, fused={**call.fused, setting.id: fused[call.key]})
            if call.key in fused
            else call
            for call in calls
        )
    return _AlignedRuns(calls, tuple(seen), ran)


def run_and_observe_torch(
    model: "nn.Module",
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    views: Sequence[Setting],
) -> ObservedRunBySetting:
    """Run the model in each of these settings as a tool does; return for each setting the observed
    operators and fused kernels.

    Raises InputError where the model raises, and ValuesNeededError where it needs values.
    """
    with (
        restoring_random_states(),
        suppressing_output(),
        escaping_module_names(),
        faking_grouped_products(),
        registering_input_containers((args, kwargs)),
    ):
        return _run_and_observe_settings(model, args, kwargs, views, may_compile=True)


def _run_and_observe_settings(
    model: "nn.Module",
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    settings: Sequence[Setting],
    may_compile: bool,
) -> ObservedRunBySetting:
    """Return the observed operators and fused kernels by setting; settings with equal runs share
    one.

    A setting in which a tool would fail as well has none.

    `may_compile` says that PyTorch's compiler may trace functions in a run.
    """
    runs: ObservedRunBySetting = {}
    dispatched_runs: dict[str, ObservedRun] = {}  # under a mode that shows the kernels, too
    known: dict[str, list[KernelRun]] = {}  # the kernels of runs that are alike
    asked: set[str] = set()  # the settings whose kernels are there
    hooks = depends_on_hooks(model)
    for setting in sorted(settings, key=_setting_sort_key):
        level = _setting_level(setting)
        similar = setting if hooks else msgspec.structs.replace(setting, hooked=False)
        if level == "module" and not checks_for_causal_mask(model):
            continue  # nothing in it makes nested tensors
        if may_compile and "torch._dynamo" in sys.modules:
            reset_compiler()  # a tool has compiled nothing before: its profiler sees all of it
        try:
            if level in _DISPATCHED and similar.id in dispatched_runs:
                run_calls, kernels = dispatched_runs[similar.id]
                run_calls = run_calls if level == "dispatch" else []
            else:
                ask = setting.id not in asked and (level == "module" or similar.id not in known)
                run_calls, kernels = _run_watching_values(model, args, kwargs, setting, ask)
        except ValuesNeededError:
            raise
        except (Exception, SystemExit) as error:
            if level == "module":
                continue  # so it does for the tool, whose failure it is
            check_runs_without_observer(model, args, kwargs, setting, error)
            run_calls, kernels = (
                [WatchedCall(UNWATCHED, settings={"reason": brief_error_text(error)})],
                None,
            )
        else:
            if level == "dispatch":
                dispatched_runs[similar.id] = ObservedRun(run_calls, kernels)
            if level not in ("module", *_DISPATCHED) and setting.id not in asked:
                kernels = known.get(similar.id, kernels)
        if kernels is not None and level != "module":
            asked.add(setting.id)
            known[similar.id] = kernels
        runs[setting] = ObservedRun(run_calls, kernels)
    return runs


def _setting_level(setting: Setting) -> str:
    """Return the level of the calls that a setting requests, such as "jit"; "operator" unless it
    is a view.
    """
    return setting.level if isinstance(setting, View) else "operator"


def _setting_sort_key(setting: Setting) -> int:
    """Return a sort key for settings: dispatch views first, then others that show kernels, then
    the rest.
    """
    if isinstance(setting, View) and setting.level == "dispatch":
        return 0
    return 1 if _shows_kernels(setting) else 2


def _shows_kernels(setting: Setting) -> bool:
    """Return True if a run in this setting shows which kernels ran."""
    return not isinstance(setting, View) or setting.level in _DISPATCHED


def _run_watching_values(model: "nn.Module", *run_options: Any) -> ObservedRun:
    """Run and observe the model; return its operators and kernels. Raises ValuesNeededError if it
    reads values that it lacks.
    """
    with running_uncompiled(), watching_value_reads(model) as needed:
        try:
            return _run_and_retry_without_compiler(model, *run_options)
        finally:
            if needed():  # also where whoever watches went on
                raise ValuesNeededError(needed())


def _run_and_retry_without_compiler(*run_options: Any) -> ObservedRun:
    """Run and observe the model; if that raises, reset PyTorch's compiler and do it again. Return
    its operators and kernels.
    """
    try:
        return _run_and_observe(*run_options)
    except Exception:
        reset_compiler()
        return _run_and_observe(*run_options)


def _run_and_observe(
    model: "nn.Module",
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    setting: Setting,
    with_kernels: bool,
) -> ObservedRun:
    """Run the model; return its observed operators, and its fused kernels or None if these are not
    needed (`with_kernels`).

    A run that shows no kernels is followed by one that does if they are needed; otherwise None is
    returned in their place. Each run draws the random numbers of the export.
    """
    seen: list[WatchedCall] = []
    if isinstance(setting, View) and setting.level in _RUNS:
        with (
            seeding_random_generators(),
            using_model_copy_for_one_run(model, setting.training) as own,
        ):
            seen = _RUNS[setting.level](own, *copy_inputs(args, kwargs), setting)
        if _shows_kernels(setting):
            forward = [call for call in seen if call.phase == "forward"]
            kernels = [
                (call.frames, call.target) for call in forward if is_fused_kernel(call.target)
            ]
            return ObservedRun(seen, kernels)
        if not with_kernels:
            return ObservedRun(seen, None)
    with seeding_random_generators(), using_model_copy_for_one_run(model, setting.training) as own:
        kernels = observe_fused_kernels(own, *copy_inputs(args, kwargs), setting)
    return ObservedRun(seen, kernels)
