"""The export of a model by torch.export, without values, or with them where shapes do not decide
enough.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import msgspec

from crossflops.errors import CrossflopsError, InputError, NormalizeError, ValuesNeededError
from crossflops.frontends.pytorch.load.fakes import has_own_fake_tensor, reject_torchscript
from crossflops.frontends.pytorch.load.model import (
    copy_torch_model,
    restoring_module_variables,
    run_torch_model,
    set_training_mode,
    tracing_without_tensor_metadata,
    using_model_copy_for_one_run,
    wrap_for_export,
)
from crossflops.frontends.pytorch.load.quantized import (
    dequantize_tensors,
    is_quantized,
    replacing_quantized_operators,
    unpack_quantized_weights,
)
from crossflops.frontends.pytorch.load.refusals import (
    PIECES,
    REFUSED,
    brief_error_text,
    untraceable_model_error,
)
from crossflops.frontends.pytorch.record import executed_products
from crossflops.frontends.pytorch.record.data_dependence import (
    OperatorSizeFlags,
    exporting_with_real_tensors,
    has_values,
    has_while_loop,
    reads_values_in_python,
    tensor_operators_with_size_flags,
)
from crossflops.frontends.pytorch.record.entry_points import recording_entry_points
from crossflops.frontends.pytorch.record.function_references import (
    replacing_functions_everywhere,
)
from crossflops.frontends.pytorch.record.modules import ModuleIndex
from crossflops.frontends.pytorch.record.open_size_limit import (
    OpenSizeCounter,
    limiting_open_sizes,
)
from crossflops.frontends.pytorch.record.operators import MARK
from crossflops.frontends.pytorch.record.python_steps import (
    detaching_tensor_data,
)
from crossflops.frontends.pytorch.record.recorder import Recorder
from crossflops.frontends.pytorch.record.sparse_constants import (
    accepting_sparse_constants,
    has_sparse,
)
from crossflops.frontends.pytorch.record.transformed_functions import applying_transforms_first
from crossflops.frontends.seeds import seeding_random_generators
from crossflops.ir.trace import Setting

if TYPE_CHECKING:
    from torch import nn


# What a model asks about how it is run: whether it is being exported, compiled or traced.
#
# Libraries take another path then, one that a compiler can follow. What is counted is what runs,
# so their questions are noticed, and may be answered as a run answers them: with no. What PyTorch
# asks itself is left alone, as its own exporter needs the truth.

# By module: the functions that answer. Not is_dynamo_compiling, which says no to an export, and
# which Dynamo has to recognise when it takes the body of a torch.cond apart.
_QUESTIONS = {
    "torch.compiler": ("is_exporting", "is_compiling"),
    "torch._dynamo": ("is_compiling",),
    "torch._utils": ("is_compiling",),
    "torch._dynamo.external_utils": ("is_compiling",),
    "transformers.utils.import_utils": ("is_fake_tensor",),
}


class TraceQuestionAnswers:
    """A record of whether code outside of PyTorch asked one of these questions and got True as the
    answer.
    """

    def __init__(self) -> None:
        """Start with no positive answer noted."""
        self.heard_yes = False


@contextmanager
def watching_trace_questions(deny_exporting: bool) -> Iterator[TraceQuestionAnswers]:
    """Record whether the model calls functions such as `is_exporting` inside the block, and if
    they return True; yield the record. With `deny_exporting` these functions return False to the
    model.
    """
    asked = TraceQuestionAnswers()
    wrappers = {
        id(original): _wrap_trace_question(original, asked, deny_exporting)
        for owner, names in _QUESTIONS.items()
        if owner in sys.modules
        for name in names
        if (original := getattr(sys.modules[owner], name, None)) is not None
    }
    with replacing_functions_everywhere(wrappers):
        yield asked


def _wrap_trace_question(
    original: Callable[..., bool], answers: TraceQuestionAnswers, deny_exporting: bool
) -> Callable[..., bool]:
    """Return a replacement of a function such as `is_exporting` that records a True result for
    callers outside of PyTorch; with `deny_exporting` it returns False to them.
    """

    def answer_tracing_question_and_record(*args: Any) -> bool:
        """Call the original function and return its answer; for callers outside of PyTorch record
        that it was True, and return False instead with `deny_exporting`.
        """
        value = original(*args)
        if not value or _is_module_of_pytorch(sys._getframe(1).f_globals.get("__name__", "")):
            return value
        answers.heard_yes = True
        return not deny_exporting

    # Dynamo calls it, then
    answer_tracing_question_and_record._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return answer_tracing_question_and_record


def _is_module_of_pytorch(module: str) -> bool:
    """Return True if the name of a module is of PyTorch or of crossflops."""
    return module.partition(".")[0] in {"torch", "functorch", "crossflops"}


# Whether masks are causal: what PyTorch's encoders and decoders ask of the values of a mask.
#
# An encoder or a decoder that is given a mask, and not told what it is, compares it with a causal
# one, and hands the answer on: attention may then leave the mask out. Tracing knows no values, so
# the answers are those of a real run.
# Source: torch/nn/modules/transformer.py (`_detect_is_causal_mask`).


def checks_for_causal_mask(model: "nn.Module") -> bool:
    """Return True if a model has an encoder or decoder of PyTorch, whose code checks if its mask
    is causal.
    """
    from torch import nn

    kinds = nn.TransformerEncoder, nn.TransformerDecoder
    return any(isinstance(module, kinds) for module in model.modules())


def run_and_record_mask_answers(
    model: "nn.Module", args: tuple[Any, ...], kwargs: Mapping[str, Any], training: bool
) -> list[bool]:
    """Run the model and return, in order, for each check of a mask whether the mask is causal; []
    if the run raises.

    It runs with gradients: without them an encoder takes its fast path, which not all layers can
    follow.
    """
    denials: list[bool] = []

    def recording_mask_detection(original: Callable[..., bool]) -> Callable[..., bool]:
        """Return a function that detects if a mask is causal and records the answer."""

        def detect_causal_mask_and_record(*args: Any, **kwargs: Any) -> bool:
            """Return True if a mask is causal, and record the answer."""
            denials.append(original(*args, **kwargs))
            return denials[-1]

        return detect_causal_mask_and_record

    with seeding_random_generators(), _replacing_mask_detection(recording_mask_detection):
        try:
            with using_model_copy_for_one_run(model, training) as own:
                run_torch_model(own, args, kwargs, grad=True)
        except InputError:
            return []  # the export runs into it, too, and says so
    return denials


@contextmanager
def replaying_mask_answers(answers: list[bool]) -> Iterator[None]:
    """Make the detection of causal masks return these answers in order, inside the block."""
    left = iter(answers)

    def replaying_mask_detection(original: Callable[..., bool]) -> Callable[..., bool]:
        """Return a function that returns the next recorded answer, and detects a causal mask when
        none is left.
        """

        def replay_answer_or_detect_causal_mask(*args: Any, **kwargs: Any) -> bool:
            """Return the next recorded answer, or, when none is left, True if the mask is
            causal.
            """
            answer = next(left, None)
            return original(*args, **kwargs) if answer is None else answer

        return replay_answer_or_detect_causal_mask

    with _replacing_mask_detection(replaying_mask_detection):
        yield


@contextmanager
def _replacing_mask_detection(
    make_replacement: Callable[[Callable[..., bool]], Callable[..., bool]],
) -> Iterator[None]:
    """Replace PyTorch's function that detects causal masks by what `make_replacement` returns for
    it, inside the block.
    """
    from torch.nn.modules import transformer

    names = vars(transformer)
    original = names["_detect_is_causal_mask"]
    names["_detect_is_causal_mask"] = make_replacement(original)
    try:
        yield
    finally:
        names["_detect_is_causal_mask"] = original


_NAMED = 6  # modules that a note names
_DRAWS = "the model draws random numbers (from seed 0 here): another run may have other sizes"
_LEFT = "part of the model runs in NumPy: that part is not counted"
_OWN_GENERATOR = "the model uses its own random generator: another run may have other sizes"


class ExportRequest(msgspec.Struct, frozen=True):
    """The model, its inputs, and the setting of the export."""

    model: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    setting: Setting


class TracedProgram(msgspec.Struct, frozen=True):
    """An exported program, with what was recorded meanwhile.

    `valued` means that values decided, `heard_yes` that the model noticed the export, `draws` that
    random numbers may determine the path or sizes. `known` are the operators whose sizes an export
    without values left open, if there was one; `notes` are sentences for the report, `packed` the
    number and bytes of parameters that quantized modules hold and PyTorch does not list.
    """

    program: Any
    recorder: Recorder
    index: ModuleIndex
    valued: bool = False
    heard_yes: bool = False
    draws: bool = False
    known: OperatorSizeFlags | None = None
    notes: tuple[str, ...] = ()
    packed: tuple[int, int] = (0, 0)


def export_with_values_if_needed(request: ExportRequest) -> TracedProgram:
    """Export the model and return the traced program; with real values if an export without them
    fails or is wrong.

    Raises InputError when the model raises on these inputs, NormalizeError when it cannot be
    exported.
    """
    if has_own_fake_tensor(request.model, request.args, request.kwargs):
        return _trace_fake_model(request)
    limited = has_values(request.model, request.args, request.kwargs)
    refusal: NormalizeError | None = None
    try:
        with limiting_open_sizes() if limited else nullcontext(OpenSizeCounter()) as sizes:
            plain = _attempt_export(request)
    except NormalizeError as error:
        refusal = error
    else:
        if not sizes.is_past_limit:
            return _revise_trace(request, plain)
        # else the model caught the error of the limit, and took another path
    # Behind the handler, or the next error would have this one for its context.
    again = _export_with_real_values(request)
    if isinstance(again, TracedProgram):
        return _with_trace_notes(again, _product_difference_sentence(request, again))
    if sizes.is_past_limit or refusal is None:
        return _with_trace_notes(_attempt_export(request), f"real values did not help: {again}")
    if again and again != refusal.message:
        second_error = again.removeprefix(REFUSED)
        also = f"{refusal.message}; a trace with the values of tensors also fails: {second_error}"
        raise NormalizeError(also, refusal.hint) from refusal
    raise refusal


def _trace_fake_model(request: ExportRequest) -> TracedProgram:
    """Export a model without values and return the traced program. Raises ValuesNeededError if
    values would decide something.
    """
    reject_torchscript(request.model)
    if checks_for_causal_mask(request.model):
        raise ValuesNeededError("it depends on the values of a mask whether the mask is causal")
    plain = _attempt_export(request)
    if any(is_open for _, is_open in tensor_operators_with_size_flags(plain.program)):
        raise ValuesNeededError("output sizes depend on tensor values")
    if has_sparse(plain.program):
        raise ValuesNeededError(
            "the number of stored elements of a sparse tensor depends on values"
        )
    if reads_values_in_python(plain.program):
        raise ValuesNeededError("the model reads tensor values")
    if has_while_loop(plain.program):
        raise ValuesNeededError("the number of iterations of a loop depends on tensor values")
    difference = _product_difference_sentence(request, plain) if plain.heard_yes else ""
    if difference:
        raise ValuesNeededError(difference)
    return plain


def _revise_trace(request: ExportRequest, fake_trace: TracedProgram) -> TracedProgram:
    """Return the traced program, or an export with real values if it has open sizes or other
    products than a run.
    """
    known = tensor_operators_with_size_flags(fake_trace.program)
    is_open = any(is_open for _, is_open in known) or has_while_loop(fake_trace.program)
    difference = (
        ""
        if is_open or not fake_trace.heard_yes
        else _product_difference_sentence(request, fake_trace)
    )
    if not is_open and not difference:
        return fake_trace
    again = _export_with_real_values(request)
    if isinstance(again, str):
        return _with_trace_notes(
            fake_trace, difference, f"real values did not help: {again}" if again else ""
        )
    again = _with_trace_notes(again, _product_difference_sentence(request, again))
    return msgspec.structs.replace(again, known=known) if is_open else again


def _export_with_real_values(request: ExportRequest) -> TracedProgram | str:
    """Export the model with real values; return the traced program, or the reason why it failed
    ("" if there are no values).

    Returns the reason where both fail; "" where there are no values.
    """
    if not has_values(request.model, request.args, request.kwargs):
        return ""
    refusals = []
    for denied in (True, False):
        try:
            return _attempt_export(request, with_values=True, deny_exporting=denied)
        except CrossflopsError as error:
            refusals.append(error.message)
    return refusals[0]


def _product_difference_sentence(request: ExportRequest, trace: TracedProgram) -> str:
    """Return a sentence that names the modules in which a run computes other products than the
    program, or says that this could not be checked; "" if there are none.

    Where one of them cannot be observed, the text says so. Without values neither runs.
    """
    if not has_values(request.model, request.args, request.kwargs):
        return ""
    try:
        ran = _product_flops_of_run(request)
        with seeding_random_generators():
            done = executed_products.run_program_and_count_product_flops(
                trace.program, request.args, request.kwargs, trace.recorder
            )
    except Exception as error:
        return (
            f"could not check that a run executes the same matrix products as the export: "
            f"{brief_error_text(error)}"
        )
    differs = executed_products.modules_with_different_flops(ran, done)
    names = ", ".join(path or "(the model)" for path in differs[:_NAMED])
    rest = f" and {len(differs) - _NAMED} more modules" if len(differs) > _NAMED else ""
    message = (
        f"a real run executes different matrix products than the exported program in {names}{rest}"
    )
    return message if differs else ""


def _product_flops_of_run(request: ExportRequest) -> executed_products.FlopsByModulePath:
    """Run a copy of the model; return the FLOPs of its products by module path.

    The tensors for a backward pass are kept only if the model runs one itself.
    """
    for saves_tensors in (False, True):
        with (
            seeding_random_generators(),
            using_model_copy_for_one_run(request.model, request.setting.training) as own,
        ):
            try:
                return executed_products.run_model_and_count_product_flops(
                    own, request.args, request.kwargs, saves_tensors=saves_tensors
                )
            except executed_products.SavedTensorsNeededError:
                continue
    raise AssertionError("a run that keeps its tensors does not ask for them")


def _with_trace_notes(trace: TracedProgram, *notes: str) -> TracedProgram:
    """Return the traced program with these notes added; empty ones are left out."""
    return msgspec.structs.replace(trace, notes=(*trace.notes, *filter(None, notes)))


def _attempt_export(
    request: ExportRequest, with_values: bool = False, deny_exporting: bool = False
) -> TracedProgram:
    """Export a copy of the model once; return the traced program and what was recorded. Raises
    NormalizeError if it fails.
    """
    own = set_training_mode(
        copy_torch_model(request.model, exported=not with_values), request.setting.training
    )
    dequantize_tensors(own)
    quantized = is_quantized(own)
    packed = unpack_quantized_weights(own) if quantized else (0, 0)
    index = ModuleIndex(own)
    recorder = Recorder(index, running_context=_marking_frame_number)
    with (
        exporting_with_real_tensors() if with_values else seeding_random_generators() as drawn,
        watching_trace_questions(deny_exporting) as questioned,
        restoring_module_variables(request.model),
        replacing_quantized_operators(quantized),
    ):
        program = _export_and_record_model(own, request, recorder)
    draws = drawn.outside or (with_values and drawn.by_torch)
    own_generator = with_values and bool(recorder.generators)
    return TracedProgram(
        program,
        recorder,
        index,
        valued=with_values,
        heard_yes=questioned.heard_yes,
        draws=draws or own_generator,
        packed=packed,
        notes=(*[_DRAWS] * draws, *[_OWN_GENERATOR] * own_generator, *[_LEFT] * drawn.left),
    )


def _export_and_record_model(
    model: "nn.Module", request: ExportRequest, recorder: Recorder
) -> Any:
    """Export a model, which may be changed, with its calls recorded; return the exported program.
    Raises an error that says why it fails.
    """
    import torch
    from torch.fx._lazy_graph_module import _use_lazy_graph_module
    from torch.fx.traceback import preserve_node_meta

    args, kwargs = request.args, request.kwargs
    full = wrap_for_export(model)
    training = request.setting.training
    known = (
        run_and_record_mask_answers(model, args, kwargs, training)
        if checks_for_causal_mask(model)
        else []
    )
    try:
        with (
            preserve_node_meta(),
            _use_lazy_graph_module(True),  # each pass of an export would write the code anew
            tracing_without_tensor_metadata(),
            torch.set_grad_enabled(request.setting.grad),
            replaying_mask_answers(known),
            recording_entry_points(recorder),
            detaching_tensor_data(lambda: bool(recorder.stack)),
            _running_scripts_unoptimized(model),
            accepting_sparse_constants(),
            applying_transforms_first(),
        ):
            program = torch.export.export(full, args, dict(kwargs), strict=False)
            if recorder.derives:
                _reject_functorch_constants(program)
                _reject_lost_tangents(program)
            return program
    except (Exception, SystemExit) as error:
        if has_own_fake_tensor(model, args, kwargs):
            if PIECES in str(error):  # which values do not mend
                raise untraceable_model_error(error) from error
            raise ValuesNeededError(
                f"the model cannot be exported without weight values: {brief_error_text(error)}"
            ) from error
        # Told apart by asking the model itself: does it run on these inputs at all?
        run_torch_model(model, args, kwargs, request.setting.grad)
        raise untraceable_model_error(error, recorder.derives) from error


def _running_scripts_unoptimized(model: "nn.Module") -> Any:
    """Return a context in which TorchScript runs without optimization, as in its first run.

    From the second run on it differentiates parts of a module by itself, and detaches their
    inputs.
    """
    import torch

    library: Any = torch.jit
    for module in model.modules():
        if isinstance(module, library.ScriptModule):
            compiled: Any = module._c
            for name in compiled._method_names():
                compiled._get_method(name)._debug_flush_compilation_cache()
    return library.optimized_execution(False)


def _reject_functorch_constants(program: Any) -> None:
    """Raise RuntimeError if a constant of the program is a tensor that a transform of torch.func
    wraps.
    """
    import torch

    library: Any = torch._C._functorch
    if any(map(library.is_functorch_wrapped_tensor, program.constants.values())):
        raise RuntimeError("values of torch.func are constants in the exported program")


def _reject_lost_tangents(program: Any) -> None:
    """Raise RuntimeError if the program has operators whose tangents, of torch.func.jvp, the
    export lost.

    They decompose a linear layer with a bias together with its tangent, and keep other composites
    whole, without one.
    """
    import torch

    has_kernel: Any = torch._C._dispatch_has_kernel_for_dispatch_key
    deriving = False
    for node in program.graph.nodes:
        name = getattr(node.target, "__name__", "")
        deriving = "exit_dual" not in name and (deriving or "enter_dual" in name)
        if not deriving or not isinstance(node.target, torch._ops.OpOverload):
            continue
        composite = has_kernel(node.target.name(), "CompositeImplicitAutograd")
        with_bias = node.target is torch.ops.aten.linear.default and len(node.args) > 2
        if composite and not with_bias and not name.startswith("_unpack_dual"):
            raise RuntimeError(f"the tangent of {node.target} is lost in the exported program")


def _marking_frame_number(number: int) -> Any:
    """Return a context in which traced FX nodes get this frame number as a mark."""
    from torch.fx.traceback import annotate

    return annotate({MARK: number})
