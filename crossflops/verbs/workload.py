"""Count the workload of a request: prefill, and decoding with a cache, from the counts of a few
single passes.

Every pass is counted as any model. Few lengths are counted; the others lie on exact polynomials
that were checked at further lengths (`lengths`). A model of many layers is counted with one and
two layers of each kind, and checked as a whole at its longest prefill and its longest step.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from crossflops.errors import CrossflopsWarning, InputError
from crossflops.frontends import Source, library_of, require_frontend
from crossflops.frontends.frontend import GenerationPasses
from crossflops.frontends.named import SIZES
from crossflops.hardware.expert_reads import describe_experts
from crossflops.hardware.step_traffic import Formats, loads
from crossflops.ir.graph import Graph, TensorSpec
from crossflops.ir.ledger import UncountedNode
from crossflops.ir.polynomial import Polynomial, polynomial
from crossflops.ir.trace import Setting
from crossflops.ir.workload import (
    KINDS,
    GenerationPhase,
    LengthPiece,
    WorkAmounts,
    Workload,
    WorkShare,
)
from crossflops.ledger.count import count_whole
from crossflops.ledger.memory import activation_peak
from crossflops.report.report import PerToken, Report
from crossflops.targets.request import Request
from crossflops.threads import filter_warnings, record_warnings
from crossflops.verbs.count import (
    CountedModel,
    ModelBuild,
    build_count_report,
    collecting_warnings,
    count_source,
    formula_match_check,
)
from crossflops.verbs.lengths import (
    SPAN,
    PolynomialPiece,
    Terms,
    fit_pieces,
    fit_prompts,
    fit_second_length,
    sum_pieces,
    sum_terms,
    value_at,
)
from crossflops.verbs.provenance import build_request_record, framework_versions
from crossflops.verbs.vary import interpolate

_CHECKED = 4  # layers of a model that checks the sum over layers
_LAYERED = (
    "other lengths were counted with one and two layers of each kind; at a prompt of {1} their "
    "sum over {0} layers equals the whole model, and decoding steps equal those of a model with "
    "more layers"
)
_MANY_LAYERS = 8  # from here on most passes are counted with fewer layers
_LAYERS, _TYPES = "num_hidden_layers", ("layer_types", "mlp_layer_types")
_SMALLEST = 2  # tokens: models treat a single one apart
_Counts = tuple[int, ...]


class CountedPass(msgspec.Struct, frozen=True):
    """One pass that was counted: its amounts of every kind, and bytes of the cache after it, of
    the weights that it must read, and of its activations; `kept` is all that a prefill kept.
    """

    amounts: _Counts
    cache_bytes: int
    weight_bytes: int
    peak_bytes: int
    kept: tuple[TensorSpec, ...] = ()


class PassCounter:
    """Counts single passes of one model at many lengths, each length once."""

    def __init__(self, source: Source, setting: Setting, batch: int) -> None:
        """Record the model. Raises InputError where it does not generate."""
        frontend = require_frontend(source.model)
        self.passes: GenerationPasses = frontend.generation(source.model)
        self._setting, self._batch = setting, batch
        self._prefills: dict[int, CountedPass] = {}
        self._steps: dict[tuple[int, int], CountedPass] = {}

    @property
    def pass_count(self) -> int:
        """The number of different passes that were counted."""
        return len(self._prefills) + len(self._steps)

    def prefill_at(self, prompt: int) -> _Counts:
        """Return MACs, FLOPs and bytes of a prefill of `prompt` tokens."""
        return self.prefill(prompt).amounts

    def step_at(self, prompt: int, context: int) -> _Counts:
        """Return MACs, FLOPs and bytes of a decoding step after `context` tokens; for a decoder
        the prompt has no effect.
        """
        return self.step(prompt, context).amounts

    def step(self, prompt: int, context: int) -> CountedPass:
        """Return the counted decoding step after `context` tokens; it is counted at the first
        call.
        """
        key = (prompt if self.passes.is_encoder_decoder else 0, context)
        if key not in self._steps:
            self.count_step(prompt, context)
        return self._steps[key]

    def prefill(self, prompt: int) -> CountedPass:
        """Return the counted prefill of `prompt` tokens; it is counted at the first call."""
        if prompt not in self._prefills:
            self.count_prefill(prompt)
        return self._prefills[prompt]

    def count_prefill(self, prompt: int) -> CountedModel:
        """Count a prefill of `prompt` tokens and keep its amounts; return the counted model."""
        counted = self._count(self.passes.prefill(self._batch, prompt))
        kept = counted.graph.outputs[1:]
        own = kept[:-1] if self.passes.is_encoder_decoder else kept
        written = sum(spec.nbytes for spec in own)
        self._prefills[prompt] = CountedPass(
            _pass_amounts(counted, 0, written), written, *_pass_memory(counted), tuple(kept)
        )
        return counted

    def count_step(self, prompt: int, context: int) -> None:
        """Count a decoding step after `context` tokens and keep its amounts."""
        known = next(iter(self._prefills.values()), None) or self.prefill(_SMALLEST)
        source = self.passes.step(prompt, context, known.kept)
        counted = self._count(source)
        is_pair = self.passes.is_encoder_decoder
        past = [spec for spec in counted.graph.inputs if spec.name.startswith("past")]
        read = sum(spec.nbytes for spec in past)
        grown = past[: len(past) // 2] if is_pair else past
        written = sum(spec.nbytes // (spec.shape or (1,))[-2] for spec in grown)
        key = (prompt if is_pair else 0, context)
        after = sum(spec.nbytes for spec in (*counted.graph.outputs[1:], *past[len(grown) :]))
        self._steps[key] = CountedPass(
            _pass_amounts(counted, read, written), after, *_pass_memory(counted)
        )

    def _count(self, source: Source) -> CountedModel:
        """Return the count of one pass; raise InputError if one of its nodes cannot be counted."""
        with filter_warnings("ignore"):  # the report's own count tells them, once
            counted = count_source(source, self._setting, ())
        for row in counted.ledger.counts:
            if isinstance(row, UncountedNode):
                raise InputError(
                    f"node {row.node.key!r} of a pass is not counted: {row.reason}",
                    "count one pass, and give the node a formula with --formulas",
                )
        return counted


def _pass_amounts(model: CountedModel, read: int, append: int) -> _Counts:
    """Return (MACs, FLOPs, bytes read, bytes written, cache bytes read, cache bytes written) of a
    pass.
    """
    cost = model.ledger.total
    return cost.macs, cost.flops, cost.bytes_read, cost.bytes_written, read, append


def _pass_memory(model: CountedModel) -> tuple[int, int]:
    """Return (bytes of the weights that a pass must read, peak of its activations in bytes)."""
    graph = model.graph
    rows = loads(_without_constants(graph), count_whole(graph), "fused-ideal", Formats())
    return sum(row.weights for row in rows), activation_peak(graph).nbytes


def _without_constants(graph: Graph) -> Graph:
    """Return the graph in which tensors that no parameter or buffer holds are not stored.

    Up to some length an export folds the causal mask into a constant, which is not a weight.
    """
    nodes = tuple(
        replace(
            node,
            inputs=tuple(
                replace(spec, role="") if spec is not None and spec.role == "constant" else spec
                for spec in node.inputs
            ),
        )
        for node in graph.nodes
    )
    return replace(graph, nodes=nodes)


# A model of many layers: its passes are sums over layers, and layers of one kind cost the same.


class LayeredCounter:
    """Counts a model of many layers from models that have one or two layers of each kind.

    f(model) = f(one of each kind) + sum over kinds of (n - 1) (f(one more of it) - f(one of each))
    """

    def __init__(
        self, base: PassCounter, more: Sequence[PassCounter], numbers: Sequence[int]
    ) -> None:
        """Record the model with one layer of each kind, the one with one more layer for each
        kind, and the number of layers of each kind.
        """
        self._base, self._more, self._numbers = base, tuple(more), tuple(numbers)
        self.passes = base.passes

    @property
    def pass_count(self) -> int:
        """The number of different passes that were counted, over all small models."""
        return self._base.pass_count + sum(counter.pass_count for counter in self._more)

    def with_numbers(self, numbers: Sequence[int]) -> "LayeredCounter":
        """Return a counter for a model that has these numbers of layers of each kind."""
        return LayeredCounter(self._base, self._more, numbers)

    def prefill_at(self, prompt: int) -> _Counts:
        """Return MACs, FLOPs and bytes of a prefill of `prompt` tokens."""
        return self._sum_over_layers(lambda counter: counter.prefill_at(prompt))

    def step_at(self, prompt: int, context: int) -> _Counts:
        """Return MACs, FLOPs and bytes of a decoding step after `context` tokens."""
        return self._sum_over_layers(lambda counter: counter.step_at(prompt, context))

    def step(self, prompt: int, context: int) -> CountedPass:
        """Return a decoding step after `context` tokens; its activation peak is 0, which means
        unknown, because layers do not add up to it.
        """

        def sizes(counter: PassCounter) -> _Counts:
            """Return (bytes of the cache, bytes of the weights) of this step in one of the small
            models.
            """
            counted = counter.step(prompt, context)
            return counted.cache_bytes, counted.weight_bytes

        cache, weights = self._sum_over_layers(sizes)
        return CountedPass(self.step_at(prompt, context), cache, weights, 0)

    def _sum_over_layers(self, count: Callable[[PassCounter], _Counts]) -> _Counts:
        """Return the amounts of the whole model, from those that `count` gives for the small
        models.
        """
        base = count(self._base)
        total = list(base)
        for number, counter in zip(self._numbers, self._more, strict=True):
            for index, amount in enumerate(count(counter)):
                total[index] += (number - 1) * (amount - base[index])
        return tuple(total)


class LayerKinds:
    """The kinds of layers in the config of a decoder, in their order."""

    def __init__(self, config: Any) -> None:
        """Read a config of transformers."""
        self.number: int = getattr(config, _LAYERS, 0)
        lists = {name: getattr(config, name, None) for name in _TYPES}
        self._lists = {
            name: value
            for name, value in lists.items()
            if isinstance(value, list) and len(value) == self.number
        }
        columns = self._lists.values()
        self.kinds = list(zip(*columns, strict=True)) if columns else [()] * self.number
        self.distinct = list(dict.fromkeys(self.kinds))

    def arguments(self, kinds: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
        """Return {name: value} of config arguments that give the model these layers."""
        columns = zip(*kinds, strict=True)
        named = {name: list(column) for name, column in zip(self._lists, columns, strict=False)}
        return {_LAYERS: len(kinds), **named}

    def numbers(self, kinds: Sequence[tuple[Any, ...]]) -> list[int]:
        """Return how many of these layers are of each distinct kind."""
        return [kinds.count(kind) for kind in self.distinct]


def _build_layered_counter(
    request: Request, whole_model: PassCounter, config: Any, last: int
) -> LayeredCounter | None:
    """Return a counter by layers that was checked against counts of whole models; None if it does
    not agree or has no use.
    """
    layers = LayerKinds(config)
    library = None if request.given is not None else library_of(str(request.target))
    named = library is not None and library.prefix == "hf"
    few = max(_MANY_LAYERS, len(layers.distinct) + _CHECKED)
    if whole_model.passes.is_encoder_decoder or not named or layers.number < few:
        return None

    def counter(kinds: Sequence[tuple[Any, ...]]) -> PassCounter:
        """Return a counter for a model that has only these layers."""
        arguments = {**request.arguments, **layers.arguments(kinds)}
        smaller = msgspec.structs.replace(request, arguments=arguments, sizes={})
        batch = request.sizes.get("batch", 1)
        with filter_warnings("ignore"):
            return ModelBuild(smaller).ask(
                lambda source: PassCounter(source, request.setting, batch)
            )

    distinct = layers.distinct
    more = [counter([*distinct, kind]) for kind in distinct]
    layered = LayeredCounter(counter(distinct), more, layers.numbers(layers.kinds))
    assert request.prompt is not None
    if layered.prefill_at(request.prompt) != whole_model.prefill_at(request.prompt):
        return None
    larger = (
        [*layers.kinds[: _CHECKED - len(distinct)], *distinct]
        if len(distinct) < _CHECKED
        else [*distinct, *distinct]
    )
    expected = layered.with_numbers(layers.numbers(larger))
    if expected.step_at(0, last) != counter(larger).step_at(0, last):
        return None
    return layered


# The workload.

# What the builder of a model says, and does not hold here.
_OF_ONE_PASS = ("is counted without a key-value cache", "using the default input ")


def count_generation(request: Request) -> tuple[Report, CountedModel]:
    """Return (report, counted model) of the prefill; the report has the whole workload of the
    request.

    Raises InputError for options that do not apply, and where the model does not generate.
    """
    refuse_other_options(request)
    with collecting_warnings() as sentences, formula_match_check() as warn_of_unmatched:
        with record_warnings(CrossflopsWarning) as recorded:
            counted, workload = ModelBuild(request).ask(
                lambda source: count_workload(request, source)
            )
            report = build_count_report(counted)
        for warning in recorded:
            if not any(part in str(warning.message) for part in _OF_ONE_PASS):
                warnings.warn(warning.message, CrossflopsWarning, stacklevel=2)
        warn_of_unmatched(counted)
    typed = {"prompt": request.prompt, "generate": request.generate}
    report = msgspec.structs.replace(
        report,
        workload=workload,
        per_token=PerToken.from_totals(report.model.inputs, report.totals) or UNSET,
        request=build_request_record("count", request, report.model, typed),
        made_with=framework_versions(False),
        warnings=(*report.warnings, *sentences),
    )
    return report, counted


def refuse_other_options(request: Request) -> None:
    """Raise InputError for options that a workload does not use, and for --prompt without
    --generate or the reverse.
    """
    if request.generate is None:
        raise InputError("--prompt requires --generate", "add --generate N, a number of tokens")
    if request.prompt is None:
        raise InputError("--generate requires --prompt", "add --prompt N, a number of tokens")
    if min(request.prompt, request.generate) < 1:
        raise InputError(
            "--prompt and --generate must be at least 1, got "
            f"{request.prompt} and {request.generate}",
            "give numbers of tokens, such as --prompt 512 --generate 128",
        )
    if request.target is None or request.is_file or request.given is not None:
        raise InputError(
            "--prompt requires a target that builds a language model",
            "give a config of transformers, such as hf:config.json",
        )
    used = {"batch"}
    options: dict[str, object] = {
        "--input": request.specs, "--inputs": request.inputs_file, "--vary": request.vary,
        "--observe": request.observe, "--as": request.as_, "--train": request.train,
        "--shapes": request.shapes, "--dim": request.dims, "--trips": request.trips,
        "--branch": request.branches, "--train-mode": request.setting.training,
        **{SIZES[name]: size for name, size in request.sizes.items() if name not in used},
    }  # fmt: skip
    for flag, value in options.items():
        if value:
            raise InputError(
                f"{flag} cannot be combined with --prompt, which sets the inputs of every pass",
                f"leave out {flag}",
            )


def count_workload(request: Request, source: Source) -> tuple[CountedModel, Workload]:
    """Return (counted prefill, workload) of a built model: prefill and decoding, with their
    polynomials.

    Raises InputError where the model does not generate, or its steps have no polynomials.
    """
    prompt, generate = request.prompt or 1, request.generate or 1
    batch = request.sizes.get("batch", 1)
    whole_model = PassCounter(source, request.setting, batch)
    first = whole_model.count_prefill(prompt)
    begin = 1 if whole_model.passes.is_encoder_decoder else prompt
    last = begin + generate - 1
    layered = None
    if generate > 1:
        layered = _build_layered_counter(request, whole_model, source.model.config, last)
    used = layered or whole_model
    prefill = _prefill_phase(used, whole_model.prefill(prompt), prompt, batch)
    steps = _fit_steps(used, prompt, last) if generate > 1 else ()
    joint = [_joint_terms(used, step, prompt) for step in steps]
    end = used.step(prompt, last) if steps else whole_model.prefill(prompt)
    decode = None
    if steps:
        sums = [sum_pieces(steps, index, begin + 1, last) for index, _ in enumerate(KINDS)]
        pieces = [_context_piece(step, terms) for step, terms in zip(steps, joint, strict=True)]
        decode = _phase(
            end, _amounts_by_name(sums), generate - 1, batch, batch * (generate - 1), pieces
        )
    phases = [phase for phase in (prefill, decode) if phase is not None]
    macs, flops = (sum(getattr(phase.amounts, kind) for phase in phases) for kind in KINDS[:2])
    totals = [
        _decode_terms(joint[0][index], whole_model.passes) if len(joint) == 1 else None
        for index in range(2)
    ]
    workload = Workload(
        kind="encoder-decoder" if whole_model.passes.is_encoder_decoder else "decoder",
        prompt=prompt,
        generate=generate,
        batch=batch,
        cache_dtype=whole_model.prefill(prompt).kept[0].storage_dtype,
        cache_bytes=end.cache_bytes,
        prefill=prefill,
        decode=decode,
        decode_macs=totals[0],
        decode_flops=totals[1],
        macs=macs,
        flops=flops,
        moved_bytes=sum(phase.moved_bytes for phase in phases),
        per_request=_divide_amounts(macs, flops, batch),
        per_new_token=_divide_amounts(macs, flops, batch * generate),
        counted=whole_model.pass_count + (layered.pass_count if layered else 0),
        layers=_LAYERED.format(source.model.config.num_hidden_layers, prompt) if layered else "",
        experts=describe_experts(first.graph),
        cache_heads=_cache_heads(whole_model.prefill(prompt).kept),
        model_bytes=first.graph.param_bytes,
        weight_dtype=_only_type(first.graph.param_bytes_by_type),
    )
    return first, workload


def _cache_heads(specs: Sequence[TensorSpec]) -> int:
    """Return the fewest heads of a tensor of the cache, [batch, heads, tokens, depth]; 0 for
    tensors of another form.
    """
    shapes = [spec.shape for spec in specs if spec.shape is not None and len(spec.shape) == 4]
    return min((shape[1] for shape in shapes), default=0)


def _only_type(bytes_by_type: Mapping[str, int]) -> str:
    """Return the type of all parameters, "" where they have several."""
    return next(iter(bytes_by_type)) if len(bytes_by_type) == 1 else ""


def _prefill_phase(
    used: PassCounter | LayeredCounter, longest: CountedPass, prompt: int, batch: int
) -> GenerationPhase:
    """Return the prefill as a phase of the workload, with polynomials that hold for prompts longer
    than each window.
    """
    full = [window + 1 for window in used.passes.windows if window < prompt]
    smallest = min(max([_SMALLEST, *full]), prompt)
    largest = max(prompt, smallest + SPAN - 1)
    formulas = (
        None if terms is None else polynomial(("prompt",), terms)
        for terms in fit_prompts(used.prefill_at, smallest, largest)
    )
    piece = LengthPiece(
        along="prompt", first=smallest, last=largest, **dict(zip(KINDS, formulas, strict=True))
    )
    return _phase(longest, _amounts_by_name(longest.amounts), 1, batch, batch * prompt, [piece])


def _fit_steps(
    used: PassCounter | LayeredCounter, prompt: int, last: int
) -> tuple[PolynomialPiece, ...]:
    """Return polynomial pieces for the amounts of a decoding step, by the length of its
    context.
    """
    hints = [edge for window in used.passes.windows for edge in (window - 1, window)]
    last = max(last, _SMALLEST + SPAN - 1)
    return fit_pieces(
        lambda context: used.step_at(prompt, context), _SMALLEST, last, hints, "a step"
    )


def _joint_terms(
    used: PassCounter | LayeredCounter, step: PolynomialPiece, prompt: int
) -> tuple[Terms | None, ...]:
    """Return for each kind of amount its polynomial in (prompt, context); for a decoder the prompt
    has no effect.

    None for a kind of count that has no polynomial in both.
    """
    if used.passes.is_encoder_decoder:
        return fit_second_length(used.step_at, step, prompt)
    return tuple({(0, *at): value for at, value in terms.items()} for terms in step.terms)


def _context_piece(piece: PolynomialPiece, joint: tuple[Terms | None, ...]) -> LengthPiece:
    """Return the polynomials of a decoding step in prompt and context, with the range of contexts
    for which they hold.
    """
    formulas = (
        None if terms is None else polynomial(("prompt", "context"), terms) for terms in joint
    )
    return LengthPiece(
        along="context",
        first=piece.first,
        last=piece.last,
        **dict(zip(KINDS, formulas, strict=True)),
    )


def _decode_terms(terms: Terms | None, passes: GenerationPasses) -> Polynomial | None:
    """Return the sum over all decoding steps as a polynomial in `prompt` and `generate`; None
    without terms.
    """
    if terms is None:
        return None
    high = max((powers[1] for powers in terms), default=0)
    most = max((powers[0] for powers in terms), default=0)
    prompts, lengths = range(1, most + high + 3), range(1, high + 3)
    values: dict[tuple[int, ...], int | Fraction] = {}
    for prompt in prompts:
        at: dict[tuple[int, ...], Fraction] = {}
        for (power, context), value in terms.items():
            at[context,] = at.get((context,), Fraction(0)) + value * prompt**power
        begin = 1 if passes.is_encoder_decoder else prompt
        sums = sum_terms(at)
        for generate in lengths:
            values[prompt, generate] = value_at(sums, begin + generate - 1) - value_at(sums, begin)
    return polynomial(("prompt", "generate"), interpolate([prompts, lengths], values))


def _amounts_by_name(amounts: Sequence[int]) -> WorkAmounts:
    """Return the amounts of a pass under their names: MACs, FLOPs and bytes."""
    return WorkAmounts(**dict(zip(KINDS, amounts, strict=True)))


def _phase(
    longest: CountedPass,
    amounts: WorkAmounts,
    passes: int,
    batch: int,
    tokens: int,
    pieces: Sequence[LengthPiece],
) -> GenerationPhase:
    """Return a phase of the workload, such as its decoding: `amounts` is the sum over its passes,
    `longest` its longest pass.
    """
    weights = longest.weight_bytes
    return GenerationPhase(
        passes=passes,
        tokens=tokens,
        amounts=amounts,
        weight_bytes=weights,
        moved_bytes=passes * weights + amounts.cache_read + amounts.cache_written,
        peak_activation_bytes=longest.peak_bytes or None,
        per_request=_divide_amounts(amounts.macs, amounts.flops, batch),
        per_token=_divide_amounts(amounts.macs, amounts.flops, tokens),
        pieces=tuple(pieces),
    )


def _divide_amounts(macs: int, flops: int, parts: int) -> WorkShare:
    """Return MACs and FLOPs divided by `parts`, as integers where they divide evenly."""
    return WorkShare(*(n // parts if n % parts == 0 else n / parts for n in (macs, flops)))
