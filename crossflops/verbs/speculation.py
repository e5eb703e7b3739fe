"""Count speculative decoding: a draft model proposes tokens, the model checks them in one pass.

The passes are those of `generate(assistant_model=...)` of transformers (generation/utils.py,
assisted decoding, and candidate_generator.py, read in 5.23), with a constant number of proposed
tokens and no threshold of confidence. In a round that begins with n tokens of a request, of which
r are still to come, k = min(K, r - 1) tokens are proposed:

* the draft runs k passes. The first takes two tokens, up to the n-th, and the others take one:
  the cache of the draft always lacks the last two tokens.
* the model runs one pass over k + 1 tokens, up to the (n + k)-th, with logits of them all.

In the first round the draft begins with its prefill of the prompt, and the model takes prompt and
proposed tokens in one pass. Of the k tokens a are accepted, and one more comes from the model.

How many are accepted is an assumption. Their mean A is given, and they are spread evenly: in round
i (from 1) it is floor(i A) - floor((i - 1) A), as far as so many were proposed. So every pass has
a length, and all amounts are integers.
"""

import math
import warnings
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from msgspec.structs import replace

from crossflops.errors import CrossflopsError, CrossflopsWarning, InputError
from crossflops.frontends import Source
from crossflops.frontends.frontend import ONE_TOKEN, NewTokens
from crossflops.hardware.expert_reads import describe_experts
from crossflops.ir.workload import KINDS, GenerationPhase, LengthPiece, Speculation, Workload
from crossflops.targets.request import Request
from crossflops.verbs.count import CountedModel, ModelBuild
from crossflops.verbs.lengths import SPAN, PolynomialPiece, fit_polynomial_pieces
from crossflops.verbs.passes import (
    CountedPass,
    LayeredCounter,
    PassCounter,
    build_layered_counter,
)
from crossflops.verbs.workload import (
    LAYERED,
    common_parameter_type,
    divide_work_evenly,
    fewest_cache_heads,
    make_generation_phase,
    name_amounts,
    refuse_options_of_other_counts,
    to_context_polynomials,
)

_OPENING = NewTokens(2, 1)  # how the draft begins a later round
_HINT = "write a number of tokens, such as --acceptance 2.5, or a share, such as --acceptance 80%"


class DraftRound(NamedTuple):
    """A round: the tokens of a request before it, and how many are proposed and accepted."""

    before: int
    proposed: int
    accepted: int


def mean_accepted_tokens(text: str, max_proposed: int) -> Fraction:
    """Return the mean of accepted tokens in a round of `max_proposed` proposed ones, from a number
    or a share.

    A share p is the chance of each proposed token, if those before it are accepted: the mean is
    p + p^2 + ... + p^max_proposed (Leviathan et al., Fast Inference from Transformers via
    Speculative Decoding, equation 1, without the token of the model).

    >>> [str(mean_accepted_tokens(text, 3)) for text in ("2.5", "5/2", "50%")]
    ['5/2', '5/2', '7/8']

    Raises InputError.
    """
    plain, is_share = text.strip().removesuffix("%"), text.strip().endswith("%")
    try:
        value = Fraction(plain.strip())
    except (ValueError, ZeroDivisionError):
        raise InputError(f"--acceptance must be a number, got {text!r}", _HINT) from None
    limit = 100 if is_share else max_proposed
    if not 0 <= value <= limit:
        words = "100 %" if is_share else f"the {max_proposed} tokens of --draft-tokens"
        raise InputError(f"--acceptance must be from 0 to {words}, got {text}", _HINT)
    if not is_share:
        return value
    share = value / 100
    return sum((share**power for power in range(1, max_proposed + 1)), Fraction(0))


