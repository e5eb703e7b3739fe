"""Build the roofline of a counted model, or of given numbers."""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cache, partial
from pathlib import Path

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from crossflops.errors import CrossflopsError, InputError, UnknownNameError
from crossflops.files import read_file_bytes
from crossflops.hardware.devices.catalogue import find_device
from crossflops.hardware.devices.peaks import ANY, EMULATIONS, Peaks
from crossflops.hardware.expert_reads import describe_experts
from crossflops.hardware.rates import terms
from crossflops.hardware.rates.mfu import MeasuredRun
from crossflops.hardware.rates.numerators import Numerator, parse_count
from crossflops.hardware.rates.question import WAYS, Question, group_field_names
from crossflops.hardware.roofline import (
    Loads,
    Look,
    Scenario,
    Variant,
    check_byte_model,
    compute_bound_batch_size,
    intensity_limit,
    kernel_bounds,
    kind_bounds,
    node_bounds,
    step_bound,
    step_efficiencies,
    what_if_bounds,
)
from crossflops.hardware.step_traffic import BITS, FORMULAS, Formats, node_loads, storage_precision
from crossflops.ir.ledger import ZERO, CountedNode
from crossflops.ir.roofline import (
    ByteModel,
    Ceiling,
    KernelBound,
    Load,
    NodeBound,
    Roofline,
    StepBound,
)
from crossflops.ir.training import matches_weight_pattern
from crossflops.ledger.count import count_nodes_with_their_bodies
from crossflops.report.bench import Bench, KernelRow
from crossflops.report.efficiency import Efficiency
from crossflops.targets.request import Request
from crossflops.verbs.count import CountedModel
from crossflops.verbs.devices import look_up_device
from crossflops.verbs.efficiency.uses import flag_of_field
from crossflops.verbs.efficiency.work import WorkStudy


class RooflineQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs of a roofline: the device, the work, the bytes and the questions.

    `batch` are the examples of a step and `counted` those of the pass that was counted. `passes`
    are k. `macs` and `moved` (bytes) are of one example where they are given in place of a
    graph, the bytes for all passes; `weights` are bytes of a step, whatever its batch. Where these
    follow from sizes, `moved` is the cache, `param_bytes` and `cache_bytes` are those of an
    element, and `formula` says what is moved. `seconds`
    is what a step took, `kernels` what ran in it. `precision_of` are precisions by patterns of
    operators, nodes and modules, over that of the run. `look` finds the devices of `what_if`.
    """

    ceiling: Ceiling
    precision: str = ""
    model: ByteModel = "unfused"
    batch: int = 1
    counted: int = 1
    passes: Fraction = Fraction(1)
    macs: int | None = None
    moved: int | None = None
    weights: int = 0
    param_bytes: float | None = None
    cache_bytes: float | None = None
    formula: str = ""
    what_if: tuple[str, ...] = ()
    look: Look = find_device
    seconds: float | None = None
    kernels: tuple[KernelRow, ...] = ()
    precision_of: Mapping[str, str] = {}

    @property
    def has_byte_total(self) -> bool:
        """Whether the user gives the total of bytes, so that the bytes of single nodes are
        unknown.
        """
        return self.moved is not None

    @property
    def can_change_element_size(self) -> bool:
        """Whether the bytes come from numbers of elements, so that the size of an element can be
        changed.
        """
        return self.param_bytes is not None

    @property
    def bytes_name(self) -> str:
        """The name of the byte model; "given" if the user gives the bytes."""
        return "given" if self.has_byte_total and not self.can_change_element_size else self.model

    @property
    def unchangeable_keys(self) -> tuple[str, ...]:
        """The keys of --what-if that cannot be used, because the user gives the bytes."""
        known = (
            ("bytes",)
            if self.can_change_element_size
            else ("precision", "weights", "cache", "bytes")
        )
        return known if self.has_byte_total else ()


def compute_roofline(roofing: RooflineQuestion, model: CountedModel | None) -> Roofline:
    """Return the roofline of a step: time bounds of the model, its nodes and kernels, and
    alternatives.

    Raises UnknownNameError for a precision that the device does not have.
    """
    loads_of = (
        _whole_model_loads(roofing)
        if roofing.has_byte_total
        else _loads_from_counts(model, roofing)
    )
    base = _variant_of_question(roofing)
    rows = loads_of(base.model, base.formats, base.run.scale)
    step = step_bound(rows, base.run)
    nodes = () if roofing.has_byte_total else node_bounds(rows, base.run)
    knows = not roofing.has_byte_total or bool(
        roofing.weights
    )  # what grows with the batch, and what does not
    took = (
        None
        if roofing.seconds is None
        else step_efficiencies(step, roofing.seconds, roofing.ceiling.tdp)
    )
    return Roofline(
        device=roofing.ceiling.name,
        peaks=roofing.ceiling.peaks,
        byte_model=roofing.bytes_name,
        formula=roofing.formula or FORMULAS[roofing.bytes_name],
        training=roofing.passes != 1,
        step=step,
        intensity_limit=intensity_limit(rows) if knows else None,
        compute_from=compute_bound_batch_size(
            partial(loads_of, base.model, base.formats), base.run, step.ridge
        )
        if knows
        else None,
        kinds=kind_bounds(nodes),
        nodes=nodes,
        kernels=_roofline_kernel_bounds(roofing, model, base, nodes),
        what_if=what_if_bounds(
            roofing.what_if, base, loads_of, fixed=roofing.unchangeable_keys, look=roofing.look
        ),
        achieved=took,
        assumptions=_roofline_assumptions(roofing, model, step),
        warnings=_roofline_warnings(model, took.roofline_efficiency if took else None, roofing),
    )


def _variant_of_question(roofing: RooflineQuestion) -> Variant:
    """Return the variant that was requested: device, batch size, passes and formats."""
    scale = Fraction(roofing.batch, roofing.counted)
    run = Scenario(
        label="as asked",
        ceiling=roofing.ceiling,
        examples=roofing.batch,
        scale=Fraction(roofing.batch) if roofing.has_byte_total else scale,
        passes=Fraction(1) if roofing.has_byte_total else roofing.passes,
        precision=roofing.precision,
        nodewise=not roofing.has_byte_total,
    )
    formats = Formats() if roofing.has_byte_total else Formats(activations=roofing.precision)
    return Variant(run=run, model=roofing.model, formats=formats)


def _whole_model_loads(roofing: RooflineQuestion) -> Loads:
    """Return a function that gives the work and the given bytes of the whole model as one load,
    per example.
    """
    macs = round((roofing.macs or 0) * roofing.passes)

    def load_of_whole_model(
        model: ByteModel, formats: Formats, _scale: Fraction
    ) -> Sequence[Load]:
        """Return a tuple with one load for the whole model: its MACs, and its bytes of weights,
        caches and other tensors.
        """
        weights = _bytes_in_precision(
            roofing.weights, roofing.param_bytes, formats.format_of_weights()
        )
        moved = _bytes_in_precision(
            roofing.moved or 0, roofing.cache_bytes, formats.format_of_caches()
        )
        load = Load(
            node="the model",
            op="",
            path="",
            precision="",
            macs=macs,
            operations=2 * macs,
            weights=weights,
            cache=moved if roofing.can_change_element_size else 0,
            activations=0 if roofing.can_change_element_size else moved,
        )
        return (load,)

    return load_of_whole_model


def _bytes_in_precision(total: int, per_example: float | None, precision: str) -> int:
    """Return the total bytes if each element has the size of another precision; `per_example` is
    the present size of an element in bytes.
    """
    if per_example is None or not precision:
        return total
    return round(total * BITS[storage_precision(precision)] / (8 * per_example))


def _loads_from_counts(model: CountedModel | None, roofing: RooflineQuestion) -> Loads:
    """Return a function from byte model, formats and batch scale to the work and the bytes of each
    node.
    """
    if model is None:
        raise ValueError("a roofline needs a model or a number of bytes")
    graph, ledger = model.graph, model.ledger

    @cache
    def loads_of_nodes(byte_model: ByteModel, formats: Formats, scale: Fraction) -> Sequence[Load]:
        """Return the work and the bytes of each node, for this byte model, these formats and this
        batch scale.
        """
        counts = ledger if byte_model == "unfused" else count_nodes_with_their_bodies(graph)
        rows = node_loads(graph, counts, byte_model, formats, scale)
        return tuple(_with_matched_precision(row, roofing.precision_of) for row in rows)

    return loads_of_nodes


def _with_matched_precision(load: Load, patterns: Mapping[str, str]) -> Load:
    """Return a copy of the load with the precision of the last pattern that its node, operator or
    path matches.
    """
    names = (load.op, load.node, load.path)
    kept = [
        p
        for pattern, p in patterns.items()
        if any(matches_weight_pattern(name, pattern) for name in names)
    ]
    return msgspec.structs.replace(load, precision=kept[-1]) if kept else load


def _roofline_kernel_bounds(
    roofing: RooflineQuestion,
    model: CountedModel | None,
    base: Variant,
    nodes: Sequence[NodeBound],
) -> tuple[KernelBound, ...]:
    """Return the time bounds of the measured kernels of the roofline; () without a model or
    kernels.
    """
    if model is None or not roofing.kernels:
        return ()
    graph, ledger = model.graph, model.ledger
    return kernel_bounds(graph, ledger, nodes, roofing.kernels, base.run, base.formats)


def _roofline_assumptions(
    roofing: RooflineQuestion, model: CountedModel | None, step: StepBound
) -> tuple[str, ...]:
    """Return the sentences that state what a roofline assumes: byte model, passes, batch,
    energy.
    """
    assumptions = [
        f"bytes, {roofing.bytes_name}: {roofing.formula or FORMULAS[roofing.bytes_name]}"
    ]
    if roofing.passes != 1 and not roofing.has_byte_total:
        assumptions.append(
            f"each of the {float(roofing.passes):g} passes is assumed to move the bytes of "
            "the forward pass: right for contractions, approximate for other nodes; the bytes "
            "of the optimizer are not included"
        )
    if roofing.batch != roofing.counted and not roofing.has_byte_total:
        assumptions.append(
            f"counted with a batch of {roofing.counted} and scaled to {roofing.batch}, except "
            "for the weights"
        )
    scale = Fraction(roofing.batch, roofing.counted)
    experts = describe_experts(model.graph, scale) if model is not None else ""
    if experts and not roofing.has_byte_total:
        assumptions.append(experts)
    assumptions.append("work is 2 FLOPs per MAC; other operations count only by their bytes")
    if not roofing.has_byte_total and model is not None:
        assumptions += _constant_folding_notes(model)
    if step.joules is not None:
        assumptions.append(
            f"energy assumes the full TDP of {roofing.ceiling.name}, {roofing.ceiling.tdp:g} "
            "W, and is an upper bound for a step of that time"
        )
    return tuple(assumptions)


def _constant_folding_notes(model: CountedModel) -> list[str]:
    """Return sentences about the work that depends on no input and is left out of the roofline, []
    if there is none.
    """
    before = [count for count in model.ledger.counted if count.node.constant]
    sentences = []
    if before:
        moved = sum(count.cost.bytes_read + count.cost.bytes_written for count in before)
        sentences.append(
            f"{len(before)} nodes depend on no input, so they run before the step and are left "
            f"out; they would move {moved} bytes{_constant_macs_note(before)}"
        )
    partly = [c for c in model.ledger.counted if not c.node.constant and c.constant_cost != ZERO]
    if partly:
        sentences.append(
            f"{len(partly)} more nodes have some work that depends on no input, such as the "
            "first iterations of a loop; this work is left out, "
            f"too{_constant_macs_note(partly)}"
        )
    return sentences


def _constant_macs_note(counts: Iterable[CountedNode]) -> str:
    """Return a text such as " and do 12 MACs" for the work of these nodes that depends on no
    input, "" if it is 0.
    """
    macs = sum(count.constant_cost.macs for count in counts)
    return f" and do {macs} MACs" if macs else ""


def _roofline_warnings(
    model: CountedModel | None, efficiency: float | None, roofing: RooflineQuestion
) -> tuple[str, ...]:
    """Return the warnings of a roofline: uncounted nodes, or a run faster than its bound."""
    warnings = []
    unknown = 0 if model is None or roofing.has_byte_total else len(model.ledger.uncounted)
    if unknown:
        warnings.append(
            f"the roofline leaves out {unknown} uncounted nodes; their work and bytes would "
            "be added"
        )
    if efficiency is not None and efficiency > 1:
        warnings.append(
            f"the run is {efficiency:.2f} times as fast as its roofline: it moved fewer bytes "
            "than the byte model assumes (fused kernels, values kept in a cache), or it ran "
            "on another device"
        )
    return tuple(warnings)


# From a question of `efficiency` to what its roofline is asked of.

_HINT = "give a file written by `crossflops bench MODEL -o FILE.json`"


def with_bench_result(question: Question) -> tuple[Question, Bench | None]:
    """Return (question with the time and batch of the saved `bench` result, that result);
    unchanged and None without --bench.

    Raises CrossflopsError for a file that cannot be read or has no measurement.
    """
    if question.roof.bench is None:
        return question, None
    bench = _read_bench_file(Path(question.roof.bench))
    measurement = bench.measurement
    if measurement is None:
        raise CrossflopsError(
            f"the report {question.roof.bench} contains no successful run",
            "run `crossflops bench` again with a batch that fits into the memory",
        )
    speeds = [name for name in WAYS if getattr(question.speed, name) is not None]
    if speeds:
        flag = flag_of_field(speeds[0])
        raise InputError(
            f"{flag} cannot be combined with --bench, whose file has the measured time of a pass",
            f"leave out {flag} to use the time in the file, or leave out --bench",
        )
    if (bench.step is not None) != question.training.train:
        if question.training.train:
            raise InputError(
                "the file of --bench has the time of a forward pass, but --train asks for a "
                "training step",
                "leave out --train, or give a file written by `crossflops bench MODEL --train "
                "-o FILE.json`",
            )
        raise InputError(
            "the file of --bench has the time of a training step, but without --train a forward "
            "pass is rated",
            f"add --train, or {_HINT}",
        )
    batch = question.speed.batch or measurement.batch
    if batch != measurement.batch:
        raise InputError(
            f"the run of --bench has batch {measurement.batch}, but --batch is {batch}",
            "leave out --batch",
        )
    speed = replace(question.speed, latency_ms=1e3 * measurement.p50, batch=batch)
    return replace(question, speed=speed), bench


def _read_bench_file(path: Path) -> Bench:
    """Return the saved result of `bench`; raise CrossflopsError if the file cannot be read or is
    another one.
    """
    try:
        return Bench.from_json(read_file_bytes(path))
    except OSError as error:
        raise CrossflopsError(f"cannot read {path}: {error.strerror}", _HINT) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CrossflopsError(f"{path} is not a result of `bench`: {error}", _HINT) from error


def check_roofline_question(question: Question, request: Request | None) -> None:
    """Raise InputError if the options of a roofline are incomplete or contradict each other."""
    roof, work, layout = question.roof, question.work, question.parallel
    if not roof.is_requested:
        return
    option = next(
        flag_of_field(name) for name in group_field_names(type(roof)) if getattr(roof, name)
    )
    if question.against.device is None and not (
        question.against.peak_tflops and question.against.bandwidth
    ):
        raise InputError(
            f"{option} needs the peak FLOP/s and the memory bandwidth of a device",
            "give --device D, or --peak-tflops X and --bandwidth Y",
        )
    if layout.tp * layout.pp > 1:
        raise InputError(
            f"{option} shows one device and cannot be combined with --tp or --pp",
            "leave out --tp and --pp",
        )
    if roof.bytes_ and roof.bytes_per_example:
        raise InputError(
            "--bytes and --bytes-per-example cannot be combined", "leave out one of the two"
        )
    if roof.bytes_per_example is not None:
        return
    if request is None and roof.bytes_ not in (None, "weights-once"):
        raise InputError(
            f"--bytes {roof.bytes_} requires a model; the sizes of a model give only the bytes of "
            "weights and caches",
            "give the model, or leave out --bytes: weights and caches are then read once",
        )
    if request is None and question.language.params is None:
        raise InputError(
            f"{option} needs bytes, which --macs does not give",
            "add --bytes-per-example N, or give the model",
        )
    if request is None and question.language.context is None:
        raise InputError(
            f"{option} needs bytes, which --params without --context does not give",
            "give the model instead of its sizes, add --bytes-per-example N, or write --context T "
            "instead of --seq if the text is decoded",
        )
    if work.compare or question.precisions.mix:
        whose = "--compare" if work.compare else "--mix"
        raise InputError(
            f"{option} needs the counts of nodes, but {whose} gives only a total",
            f"leave out {option} or {whose}"
            if work.compare
            else "write --precision-of PATTERN=P, which sets the precision of nodes, instead of "
            "--mix",
        )


def build_requested_roofline(
    answer: Efficiency,
    run: MeasuredRun,
    work: WorkStudy,
    numerator: Numerator,
    against: Peaks | None,
    bench: Bench | None,
) -> Roofline | UnsetType:
    """Return the roofline that the question requests, UNSET if it requests none."""
    question = run.question
    if not question.roof.is_requested or against is None:
        return UNSET
    precision = question.precisions.precision
    roofing = RooflineQuestion(
        ceiling=_device_ceiling(against, precision),
        precision="" if precision == terms.GRAPH else precision,
        model=check_byte_model(question.roof.bytes_ or "unfused"),
        batch=question.speed.batch or 1,
        counted=work.examples,
        passes=Fraction(answer.multiplier).limit_denominator(10**6),
        macs=numerator.macs * run.units,
        what_if=question.roof.what_if,
        look=partial(look_up_device, catalogue=question.against.catalogue),
        seconds=_device_step_seconds(run),
        kernels=bench.profile.kernels if bench and bench.profile else (),
        precision_of=terms.parse_precision_patterns(question.precisions),
    )
    if question.roof.bytes_per_example is not None:
        roofing = replace(roofing, moved=parse_count(question.roof.bytes_per_example))
    elif work.counted is None and work.transfer is not None:
        moved = work.transfer
        roofing = replace(
            roofing,
            model="weights-once",
            formula=moved.model,
            moved=moved.per_example,
            weights=moved.weights,
            param_bytes=question.language.param_bytes,
            cache_bytes=question.language.cache_bytes,
        )
    return compute_roofline(roofing, work.counted)


def _device_ceiling(against: Peaks, precision: str) -> Ceiling:
    """Return the peaks and the memory bandwidth of the device as limits; raise UnknownNameError if
    its bandwidth is unknown.
    """
    device = against.device
    if against.bandwidth is None:
        raise UnknownNameError(
            f"the memory bandwidth of {device.label} is unknown"
            if device
            else "no memory bandwidth is given with --peak-tflops",
            "give it in GB/s with --bandwidth",
        )
    name = device.label if device else "given peaks"
    peaks = {**(device.peaks if device else {}), **against.given}
    if device is not None:
        peaks.pop(ANY, None)
        peaks |= {
            name: against.peak_of_precision(name) for name in EMULATIONS if name == precision
        }
    tdp = device.tdp if device else None
    return Ceiling(name=name, peaks=peaks, bandwidth=against.bandwidth, tdp=tdp)


def _device_step_seconds(run: MeasuredRun) -> float | None:
    """Return the seconds that one device needs for a batch; None if no speed was measured."""
    pace = run.pace
    if pace is None:
        return None
    batch = run.question.speed.batch or 1
    return pace.seconds or batch * run.units * run.world.dp / pace.per_second
