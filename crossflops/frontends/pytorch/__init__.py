"""A PyTorch model -> a faithful ONNX graph and the trace of what was called.

In: a `torch.nn.Module` with tensors. Out: a `Graph`, a `Trace` with calls on every level, and the
exported program.
May import: frontends, operators, ir, patches, errors, limits, threads.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from crossflops.errors import ValuesNeededError
from crossflops.frontends.conversion import silencing_loggers
from crossflops.frontends.frontend import (
    NO_IMAGES,
    Frontend,
    GenerationPasses,
    ModelRun,
    Program,
    PromptImages,
    Recording,
    Run,
    RunnableModel,
    Source,
    require_packages,
)
from crossflops.frontends.inputs import ProvidedInputs
from crossflops.frontends.named import Library, NamedModel
from crossflops.ir.provenance import FAKE, META
from crossflops.ir.trace import Setting
from crossflops.ir.training import OwnBackwards

if TYPE_CHECKING:
    from crossflops.ir.architecture import LanguageArchitecture

_ARCHIVE = ".pt2"  # of torch.export, which pickles inputs and constants, and evaluates sizes


def is_transformers_pipeline(value: Any) -> bool:
    """Return whether a value is a pipeline of transformers, whose `model` is counted."""
    rows = {(kind.__module__, kind.__name__) for kind in type(value).__mro__}
    return ("transformers.pipelines.base", "Pipeline") in rows


class PyTorch(Frontend):
    """The frontend of PyTorch models, which PyTorch itself exports and runs."""

    name = "torch"
    title = "PyTorch"
    models = ("PyTorch",)
    extra = "torch"
    packages = ("torch", "functorch", "onnxscript")
    converter = "torch.onnx.export"
    versions = (("torch", "torch"),)
    suffixes = (".pt2", ".pt")
    pickles = {
        _ARCHIVE: "is an archive of pickles and expressions",
        **dict.fromkeys((".pt", ".pth"), "is a pickle"),
    }
    runtime = "torch"
    knows_trained = True
    has_gradient_mode = True

    def recognizes(self, value: object) -> bool:
        """Return True if the value is a torch.nn.Module."""
        torch = sys.modules.get("torch")
        return torch is not None and isinstance(value, torch.nn.Module)

    def model_libraries(self) -> tuple[Library, ...]:
        """Return the model libraries from which a model can be built by name: timm, torchvision
        and transformers.
        """
        from crossflops.frontends.pytorch.load.libraries import LIBRARIES

        return LIBRARIES

    def model_and_inputs(self, value: Any, inputs: Any) -> tuple[Any, Any] | None:
        """Return the module and the example inputs of a torch.export.ExportedProgram; None for
        another value.
        """
        if is_transformers_pipeline(value):
            return value.model, None
        export = sys.modules.get("torch.export")
        if export is None or not isinstance(value, export.ExportedProgram):
            return None
        module = value.module()
        for name in ("train", "eval"):  # which raise there; the nodes stay in the mode they have
            vars(module).pop(name, None)
        return module, value.example_inputs

    def default_input(self, model: Any, sizes: Mapping[str, int] = {}) -> NamedModel | None:
        """Return the usual inputs that a model of timm, transformers, diffusers or Lightning
        tells.
        """
        if not self.recognizes(model):
            return None
        from crossflops.frontends.pytorch.load.default_inputs import default_torch_input

        return default_torch_input(model, sizes)

    def unpickle_model(self, path: Path) -> Any:
        """Return the object that `torch.save` or `torch.export.save` wrote to the file."""
        import logging

        import torch

        if path.suffix == _ARCHIVE:
            with silencing_loggers(
                "torch.export", up_to=logging.CRITICAL
            ):  # its traceback before it raises
                return torch.export.load(path)
        return torch.load(path, map_location="cpu", weights_only=False)

    @contextmanager
    def building_model(self) -> Iterator[None]:
        """Run a block that builds a model, with the random state in which PyTorch starts; restore
        the state afterwards.

        Nothing is done if PyTorch is not imported yet: it then begins in that state anyway.
        """
        torch = sys.modules.get("torch")
        if torch is None:
            yield
            return
        generator = torch.default_generator
        before = generator.get_state()
        generator.manual_seed(torch.Generator().initial_seed())
        try:
            yield
        finally:
            generator.set_state(before)

    @contextmanager
    def building_model_without_values(self, is_own_model: bool) -> Iterator[None]:
        """Run a block that builds a model so that its tensors have no values, if PyTorch is
        imported, or installed and the model is its own.
        """
        there = find_spec("torch") is not None if is_own_model else "torch" in sys.modules
        if not there:
            yield
            return
        from crossflops.frontends.pytorch.load.fakes import building_fake_tensors

        with building_fake_tensors():
            yield

    def can_retry_after(self, error: Exception) -> bool:
        """Return True if the error was torchvision's failed import and is repaired now, so that a
        retry can succeed.
        """
        from crossflops.frontends.pytorch.load.libraries import repair_torchvision_import

        return repair_torchvision_import(error)

    def language_architecture(self, model: Any) -> "LanguageArchitecture":
        """Return the sizes of a language model of transformers. Raises InputError for another
        model.
        """
        from crossflops.frontends.pytorch.load.architecture import read_architecture

        return read_architecture(model)

    def generation_passes(self, model: Any, images: PromptImages = NO_IMAGES) -> GenerationPasses:
        """Return the prefill and decoding passes of a transformers model. Raises InputError for
        another model.
        """
        from crossflops.frontends.pytorch.load.generation import TransformersPasses

        return TransformersPasses(model, images)

    def require_packages_for(self, model: Any) -> None:
        """Raise MissingExtraError unless the packages that export a PyTorch model are
        installed.
        """
        require_packages(("onnx", "onnxscript"), "export a PyTorch model", self.extra)

    def prepare_source(self, model: Any, provided: ProvidedInputs, owned: bool) -> Source:
        """Return the prepared model with tensors as its inputs. Raises InputError if the inputs do
        not fit it.
        """
        from crossflops.frontends.pytorch.load.fakes import weights_kind
        from crossflops.frontends.pytorch.load.inputs import (
            check_model_call,
            make_model_arguments,
            tensors_from_npz,
            tensors_of_batch,
        )
        from crossflops.frontends.pytorch.load.keras_models import (
            build_keras_variables,
            is_torch_keras_layer,
            to_keras_arguments,
        )
        from crossflops.frontends.pytorch.load.model import (
            prepare_torch_model,
            weight_storage_bytes,
        )
        from crossflops.frontends.pytorch.load.sharded import (
            is_sharded,
            unwrap_data_parallel,
            without_model_shards,
        )

        if provided.file is not None:
            args, kwargs = tensors_from_npz(provided.file)
        elif provided.have_only_shapes:
            args, kwargs = make_model_arguments(model, provided.specs, provided.known)
        else:
            args, kwargs = tensors_of_batch(model, provided.values)
        model = unwrap_data_parallel(model)
        if is_torch_keras_layer(model):
            args, kwargs = to_keras_arguments(model, args, kwargs)
            build_keras_variables(model, args, kwargs)
        check_model_call(model, args, kwargs)
        if is_sharded(model):
            model, args, kwargs = without_model_shards(model, args, kwargs)
        model = prepare_torch_model(model, args, kwargs, owned)
        values = provided.origin_text(provided.values)
        kind = weights_kind(model, args, kwargs)
        return Source(
            model, args, kwargs, values=values, weights=kind, stored=weight_storage_bytes(model)
        )

    def with_axis_size(self, tensor: Any, axis: int, size: int) -> Any:
        """Return the tensor with another size along an axis; its values are repeated."""
        from crossflops.frontends.pytorch.load.tensors import resize_tensor_axis

        return resize_tensor_axis(tensor, axis, size)

    def loss_reached_outputs(
        self, source: Source, loss: Callable[[Any], Any], setting: Setting
    ) -> tuple[bool, ...]:
        """Return for each output of the model True if the loss depends on it, by a backward pass
        of a copy.
        """
        from crossflops.frontends.pytorch.load.flexible_attention import unfusing_flex_attention
        from crossflops.frontends.pytorch.observe.training_step import torch_loss_dependence

        with unfusing_flex_attention():
            return torch_loss_dependence(source, loss, setting)

    def custom_backward_costs(self, source: Source, setting: Setting) -> OwnBackwards:
        """Return the costs of the backward passes that autograd functions of the model define,
        from a run of a copy without values.
        """
        from crossflops.frontends.pytorch.load.flexible_attention import unfusing_flex_attention
        from crossflops.frontends.pytorch.train.own_backward import custom_function_backward_costs

        with unfusing_flex_attention():
            return custom_function_backward_costs(source, setting)

    def check_inputs(self, source: Source, setting: Setting) -> None:
        """Run the model in evaluation mode without gradients. Raises InputError if that raises."""
        import torch

        from crossflops.frontends.pytorch.load.model import model_run_error

        try:
            source.model.eval()
            with torch.no_grad():
                source.model(*source.args, **source.kwargs)
        except Exception as error:  # whatever it is, it does not run on these
            raise model_run_error(error) from error

    def record(
        self,
        source: Source,
        setting: Setting,
        views: Sequence[Setting],
        runs: Callable[[], Any] | None,
    ) -> Recording:
        """Run the model under torch.export; return a recording of its calls and the exported
        program.

        See `program.record_torch_run`. Sizes that depend on values are observed there.
        """
        from crossflops.frontends.pytorch.program import record_torch_run

        exported = record_torch_run(source.model, source.args, source.kwargs, setting, views, runs)
        return Recording(source, setting, tuple(views), exported.trace, exported)

    def convert(self, recording: Recording, run: Run | None) -> Program:
        """Convert the exported program of a recording to a graph: see
        `program.convert_torch_recording`.
        """
        from crossflops.frontends.pytorch.load.model import check_model_copy_runs
        from crossflops.frontends.pytorch.program import convert_torch_recording
        from crossflops.frontends.pytorch.record.operators import first_call_with_type_mismatch

        source = recording.source
        made = convert_torch_recording(source.model, recording.detail)
        if first_call_with_type_mismatch(made[2]) is not None:
            if source.weights == FAKE:
                raise ValuesNeededError(
                    "the dtypes of operands can be checked only in a run with values"
                )
            check_model_copy_runs(source.model, source.args, source.kwargs, recording.setting)
        return made

    def observe_runs(self, source: Source, views: Sequence[Setting]) -> Any:
        """Run the model once for each view, as a tool does; return what was observed: see
        `program.run_and_observe_torch`.
        """
        from crossflops.frontends.pytorch.program import run_and_observe_torch

        return run_and_observe_torch(source.model, source.args, source.kwargs, views)

    def copy_for_tool(
        self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """Return copies of the model and its inputs that share no mutable state with those of the
        caller.

        Python cannot copy tensors that were computed from others (weight_norm and pruning keep
        such in their modules), so the export's own way of copying is used. Caches of earlier runs
        are cleared.
        """
        from crossflops.frontends.pytorch.load.model import (
            clear_caches,
            copy_inputs,
            copy_torch_model,
        )

        clear_caches(model)
        return (copy_torch_model(model), *copy_inputs(args, kwargs))

    def to_fake_source(self, source: Source) -> Source:
        """Return a source with a copy of its model, if that is on the meta device, in fake CPU
        tensors; else the same source.
        """
        from crossflops.frontends.pytorch.load.fakes import with_fake_tensors

        if source.weights != META:
            return source
        model, args, kwargs = with_fake_tensors(
            *self.copy_for_tool(source.model, source.args, source.kwargs)
        )
        return msgspec.structs.replace(source, model=model, args=args, kwargs=kwargs, weights=FAKE)

    def running_code_as_counted(self, model: Any) -> AbstractContextManager[None]:
        """Return the context in which compiled parts of a model run as plain Python."""
        from crossflops.frontends.pytorch.load.compiled import running_uncompiled

        return running_uncompiled()

    @contextmanager
    def watching_value_reads(self, model: Any) -> Iterator[Callable[[], str]]:
        """Yield a function that names the operation which needed values of tensors, or returns ""
        if none did.
        """
        from crossflops.frontends.pytorch.load.fakes import (
            hiding_tool_replacements,
            watching_value_reads,
        )

        with hiding_tool_replacements(model), watching_value_reads(model) as needed:
            yield needed

    def prepare_run(self, source: Source, threads: int, setting: Setting) -> RunnableModel:
        """Return the model with its inputs, ready to be timed: see `model.to_ready_model`."""
        from crossflops.frontends.pytorch.load.model import to_ready_model

        return to_ready_model(source, threads, setting)

    def add_bodies_of_foreign_operators(self, model: Any) -> None:
        """Add to an ONNX model the bodies of operators without an ONNX form: see
        `function_bodies.add_opaque_node_bodies`.
        """
        from crossflops.frontends.pytorch.convert.function_bodies import add_opaque_node_bodies

        add_opaque_node_bodies(model)

    def run_and_measure_rounding(self, source: Source, setting: Setting) -> ModelRun:
        """Run copies of the model; return inputs, outputs, and how much rounding changes them."""
        from crossflops.frontends.pytorch.observe.outputs import (
            run_torch_copies_and_measure_rounding,
        )

        return run_torch_copies_and_measure_rounding(source, setting)


FRONTEND: Frontend = PyTorch()