def plan_rounds(
    prompt: int, generate: int, max_proposed: int, mean: Fraction
) -> tuple[DraftRound, ...]:
    """Return the rounds of a request, with accepted tokens that are spread evenly.

    >>> [tuple(step) for step in plan_rounds(10, 6, 3, Fraction(1, 2))]
    [(10, 3, 0), (11, 3, 1), (13, 2, 0), (14, 1, 1)]
    """
    rounds: list[DraftRound] = []
    before, end = prompt, prompt + generate
    while before < end:
        number = len(rounds)
        proposed = min(max_proposed, end - before - 1)
        spread = math.floor((number + 1) * mean) - math.floor(number * mean)
        rounds.append(DraftRound(before, proposed, min(spread, proposed)))
        before += rounds[-1].accepted + 1
    return tuple(rounds)


def refuse_draft_options(request: Request) -> None:
    """Raise InputError for options of a draft model that lack another one."""
    options = {
        "--draft": request.draft,
        "--draft-tokens": request.draft_tokens,
        "--acceptance": request.acceptance,
    }
    missing = [flag for flag, value in options.items() if not value]
    if missing and len(missing) < len(options):
        typed = next(flag for flag, value in options.items() if value)
        raise InputError(
            f"{typed} requires {missing[0]}",
            "give all three, such as --draft hf:draft.json --draft-tokens 4 --acceptance 2.5",
        )


# One of the two models, and the passes that it runs.


class _RoundModel:
    """A model that is counted for speculative decoding, whole or by its layers."""

    def __init__(
        self, request: Request, source: Source, first: tuple[int, int], last: int, new: NewTokens
    ) -> None:
        """Count the first pass, over `first` tokens and with so many logits. `last` is the longest
        context of later passes, most of which take `new` tokens.
        """
        batch = request.sizes.get("batch", 1)
        self.whole = PassCounter(source, request.setting, batch, request.cache_dtype)
        self.config = source.model.config
        if self.whole.passes.is_encoder_decoder:
            raise InputError(
                "--draft requires decoder-only models, and "
                f"{type(source.model).__name__} is an encoder-decoder",
                "leave out --draft",
            )
        self.batch = batch
        self.counted = self.whole.count_prefill_model(*first)
        self.first = self.whole.get_or_count_prefill(*first)
        self.layered: LayeredCounter | None = None
        if last > first[0]:
            self.layered = build_layered_counter(
                request, self.whole, self.config, first, last, new
            )

    @property
    def later_pass_counter(self) -> PassCounter | LayeredCounter:
        """The counter of the passes after the first: by layers where that is possible, else of the
        whole model.
        """
        return self.layered or self.whole

    @property
    def pass_count(self) -> int:
        """The number of different passes that were counted."""
        return self.whole.pass_count + (self.layered.pass_count if self.layered else 0)

    def phase_of_first_pass(self, tokens: int) -> GenerationPhase:
        """Return the report's phase of the first pass, which reads this number of tokens per
        request.
        """
        amounts = name_amounts(self.first.amounts)
        return make_generation_phase(self.first, amounts, 1, self.batch, self.batch * tokens, ())

    def phase_of_later_passes(
        self, contexts: Sequence[tuple[NewTokens, int]], in_report: NewTokens
    ) -> GenerationPhase | None:
        """Return the report's phase of all passes after the first, given (new tokens, tokens in
        the context) of each; None if there are none.

        Its polynomials are those of passes with the `in_report` new tokens.
        """
        if not contexts:
            return None
        sums = [0] * len(KINDS)
        pieces: tuple[LengthPiece, ...] = ()
        weights = 0
        for new in dict.fromkeys(new for new, _ in contexts):
            own = Counter(context for kind, context in contexts if kind == new)
            amounts, polynomials = _sum_pass_amounts(self.later_pass_counter, new, own)
            sums = [total + amount for total, amount in zip(sums, amounts, strict=True)]
            weights += (
                own.total()
                * self.later_pass_counter.get_or_count_step(0, max(own), new).weight_bytes
            )
            pieces = polynomials if new == in_report else pieces
        tokens = sum(new.number for new, _ in contexts)
        phase = make_generation_phase(
            self.pass_with_longest_context(contexts),
            name_amounts(sums),
            len(contexts),
            self.batch,
            self.batch * tokens,
            pieces,
        )
        moved = weights + phase.amounts.cache_read + phase.amounts.cache_written
        return replace(phase, moved_bytes=moved)

    def pass_with_longest_context(self, contexts: Sequence[tuple[NewTokens, int]]) -> CountedPass:
        """Return the pass with the longest context, the first pass if there is no other."""
        if not contexts:
            return self.first
        new, context = max(contexts, key=lambda pair: (pair[1], pair[0]))
        return self.later_pass_counter.get_or_count_step(0, context, new)


