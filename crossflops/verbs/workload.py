"""Count the workload of a request: prefill, and decoding with a cache, from the counts of a few
single passes.

Few lengths are counted; the others lie on exact polynomials that were checked at further lengths
(`lengths`).
"""

import warnings
from collections.abc import Mapping, Sequence
from fractions import Fraction

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from crossflops.errors import CrossflopsWarning, InputError
from crossflops.frontends import Source
from crossflops.frontends.frontend import GenerationPasses, PromptImages
from crossflops.frontends.named import SIZES
from crossflops.hardware.expert_reads import describe_experts
from crossflops.hardware.step_traffic import Formats
from crossflops.ir.graph import TensorSpec
from crossflops.ir.polynomial import Polynomial, polynomial
from crossflops.ir.workload import (
    KINDS,
    GenerationPhase,
    LengthPiece,
    WorkAmounts,
    Workload,
    WorkShare,
)
from crossflops.report.report import PerToken, Report
from crossflops.targets.request import Request
from crossflops.threads import record_warnings
from crossflops.verbs.count import (
    CountedModel,
    ModelBuild,
    build_count_report,
    checking_formula_matches,
    collecting_warnings,
)
from crossflops.verbs.lengths import (
    SPAN,
    PolynomialPiece,
    Terms,
    fit_polynomial_pieces,
    fit_prompt_polynomials,
    fit_two_length_polynomials,
    polynomial_value,
    prefix_sum_polynomial,
    sum_pieces_over_lengths,
)
from crossflops.verbs.passes import (
    SMALLEST,
    CountedPass,
    LayeredCounter,
    PassCounter,
    build_layered_counter,
)
from crossflops.verbs.provenance import build_request_record, framework_versions
from crossflops.verbs.vary import interpolate_on_grid

LAYERED = (
    "other lengths were counted with one and two layers of each kind; at a prompt of {1} their "
    "sum over {0} layers equals the whole model, and decoding steps equal those of a model with "
    "more layers"
)

# The workload.

# What the builder of a model says, and does not hold here.
_OF_ONE_PASS = ("is counted without a key-value cache", "using the default input ")


def count_generation(request: Request) -> tuple[Report, CountedModel]:
    """Return (report, counted model) of the prefill; the report has the whole workload of the
    request.

    Raises InputError for options that do not apply, and where the model does not generate.
    """
    refuse_invalid_token_numbers(request)
    refuse_options_of_other_counts(request)
    if request.images and request.draft:
        raise InputError(
            "--images cannot be combined with --draft", "leave out --images, or leave out --draft"
        )
    if request.draft or request.draft_tokens or request.acceptance:
        from crossflops.verbs.speculation import mean_accepted_tokens, refuse_draft_options

        refuse_draft_options(request)
        mean_accepted_tokens(
            request.acceptance, request.draft_tokens or 1
        )  # before a model is built
    request = replace(request, cache_dtype=request.cache_dtype.casefold())
    with collecting_warnings() as sentences, checking_formula_matches() as warn_of_unmatched:
        with record_warnings(CrossflopsWarning) as recorded:
            counted, workload = ModelBuild(
                _without_image_size(request)
            ).compute_with_values_if_needed(
                lambda source: _count_generation_passes(request, source)
            )
            report = build_count_report(counted)
        for warning in recorded:
            if not any(part in str(warning.message) for part in _OF_ONE_PASS):
                warnings.warn(warning.message, CrossflopsWarning, stacklevel=2)
        warn_of_unmatched(counted)
    typed = {
        "prompt": request.prompt,
        "generate": request.generate,
        "images": request.images,
        "cache_dtype": request.cache_dtype or None,
        "draft": request.draft or None,
        "draft_tokens": request.draft_tokens,
        "acceptance": request.acceptance or None,
    }
    report = msgspec.structs.replace(
        report,
        workload=workload,
        per_token=PerToken.from_totals(report.model.inputs, report.totals) or UNSET,
        request=build_request_record("count", request, report.model, typed),
        made_with=framework_versions(False),
        warnings=(*report.warnings, *sentences),
    )
    return report, counted


def _count_generation_passes(request: Request, source: Source) -> tuple[CountedModel, Workload]:
    """Return (counted first pass, workload) of a built model, and of its draft model if any."""
    if not request.draft:
        return count_workload(request, source)
    from crossflops.verbs.speculation import count_speculation

    return count_speculation(request, source)


def _without_image_size(request: Request) -> Request:
    """Return a copy of the request without the side of images, which are no usual input here."""
    sizes = {name: size for name, size in request.sizes.items() if name != "image_size"}
    return replace(request, sizes=sizes)


