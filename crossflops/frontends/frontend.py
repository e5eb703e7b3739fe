"""Define the contract of a framework: one Protocol, and the values that it passes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import msgspec

from crossflops.errors import InputError, MissingExtraError, TargetError
from crossflops.frontends.conversion import announcing_converter
from crossflops.frontends.inputs import (
    GIVEN,
    Arguments,
    ProvidedInputs,
    arguments_from_npz,
    to_args_and_kwargs,
)
from crossflops.frontends.named import Library, NamedModel
from crossflops.ir.graph import Control, Graph, TensorSpec
from crossflops.ir.measurement import Observation
from crossflops.ir.trace import Setting, Trace
from crossflops.ir.training import OwnBackwards

if TYPE_CHECKING:
    from crossflops.ir.architecture import LanguageArchitecture

# The ONNX model that a graph was read from (of onnx_ir, its bytes, or None of a file), the graph,
# and the trace of the calls.
Program: TypeAlias = tuple[Any, Graph, Trace]
# What runs an ONNX model on arrays by input name, and gives what the run showed.
Run: TypeAlias = Callable[[bytes, Mapping[str, Any]], Observation]


RUN = "model_run"  # what a profile calls one run of a model; onnxruntime names its own so, too


class Source(msgspec.Struct, frozen=True):
    """A model object with the arguments that it is called with.

    `control` has the options for its loops and branches, `values` the origin of the inputs, in
    words. A model of a framework that is traced on shapes is called with shapes: `arrays` are then
    the given values, for a real run. `weights` says of a PyTorch model whether its weights have
    values (see `crossflops.ir.provenance.WeightsKind`), and `stored` how many bytes they take, or
    would take.
    """

    model: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    control: Control = Control()
    values: str = GIVEN
    arrays: Arguments | None = None
    weights: str = ""
    stored: int = 0


class Recording(msgspec.Struct, frozen=True):
    """A run of a model on its inputs, from which its ONNX graph can be made.

    `views` are the settings in which it was also run as it is, for observation. `trace` has all
    calls, which have no nodes yet; None where a framework records its calls during conversion.
    `detail` is the frontend's own data for the conversion.
    """

    source: Source
    setting: Setting
    views: tuple[Setting, ...] = ()
    trace: Trace | None = None
    detail: Any = None


class RunnableModel(NamedTuple):
    """A model that is ready to run: `once` runs it, `trace` runs it and writes a trace file.

    `trace(runs, path)` writes a trace and returns the file, or None where the framework writes a
    folder of its own. `note()` says how the runs so far differ from the model as it is, "" where
    they do not.
    """

    once: Callable[[], None]
    runtime: str
    device: str
    how: str
    trace: Callable[[int, str], str | None]
    note: Callable[[], str] = str


class ModelRun(NamedTuple):
    """The input and output arrays of a run, in the order in which an exported file has them.

    `drawn` says for each output whether it depends on random numbers, `rounding` by which share of
    its largest element it changes where weights and inputs are rounded differently.
    """

    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    drawn: tuple[bool, ...]
    rounding: tuple[float, ...]


class NewTokens(NamedTuple):
    """The number of tokens that a pass after a prefill takes, and of how many of them, the last
    ones, it returns logits.
    """

    number: int = 1
    logits: int = 1


ONE_TOKEN = NewTokens()


class PromptImages(NamedTuple):
    """The images in the prompt of each request: their number, and their side in pixels (0: that of
    the config).
    """

    number: int = 0
    side: int = 0


NO_IMAGES = PromptImages()


class GenerationPasses(Protocol):
    """The passes of a language model that generates with a cache, each as a Source.

    `windows` are the lengths of the windows that layers of its cache keep. `image_tokens` are the
    tokens of all images in the prompt of a request.
    """

    is_encoder_decoder: bool
    image_tokens: int
    windows: tuple[int, ...]

    def prefill(self, batch: int, prompt: int, logits: int = 1) -> Source:
        """Return the source of the model's pass over prompts, which begins with an empty cache.

        It returns logits of the last `logits` tokens, where the model can choose. The tokens of
        images are among those of a prompt, before its text. Of an encoder-decoder that is the
        encoder, and the decoder's first token.

        Returns:
            A model that returns the logits, then the keys and values of each layer; of an
            encoder-decoder the encoded prompts last.
        """

    def step(
        self,
        prompt: int,
        context: int,
        cache_specs: Sequence[TensorSpec],
        new: NewTokens = ONE_TOKEN,
    ) -> Source:
        """Return the source of the pass over new tokens, the last of which attends to `context`
        tokens.

        Args:
            prompt: The tokens of the prompt.
            context: The tokens that the last new one attends to.
            cache_specs: Specs of all that a prefill returned but the logits; their length is free.
            new: The tokens that the pass takes, which are one in usual decoding.

        Raises:
            InputError: The cache has other tensors than its layers tell.
        """


class Frontend(Protocol):
    """The contract of a framework: all that crossflops must know of it.

    A frontend is one folder, one object and one line. The object is `FRONTEND` in the folder, the
    line is in `frontends/__init__.py`. Making the object, reading its attributes and asking it
    about a value imports no framework, and nothing else of the folder but the test of models. A
    method with a body here has the behaviour of most frameworks.

    Attributes:
        name: The name in traces and conventions.
        title: The name in messages.
        models: The kinds of models that a message offers: "Keras", "TensorFlow".
        extra: The extra of crossflops that installs the framework.
        packages: The top-level packages that the extra brings.
        converter: The library that writes ONNX for its models, "" if none is needed.
        converted_by: The call for users, if a model is converted here without its weights.
        versions: Modules, once they are loaded, and distributions whose versions a report names.
        suffixes: The suffixes of its files that a message offers.
        pickles: Suffixes of its pickled files, with their description.
        runtime: Its name for `--runtime`, "" if its models are not timed in the framework itself.
        traces_into_folder: Whether its profiler writes a folder of its own.
        knows_trained: Whether its traces say which parameters of the graph are trained.
        takes_parameters: Whether a model without parameters may get them as an input.
        has_gradient_mode: Whether its models run differently with gradients switched off.
        has_control: Whether a caller can name loops and branches of its models.
        builds: The name of the framework whose models it reads from files, "" for its own.

    Example:
        >>> class ToyFrontend(Frontend):
        ...     name, title, models = "toy", "Toy", ("Toy",)
        ...     def recognizes(self, value):
        ...         return type(value).__module__ == "toy"
        >>> toy = ToyFrontend()
        >>> toy.recognizes(1), toy.can_read("model.toy"), toy.model_libraries()
        (False, False, ())
    """

    # What traces and conventions call the framework, and what messages call it.
    name: str
    title: str
    # The kinds of models that a message offers: "Keras", "TensorFlow".
    models: tuple[str, ...]
    # The extra of crossflops, and the top-level packages that it brings.
    extra: str = ""
    packages: tuple[str, ...] = ()
    # The library that writes ONNX for its models, "" where none is needed; and how a user calls it
    # where a model is converted here without its weights.
    converter: str = ""
    converted_by: str = ""
    # Modules that tell, when they are loaded, of distributions whose versions a report names.
    versions: tuple[tuple[str, str], ...] = ()
    # The suffixes of its files that a message offers; those that are pickles, with what they are.
    suffixes: tuple[str, ...] = ()
    pickles: Mapping[str, str] = {}
    # What `--runtime` calls it, "" where its models are not timed in the framework itself; whether
    # its profiler writes a folder of its own.
    runtime: str = ""
    traces_into_folder: bool = False
    # Whether its traces say which parameters of the graph are trained.
    knows_trained: bool = False
    # Whether a model that holds no parameters may be given them as an input.
    takes_parameters: bool = False
    # Whether its models run otherwise where gradients are switched off.
    has_gradient_mode: bool = False
    # Whether a caller can name loops and branches of its models.
    has_control: bool = False
    # The framework whose models it builds from files of its own, "" where they are its own.
    builds: str = ""

    # Which values are models of the framework.

    def recognizes(self, value: object) -> bool:
        """Return whether a value is certainly a model of this framework.

        Args:
            value: Any object.

        Returns:
            True for a model. It looks only at modules that are imported already.
        """

    def may_be_model(self, value: object) -> bool:
        """Return whether a value that no framework recognizes may be a model of this one.

        Args:
            value: Any object.

        Returns:
            False by default.
        """
        return False

    def is_model_function(self, value: object) -> bool:
        """Return whether a callable that takes inputs is itself the model, not a builder of one.

        Args:
            value: Any object.

        Returns:
            False by default.
        """
        return False

    def model_and_inputs(self, value: Any, inputs: Any) -> tuple[Any, Any] | None:
        """Return the model and inputs in a container such as an export, or None for other values.

        Args:
            value: Any object.
            inputs: The provided inputs, or None.

        Returns:
            The model and its inputs; None for any other value.
        """
        return None

    def default_input(self, model: Any, sizes: Mapping[str, int] = {}) -> NamedModel | None:
        """Return the default inputs that a model itself declares, or None if it declares none.

        Args:
            model: The model.
            sizes: Sizes of the caller for these inputs, by the names of `named.SIZES`.

        Returns:
            The inputs; None if a size or a type is open.
        """
        return None

    # What a target names.

    def model_libraries(self) -> tuple[Library, ...]:
        """Return the libraries with models that can be given by name, as in `timm:resnet50`.

        Returns:
            The libraries, which are imported when a name is looked up.
        """
        return ()

    def can_read(self, target: str) -> bool:
        """Return whether `read_model` can load a target, such as a file name, of this framework.

        Args:
            target: The target string.

        Returns:
            False by default.
        """
        return False

    def read_model(self, target: str, arguments: Mapping[str, object], allow_pickle: bool) -> Any:
        """Return the model of a target, such as a file, that the framework itself can read.

        Args:
            target: The target string.
            arguments: Keyword arguments of the caller.
            allow_pickle: Whether a pickle in it may run its code.

        Returns:
            The model.

        Raises:
            TargetError: The target cannot be read.
        """
        raise TargetError(
            f"{self.title} cannot read a model from {target}",
            "give a callable that returns the model: file.py:callable",
        )

    def unpickle_model(self, path: Path) -> Any:
        """Return the object in a pickled file of this framework; this runs the code in the file.

        Args:
            path: The file.

        Returns:
            The object.

        Raises:
            TargetError: The file cannot be read.
        """
        raise TargetError(
            f"{self.title} cannot read a model from {path}",
            "give a callable that returns the model: file.py:callable",
        )

    def building_model(self) -> AbstractContextManager[None]:
        """Return a context in which the code of a target builds a model.

        Returns:
            The context.
        """
        return nullcontext()

    def building_model_without_values(self, is_own_model: bool) -> AbstractContextManager[None]:
        """Return a context in which a model is built without weight values, if that is supported.

        Args:
            is_own_model: Whether the model is one of this framework, which may not be imported
                yet.

        Returns:
            The context.

        Raises:
            ValuesNeededError: The model cannot be built without values.
        """
        return nullcontext()

    def can_retry_after(self, error: Exception) -> bool:
        """Return whether the framework removed the cause of an error, so that a retry is useful.

        Args:
            error: The error.

        Returns:
            False by default.
        """
        return False

    def language_architecture(self, model: Any) -> "LanguageArchitecture":
        """Return the architecture of a language model: its layers, their sizes, its parameters.

        Args:
            model: The model.

        Returns:
            Its layers, their sizes and its parameters.

        Raises:
            InputError: The model is no language model of transformers.
        """
        raise InputError(
            "the published FLOP formulas for language models require a model of the library "
            f"transformers, but this is a model of {self.title}",
            "give a decoder-only language model of transformers, such as hf:config.json",
        )

    def generation_passes(self, model: Any, images: PromptImages = NO_IMAGES) -> GenerationPasses:
        """Return the passes of a language model that generates with a cache: prefill and steps.

        Args:
            model: The model.
            images: The images in each prompt.

        Returns:
            Its passes.

        Raises:
            InputError: The model does not generate, keeps no keys and values, or takes no images.
        """
        raise InputError(
            "--prompt requires a language model of the library transformers, but this is a "
            f"model of {self.title}",
            "give a causal language model, such as hf:config.json",
        )

    # A model with its inputs, and what is made of both.

    def require_packages_for(self, model: Any) -> None:
        """Raise MissingExtraError if a package that reads the model is not installed.

        Args:
            model: The model.

        Raises:
            MissingExtraError: A package is missing.
        """

    def prepare_source(self, model: Any, provided: ProvidedInputs, owned: bool) -> Source:
        """Return the model, prepared for recording, with its arguments.

        Args:
            model: The model.
            provided: The inputs of the caller.
            owned: Whether the model was made for this call, and may change.

        Returns:
            The model with its arguments.

        Raises:
            InputError: The model does not accept the inputs.
        """

    def with_axis_size(self, tensor: Any, axis: int, size: int) -> Any:
        """Return an input of a source with another size along an axis.

        Args:
            tensor: The input, as `prepare_source` made it.
            axis: The axis, from 0 on.
            size: The new size.

        Returns:
            An input of the same kind; if it has values, these are repeated. By default inputs are
            specs.
        """
        shape = (*tensor.shape[:axis], size, *tensor.shape[axis + 1 :])
        return msgspec.structs.replace(tensor, shape=shape)

    def loss_reached_outputs(
        self, source: Source, loss: Callable[[Any], Any], setting: Setting
    ) -> tuple[bool, ...]:
        """Return, for each output of the model, whether the loss depends on it.

        Args:
            source: The model with its arguments.
            loss: The function of the model's result.
            setting: The way to run the model.

        Returns:
            A flag for each output, in flat order.

        Raises:
            InputError: The framework cannot tell, or the function is no loss.
        """
        raise InputError(
            f"--loss is not supported yet for models of {self.title}",
            "omit --loss: the loss is then the sum of all float outputs",
        )

    def custom_backward_costs(self, source: Source, setting: Setting) -> OwnBackwards:
        """Return the cost of each function of the model that has its own backward pass.

        Args:
            source: The model with its arguments.
            setting: The setting, whose step says what is trained.

        Returns:
            The work by function; or the reason why it is unknown.
        """
        return ()

    def check_inputs(self, source: Source, setting: Setting) -> None:
        """Raise InputError if the model does not accept its arguments.

        Args:
            source: The model with its arguments.
            setting: The way to run the model.

        Raises:
            InputError: The model does not accept the inputs.
            NormalizeError: The model cannot be converted.
        """
        with announcing_converter(self.converter):
            self.convert(self.record(source, setting, (), None), None)

    def record(
        self,
        source: Source,
        setting: Setting,
        views: Sequence[Setting],
        runs: Callable[[], Any] | None,
    ) -> Recording:
        """Run or trace the model once, and return the recording of its calls.

        Args:
            source: The model with its arguments.
            setting: The way to run the model.
            views: The settings in which it is run once more, to observe it.
            runs: A function that waits for the result of `observe_runs` in another process, and
                returns None if that failed.

        Returns:
            The recording. By default nothing is run before the conversion.

        Raises:
            InputError: The model does not accept the inputs.
            NormalizeError: The model cannot be converted.
        """
        return Recording(source, setting, tuple(views))

    def convert(self, recording: Recording, run: Run | None) -> Program:
        """Return the ONNX model of a recording, its graph, and the trace of its calls.

        Args:
            recording: The recording.
            run: A function that runs a converted model whose sizes or paths depend on data;
                without it they stay open.

        Returns:
            The ONNX model, the graph, and the trace.

        Raises:
            InputError: The model does not accept the inputs.
            NormalizeError: The model cannot be converted.
        """

    def convert_with_weights(self, source: Source, setting: Setting) -> tuple[bytes, Graph]:
        """Return the ONNX model of `convert` with the values of its weights, and its graph.

        It is called for frameworks whose `convert` leaves the weights out.

        Args:
            source: The model with its arguments.
            setting: The way to run the model.

        Returns:
            The bytes of the model, and the graph with the source operations of its nodes.

        Raises:
            InputError: The model does not accept the inputs.
            NormalizeError: The model cannot be converted.
        """
        raise InputError(
            f"this {self.title} model can be converted to ONNX only without its weights",
            f"write an ONNX file with {self.converted_by}, and export that file",
        )

    def observe_runs(self, source: Source, views: Sequence[Setting]) -> Any:
        """Return what runs in these settings show; it can be pickled, and `record` uses it.

        Args:
            source: The model with its arguments.
            views: The settings.

        Returns:
            The observations; None if the framework needs no such runs.

        Raises:
            Exception: The error of a run.
        """
        return None

    def copy_for_tool(
        self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """Return a copy of the model and its inputs, which a tool may change.

        Args:
            model: The model.
            args: Its positional inputs.
            kwargs: Its keyword inputs.

        Returns:
            Copies; the objects themselves if tools only read the graph of a model.
        """
        return model, args, kwargs

    def to_fake_source(self, source: Source) -> Source:
        """Return the source with a model and inputs without values, if that is supported.

        Args:
            source: The model with its arguments.

        Returns:
            The model without values, or as it is.
        """
        return source

    def running_code_as_counted(self, model: Any) -> AbstractContextManager[None]:
        """Return a context in which a tool runs the model's code in the same way as the count did.

        Args:
            model: The model.

        Returns:
            The context.
        """
        return nullcontext()

    def watching_value_reads(self, model: Any) -> AbstractContextManager[Callable[[], str]]:
        """Return a context manager that gives a function; that returns in words which operations
        inside the block needed values of the model, or "".

        Args:
            model: The model.

        Returns:
            The context manager.
        """
        return nullcontext(str)

    # Runs in the framework itself, for those with a `runtime`.

    def limit_threads(self, threads: int) -> None:
        """Limit the number of threads of the framework before it is imported.

        Args:
            threads: The number of threads.
        """
        return

    def prepare_run(self, source: Source, threads: int, setting: Setting) -> RunnableModel:
        """Return the model ready to run; a run returns only when its work is done.

        Args:
            source: The model with its arguments.
            threads: The number of threads.
            setting: The way to run the model.

        Returns:
            The model to run.

        Raises:
            InputError: The framework runs no model by itself.
        """
        raise InputError(
            f"--runtime does not support models of {self.title}", "leave out --runtime"
        )

    # What becomes of a file: operators of the framework as functions, and a run to compare with.

    def add_bodies_of_foreign_operators(self, model: Any) -> None:
        """Add functions to an ONNX model, in place, for operators that ONNX does not have.

        Args:
            model: The ONNX model.
        """
        return

    def run_and_measure_rounding(self, source: Source, setting: Setting) -> ModelRun:
        """Run the model; return its inputs, its outputs, and how much rounding changes them.

        Args:
            source: The model with its arguments.
            setting: The way to run the model.

        Returns:
            The inputs and the outputs of the run.

        Raises:
            InputError: The framework cannot verify files yet.
        """
        raise InputError(
            f"--verify does not support models of {self.title} yet", "leave out --verify"
        )


class ShapeTracedFrontend(Frontend, Protocol):
    """A framework whose models are traced on the shapes of their inputs, without their values."""

    def placeholder_for_spec(self, spec: TensorSpec) -> Any:
        """Return the placeholder (a shape and dtype without values) of an input with this spec."""

    def placeholder_for_array(self, array: Any) -> Any:
        """Return the placeholder (a shape and dtype without values) of this array."""

    def placeholders_for_inputs(self, values: Any) -> Arguments:
        """Return placeholders for the inputs of a Python caller. Raises InputError."""

    def batch_for_model(self, model: Any, values: Any) -> Any:
        """Return the inputs of a Python caller without what the model does not take."""
        return values

    def prepare_source(self, model: Any, provided: ProvidedInputs, owned: bool) -> Source:
        """Return the model with placeholders as its arguments, and arrays if values were given."""
        if provided.file is not None:
            args, kwargs = arguments_from_npz(provided.file, self.placeholder_for_array)
        elif provided.have_only_shapes:
            args, kwargs = to_args_and_kwargs(
                {spec.name: self.placeholder_for_spec(spec) for spec in provided.specs}
            )
        else:
            values = self.batch_for_model(model, provided.values)
            provided = msgspec.structs.replace(provided, values=values)
            args, kwargs = self.placeholders_for_inputs(provided.values)
        arrays = provided.arrays()
        origin = provided.origin_text(arrays)
        return Source(model, args, kwargs, values=origin, arrays=arrays)


def require_packages(names: Iterable[str], purpose: str, extra: str) -> None:
    """Raise MissingExtraError if one of these packages, needed for `purpose`, is not installed."""
    for name in names:
        try:
            __import__(name)
        except ImportError as error:
            raise MissingExtraError(
                f"{name} is needed to {purpose}", f"pip install 'crossflops[{extra}]'"
            ) from error