def _sum_pass_amounts(
    used: PassCounter | LayeredCounter, new: NewTokens, contexts: Counter[int]
) -> tuple[list[int], tuple[LengthPiece, ...]]:
    """Return (sums of the work of all passes with these contexts, one for each of KINDS; the
    polynomials of one pass over its context length).

    `contexts` has how often each occurs. Few of them are counted one by one.
    """
    if len(contexts) <= SPAN:
        sums = [0] * len(KINDS)
        for context, times in contexts.items():
            amounts = used.decoding_step_amounts(0, context, new)
            sums = [total + times * own for total, own in zip(sums, amounts, strict=True)]
        return sums, ()
    hints = [
        edge + new.number - 1 for window in used.passes.windows for edge in (window - 1, window)
    ]
    fitted_pieces = fit_polynomial_pieces(
        lambda context: used.decoding_step_amounts(0, context, new),
        min(contexts),
        max(contexts),
        hints,
        "a round",
    )
    totals = [Fraction(0)] * len(KINDS)
    for piece in fitted_pieces:
        inside = {
            context: times
            for context, times in contexts.items()
            if piece.first <= context <= piece.last
        }
        moments = [
            sum(times * context**power for context, times in inside.items())
            for power in range(piece.degree + 1)
        ]
        for index, terms in enumerate(piece.terms):
            totals[index] += sum(
                (value * moments[powers[0]] for powers, value in terms.items()), Fraction(0)
            )
    return [_to_integer_count(total) for total in totals], tuple(
        map(_to_report_piece, fitted_pieces)
    )


def _to_integer_count(total: Fraction) -> int:
    """Return a sum of counts as an integer. Raises ValueError if it is not a whole number."""
    if total.denominator != 1:
        raise ValueError(f"a count of {total} is not a whole number")
    return total.numerator


def _to_report_piece(piece: PolynomialPiece) -> LengthPiece:
    """Return a piece as the polynomials of a report."""
    terms = tuple({(0, *at): value for at, value in own.items()} for own in piece.terms)
    return to_context_polynomials(piece, terms)


# Both models.


def count_speculation(request: Request, source: Source) -> tuple[CountedModel, Workload]:
    """Return (counted first pass of the model, workload) of speculative decoding; the draft model
    is built as well.

    Raises InputError where one of the models does not generate with a cache.
    """
    prompt, generate, most = request.prompt or 1, request.generate or 1, request.draft_tokens or 1
    mean = mean_accepted_tokens(request.acceptance, most)
    rounds = plan_rounds(prompt, generate, most, mean)
    begin = rounds[0]
    checked = NewTokens(most + 1, most + 1)
    first = (prompt + begin.proposed, begin.proposed + 1)
    model = _RoundModel(request, source, first, prompt + generate - 1, checked)
    later = [
        (NewTokens(step.proposed + 1, step.proposed + 1), step.before + step.proposed)
        for step in rounds[1:]
    ]
    draft = _count_draft(request, rounds, model.config)
    target = _model_workload(request, model, first[0], later, checked)
    parts = (target, draft)
    macs, flops = (sum(getattr(part, kind) for part in parts) for kind in KINDS[:2])
    batch = target.batch
    workload = replace(
        target,
        macs=macs,
        flops=flops,
        moved_bytes=sum(part.moved_bytes for part in parts),
        per_request=divide_work_evenly(macs, flops, batch),
        per_new_token=divide_work_evenly(macs, flops, batch * generate),
        speculation=Speculation(
            draft=draft,
            target=request.draft,
            draft_tokens=most,
            acceptance=str(mean),
            rounds=len(rounds),
            proposed_tokens=sum(step.proposed for step in rounds),
            accepted_tokens=sum(step.accepted for step in rounds),
        ),
    )
    return model.counted, workload


