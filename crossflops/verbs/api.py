"""The verbs as functions: their arguments become one request, and the verb does the rest.

A verb is imported when it is called: to count a file needs nothing of the others.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from crossflops.ir.trace import Setting
from crossflops.limits import TIMEOUT
from crossflops.targets.request import Request
from crossflops.targets.target import imports_restored

if TYPE_CHECKING:
    from crossflops.facade import ShownBench, ShownEfficiency, ShownProfile, ShownReport
    from crossflops.verbs.export import Files

__all__ = ["bench", "compare", "count", "efficiency", "export", "profile"]


@imports_restored()
def count(
    target: Any,
    inputs: Any = (),
    *,
    inputs_file: str | None = None,
    setting: Setting = Setting(),
    arguments: Mapping[str, object] | None = None,
    dims: Mapping[str, int] | None = None,
    trips: Mapping[str, int] | None = None,
    branches: Mapping[str, str] | None = None,
    vary: Sequence[str] = (),
    observe: bool = False,
    as_: str | Sequence[str] | None = None,
    train: bool = False,
    frozen: Sequence[str] = (),
    trainable: Sequence[str] = (),
    optimizer: str = "",
    loss: str | Callable[[Any], Any] = "",
    weights: Literal["real", "fake"] | None = None,
    shapes: bool = False,
    allow_pickle: bool = False,
) -> "ShownReport":
    """Count a model. With `as_` ("thop@0.0.31") also as a tool does, without the tool.

    Several conventions may be named, and a pattern ("torchstat*") names all that it matches.

    `target` is a model object or a target string, `inputs` tensors (one, a tuple, a dict of
    keyword arguments, or `(args, kwargs)`) or texts such as "1x3x224x224". Of an ONNX file `dims`
    binds named dimensions, `trips` says how often a Loop runs where the graph does not, and
    `branches` which branch of an If counts ("then", "else", "sum") instead of the larger one.
    The totals are also given as polynomials in the dimensions that `vary` names. With `observe`
    the file runs once in onnxruntime, for sizes and iterations that depend on data.

    With `train` the report also has `training`: a training step of this model, whose loss is the
    sum of all float outputs. Parameters are trained as the model says (of a file all weights),
    unless they, or a module around them, match a pattern in `frozen` or `trainable`. The mode
    stays that of `setting`. `optimizer` ("adamw", "sgd,momentum=0.9,clip_norm=1") adds its step,
    `loss` is another one: a function of what a model of PyTorch returns, or its name
    ("losses.py:own"). Its own work is not counted; outputs that miss it have no gradient.
    Raises InputError for a pattern that matches no weight, UnknownNameError for an optimizer that
    is not known.

    A target of PyTorch is built without numbers in its weights where no size and no path depends
    on a value; `weights` says "real" or "fake". The report's `weights` say which it was, and why.
    With `shapes` each module has those of its inputs, outputs and parameters.
    """
    from crossflops.facade import ShownReport
    from crossflops.verbs.count import native_count

    request = Request.from_arguments(
        target, inputs, inputs_file=inputs_file, setting=setting, arguments=arguments, dims=dims,
        trips=trips, branches=branches, vary=vary, observe=observe, as_=as_, train=train,
        frozen=tuple(frozen), trainable=tuple(trainable), optimizer=optimizer, loss=loss,
        weights=weights, shapes=shapes, allow_pickle=allow_pickle,
    )  # fmt: skip
    return ShownReport.of(native_count(request)[0])


@imports_restored()
def efficiency(
    target: Any = None, inputs: Any = (), *, how: Mapping[str, Any] = {}, **asked: Any
) -> "ShownEfficiency":
    """Set a count against a device's peak: what `crossflops efficiency` prints, as values.

    `asked` are the flags of the command with underscores (`examples_per_second=1325, train=True,
    device="v100-pcie", precision="fp16"`), `how` options of `count`. Without a target the work is
    given (`macs="4.112G"`). Raises AmbiguousDeviceError, whose `candidates` are the devices that
    are meant, for a name that several bear.
    """
    from crossflops.facade import ShownEfficiency
    from crossflops.hardware.rates.question import Question
    from crossflops.verbs.efficiency.rate import answer_efficiency, request_of

    question = Question.from_fields(**asked)
    rated = answer_efficiency(question, request_of(target, inputs, how, question))
    if rated.trouble is not None:
        raise rated.trouble
    return ShownEfficiency.of(rated.noun)


@imports_restored()
def compare(
    target: Any,
    inputs: Any = (),
    *,
    inputs_file: str | None = None,
    tools: Sequence[str] | None = None,
    setting: Setting = Setting(),
    arguments: Mapping[str, object] | None = None,
    dims: Mapping[str, int] | None = None,
    trips: Mapping[str, int] | None = None,
    branches: Mapping[str, str] | None = None,
    onnx: str | None = None,
    timeout: float = TIMEOUT,
    memory: int | None = None,
    isolate: bool = True,
    python: Mapping[str, str] | None = None,
    train: bool = False,
    frozen: Sequence[str] = (),
    trainable: Sequence[str] = (),
    loss: str | Callable[[Any], Any] = "",
    weights: Literal["real", "fake"] | None = None,
    allow_pickle: bool = False,
    between: tuple[str, str] | None = None,
    module: str | None = None,
    consensus: bool = False,
    against: Any = None,
    against_options: Mapping[str, Any] | None = None,
    on_progress: Callable[[str], None] | None = None,
) -> "ShownReport":
    """Count a model, let tools count it, and account for every difference.

    Each tool runs in a worker process, which may build for `timeout` seconds and run for as many,
    in `memory` bytes of address space (None: what the machine has); with `isolate=False` on a
    copy in this process, where nothing bounds its time and memory; functions of PyTorch that it
    patches are put back, and nothing else that it patches. The prediction of every tool is fixed
    before it starts. With `between` two tools are also set against each other, where both
    answered; with `module` the report is about that path, and with `consensus` it says which
    number to publish, in a sentence.

    `python` names the interpreter (or the folder of a venv) that runs a tool, which then need
    not be installed here; it goes over the table `[python]` of crossflops.toml, or
    `[tool.crossflops.python]` of pyproject.toml, in the current folder or one above.

    Tools that count an ONNX file get the normalized model, the target where that is a file, or the
    file `onnx`.

    With `train` tools count a training step, of the same loss and with the same weights trained
    as in `count`: those that run a backward pass, and those that take the forward pass thrice. It
    is for models of PyTorch. The others count no such step, and are named in a warning.

    With `against`, a second model or target, both are counted, and the report says layer by layer
    how the second is another model, and apart from that what each tool counts otherwise. What
    `against_options` (keywords of this function, from `inputs` to `branches`) does not say is
    taken from the first; `between` then names a tool for each model.

    `weights` says whether a target of PyTorch is built with values ("real") or without ("fake"),
    so that tools which look at shapes alone run on fake tensors; the others are Failures then.
    None: without, where the weights take more than 1 GiB. A model on the meta device has none.
    """
    from crossflops.facade import ShownReport
    from crossflops.verbs.compare.compare import Comparison
    from crossflops.verbs.compare.compare import compare_with_tools as compared

    request = Request.from_arguments(
        target, inputs, inputs_file=inputs_file, setting=setting, arguments=arguments, dims=dims,
        trips=trips, branches=branches, train=train, frozen=frozen, trainable=trainable, loss=loss,
        weights=weights, allow_pickle=allow_pickle,
    )  # fmt: skip
    comparison = Comparison(
        tools=tools, onnx=onnx, timeout=timeout, memory=memory, isolate=isolate,
        python=python or {}, between=between, module=module, consensus=consensus, against=against,
        against_options=against_options or {},
    )  # fmt: skip
    tell = on_progress or _ignore_api_progress
    return ShownReport.of(compared(request, comparison, lambda what: tell(what.rstrip())))


@imports_restored()
def bench(
    target: Any,
    inputs: Any = (),
    *,
    inputs_file: str | None = None,
    setting: Setting = Setting(),
    train: bool = False,
    optimizer: str = "adamw",
    batches: Sequence[int] | str = (),
    batch_dim: str | None = None,
    max_latency_ms: float | None = None,
    memory: int | None = None,
    threads: int | None = None,
    runtime: str = "onnxruntime",
    optimization: str = "all",
    seconds: float = 5.0,
    timeout: float = TIMEOUT,
    trace: str | None = None,
    write_trace: str | None = None,
    peak_tflops: float | None = None,
    on_progress: Callable[[str], None] | None = None,
    **options: Any,
) -> "ShownBench":
    """Run a model, and say how fast it is and where its time goes.

    `target` and `inputs` are those of `count`, as are `options` (arguments, dims, trips, branches,
    allow_pickle). `batches` are sizes to try, or "auto"; `memory` are the bytes of address space
    of a worker, with `train` training steps by a class of torch.optim (`optimizer`) are timed.
    `seconds` go to the warm-up and again to the timing of each batch. With `trace`
    nothing is run: the profile of onnxruntime or the trace of torch.profiler is read. Without
    `peak_tflops`, which is in float32, the peak of this machine is measured. What no sound
    measurement has is in `errors` of the result.

    Raises CrossflopsError where the model does not run, and InputError for what makes no sense.
    """
    from crossflops.bench.timing import BenchLimits
    from crossflops.facade import ShownBench
    from crossflops.verbs.bench import Conditions
    from crossflops.verbs.bench import bench_request as benched

    request = Request.from_arguments(
        target, inputs, inputs_file=inputs_file, setting=setting, observe=not train, **options
    )
    if optimizer != "adamw" and not train:
        from crossflops.errors import InputError

        raise InputError("optimizer requires train=True", "add train=True")
    how = Conditions(
        train=train, optimizer=optimizer,
        batches=batches, batch_dim=batch_dim, max_latency_ms=max_latency_ms, memory=memory,
        threads=threads, runtime=runtime, optimization=optimization,
        limits=BenchLimits(seconds=seconds), timeout=timeout, trace=trace, write_trace=write_trace,
        peak_tflops=peak_tflops,
    )  # fmt: skip
    return ShownBench.of(benched(request, how, on_progress or _ignore_api_progress))


@imports_restored()
def profile(
    target: Any,
    inputs: Any = (),
    *,
    inputs_file: str | None = None,
    setting: Setting = Setting(),
    loss: Callable[[Any], Any] | None = None,
    optimizer: str | Callable[[Any], Any] = "adamw",
    threads: int | None = None,
    seconds: float = 3.0,
    as_: str | Sequence[str] | None = None,
    tools: Sequence[str] = (),
    device: str | None = None,
    precision: str | None = None,
    peak_tflops: float | str | Sequence[str] = (),
    fwd_ms: float | None = None,
    bwd_ms: float | None = None,
    step_ms: float | None = None,
    on_progress: Callable[[str], None] | None = None,
    **options: Any,
) -> "ShownProfile":
    """Train a model of PyTorch for some steps, and say where its work and its time go.

    `target` and `inputs` are those of `count`, as are `options` (arguments, allow_pickle, and
    `frozen` and `trainable` where times are given). A copy is trained, in this process and in the
    mode of `setting`: with `loss` of what the model returns, else the sum of all float outputs, by
    `optimizer`, a class of torch.optim, a function of the parameters, or "none". `seconds` go to
    the warm-up and again to the timing. The rates are set against `peak_tflops`, the `device` of
    the catalogue, or what ran: without any of these the peak of this machine is measured.

    `tools`, such as "deepspeed-macs", are run as `compare` runs them, on one forward pass: what
    each prints stands beside the count, with every reason why it differs.

    With `fwd_ms`, `bwd_ms` and `step_ms`, times from elsewhere, nothing is trained.

    Raises InputError for what is no model of PyTorch, and NormalizeError where a step raises.
    """
    from crossflops.bench.timing import BenchLimits
    from crossflops.facade import ShownProfile
    from crossflops.profiling.run import Recipe
    from crossflops.verbs.profile.account import RatedAgainst
    from crossflops.verbs.profile.profile import GivenTimes, ProfileConditions
    from crossflops.verbs.profile.profile import profile_training as profiled

    request = Request.from_arguments(
        target, inputs, inputs_file=inputs_file, setting=setting, as_=as_, train=True, **options
    )
    peaks = [peak_tflops] if isinstance(peak_tflops, float | int | str) else peak_tflops
    limits = BenchLimits(warmup=10, runs=20, fewest=2, seconds=seconds)
    how = ProfileConditions(
        recipe=Recipe(loss=loss, optimizer=optimizer, limits=limits),
        against=RatedAgainst(
            device=device, precision=precision, peak_tflops=tuple(map(str, peaks))
        ),
        given=GivenTimes(fwd_ms=fwd_ms, bwd_ms=bwd_ms, step_ms=step_ms),
        threads=threads,
        tools=tuple(tools),
    )
    return ShownProfile.of(profiled(request, how, on_progress or _ignore_api_progress))


@imports_restored()
def export(
    target: Any,
    inputs: Any = (),
    *,
    to: Literal["onnx", "model-explorer"],
    file: str | Path,
    annotate: bool = False,
    verify: bool = False,
    unit: Literal["macs", "flops"] = "macs",
    inputs_file: str | None = None,
    setting: Setting = Setting(),
    arguments: Mapping[str, object] | None = None,
    dims: Mapping[str, int] | None = None,
    trips: Mapping[str, int] | None = None,
    branches: Mapping[str, str] | None = None,
    allow_pickle: bool = False,
) -> "Files":
    """Write the normalized model ("onnx") or node data ("model-explorer"); returns the files.

    Of a model "onnx" is the graph that is counted, with its weights; of an ONNX file a copy, in
    which nothing is changed but the metadata of the nodes with `annotate`. The model is not
    counted where no count is asked for. `verify` runs the ONNX file in onnxruntime beside the
    model: the `agreement` of the files says how far the outputs differ, and `holds` whether that
    is noise. Raises InputError for what does not go together.
    """
    from crossflops.verbs.export import Exported
    from crossflops.verbs.export import export_request as exported

    request = Request.from_arguments(
        target, inputs, inputs_file=inputs_file, setting=setting, arguments=arguments, dims=dims,
        trips=trips, branches=branches, allow_pickle=allow_pickle,
    )  # fmt: skip
    wanted = Exported(to=to, file=Path(file), annotate=annotate, unit=unit, verify=verify)
    return exported(request, wanted)


def _ignore_api_progress(_: str) -> None:
    """Show no progress."""
