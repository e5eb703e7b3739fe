"""The interface to a framework: one Protocol, and the values that pass through it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

import msgspec

from crossflops.errors import InputError, MissingExtraError, TargetError
from crossflops.frontends.conversion import converting
from crossflops.frontends.inputs import GIVEN, Arguments, Given, from_npz, split_input_values
from crossflops.frontends.named import Library, Named
from crossflops.ir.graph import Control, Graph, TensorSpec
from crossflops.ir.measurement import Observation
from crossflops.ir.trace import Setting, Trace
from crossflops.ir.training import OwnBackwards

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


class Ready(NamedTuple):
    """A model that can be run: its runtime, its device, and the timed call.

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
    """The input and output arrays of a run, in the order of an export.

    `drawn` says for each output whether it depends on random numbers, `rounding` by which share of
    its largest element it changes where weights and inputs are rounded differently.
    """

    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    drawn: tuple[bool, ...]
    rounding: tuple[float, ...]


class Frontend(Protocol):
    """The interface to a framework: one folder, one object, one line.

    The object is `FRONTEND` in the folder, and the line is in `frontends/__init__.py`. Creating
    the object, reading its attributes and asking it about a value import no framework, and nothing
    else of the folder except the code that tells models apart. A method with a body here is the
    default for most frameworks.
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

    # Which values are models of the framework.

    def recognizes(self, value: object) -> bool:
        """Return whether the value is surely a model of the framework; only imported packages are
        consulted.
        """

    def adopts(self, value: object) -> bool:
        """Return whether the value may be a model, if no framework recognizes it or made its
        type.
        """
        return False

    def is_function(self, value: object) -> bool:
        """Return whether a callable that needs arguments is a model, and not one that returns a
        model.
        """
        return False

    def model_and_inputs(self, value: Any, inputs: Any) -> tuple[Any, Any] | None:
        """Return the model in a value that is not a model itself, and its example inputs; None for
        others.

        `inputs` are the given ones, or None.
        """
        return None

    def usual_input(self, model: Any) -> Named | None:
        """Return the inputs that a model documents itself, None where a size or a type is open."""
        return None

    # What a target names.

    def libraries(self) -> tuple[Library, ...]:
        """Return the libraries that know models by name: `timm:resnet50`. They are imported on
        look-up.
        """
        return ()

    def reads(self, target: str) -> bool:
        """Return whether a target names a model that `read` makes."""
        return False

    def read(self, target: str, arguments: Mapping[str, object], allow_pickle: bool) -> Any:
        """Return the model of a target that the framework reads. Raise TargetError where that
        fails.
        """
        raise TargetError(f"{self.title} cannot read a model from {target}", "give a callable")

    def unpickle_model(self, path: Path) -> Any:
        """Return the object in a file with one of the suffixes `pickles`, which runs code."""
        raise TargetError(f"{self.title} cannot read a model from {path}", "give a callable")

    def building(self) -> AbstractContextManager[None]:
        """Return the context for running the code of a target that builds a model."""
        return nullcontext()

    def hollow(self, sure: bool) -> AbstractContextManager[None]:
        """Return the context for building a model without values, if the framework can do that.

        `sure` means that the model is one of this framework, which may not be imported yet. Raises
        ValuesNeededError where the model cannot be built so.
        """
        return nullcontext()

    def mends(self, error: Exception) -> bool:
        """Return whether the framework has removed the cause of the error, so that a retry may
        succeed.
        """
        return False

    # A model with its inputs, and what is made of both.

    def require(self, model: Any) -> None:
        """Raise MissingExtraError where a package that reads the model is missing."""

    def source(self, model: Any, provided: Given, owned: bool) -> Source:
        """Return the model with arguments. One that is `owned` was made for this call, and may be
        changed.

        Raises InputError.
        """

    def loss_reached_outputs(
        self, source: Source, loss: Callable[[Any], Any], setting: Setting
    ) -> tuple[bool, ...]:
        """Return for each output whether this loss depends on it.

        Raises InputError where the framework cannot tell, and for an invalid loss.
        """
        raise InputError(
            f"--loss is not supported yet for models of {self.title}",
            "omit --loss: the loss is then the sum of all float outputs",
        )

    def own_backwards(self, source: Source, setting: Setting) -> OwnBackwards:
        """Return the cost of each custom backward function of the graph, or the reason why it is
        unknown.

        The step of the setting says which parameters are trained.
        """
        return ()

    def fits(self, source: Source, setting: Setting) -> None:
        """Raise InputError or NormalizeError where the model does not take its arguments."""
        with converting(self.converter):
            self.convert(self.record(source, setting, (), None), None)

    def record(
        self,
        source: Source,
        setting: Setting,
        views: Sequence[Setting],
        runs: Callable[[], Any] | None,
    ) -> Recording:
        """Run the model, or trace it, and note its calls.

        `views` are the settings in which it is run once more for observation; `runs` waits for the
        result of `observe_runs` in another process, and returns None where that failed. By default
        nothing is run before the conversion. Raises InputError, NormalizeError.
        """
        return Recording(source, setting, tuple(views))

    def convert(self, recording: Recording, run: Run | None) -> Program:
        """Return the ONNX model of a recording, its graph and the trace of its calls.

        `run` runs a converted model whose sizes or paths depend on data; without it they stay
        open. Raises InputError, NormalizeError.
        """

    def with_weights(self, source: Source, setting: Setting) -> tuple[bytes, Graph]:
        """Return the bytes of the ONNX model of `convert` with the values of its weights, and its
        graph.

        The nodes of the graph have the operations that they were written for. It is called for
        frameworks whose `convert` leaves weights out. Raises InputError, NormalizeError.
        """
        raise InputError(
            f"a {self.title} model of this kind can be converted only without its weights",
            f"write the file with {self.converted_by}, and export that",
        )

    def observe_runs(self, source: Source, views: Sequence[Setting]) -> Any:
        """Run the model in these settings and return picklable observations for `record`.

        None where the framework has no such runs. Raises what a run raises.
        """
        return None

    def copy_for_tool(
        self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """Return copies that a tool may change; the originals where tools only read the graph of a
        model.
        """
        return model, args, kwargs

    def to_fake_source(self, source: Source) -> Source:
        """Return the model without values, if it has none that could be used; otherwise the model
        as it is.
        """
        return source

    def running_code_as_counted(self, model: Any) -> AbstractContextManager[None]:
        """Return the context in which a tool runs the same code of a model that was counted."""
        return nullcontext()

    def watching_values(self, model: Any) -> AbstractContextManager[Callable[[], str]]:
        """Return a context in which a tool runs a model without values.

        It yields a function that says which operation needed values, "" where none did.
        """
        return nullcontext(str)

    # Runs in the framework itself, for those with a `runtime`.

    def limit_threads(self, threads: int) -> None:
        """Limit the threads of the framework, which is not imported yet."""
        return

    def ready(self, source: Source, threads: int, setting: Setting) -> Ready:
        """Return the model ready to run: one call is one run, which is complete when the call
        returns.
        """
        raise InputError(f"{self.title} cannot run a model by itself", "leave --runtime out")

    # What becomes of a file: operators of the framework as functions, and a run to compare with.

    def add_function_bodies(self, model: Any) -> None:
        """Write operators without an ONNX form as functions of the model, in place."""
        return

    def outputs(self, source: Source, setting: Setting) -> ModelRun:
        """Run the model once on its inputs. Raise InputError where it fails."""
        raise InputError(
            f"a file of a {self.title} model cannot be verified yet", "leave --verify out"
        )


class OnShapes(Frontend, Protocol):
    """A framework whose models are traced on the shapes of their inputs, without their values."""

    def placeholder(self, spec: TensorSpec) -> Any:
        """Return the shape object for an input of this spec."""

    def shape_of(self, array: Any) -> Any:
        """Return the shape object for an input with the shape and type of this array."""

    def shapes(self, values: Any) -> Arguments:
        """Return the shape objects for the inputs that Python callers give. Raise InputError where
        there are none.
        """

    def source(self, model: Any, provided: Given, owned: bool) -> Source:
        """Return the model with the shapes of the given inputs, and their values where there are
        any.
        """
        if provided.file is not None:
            args, kwargs = from_npz(provided.file, self.shape_of)
        elif provided.are_made_up:
            args, kwargs = split_input_values(
                {spec.name: self.placeholder(spec) for spec in provided.specs}
            )
        else:
            args, kwargs = self.shapes(provided.values)
        arrays = provided.arrays()
        origin = provided.origin_of(arrays)
        return Source(model, args, kwargs, values=origin, arrays=arrays)


def require_packages(names: Iterable[str], purpose: str, extra: str) -> None:
    """Raise MissingExtraError for the first of these packages that is not installed."""
    for name in names:
        try:
            __import__(name)
        except ImportError as error:
            raise MissingExtraError(
                f"{name} is needed to {purpose}", f"pip install 'crossflops[{extra}]'"
            ) from error