def refuse_invalid_token_numbers(request: Request) -> None:
    """Raise InputError for a number of tokens or images that is not a whole number above zero."""
    numbers: dict[str, object] = {
        "--prompt": request.prompt,
        "--generate": request.generate,
        "--images": request.images,
        "--draft-tokens": request.draft_tokens,
    }
    for flag, number in numbers.items():
        if number is None:
            continue
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise InputError(
                f"{flag} must be a whole number of at least 1, got {number!r}",
                f"give a whole number, such as {flag} 4",
            )


def refuse_options_of_other_counts(request: Request) -> None:
    """Raise InputError for options that a workload does not use, and for --prompt without
    --generate or the reverse.
    """
    if request.generate is None:
        raise InputError("--prompt requires --generate", "add --generate N, a number of tokens")
    if request.prompt is None:
        raise InputError("--generate requires --prompt", "add --prompt N, a number of tokens")
    Formats(cache=request.cache_dtype.casefold())
    if request.target is None or request.is_file or request.given is not None:
        raise InputError(
            "--prompt requires a target that builds a language model",
            "give a config of transformers, such as hf:config.json",
        )
    used = {"batch", "image_size"} if request.images else {"batch"}
    inputs: dict[str, object] = {
        "--input": request.specs, "--inputs": request.inputs_file, "--shapes": request.shapes,
        **{SIZES[name]: size for name, size in request.sizes.items() if name not in used},
    }  # fmt: skip
    others: dict[str, object] = {
        "--vary": request.vary, "--observe": request.observe, "--as": request.as_,
        "--train": request.train, "--train-mode": request.setting.training,
        "--dim": request.dims, "--trips": request.trips, "--branch": request.branches,
    }  # fmt: skip
    for flag, value in (inputs | others).items():
        if value:
            reason = (
                "which sets the inputs of every pass"
                if flag in inputs
                else "which counts the passes of generated text natively and in evaluation mode"
            )
            raise InputError(
                f"{flag} cannot be combined with --prompt, {reason}", f"leave out {flag}"
            )


def count_workload(request: Request, source: Source) -> tuple[CountedModel, Workload]:
    """Return (counted prefill, workload) of a built model: prefill and decoding, with their
    polynomials.

    Raises InputError where the model does not generate, or its steps have no polynomials.
    """
    generate = request.generate or 1
    batch = request.sizes.get("batch", 1)
    images = PromptImages(request.images or 0, request.sizes.get("image_size", 0))
    whole_model = PassCounter(source, request.setting, batch, request.cache_dtype, images)
    prompt = (request.prompt or 1) + whole_model.passes.image_tokens
    first = whole_model.count_prefill_model(prompt)
    begin = 1 if whole_model.passes.is_encoder_decoder else prompt
    last = begin + generate - 1
    layered = None
    if generate > 1:
        layered = build_layered_counter(
            request, whole_model, source.model.config, (prompt, 1), last
        )
    used = layered or whole_model
    prefill = _prefill_phase(used, whole_model.get_or_count_prefill(prompt), prompt, batch)
    steps = _fit_decoding_steps(used, prompt, last) if generate > 1 else ()
    joint = [_prompt_and_context_polynomials(used, step, prompt) for step in steps]
    end = (
        used.get_or_count_step(prompt, last) if steps else whole_model.get_or_count_prefill(prompt)
    )
    decode = None
    if steps:
        sums = [
            sum_pieces_over_lengths(steps, index, begin + 1, last) for index, _ in enumerate(KINDS)
        ]
        pieces = [
            to_context_polynomials(step, terms) for step, terms in zip(steps, joint, strict=True)
        ]
        decode = make_generation_phase(
            end, name_amounts(sums), generate - 1, batch, batch * (generate - 1), pieces
        )
    phases = [phase for phase in (prefill, decode) if phase is not None]
    macs, flops = (sum(getattr(phase.amounts, kind) for phase in phases) for kind in KINDS[:2])
    totals = [
        _sum_over_decoding_steps(joint[0][index], whole_model.passes) if len(joint) == 1 else None
        for index in range(2)
    ]
    kept = whole_model.get_or_count_prefill(prompt).kept
    workload = Workload(
        kind="encoder-decoder" if whole_model.passes.is_encoder_decoder else "decoder",
        prompt=prompt,
        images=images.number,
        image_tokens=whole_model.passes.image_tokens,
        generate=generate,
        batch=batch,
        cache_dtype=request.cache_dtype or kept[0].storage_dtype,
        model_cache_dtype=kept[0].storage_dtype if request.cache_dtype else "",
        cache_bytes=end.cache_bytes,
        prefill=prefill,
        decode=decode,
        decode_macs=totals[0],
        decode_flops=totals[1],
        macs=macs,
        flops=flops,
        moved_bytes=sum(phase.moved_bytes for phase in phases),
        per_request=divide_work_evenly(macs, flops, batch),
        per_new_token=divide_work_evenly(macs, flops, batch * generate),
        counted=whole_model.pass_count + (layered.pass_count if layered else 0),
        layers=LAYERED.format(source.model.config.num_hidden_layers, prompt) if layered else "",
        experts=describe_experts(first.graph),
        cache_heads=fewest_cache_heads(kept),
        model_bytes=first.graph.param_bytes,
        weight_dtype=common_parameter_type(first.graph.param_bytes_by_type),
    )
    return first, workload