def _count_draft(request: Request, rounds: Sequence[DraftRound], config: object) -> Workload:
    """Return the work of the draft model. An error begins with its name.

    `config` is that of the model, which should have the same tokens.
    """
    asked = replace(request, target=request.draft, arguments={}, draft="", draft_tokens=None)
    later: list[tuple[NewTokens, int]] = []
    for number, step in enumerate(rounds):
        if step.proposed and number:
            later.append((_OPENING, step.before))
        later += [(ONE_TOKEN, step.before + more) for more in range(1, step.proposed)]
    last = max((context for _, context in later), default=0)
    prompt = request.prompt or 1

    def count_draft_model_work(source: Source) -> Workload:
        """Return the work of the built draft model."""
        _warn_of_different_vocabularies(config, source.model.config)
        model = _RoundModel(asked, source, (prompt, 1), last, ONE_TOKEN)
        return _model_workload(asked, model, prompt, later, ONE_TOKEN)

    try:
        refuse_options_of_other_counts(replace(asked, acceptance=""))
        return ModelBuild(asked).compute_with_values_if_needed(count_draft_model_work)
    except CrossflopsError as error:
        error.message = f"draft model {request.draft}: {error.message}"
        error.args = (error.message, *error.args[1:])
        raise


def _warn_of_different_vocabularies(config: object, draft: object) -> None:
    """Warn if the two models have vocabularies of different sizes."""
    sizes = [getattr(owner, "vocab_size", None) for owner in (config, draft)]
    if sizes[0] != sizes[1]:
        warnings.warn(
            f"the model has {sizes[0]} tokens and its draft {sizes[1]}: they are counted as if "
            "both had the same tokens",
            CrossflopsWarning,
            stacklevel=2,
        )


def _model_workload(
    request: Request,
    model: _RoundModel,
    first: int,
    later: Sequence[tuple[NewTokens, int]],
    in_report: NewTokens,
) -> Workload:
    """Return the work of one of the models: its first pass, over `first` tokens of each request,
    and the later ones.
    """
    prefill, decode = (
        model.phase_of_first_pass(first),
        model.phase_of_later_passes(later, in_report),
    )
    phases = [phase for phase in (prefill, decode) if phase is not None]
    macs, flops = (sum(getattr(phase.amounts, kind) for phase in phases) for kind in KINDS[:2])
    graph, kept = model.counted.graph, model.first.kept
    stored = kept[0].storage_dtype
    generate = request.generate or 1
    return Workload(
        kind="decoder",
        prompt=request.prompt or 1,
        generate=generate,
        batch=model.batch,
        cache_dtype=request.cache_dtype or stored,
        model_cache_dtype=stored if request.cache_dtype else "",
        cache_bytes=model.pass_with_longest_context(later).cache_bytes,
        prefill=prefill,
        decode=decode,
        decode_macs=None,
        decode_flops=None,
        macs=macs,
        flops=flops,
        moved_bytes=sum(phase.moved_bytes for phase in phases),
        per_request=divide_work_evenly(macs, flops, model.batch),
        per_new_token=divide_work_evenly(macs, flops, model.batch * generate),
        counted=model.pass_count,
        layers=LAYERED.format(model.config.num_hidden_layers, first) if model.layered else "",
        experts=describe_experts(graph),
        cache_heads=fewest_cache_heads(kept),
        model_bytes=graph.param_bytes,
        weight_dtype=common_parameter_type(graph.param_bytes_by_type),
    )
