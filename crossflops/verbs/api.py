"""Offer the verbs as Python functions, which make one request of their arguments and pass it to
the verb.

A verb is imported when it is called: to count a file needs nothing of the others.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeAlias, TypeVar

from msgspec.structs import asdict

from crossflops.errors import InputError
from crossflops.files import is_configured
from crossflops.ir.trace import Setting
from crossflops.limits import TIMEOUT
from crossflops.targets.request import Request, is_empty_input
from crossflops.targets.target import restoring_imports

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from crossflops.facade import (
        ShownAudit,
        ShownBench,
        ShownCause,
        ShownChecks,
        ShownConvention,
        ShownDevice,
        ShownDevices,
        ShownDifference,
        ShownEfficiency,
        ShownIdentification,
        ShownMachine,
        ShownMatches,
        ShownProfile,
        ShownReport,
        ShownSweep,
        ShownTable,
    )
    from crossflops.verbs.compare.compare import Comparison
    from crossflops.verbs.export import Files

    SavedAnswer: TypeAlias = (
        ShownReport
        | ShownBench
        | ShownEfficiency
        | ShownProfile
        | ShownIdentification
        | ShownAudit
        | ShownSweep
    )

__all__ = [
    "audit",
    "bench",
    "check",
    "compare",
    "count",
    "devices",
    "diff",
    "efficiency",
    "explain",
    "export",
    "identify",
    "profile",
    "render",
    "sweep",
    "table",
]

P = ParamSpec("P")
R = TypeVar("R")


def _find_configured_formulas() -> tuple[str, ...]:
    """Return the files with formulas of the user that the configuration names, () if it names
    none.
    """
    if not is_configured("formulas"):
        return ()
    from crossflops.plugins.formula_files import formulas_of_configuration

    return formulas_of_configuration()


def with_configured_formulas(verb: Callable[P, R]) -> Callable[P, R]:
    """Return a function like `verb` that also uses the formulas of the configuration and of its
    argument `formulas`, as long as it runs.

    Args:
        verb: A function with the keyword `formulas`: files, or modules that register theirs.

    Returns:
        A function of the same parameters.
    """

    @functools.wraps(verb)
    def call_verb_with_configured_formulas(*args: P.args, **kwargs: P.kwargs) -> R:
        """Return the result of the verb, run with the formulas of configuration and caller."""
        provided: Any = kwargs.get("formulas") or ()
        own = [provided] if isinstance(provided, str | Path) else provided
        sources = (*_find_configured_formulas(), *own)
        if not sources:
            return verb(*args, **kwargs)
        from crossflops.operators.formula_sources import using_formulas

        with using_formulas(sources):
            return verb(*args, **kwargs)

    return call_verb_with_configured_formulas


@restoring_imports()
@with_configured_formulas
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
    vary: str | Sequence[str] | Mapping[str, int | Mapping[str, int | Sequence[int]] | None] = (),
    observe: bool = False,
    as_: str | Sequence[str] | None = None,
    train: bool = False,
    frozen: Sequence[str] = (),
    trainable: Sequence[str] = (),
    optimizer: str = "",
    loss: str | Callable[[Any], Any] = "",
    weights: Literal["real", "fake"] | None = None,
    shapes: bool = False,
    prompt: int | None = None,
    generate: int | None = None,
    images: int | None = None,
    cache_dtype: str = "",
    draft: str = "",
    draft_tokens: int | None = None,
    acceptance: str | float = "",
    batch: int | None = None,
    seq: int | None = None,
    image_size: int | None = None,
    allow_pickle: bool = False,
    formulas: Sequence[str | Path] = (),
    on_progress: Callable[[str], None] | None = None,
) -> "ShownReport":
    """Return the count of a model; with `as_` ("thop@0.0.31") also the number that this tool would
    print, without running it.

    Args:
        target: A model object, or a target string: "model.onnx", "package.module:callable",
            "file.py:callable", or "pipeline.toml", which lists several models.
        inputs: Tensors (one, a tuple, a dict of keyword arguments, or `(args, kwargs)`), the batch
            of a dataset, or texts such as "1x3x224x224".
        inputs_file: An .npz file with the values of the inputs, or the function
            ("file.py:batch") that returns them.
        setting: The way to run the model: its mode, gradients, the device.
        arguments: Keyword arguments of the target's callable.
        dims: Sizes of named dimensions of an ONNX file, or of names in the texts of `inputs`.
        trips: How often a Loop of an ONNX file runs, by the name of its node.
        branches: The branch of an If that counts ("then", "else", "sum"), by the name of its node;
            by default the larger one.
        vary: Dimensions in which the totals are also given as polynomials: names in the texts of
            `inputs` ("batchx3x224x224") or of an ONNX file; `batch`, `seq` or `image_size` of the
            usual input of a model; arguments of the target's callable; or axes of tensors,
            `{"batch": 0, "seq": {"input_ids": 1, "mask": [1, 2]}}`, of which `batch` is the first
            axis by default. `dims` are their sizes in the tables.
        observe: Whether to run an ONNX file once in onnxruntime, for sizes and iterations that
            depend on data.
        as_: Conventions to count by as well; a pattern ("torchstat*") names all that it matches.
        train: Whether the report also has `training`: a training step. Parameters are trained as
            the model says (of a file all weights); the mode stays that of `setting`.
        frozen: Patterns of parameters, or of enclosing modules, that are not trained.
        trainable: Patterns of parameters, or of enclosing modules, that are trained.
        optimizer: The optimizer whose step is added: "adamw", "sgd,momentum=0.9,clip_norm=1".
        loss: A function of the outputs of a PyTorch model, or its name ("losses.py:own"); by
            default the sum of all float outputs. Its own work is not counted.
        weights: "real" or "fake": whether a target of PyTorch is built with values in its weights.
            By default it has values only if a size or a path depends on one.
        shapes: Whether each module has the shapes of its inputs, outputs and parameters.
        prompt: The tokens of a prompt: a language model, given by a target string, is counted as
            it generates, and the report has a `workload`. The tables are those of the prefill.
        generate: The number of new tokens of each request. It needs `prompt`, and the other way.
        images: The number of images in each prompt of a vision-language model, in addition to the
            tokens of `prompt`; `image_size` is their side.
        cache_dtype: The precision of keys and values in the cache, such as "fp8"; by default that
            of the model.
        draft: The target string of a draft model, for speculative decoding.
        draft_tokens: The tokens that it proposes in a round.
        acceptance: How many of them are accepted on average, such as 2.5 or "5/2", or the chance
            of each one: "80%".
        batch: The batch of the usual input of a model, or the first axis of the tensors in
            `inputs`; with `prompt` the number of requests.
        seq: The tokens of the usual input of a model.
        image_size: The side in pixels of the usual image of a model.
        allow_pickle: Whether to read a file whose loading runs code that is pickled in it.
        formulas: Files of formulas for operators that are not counted: see `crossflops.operator`.
        on_progress: A function that gets a line about each size of `vary`, and about each part of
            a pipeline.

    Returns:
        The report, which prints as its page. Unknown work is in its `uncounted`, and never zero.

    Raises:
        TargetError: The model cannot be found, loaded or built.
        InputError: The inputs do not fit the model, options contradict each other, or a pattern
            matches no weight.
        NormalizeError: The model cannot be converted to a graph.
        UnknownNameError: A convention or an optimizer is unknown.

    Example:
        A MatMul of 4x8 by 8x2, followed by a Relu:

        >>> import crossflops
        >>> report = crossflops.count("model.onnx")
        >>> report.macs, report.flops, report.params
        (64, 136, 16)
    """
    from crossflops.facade import ShownReport
    from crossflops.verbs.count import count_target

    request = Request.from_arguments(
        target, inputs, inputs_file=inputs_file, setting=setting, arguments=arguments, dims=dims,
        trips=trips, branches=branches, vary=vary, observe=observe, as_=as_, train=train,
        frozen=tuple(frozen), trainable=tuple(trainable), optimizer=optimizer, loss=loss,
        weights=weights, shapes=shapes, prompt=prompt, generate=generate,
        images=images, cache_dtype=cache_dtype, draft=draft, draft_tokens=draft_tokens,
        acceptance=str(acceptance),
        sizes=_size_options(batch, seq, image_size), allow_pickle=allow_pickle,
    )  # fmt: skip
    return ShownReport.of(count_target(request, on_progress or _ignore_api_progress))


@restoring_imports()
@with_configured_formulas
def efficiency(
    target: Any = None,
    inputs: Any = (),
    *,
    inputs_file: str | Path | None = None,
    setting: Setting = Setting(),
    arguments: Mapping[str, object] | None = None,
    dims: Mapping[str, int] | None = None,
    trips: Mapping[str, int] | None = None,
    branches: Mapping[str, str] | None = None,
    allow_pickle: bool = False,
    macs: str | float | None = None,
    pass_macs: str | float | None = None,
    as_: str | Sequence[str] | None = None,
    compare: bool = False,
    tools: Sequence[str] = (),
    train: bool = False,
    train_multiplier: str | float | None = None,
    backward: str = "",
    frozen: Sequence[str] = (),
    trainable: Sequence[str] = (),
    loss: str | Callable[[Any], Any] = "",
    recompute: str = "none",
    flash: bool = False,
    accumulate: int = 1,
    run_tokens: str | float | None = None,
    run_examples: str | float | None = None,
    run_steps: str | float | None = None,
    mfu: str | float | None = None,
    optimizer: str = "",
    examples_per_second: float | str | None = None,
    tokens_per_second: float | str | None = None,
    latency_ms: float | None = None,
    fwd_ms: float | None = None,
    bwd_ms: float | None = None,
    step_ms: float | None = None,
    batch: int | None = None,
    tokens: int | None = None,
    runs: str | Path | None = None,
    times: str | Path | None = None,
    per_device: bool | None = None,
    precision: str = "",
    precision_of: Sequence[str] = (),
    mix: Sequence[str] = (),
    device: str | None = None,
    catalogue: str | Path | None = None,
    peak_tflops: float | str | Sequence[float | str] = (),
    bandwidth: float | None = None,
    causal: str = "full",
    window: int | None = None,
    devices: int | None = None,
    dp: int | None = None,
    tp: int = 1,
    pp: int = 1,
    params: str | float | None = None,
    layers: int | None = None,
    hidden: int | None = None,
    heads: int | None = None,
    head_dim: int | None = None,
    kv_heads: int | None = None,
    seq: int | None = None,
    image_size: int | None = None,
    context: int | None = None,
    param_bytes: float = 2,
    cache_bytes: float = 2,
    prompt: int | None = None,
    generate: int | None = None,
    images: int | None = None,
    draft: str = "",
    draft_tokens: int | None = None,
    acceptance: str | float = "",
    workload: str | Path | None = None,
    cache_dtype: str = "",
    prefill_tokens_per_second: float | str | None = None,
    decode_tokens_per_second: float | str | None = None,
    roofline: bool = False,
    bytes_: str | None = None,
    bytes_per_example: str | float | None = None,
    what_if: Sequence[str] = (),
    bench: str | Path | None = None,
    formulas: Sequence[str | Path] = (),
    on_progress: Callable[[str], None] | None = None,
) -> "ShownEfficiency":
    """Return the rate, MFU and bounds of a model on a device, as `crossflops efficiency` does.

    Args:
        target: A model object or a target string, as in `count`. Without it the work is provided:
            `macs="4.112G"`.
        inputs: The inputs of the model, as in `count`.
        inputs_file: An .npz file with the values of the inputs.
        setting: The way to run the model: its mode, gradients, the device.
        arguments: Keyword arguments of the target's callable.
        dims: Sizes of named dimensions of an ONNX file.
        trips: How often a Loop of an ONNX file runs, by the name of its node.
        branches: The branch of an If that counts ("then", "else", "sum"), by the name of its node;
            by default the larger one.
        allow_pickle: Whether to read a file whose loading runs code that is pickled in it.
        macs: The MACs of one example, such as "4.112G", without a model.
        pass_macs: The MACs of one forward pass over the whole batch, without a model.
        as_: The convention whose number is the work, instead of the native count.
        compare: Whether the result also has the number of each tool.
        tools: The tools of `compare`; by default all that are installed.
        train: Whether a training step is rated.
        train_multiplier: The passes of a step for each forward pass, instead of the counted ones.
        backward: The way to count a step: "flat" for three passes of every node, "graph" for the
            exact count of each (the default with a model).
        frozen: Patterns of parameters, or of enclosing modules, that are not trained.
        trainable: Patterns of parameters, or of enclosing modules, that are trained.
        loss: The loss of the step, as in `count`.
        recompute: The recomputed work of a step: "none", "full", "attention", or a fraction.
        flash: Whether the backward pass recomputes the attention scores (FlashAttention).
        accumulate: The micro-batches of one optimizer step.
        run_tokens: The length of a training run in tokens, such as "15T".
        run_examples: The length of a training run in examples.
        run_steps: The length of a training run in steps.
        mfu: The share of the peak that a run keeps, or a published one, which gives the speed.
        optimizer: The optimizer of every step, as in `count`.
        examples_per_second: The measured rate of examples.
        tokens_per_second: The measured rate of tokens.
        latency_ms: The time of a forward pass, in training of a whole step.
        fwd_ms: The time of the forward pass of one micro-batch.
        bwd_ms: The time of the backward pass of one micro-batch.
        step_ms: The time of the optimizer step.
        batch: The examples of one micro-batch on one data-parallel replica.
        tokens: The tokens of one example.
        runs: A table of runs, as a CSV file.
        times: A table of forward times of modules, as a CSV file.
        per_device: Whether the rates are those of one device, not of all together.
        precision: The precision of the work.
        precision_of: Precisions by pattern of node names: "MatMul=fp16".
        mix: Shares of the work by precision: "fp16=0.9,fp32=0.1".
        device: The device, by its name in the catalogue.
        catalogue: A TOML file with more devices.
        peak_tflops: The dense peak in TFLOP/s: a number, or texts such as "bf16=312".
        bandwidth: The memory bandwidth in GB/s of a device that is described so.
        causal: "full" for the full square of attention scores, "half" for the half that a causal
            mask keeps.
        window: The tokens of a sliding window of attention.
        devices: The devices of the run.
        dp: The data-parallel replicas.
        tp: The devices that share each tensor.
        pp: The stages of the pipeline.
        params: The parameters of a language model that is given by its sizes.
        layers: Its layers.
        hidden: Its hidden size.
        heads: Its attention heads.
        head_dim: The size of a head.
        kv_heads: Its heads of keys and values.
        seq: The tokens of a sequence.
        image_size: The side in pixels of the usual image of a model that is given by its name.
        context: The tokens in the cache of a decoding step.
        param_bytes: The bytes of a parameter.
        cache_bytes: The bytes of an element of the cache.
        prompt: The tokens of a prompt, for a language model that generates.
        generate: The new tokens of each request.
        images: The number of images in each prompt of a vision-language model.
        draft: The target string of a draft model, for speculative decoding.
        draft_tokens: The tokens that it proposes in a round.
        acceptance: How many of them are accepted on average, as in `count`.
        workload: A report of `count` with `prompt`, instead of a model.
        cache_dtype: The precision of keys and values in the cache.
        prefill_tokens_per_second: The measured rate of prompt tokens.
        decode_tokens_per_second: The measured rate of new tokens in decoding steps.
        roofline: Whether the result has a roofline.
        bytes_: The byte model of the roofline, such as "weights-once".
        bytes_per_example: The bytes of one example, instead of a byte model.
        what_if: Alternatives of the roofline: "batch=64".
        bench: A saved result of `bench`, whose times the roofline shows.
        formulas: Files of formulas for operators that are not counted: see `crossflops.operator`.
        on_progress: A function that gets a line about each step of a comparison.

    Returns:
        The required rates in FLOP/s, and their shares of the peak.

    Raises:
        AmbiguousDeviceError: Several devices have the name; they are its `candidates`.
        InputError: Fields are contradictory, incomplete, or without effect.

    Example:
        3 x 2 x 4.112e9 FLOPs an example, of a peak of 112 TFLOP/s:

        >>> import crossflops
        >>> result = crossflops.efficiency(macs="4.112G", train=True, examples_per_second=1325,
        ...                                device="v100-pcie", precision="fp16")
        >>> [row] = result.efficiency
        >>> row.rate, round(row.ratio, 4)
        (32690400000000.0, 0.2919)
    """
    from crossflops.facade import ShownEfficiency
    from crossflops.hardware.rates.question import Question
    from crossflops.verbs.efficiency.rate import answer_efficiency, make_efficiency_request

    question = Question.from_fields(
        macs=macs, pass_macs=pass_macs, as_=as_, compare=compare, tools=tools, train=train,
        train_multiplier=train_multiplier, backward=backward, frozen=frozen, trainable=trainable,
        loss=loss, recompute=recompute, flash=flash, accumulate=accumulate, run_tokens=run_tokens,
        run_examples=run_examples, run_steps=run_steps, mfu=mfu, optimizer=optimizer,
        examples_per_second=examples_per_second, tokens_per_second=tokens_per_second,
        latency_ms=latency_ms, fwd_ms=fwd_ms, bwd_ms=bwd_ms, step_ms=step_ms, batch=batch,
        tokens=tokens, runs=_path_text(runs), times=_path_text(times), per_device=per_device,
        precision=precision, precision_of=precision_of, mix=mix, device=device,
        catalogue=_path_text(catalogue), peak_tflops=peak_tflops, bandwidth=bandwidth,
        causal=causal, window=window, devices=devices, dp=dp, tp=tp, pp=pp, params=params,
        layers=layers, hidden=hidden, heads=heads, head_dim=head_dim, kv_heads=kv_heads, seq=seq,
        context=context, param_bytes=param_bytes, cache_bytes=cache_bytes, prompt=prompt,
        generate=generate, images=images, draft=draft, draft_tokens=draft_tokens,
        acceptance=acceptance, workload=_path_text(workload), cache_dtype=cache_dtype,
        prefill_tokens_per_second=prefill_tokens_per_second,
        decode_tokens_per_second=decode_tokens_per_second, roofline=roofline, bytes_=bytes_,
        bytes_per_example=bytes_per_example, what_if=what_if, bench=_path_text(bench),
    )  # fmt: skip
    of_the_model = {
        "inputs_file": _path_text(inputs_file), "setting": setting, "arguments": arguments or {},
        "dims": dims or {}, "trips": trips or {}, "branches": branches or {},
        "allow_pickle": allow_pickle,
        "sizes": {} if image_size is None else {"image_size": image_size},
    }  # fmt: skip
    rated = answer_efficiency(
        question,
        make_efficiency_request(target, inputs, of_the_model, question),
        on_progress or _ignore_api_progress,
    )
    if rated.trouble is not None:
        raise rated.trouble
    return ShownEfficiency.of(rated.noun)


def _path_text(path: str | Path | None) -> str | None:
    """Return a path as text, None unchanged."""
    return None if path is None else str(path)


@restoring_imports()
@with_configured_formulas
def identify(
    figure: str,
    target: Any,
    inputs: Any = (),
    *,
    inputs_file: str | None = None,
    setting: Setting = Setting(),
    arguments: Mapping[str, object] | None = None,
    dims: Mapping[str, int] | None = None,
    trips: Mapping[str, int] | None = None,
    branches: Mapping[str, str] | None = None,
    batch: int | None = None,
    seq: int | None = None,
    image_size: int | None = None,
    as_: Sequence[str] = (),
    every: bool = False,
    run_tokens: str | float | None = None,
    tokens_per_second: str | float | None = None,
    devices: int | None = None,
    device: str | None = None,
    precision: str | None = None,
    peak_tflops: str | float | Sequence[str | float] = (),
    weights: Literal["real", "fake"] | None = None,
    allow_pickle: bool = False,
    formulas: Sequence[str | Path] = (),
    on_progress: Callable[[str], None] | None = None,
) -> "ShownIdentification":
    """Return the tool, unit, setting or input size that prints a published figure of a model.

    Args:
        figure: The figure as it was printed: "4.11G", "17.6 GFLOPs", "300M".
        target: A model object or a target string, as in `count`.
        inputs: The inputs of the model, as in `count`.
        inputs_file: An .npz file with the values of the inputs.
        setting: The way to run the model: its mode, gradients, the device.
        arguments: Keyword arguments of the target's callable.
        dims: Sizes of named dimensions of an ONNX file.
        trips: How often a Loop of an ONNX file runs, by the name of its node.
        branches: The branch of an If that counts ("then", "else", "sum"), by the name of its node;
            by default the larger one.
        batch: The batch of a model that is given by its name.
        seq: The tokens of the usual input of a model that is given by its name.
        image_size: The side in pixels of the usual image of a model that is given by its name.
        as_: Conventions to try; by default all of the model's framework, in every edition.
        every: Whether other image sizes, settings and batches are counted although a number of the
            given input fits.
        run_tokens: The tokens of the training run whose compute the figure is, such as "300B".
        tokens_per_second: The measured speed of all devices, for a figure that is a speed such as
            "400 TFLOP/s" or an MFU such as "46.2%".
        devices: The number of devices of the run.
        device: The device of an MFU, by its id in the catalogue or the name its driver prints.
        precision: The precision of the run, such as "bf16".
        peak_tflops: The dense peak of the device in TFLOP/s, instead of `device`.
        weights: "real" or "fake": whether a target of PyTorch is built with values, as in `count`.
        allow_pickle: Whether to read a file whose loading runs code that is pickled in it.
        formulas: Files of formulas for operators that are not counted: see `crossflops.operator`.
        on_progress: A function that gets a line about each count.

    Returns:
        The candidates: first those that print the figure, the most plausible first, then those
        that one or two `missing` causes separate from it.

    Raises:
        InputError: The text is not a figure, or the inputs do not fit the model.
        UnknownNameError: A convention is unknown.
        TargetError: The model cannot be found, loaded or built.
        NormalizeError: The model cannot be converted to a graph.

    Example:
        A MatMul of 4x8 by 8x2 has 64 MACs, and 2 x 64 FLOPs:

        >>> import crossflops
        >>> result = crossflops.identify("128 FLOPs", "model.onnx")
        >>> [(row.tool, row.unit, row.factor, row.prints) for row in result.exact][:1]
        [('native', 'MACs', '2', 64)]
    """
    from crossflops.facade import ShownIdentification
    from crossflops.verbs.identify import identify_figure
    from crossflops.verbs.identify_runs import RunOptions

    request = Request.from_arguments(
        target, inputs, inputs_file=inputs_file, setting=setting, arguments=arguments,
        dims=dims, trips=trips, branches=branches, sizes=_size_options(batch, seq, image_size),
        allow_pickle=allow_pickle, weights=weights,
    )  # fmt: skip
    report_line = on_progress or _ignore_api_progress
    peaks = peak_tflops if isinstance(peak_tflops, list | tuple) else (peak_tflops,)
    run = RunOptions(
        run_tokens=None if run_tokens is None else str(run_tokens),
        tokens_per_second=None if tokens_per_second is None else str(tokens_per_second),
        devices=devices, device=device, precision=precision, peak_tflops=tuple(map(str, peaks)),
    )  # fmt: skip
    result = identify_figure(figure, request, as_, every, report_line, run)
    return ShownIdentification(**asdict(result))


@restoring_imports()
def audit(
    table: str | Path,
    *,
    library: str = "",
    as_: Sequence[str] = (),
    only: Sequence[str] = (),
    limit: int | None = None,
    store: str | Path = "",
    jobs: int | None = 1,
    on_progress: Callable[[str], None] | None = None,
) -> "ShownAudit":
    """Return for each published figure in a CSV file the convention that prints it, and the
    contradictions in the file.

    Args:
        table: The file; its columns are found by their names.
        library: The library of models without one in their names: "timm", "torchvision".
        as_: Conventions to try; by default all.
        only: Patterns of the names of models that are audited.
        limit: The largest number of models.
        store: A folder that keeps what was counted: an audit that was ended continues.
        jobs: The number of models that are counted in parallel, each in a process; None for what
            the machine allows.
        on_progress: A function that gets a line about each model.

    Returns:
        A row for each figure: the convention that prints it, or the reason why none does.

    Raises:
        InputError: The file is not such a table, or a pattern matches no model.
        UnknownNameError: A convention is unknown.

    Example:
        A MatMul of 4x8 by 8x2 has 64 MACs:

        >>> import crossflops
        >>> _ = Path("table.csv").write_text("model,MACs\\nmodel.onnx,64\\n")
        >>> [row] = crossflops.audit("table.csv").rows
        >>> row.reproduced_by, row.prints, row.status
        ('MACs', 64, 'exact')
    """
    from crossflops.facade import ShownAudit
    from crossflops.verbs.audit import AuditChoice, audit_table

    choice = AuditChoice(
        library=library, as_=tuple(as_), only=tuple(only), limit=limit, store=str(store), jobs=jobs
    )
    result = audit_table(Path(table), choice, on_progress or _ignore_api_progress)
    return ShownAudit(**asdict(result))


@restoring_imports()
@with_configured_formulas
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
    batch: int | None = None,
    seq: int | None = None,
    image_size: int | None = None,
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
    formulas: Sequence[str | Path] = (),
    teach_tools: bool = False,
    llm: bool = False,
    as_: str | Sequence[str] = (),
    on_progress: Callable[[str], None] | None = None,
) -> "ShownReport":
    """Return the count of a model, the number that each tool prints for it, and the causes of
    every difference.

    Each tool runs in a worker process. Its prediction is fixed before it starts. Tools that count
    an ONNX file get the normalized model, or the target if that is a file.

    Args:
        target: A model object, or a target string: "model.onnx", "package.module:callable",
            "file.py:callable".
        inputs: Tensors (one, a tuple, a dict of keyword arguments, or `(args, kwargs)`), or texts
            such as "1x3x224x224".
        inputs_file: An .npz file with the values of the inputs.
        setting: The way to run the model: its mode, gradients, the device.
        tools: The ids of the tools; by default all that are installed.
        arguments: Keyword arguments of the target's callable.
        dims: Sizes of named dimensions of an ONNX file.
        trips: How often a Loop of an ONNX file runs, by the name of its node.
        branches: The branch of an If that counts ("then", "else", "sum"), by the name of its node;
            by default the larger one.
        batch: The batch of a model that is given by its name.
        seq: The tokens of the usual input of a model that is given by its name.
        image_size: The side in pixels of the usual image of a model that is given by its name.
        onnx: Another file for the tools that count an ONNX file.
        timeout: The seconds in which a worker must build the model, and again those of the run.
        memory: The bytes of address space of a worker; None for those of the machine.
        isolate: Whether tools run in worker processes. Otherwise they run on a copy in this
            process, without limits of time and memory; patched functions of PyTorch are restored.
        python: The interpreter (or the folder of a venv) that runs a tool, by its id. It overrides
            the table `[python]` of crossflops.toml, or `[tool.crossflops.python]` of
            pyproject.toml.
        train: Whether tools count a training step. It is for models of PyTorch; tools that count
            no such step are named in a warning.
        frozen: Patterns of parameters, or of enclosing modules, that are not trained.
        trainable: Patterns of parameters, or of enclosing modules, that are trained.
        loss: The loss of the step, as in `count`.
        weights: "real" or "fake": whether a target of PyTorch is built with values in its weights.
            By default they have none if they take more than 1 GiB. Without values, tools run on
            fake tensors or are Failures.
        allow_pickle: Whether to read a file whose loading runs code that is pickled in it.
        between: Two tools whose difference is explained as well; with `against` one for each
            model.
        module: The path that the report is restricted to.
        consensus: Whether the report says which number to publish, in a sentence.
        against: A second model or target. The report then says layer by layer how it differs, and
            what each tool counts otherwise.
        against_options: Keywords of this function, from `inputs` to `branches`, for the second
            model; the others are taken from the first.
        formulas: Files of formulas for operators that are not counted: see `crossflops.operator`.
        teach_tools: Whether tools are handed these formulas by their own mechanism: `custom_ops`
            of thop, `set_op_handle` of fvcore, `custom_mapping` of FlopCounterMode,
            `custom_modules_hooks` of ptflops. The report says which tool took which formula.
        llm: Whether to run no tool, and to show what the formulas of papers and training
            frameworks give for a language model of transformers.
        as_: The same with these formulas alone, such as "palm" or "torchtitan@0.2.0".
        on_progress: A function that gets a line about each step.

    Returns:
        The report, with a reconciliation for each tool that answered. Its explanations and its
        residual add up to the difference.

    Raises:
        TargetError: A model cannot be found, loaded or built.
        InputError: The inputs do not fit the model, or options contradict each other.
        NormalizeError: A model cannot be converted to a graph.
        UnknownNameError: A tool is unknown.

    Example:
        onnx-tool counts the 8 elements of the Relu, too:

        >>> import crossflops
        >>> report = crossflops.compare("model.onnx", tools=["onnx-tool"])
        >>> difference = report.reconciliation("onnx-tool")
        >>> difference.ours, difference.theirs, difference.residual
        (64, 72, 0)
        >>> [(row.cause, row.amount) for row in difference.explanations]
        [('act.relu', 8)]
    """
    from crossflops.facade import ShownReport
    from crossflops.verbs.compare.compare import Comparison, compare_with_tools

    request = Request.from_arguments(
        target, inputs, inputs_file=inputs_file, setting=setting, arguments=arguments, dims=dims,
        trips=trips, branches=branches, train=train, frozen=frozen, trainable=trainable, loss=loss,
        weights=weights, allow_pickle=allow_pickle,
        sizes=_size_options(batch, seq, image_size),
    )  # fmt: skip
    comparison = Comparison(
        tools=tools, onnx=onnx, timeout=timeout, memory=memory, isolate=isolate,
        python=python or {}, between=between, module=module, consensus=consensus, against=against,
        against_options=against_options or {}, teach_tools=teach_tools,
    )  # fmt: skip
    if llm or as_:
        from crossflops.verbs.compare.formulas import compare_with_formulas

        _refuse_tools_of_formulas(request, comparison)
        return ShownReport.of(
            compare_with_formulas(request, [as_] if isinstance(as_, str) else as_)
        )
    report_line = on_progress or _ignore_api_progress
    return ShownReport.of(
        compare_with_tools(request, comparison, lambda what: report_line(what.rstrip()))
    )


def _refuse_tools_of_formulas(request: Request, comparison: "Comparison") -> None:
    """Raise InputError for options of tools where formulas alone are compared."""
    from crossflops.verbs.provenance import non_default_options

    model = {
        "train": request.train, "frozen": request.frozen, "trainable": request.trainable,
        "loss": request.loss, "weights": request.weights,
    }  # fmt: skip
    unused = [
        *(name for name, value in model.items() if value),
        *non_default_options(comparison, ("isolate", "timeout")),
    ]
    if unused:
        raise InputError(
            f"{unused[0]} cannot be combined with llm or as_, which run no tool",
            f"leave out {unused[0]}, or leave out llm and as_",
        )


@restoring_imports()
@with_configured_formulas
def bench(
    target: Any,
    inputs: Any = (),
    *,
    inputs_file: str | None = None,
    setting: Setting = Setting(),
    arguments: Mapping[str, object] | None = None,
    dims: Mapping[str, int] | None = None,
    trips: Mapping[str, int] | None = None,
    branches: Mapping[str, str] | None = None,
    seq: int | None = None,
    image_size: int | None = None,
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
    allow_pickle: bool = False,
    formulas: Sequence[str | Path] = (),
    on_progress: Callable[[str], None] | None = None,
) -> "ShownBench":
    """Run a model; return how fast it is and how much time each of its nodes takes.

    Args:
        target: A model object, or a target string: "model.onnx", "package.module:callable",
            "file.py:callable".
        inputs: Tensors (one, a tuple, a dict of keyword arguments, or `(args, kwargs)`), or texts
            such as "1x3x224x224".
        inputs_file: An .npz file with the values of the inputs.
        setting: The way to run the model: its mode, gradients, the device.
        arguments: Keyword arguments of the target's callable.
        dims: Sizes of named dimensions of an ONNX file.
        trips: How often a Loop of an ONNX file runs, by the name of its node.
        branches: The branch of an If that counts ("then", "else", "sum"), by the name of its node;
            by default the larger one.
        seq: The tokens of the usual input of a model that is given by its name.
        image_size: The side in pixels of the usual image of a model that is given by its name.
        train: Whether training steps of a PyTorch model are timed, not forward passes.
        optimizer: The optimizer of a training step, a class of torch.optim.
        batches: Batch sizes to try, or "auto" to find the fastest.
        batch_dim: The dimension of an ONNX file that is the batch.
        max_latency_ms: The longest time of a run for which "auto" accepts a batch.
        memory: The bytes of address space of a worker; None for those of the machine.
        threads: The number of threads; by default the CPUs that this process may use.
        runtime: The runtime: "onnxruntime", or the framework of the model.
        optimization: The optimization level of onnxruntime.
        seconds: The seconds of the warm-up, and again those of the timing of each batch.
        timeout: The seconds after which a worker is ended.
        trace: A profile of onnxruntime or a trace of torch.profiler to read; nothing is run then.
        write_trace: The file or folder for a trace of some runs.
        peak_tflops: The peak in float32; by default that of this machine is measured.
        allow_pickle: Whether to read a file whose loading runs code that is pickled in it.
        formulas: Files of formulas for operators that are not counted: see `crossflops.operator`.
        on_progress: A function that gets a line about each step.

    Returns:
        The bench. Its `errors` are figures that no sound measurement has.

    Raises:
        CrossflopsError: The model does not run.
        InputError: Options contradict each other, or have no effect.

    Example:
        >>> import crossflops
        >>> result = crossflops.bench("model.onnx", threads=1, seconds=0.01, peak_tflops=1)
        >>> result.macs, result.batch
        (64, 4)
    """
    from crossflops.bench.timing import BenchLimits
    from crossflops.facade import ShownBench
    from crossflops.verbs.bench import Conditions, bench_request

    request = Request.from_arguments(
        target, inputs, inputs_file=inputs_file, setting=setting, observe=not train,
        arguments=arguments, dims=dims, trips=trips, branches=branches,
        sizes=_size_options(None, seq, image_size), allow_pickle=allow_pickle,
    )  # fmt: skip
    if optimizer != "adamw" and not train:
        from crossflops.errors import InputError

        raise InputError("optimizer requires train=True", "add train=True")
    conditions = Conditions(
        train=train, optimizer=optimizer,
        batches=batches, batch_dim=batch_dim, max_latency_ms=max_latency_ms, memory=memory,
        threads=threads, runtime=runtime, optimization=optimization,
        limits=BenchLimits(seconds=seconds), timeout=timeout, trace=trace, write_trace=write_trace,
        peak_tflops=peak_tflops,
    )  # fmt: skip
    return ShownBench.of(bench_request(request, conditions, on_progress or _ignore_api_progress))


@restoring_imports()
@with_configured_formulas
def profile(
    target: Any,
    inputs: Any = (),
    *,
    inputs_file: str | None = None,
    setting: Setting = Setting(),
    arguments: Mapping[str, object] | None = None,
    dims: Mapping[str, int] | None = None,
    trips: Mapping[str, int] | None = None,
    branches: Mapping[str, str] | None = None,
    batch: int | None = None,
    seq: int | None = None,
    image_size: int | None = None,
    frozen: Sequence[str] = (),
    trainable: Sequence[str] = (),
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
    allow_pickle: bool = False,
    formulas: Sequence[str | Path] = (),
    on_progress: Callable[[str], None] | None = None,
) -> "ShownProfile":
    """Train a PyTorch model for some steps; return the work and the time of each module.

    A copy is trained, in this process and in the mode of `setting`. The rates are compared with
    `peak_tflops`, or with the peak of the `device`; without both the peak of this machine is
    measured.

    Args:
        target: A model object, or a target string: "model.onnx", "package.module:callable",
            "file.py:callable".
        inputs: Tensors (one, a tuple, a dict of keyword arguments, or `(args, kwargs)`), or texts
            such as "1x3x224x224".
        inputs_file: An .npz file with the values of the inputs.
        setting: The way to run the model: its mode, gradients, the device.
        arguments: Keyword arguments of the target's callable.
        dims: Sizes of named dimensions of an ONNX file.
        trips: How often a Loop of an ONNX file runs, by the name of its node.
        branches: The branch of an If that counts ("then", "else", "sum"), by the name of its node;
            by default the larger one.
        batch: The batch of a model that is given by its name.
        seq: The tokens of the usual input of a model that is given by its name.
        image_size: The side in pixels of the usual image of a model that is given by its name.
        frozen: Patterns of parameters, or of enclosing modules, that are not trained; with times
            from elsewhere.
        trainable: Patterns of parameters, or of enclosing modules, that are trained; with times
            from elsewhere.
        loss: A function of the outputs; by default the sum of all float outputs.
        optimizer: A class of torch.optim, a function of the parameters, or "none".
        threads: The number of threads of PyTorch.
        seconds: The seconds of the warm-up, and again those of the timing.
        as_: Conventions that stand beside the count.
        tools: Tools, such as "deepspeed-macs", to run on one forward pass as `compare` does.
        device: A device of the catalogue.
        precision: The precision of the run; by default that of the products.
        peak_tflops: The peak in TFLOP/s: a number, or texts such as "bf16=312".
        fwd_ms: The time of a forward pass, measured elsewhere: nothing is trained then.
        bwd_ms: The time of a backward pass, measured elsewhere.
        step_ms: The time of an optimizer's step, measured elsewhere.
        allow_pickle: Whether to read a file whose loading runs code that is pickled in it.
        formulas: Files of formulas for operators that are not counted: see `crossflops.operator`.
        on_progress: A function that gets a line about each step.

    Returns:
        The profile: work and seconds of the step, of its phases and its modules.

    Raises:
        InputError: The model is not one of PyTorch, or options contradict each other.
        NormalizeError: A step raises.

    Example:
        With times from elsewhere: 2 x 64 FLOPs forward in 1 ms, and 128 MACs of gradients (the
        input has none, so the weight's alone are 64):

        >>> import torch
        >>> import crossflops
        >>> result = crossflops.profile(torch.nn.Linear(8, 2, bias=False), torch.ones(4, 8),
        ...                             fwd_ms=1.0, bwd_ms=1.0, peak_tflops=1)
        >>> result.work.forward_macs, result.backward_macs
        (64, 64)
    """
    from crossflops.bench.timing import BenchLimits
    from crossflops.facade import ShownProfile
    from crossflops.profiling.run import Recipe
    from crossflops.verbs.profile.account import RatedAgainst
    from crossflops.verbs.profile.profile import GivenTimes, ProfileConditions, profile_training

    request = Request.from_arguments(
        target, inputs, inputs_file=inputs_file, setting=setting, as_=as_, train=True,
        frozen=tuple(frozen), trainable=tuple(trainable), arguments=arguments, dims=dims,
        trips=trips, branches=branches, sizes=_size_options(batch, seq, image_size),
        allow_pickle=allow_pickle,
    )  # fmt: skip
    peaks = [peak_tflops] if isinstance(peak_tflops, float | int | str) else peak_tflops
    limits = BenchLimits(warmup=10, runs=20, fewest=2, seconds=seconds)
    conditions = ProfileConditions(
        recipe=Recipe(loss=loss, optimizer=optimizer, limits=limits),
        against=RatedAgainst(
            device=device, precision=precision, peak_tflops=tuple(map(str, peaks))
        ),
        given=GivenTimes(fwd_ms=fwd_ms, bwd_ms=bwd_ms, step_ms=step_ms),
        threads=threads,
        tools=tuple(tools),
    )
    return ShownProfile.of(
        profile_training(request, conditions, on_progress or _ignore_api_progress)
    )


@restoring_imports()
@with_configured_formulas
def table(
    targets: Sequence[Any] | Mapping[str, Any],
    inputs: Any = (),
    *,
    by_tool: Sequence[str] = (),
    digits: int = 4,
    latency: bool = False,
    jobs: int | None = 1,
    inputs_file: str | None = None,
    setting: Setting = Setting(),
    arguments: Mapping[str, object] | None = None,
    dims: Mapping[str, int] | None = None,
    trips: Mapping[str, int] | None = None,
    branches: Mapping[str, str] | None = None,
    batch: int | None = None,
    seq: int | None = None,
    image_size: int | None = None,
    allow_pickle: bool = False,
    formulas: Sequence[str | Path] = (),
    on_progress: Callable[[str], None] | None = None,
) -> "ShownTable":
    """Count several models into one table for a paper, one row each.

    Args:
        targets: Model objects or target strings, as in `count`; of a dict, the keys are the names
            of the rows.
        inputs: The inputs of every model, as in `count`.
        by_tool: Conventions, such as "thop": a column has the number of each, predicted without
            running the tool.
        digits: The significant digits of the page; files and `to_pandas` have all digits.
        latency: Whether every model is also run in onnxruntime, for the median time of a run.
        jobs: The number of framework models that are counted in parallel, each in a process; None
            for what the machine allows. Model objects are counted one by one.
        inputs_file: An .npz file with the values of the inputs.
        setting: The way to run the models: mode, gradients, the device.
        arguments: Keyword arguments of the targets' callables.
        dims: Sizes of named dimensions of ONNX files.
        trips: How often a Loop of an ONNX file runs, by the name of its node.
        branches: The branch of an If that counts ("then", "else", "sum"), by the name of its node;
            by default the larger one.
        batch: The batch of models that are given by their names.
        seq: The tokens of the usual input of models that are given by their names.
        image_size: The side in pixels of the usual image of models that are given by their names.
        allow_pickle: Whether to read a file whose loading runs code that is pickled in it.
        formulas: Files of formulas for operators that are not counted: see `crossflops.operator`.
        on_progress: A function that gets a line about each model.

    Returns:
        The table: a row for each model, in the given order.

    Raises:
        TargetError: A model cannot be found, loaded or built.
        InputError: The inputs do not fit a model, or an option has no effect on any of them.
        UnknownNameError: A convention is unknown.
        MissingExtraError: `latency` needs onnxruntime.

    Example:
        A MatMul of 4x8 by 8x2, 8 x (2 x 8 - 1) FLOPs, and a Relu of its 8 elements:

        >>> import crossflops
        >>> result = crossflops.table(["model.onnx"], by_tool=["exact-2k-1"])
        >>> [(row.target, row.macs, row.by_tool) for row in result.rows]
        [('model.onnx', 64, {'exact-2k-1': 128})]
    """
    from crossflops.facade import with_page
    from crossflops.targets.request import drop_unused_request_options
    from crossflops.verbs import table as table_verb

    if isinstance(targets, str) or not targets:
        from crossflops.errors import InputError

        raise InputError(
            f"targets must be a list of models, got {targets!r}",
            'write, for example, table(["model.onnx", "other.onnx"])',
        )
    targets_by_name = targets if isinstance(targets, Mapping) else _name_targets(targets)
    requests = drop_unused_request_options([
        Request.from_arguments(
            target, inputs, inputs_file=inputs_file, setting=setting, arguments=arguments,
            dims=dims, trips=trips, branches=branches, sizes=_size_options(batch, seq, image_size),
            allow_pickle=allow_pickle,
        )
        for target in targets_by_name.values()
    ])  # fmt: skip
    in_processes = [request for request in requests if request.target is not None]
    if jobs is None:
        jobs = table_verb.choose_jobs(sum(not request.is_file for request in in_processes))
    elif jobs > 1:
        table_verb.reject_jobs_without_effect(in_processes)
    report_line = on_progress or _ignore_api_progress
    rows = table_verb.build_paper_table(
        list(zip(targets_by_name, requests, strict=True)),
        tuple(by_tool),
        digits,
        report_line,
        latency,
        jobs,
    )
    result: ShownTable = with_page(rows)
    return result


def _name_targets(targets: Sequence[Any]) -> dict[str, Any]:
    """Return the targets by name: a text or path as it is, an object by its class, with a number
    where two have the same name.
    """
    named: dict[str, Any] = {}
    for target in targets:
        is_text = isinstance(target, str | Path)
        plain = str(target) if is_text else type(target).__name__
        name, number = plain, 1
        while name in named:
            number += 1
            name = f"{plain} ({number})"
        named[name] = target
    return named


def _size_options(batch: int | None, seq: int | None, image_size: int | None) -> dict[str, int]:
    """Return the sizes of the usual input of a model by name that were given, by name."""
    sizes = {"batch": batch, "seq": seq, "image_size": image_size}
    return {name: size for name, size in sizes.items() if size is not None}


@with_configured_formulas
def sweep(
    suite: str | Path | Mapping[str, Any],
    *,
    store: str | Path,
    only: Sequence[str] = (),
    limit: int | None = None,
    compare_to: str | Path = "",
    jobs: int | None = None,
    timeout: float = TIMEOUT,
    memory: int | None = None,
    retry_failures: bool = False,
    executor: "Executor | None" = None,
    on_progress: Callable[[str], None] | None = None,
) -> "ShownSweep":
    """Return the number of each tool for each model and input of a suite, each counted once and
    kept in a store.

    Args:
        suite: A TOML file, or a dict of the same form: {"model": [{"target": "model.onnx"}]}. A
            model has target, and input, arg, dim, batch, seq, image_size, family and train; tools
            and as (conventions) stand there, or beside "model" for all.
        store: The folder of the rows. What it has is not counted again: a sweep that was ended
            continues. A row holds for the versions of everything that it depends on.
        only: Patterns of targets.
        limit: The largest number of models and inputs, the first ones.
        compare_to: The folder of another store, whose numbers may differ: see `changes`.
        jobs: The number of models that are counted in parallel, each in a process; None for what
            the machine allows.
        timeout: The seconds that a model, and each tool on it, may take.
        memory: The bytes of address space of each tool; None for those of the machine.
        retry_failures: Whether a row that the store has as a failure is counted again.
        executor: An executor of `concurrent.futures` that counts the models in place of such
            processes, such as `distributed.Client(...).get_executor()`.
        on_progress: A function that gets a line about each model.

    Returns:
        The rows. A tool without a number has a row with its failure.

    Raises:
        InputError: The suite is invalid, a pattern matches no model, or a folder is not a store.
        UnknownNameError: A tool is not installed, or a convention is unknown.

    Example:
        A MatMul of 4x8 by 8x2, 8 x (2 x 8 - 1) FLOPs, and a Relu of its 8 elements:

        >>> import crossflops
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> suite = {"tools": [], "as": ["exact-2k-1"], "model": [{"target": "model.onnx"}]}
        >>> with ThreadPoolExecutor(1) as executor:
        ...     result = crossflops.sweep(suite, store="sweeps", executor=executor)
        >>> [(row.tool, row.total) for row in result.rows]
        [('native', 64), ('exact-2k-1', 128)]
    """
    from crossflops.facade import with_page
    from crossflops.verbs.sweep.sweep import SweepChoice, run_sweep

    choice = SweepChoice(
        store=str(store), only=tuple(only), limit=limit, jobs=jobs, timeout=timeout,
        memory=memory, retry_failures=retry_failures, compare_to=str(compare_to),
        executor=executor,
    )  # fmt: skip
    result: ShownSweep = with_page(run_sweep(suite, choice, on_progress or _ignore_api_progress))
    return result


@restoring_imports()
@with_configured_formulas
def diff(
    first: Any,
    second: Any,
    inputs: Any = (),
    *,
    max_increase: str | float | None = None,
    inputs_file: str | None = None,
    setting: Setting = Setting(),
    arguments: Mapping[str, object] | None = None,
    dims: Mapping[str, int] | None = None,
    trips: Mapping[str, int] | None = None,
    branches: Mapping[str, str] | None = None,
    batch: int | None = None,
    seq: int | None = None,
    image_size: int | None = None,
    allow_pickle: bool = False,
    formulas: Sequence[str | Path] = (),
    on_progress: Callable[[str], None] | None = None,
) -> "ShownDifference":
    """Return what changed between two models, two reports, or two git revisions.

    Args:
        first: A model object, a target string, a report (as `count` returns it, or the path of a
            saved one), or a target at a git revision: "HEAD~1:model.py:make".
        second: The same for the second model.
        inputs: The inputs of both models, as in `count`.
        max_increase: The share by which MACs, FLOPs and parameters may grow, "2%" or 0.02: `holds`
            of the result says whether they keep it.
        inputs_file: An .npz file with the values of the inputs.
        setting: The way to run the models: mode, gradients, the device.
        arguments: Keyword arguments of the targets' callables.
        dims: Sizes of named dimensions of ONNX files.
        trips: How often a Loop of an ONNX file runs, by the name of its node.
        branches: The branch of an If that counts ("then", "else", "sum"), by the name of its node;
            by default the larger one.
        batch: The batch of models that are given by their names.
        seq: The tokens of the usual input of models that are given by their names.
        image_size: The side in pixels of the usual image of models that are given by their names.
        allow_pickle: Whether to read a file whose loading runs code that is pickled in it.
        formulas: Files of formulas for operators that are not counted: see `crossflops.operator`.
        on_progress: A function that gets a line about each model.

    Returns:
        The modules and nodes that changed; of two models also the causes.

    Raises:
        TargetError: A model cannot be found, loaded or built.
        InputError: A file is no report, the inputs do not fit a model, or options have no effect.
        NormalizeError: A model cannot be converted to a graph.

    Example:
        >>> import crossflops
        >>> change = crossflops.diff("model.onnx", "model.onnx", max_increase="2%")
        >>> change.first_work.macs, change.nodes, change.holds
        (64, (), True)
    """
    from crossflops.facade import with_page
    from crossflops.verbs import diff as diff_verb

    most = None if max_increase is None else diff_verb.parse_increase_share(str(max_increase))

    def make_request_of_side(target: Any) -> Request:
        """Return the request of one side."""
        return Request.from_arguments(
            target, inputs, inputs_file=inputs_file, setting=setting, arguments=arguments,
            dims=dims, trips=trips, branches=branches, sizes=_size_options(batch, seq, image_size),
            allow_pickle=allow_pickle,
        )  # fmt: skip

    sides = [
        diff_verb.diff_side_from_object(side, make_request_of_side) for side in (first, second)
    ]
    if not diff_verb.requests_of_sides(sides):
        _refuse_model_options(
            inputs=not is_empty_input(inputs), inputs_file=inputs_file, arguments=arguments,
            dims=dims, trips=trips, branches=branches, batch=batch, seq=seq, image_size=image_size,
            allow_pickle=allow_pickle, setting=None if setting == Setting() else setting,
        )  # fmt: skip
    first_side, second_side = diff_verb.drop_unused_side_options(sides)
    report_line = on_progress or _ignore_api_progress
    result: ShownDifference = with_page(
        diff_verb.compare_sides(first_side, second_side, most, report_line)
    )
    return result


def _refuse_model_options(**options: Any) -> None:
    """Raise InputError if an option about models is given together with saved reports."""
    for name, value in options.items():
        if value:
            from crossflops.errors import InputError

            raise InputError(
                f"{name} has no effect here: both arguments are saved reports, and nothing is "
                "counted",
                f"leave out {name}",
            )


@restoring_imports()
@with_configured_formulas
def check(
    targets: str | Sequence[str] = (),
    *,
    update: bool = False,
    against: str | None = None,
    if_budgeted: bool = False,
    formulas: Sequence[str | Path] = (),
    on_progress: Callable[[str], None] | None = None,
) -> "ShownChecks":
    """Check models against the budgets of the configuration file.

    Args:
        targets: The targets whose budgets are checked; by default all of the configuration that is
            nearest to the current folder.
        update: Whether the baseline is written first.
        against: A git revision, such as "origin/main": growth is that since then, and not that
            since the baseline.
        if_budgeted: Whether a target without a budget is listed in the result, and no error.
        formulas: Files of formulas for operators that are not counted: see `crossflops.operator`.
        on_progress: A function that gets a line about each model.

    Returns:
        The outcome of each rule; `hold` says whether all hold. `to_junit()` and
        `to_code_quality()` are the files for CI servers.

    Raises:
        InputError: No budget is set, one cannot be understood, or options contradict each other.

    Example:
        A MatMul of 4x8 by 8x2 has 64 MACs:

        >>> import crossflops
        >>> _ = Path("crossflops.toml").write_text(
        ...     '[budgets."model.onnx"]\\nrules = ["macs <= 60"]\\n')
        >>> result = crossflops.check()
        >>> [(row.rule, row.value, row.holds) for row in result.checks], result.hold
        ([('macs <= 60', 64, False)], False)
    """
    from crossflops.facade import with_page
    from crossflops.verbs import check as check_verb

    chosen = (targets,) if isinstance(targets, str) else tuple(map(str, targets))
    check_verb.refuse_contradictions(chosen, update, against, if_budgeted)
    checks = check_verb.check_budgets(
        chosen, update, on_progress or _ignore_api_progress, if_budgeted=if_budgeted,
        revision=against or "",
    )  # fmt: skip
    result: ShownChecks = with_page(checks)
    return result


def explain(name: str) -> "ShownCause | ShownConvention | ShownMatches":
    """Describe a cause, or list all rules of a tool.

    Args:
        name: A cause ("norm.batch"), a tool ("thop", "thop@0.0.31"), a term of the reports
            ("mfu"), or words to search for ("relu twice").

    Returns:
        The cause, the convention of the tool with its rules, or the causes that match.

    Raises:
        UnknownNameError: Nothing has this name or matches these words.

    Example:
        >>> import crossflops
        >>> crossflops.explain("norm.batch").id
        'norm.batch'
        >>> crossflops.explain("thop").tool
        'thop'
    """
    from crossflops.facade import with_page
    from crossflops.verbs.explain import find_page_subject

    result: ShownCause | ShownConvention | ShownMatches = with_page(find_page_subject(name))
    return result


def devices(
    name: str | None = None,
    *,
    search: str | None = None,
    precision: str = "",
    catalogue: str | Path | None = None,
    peak_tflops: float | str | Sequence[float | str] = (),
    bandwidth: float | None = None,
    here: bool = False,
    measure: bool = False,
) -> "ShownDevice | ShownDevices | ShownMachine":
    """Look up a device and its peaks, or measure this machine.

    Args:
        name: A whole name, as drivers print it. Without any argument all devices are listed.
        search: A text in the name, the maker or the chip of the devices that are listed.
        precision: The precision whose peaks a list has.
        catalogue: A TOML file with more devices.
        peak_tflops: The dense peak in TFLOP/s of a device that is described so: a number, or texts
            such as "bf16=312".
        bandwidth: The memory bandwidth of that device in GB/s.
        here: Whether this machine is shown: its processor and its GPUs.
        measure: Whether its peak and bandwidth are also measured now, which takes seconds.

    Returns:
        One device with its sources, a list of devices, or this machine.

    Raises:
        AmbiguousDeviceError: Several devices have the name; they are its `candidates`.
        UnknownNameError: No device has the name, or the text.
        InputError: Arguments exclude each other or have no effect.

    Example:
        >>> import crossflops
        >>> sheet = crossflops.devices("a100-sxm4-80gb")
        >>> sheet.device.bandwidth, {row.precision: row.peak for row in sheet.peaks}["fp32"]
        (2039000000000.0, 19500000000000.0)
    """
    from crossflops.facade import with_page
    from crossflops.verbs.devices import DeviceQuestion, answer_device_question

    peaks = [peak_tflops] if isinstance(peak_tflops, float | int | str) else peak_tflops
    question = DeviceQuestion(
        name=name, search=search, precision=precision, peak_tflops=tuple(map(str, peaks)),
        catalogue=None if catalogue is None else str(catalogue), bandwidth=bandwidth, here=here,
        measure=measure,
    )  # fmt: skip
    content, trouble = answer_device_question(question)
    if trouble is not None:
        raise trouble
    result: ShownDevice | ShownDevices | ShownMachine = with_page(content)
    return result


def render(
    report: str | Path,
    *,
    between: tuple[str, str] | None = None,
    module: str | None = None,
    consensus: bool = False,
) -> "SavedAnswer":
    """Read a saved result, which can then be shown, queried and written in any format.

    Args:
        report: A file that a verb wrote with `-o FILE.json`, or `save("FILE.json")`.
        between: Two tools of a comparison whose difference is explained as well.
        module: The path of the module that a report is restricted to.
        consensus: Whether the report says which number to publish, in a sentence.

    Returns:
        The result as its verb returned it: `print` shows it, `save("report.html")` writes it, and
        of a report `view` and `to_pandas` give its tables.

    Raises:
        CrossflopsError: The file cannot be read, or is no such result.
        InputError: The result is no report of a comparison, and cannot answer the question.

    Example:
        >>> import crossflops
        >>> file = crossflops.count("model.onnx").save("report.json")
        >>> crossflops.render(file).macs
        64
    """
    from crossflops.facade import with_page
    from crossflops.verbs.render import read_saved_result, with_answers_to_questions

    result = read_saved_result(Path(report))
    shown: SavedAnswer = with_page(with_answers_to_questions(result, between, module, consensus))
    return shown


@restoring_imports()
@with_configured_formulas
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
    batch: int | None = None,
    seq: int | None = None,
    image_size: int | None = None,
    allow_pickle: bool = False,
    formulas: Sequence[str | Path] = (),
) -> "Files":
    """Write the normalized model ("onnx") or its counts for a viewer ("model-explorer") to a file;
    return the written files.

    Of a model "onnx" is the counted graph with its weights; of an ONNX file a copy, in which
    `annotate` changes only the metadata of the nodes. The model is counted only if a count is
    needed.

    Args:
        target: A model object or a target string, as in `count`.
        inputs: The inputs of the model, as in `count`.
        to: The format.
        file: The file to write.
        annotate: Whether nodes get their counts as metadata.
        verify: Whether to run the ONNX file in onnxruntime beside the model: `agreement` of the
            result says how far the outputs differ, and whether that is noise.
        unit: The unit of the node data.
        inputs_file: An .npz file with the values of the inputs.
        setting: The way to run the model.
        arguments: Keyword arguments of the target's callable.
        dims: Sizes of named dimensions of an ONNX file.
        trips: How often a Loop of an ONNX file runs, by the name of its node.
        branches: The branch of an If that counts ("then", "else", "sum"), by the name of its node;
            by default the larger one.
        batch: The batch of a model that is given by its name.
        seq: The tokens of the usual input of a model that is given by its name.
        image_size: The side in pixels of the usual image of a model that is given by its name.
        allow_pickle: Whether to read a file whose loading runs code that is pickled in it.
        formulas: Files of formulas for operators that are not counted: see `crossflops.operator`.

    Returns:
        The written files.

    Raises:
        InputError: Options contradict each other, or have no effect.
        CrossflopsError: A file cannot be written.

    Example:
        >>> import crossflops
        >>> files = crossflops.export("model.onnx", to="onnx", file="copy.onnx")
        >>> crossflops.count("copy.onnx").macs
        64
    """
    from crossflops.verbs.export import FileRequest, export_request

    request = Request.from_arguments(
        target, inputs, inputs_file=inputs_file, setting=setting, arguments=arguments, dims=dims,
        trips=trips, branches=branches, sizes=_size_options(batch, seq, image_size),
        allow_pickle=allow_pickle,
    )  # fmt: skip
    file_request = FileRequest(to=to, file=Path(file), annotate=annotate, unit=unit, verify=verify)
    return export_request(request, file_request)


def _ignore_api_progress(_: str) -> None:
    """Ignore a progress message; used if the caller gives no `on_progress`."""