def fewest_cache_heads(specs: Sequence[TensorSpec]) -> int:
    """Return the fewest heads of a tensor of the cache, [batch, heads, tokens, depth]; 0 for
    tensors of another form.
    """
    shapes = [spec.shape for spec in specs if spec.shape is not None and len(spec.shape) == 4]
    return min((shape[1] for shape in shapes), default=0)


def common_parameter_type(bytes_by_type: Mapping[str, int]) -> str:
    """Return the type of all parameters, "" where they have several."""
    return next(iter(bytes_by_type)) if len(bytes_by_type) == 1 else ""


def _prefill_phase(
    used: PassCounter | LayeredCounter, longest: CountedPass, prompt: int, batch: int
) -> GenerationPhase:
    """Return the prefill as a phase of the workload, with polynomials that hold for prompts longer
    than each window.
    """
    full = [window + 1 for window in used.passes.windows if window < prompt]
    smallest = min(max([SMALLEST + used.passes.image_tokens, *full]), prompt)
    largest = max(prompt, smallest + SPAN - 1)
    formulas = (
        None if terms is None else polynomial(("prompt",), terms)
        for terms in fit_prompt_polynomials(used.prefill_amounts, smallest, largest)
    )
    piece = LengthPiece(
        along="prompt", first=smallest, last=largest, **dict(zip(KINDS, formulas, strict=True))
    )
    return make_generation_phase(
        longest, name_amounts(longest.amounts), 1, batch, batch * prompt, [piece]
    )


def _fit_decoding_steps(
    used: PassCounter | LayeredCounter, prompt: int, last: int
) -> tuple[PolynomialPiece, ...]:
    """Return polynomial pieces for the amounts of a decoding step, by the length of its
    context.
    """
    hints = [edge for window in used.passes.windows for edge in (window - 1, window)]
    last = max(last, SMALLEST + SPAN - 1)
    return fit_polynomial_pieces(
        lambda context: used.decoding_step_amounts(prompt, context),
        SMALLEST,
        last,
        hints,
        "a step",
    )


def _prompt_and_context_polynomials(
    used: PassCounter | LayeredCounter, step: PolynomialPiece, prompt: int
) -> tuple[Terms | None, ...]:
    """Return for each kind of amount its polynomial in (prompt, context); for a decoder the prompt
    has no effect.

    None for a kind of count that has no polynomial in both.
    """
    if used.passes.is_encoder_decoder:
        return fit_two_length_polynomials(used.decoding_step_amounts, step, prompt)
    return tuple({(0, *at): value for at, value in terms.items()} for terms in step.terms)


def to_context_polynomials(piece: PolynomialPiece, joint: tuple[Terms | None, ...]) -> LengthPiece:
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


def _sum_over_decoding_steps(terms: Terms | None, passes: GenerationPasses) -> Polynomial | None:
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
        sums = prefix_sum_polynomial(at)
        for generate in lengths:
            values[prompt, generate] = polynomial_value(
                sums, begin + generate - 1
            ) - polynomial_value(sums, begin)
    return polynomial(("prompt", "generate"), interpolate_on_grid([prompts, lengths], values))


def name_amounts(amounts: Sequence[int]) -> WorkAmounts:
    """Return the amounts of a pass under their names: MACs, FLOPs and bytes."""
    return WorkAmounts(**dict(zip(KINDS, amounts, strict=True)))


def make_generation_phase(
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
        per_request=divide_work_evenly(amounts.macs, amounts.flops, batch),
        per_token=divide_work_evenly(amounts.macs, amounts.flops, tokens),
        pieces=tuple(pieces),
    )


def divide_work_evenly(macs: int, flops: int, parts: int) -> WorkShare:
    """Return MACs and FLOPs divided by `parts`, as integers where they divide evenly."""
    return WorkShare(*(n // parts if n % parts == 0 else n / parts for n in (macs, flops)))
