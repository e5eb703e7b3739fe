"""Whose MACs a rate is computed from: native, a tool's, given, or a transformer's by its sizes.

A tool's total is divided by what the tool counts for one MAC, so that the 2 FLOPs per MAC of a
rate are not applied twice.
"""

import re
from collections.abc import Iterable
from fractions import Fraction
from math import isfinite

import msgspec

from crossflops.errors import InputError
from crossflops.hardware.rates.attention_scores import AttentionScores
from crossflops.hardware.rates.question import Language
from crossflops.hardware.rates.terms import FLAT, Piece, whole
from crossflops.ir.profile import Amount, Profile
from crossflops.ir.reconciliation import Reconciliation
from crossflops.ir.roofline import Load
from crossflops.report.report import Report
from crossflops.tools.registry import find

NATIVE = "native MACs"
GIVEN = "given"

_QUANTITY = re.compile(r"(\d{1,30}(?:\.\d{1,30})?)\s?([kKMGTP]?)")
_POWERS = {"": 0, "k": 3, "K": 3, "M": 6, "G": 9, "T": 12, "P": 15}


class Numerator(msgspec.Struct, frozen=True, kw_only=True):
    """MACs of one unit (example or token): whose, how many, what was assumed, what to beware of.

    `pieces` add up to them; () where nothing is known but their number.
    """

    label: str
    macs: int
    unit: str = "example"
    pieces: tuple[Piece, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def split(self) -> tuple[Piece, ...]:
        """The pieces; all of it is one, where nothing is known but the number."""
        return self.pieces or whole(self.macs)


def quantity(text: str) -> int:
    """A count as people write it, exactly: digits and perhaps one of k, M, G, T, P.

    >>> quantity("4.112G"), quantity("57")
    (4112000000, 57)

    Raises InputError for anything else, and for a number that is not whole.
    """
    match = _QUANTITY.fullmatch(text.strip())
    if not match:
        raise InputError(f"{text!r} is no count", "write for example 4.112G or 4111514624")
    power: int = 10 ** _POWERS[match[2]]
    value = Fraction(match[1]) * power
    if value.denominator != 1:
        raise InputError(f"{text} is not a whole number", "give every digit of the count")
    return value.numerator


def given(macs: int, report: Report | None = None) -> Numerator:
    """A number from elsewhere, beside the native count where the model is at hand."""
    if report is None:
        return Numerator(label=GIVEN, macs=macs, notes=("the MACs are given, not counted",))
    native = report.macs
    off = f" ({float(100 * Fraction(macs - native, native)):+.2f} % to these)" if native else ""
    note = f"the MACs are given; {report.name} has {_spelled(native)}, counted natively{off}"
    return Numerator(label=GIVEN, macs=macs, notes=(note, *_example(report)))


def native(report: Report) -> Numerator:
    """The count of crossflops."""
    return Numerator(
        label=NATIVE,
        macs=report.macs,
        notes=(*_example(report), *_exactness(report), *_experts(report)),
        warnings=(*_batch(report), *_uncounted(report)),
    )


def folded(report: Report) -> Numerator:
    """The total of the convention that was asked for. Raises ValueError where none was.

    Raises InputError for a convention that counts bytes, or nothing of contractions.
    """
    if report.as_ is None:
        raise ValueError("the report was not counted by a convention")
    tool, edition = report.as_.tool, report.as_.edition
    unit = _unit(tool, edition)
    if not unit:
        raise InputError(
            f"{tool} counts no multiply-accumulates", "give --as a tool that does, such as thop"
        )
    macs, notes = _as_macs(f"{tool}@{edition}", report.as_.total, unit)
    assumed = f"{tool} could not have run this model: its total is inferred from the graph"
    return Numerator(
        label=f"{tool}@{edition}",
        macs=macs,
        notes=(*notes, *_example(report)),
        warnings=(*([assumed] if report.as_.assumed else []), *_batch(report)),
    )


def by_tool(report: Report) -> tuple[Numerator, ...]:
    """The native count, then every tool that answered, in the order of the report.

    A tool whose total cannot be turned into MACs is named in the warnings of the native count.
    """
    numerators, left = [], []
    for profile in report.profiles or ():
        if isinstance(profile, Profile):
            why = _unusable(report, profile)
            if why:
                left.append(f"{profile.tool} is left out: {why}")
            else:
                numerators.append(_of_tool(report, profile))
    ours = native(report)
    return (msgspec.structs.replace(ours, warnings=(*ours.warnings, *left)), *numerators)


def _of_tool(report: Report, profile: Profile) -> Numerator:
    edition = report.reconciliation(profile.tool).edition
    macs, notes = _as_macs(profile.tool, profile.total, _unit(profile.tool, edition))
    return Numerator(label=profile.tool, macs=macs, notes=notes)


def _unusable(report: Report, profile: Profile) -> str:
    if not isfinite(profile.total) or profile.total < 0:
        return f"it printed {profile.total}"
    if _reconciliation(report, profile.tool) is None:
        return "what it counts for one MAC is not known"
    return ""


def _reconciliation(report: Report, tool: str) -> Reconciliation | None:
    return next(
        (account for account in report.reconciliations or () if account.tool == tool), None
    )


def _unit(tool: str, edition: str) -> int:
    return find(tool, edition).unit


def _as_macs(label: str, total: Amount, unit: int) -> tuple[int, tuple[str, ...]]:
    exact = Fraction(total) / unit
    macs = round(exact)
    how = f"counts {unit} per MAC: its total of {_spelled(total)} is divided by that"
    if unit == 1:
        how = f"counts 1 per MAC: all of its {_spelled(total)} are taken as MACs"
    rounded = () if exact == macs else (f"{label}: rounded to whole MACs",)
    return macs, (f"{label} {how}", *rounded)


def _spelled(amount: Amount) -> str:
    return f"{amount:,}".replace(",", " ")


def _example(report: Report) -> tuple[str, ...]:
    inputs = [
        f"{spec.name} {'x'.join(map(str, spec.shape)) or 'scalar'}" for spec in report.model.inputs
    ]
    return (f"one example is one pass on {', '.join(inputs) or 'no input'}",)


def _batch(report: Report) -> tuple[str, ...]:
    first = next((spec.shape[0] for spec in report.model.inputs if spec.shape), 1)
    if first == 1:
        return ()
    condition = f"the first dimension of the input is {first}: if that is a batch"
    return (f"{condition}, count with 1, or the rate comes out {first} times too high",)


def _exactness(report: Report) -> tuple[str, ...]:
    grades = {node.exactness for node in report.nodes} - {"exact"}
    return (f"some nodes are counted as {' and '.join(sorted(grades))}",) if grades else ()


def _experts(report: Report) -> tuple[str, ...]:
    active = report.totals.active_params
    if not isinstance(active, int) or active == report.params:
        return ()
    return (
        f"the MACs are those of the experts that are chosen: {_spelled(active)} of "
        f"{_spelled(report.params)} parameters are active; memory holds all of them",
    )


def _uncounted(report: Report) -> tuple[str, ...]:
    if not report.uncounted:
        return ()
    return (f"uncounted nodes: {len(report.uncounted)}, so the rate is a lower bound",)


# The bytes that a pass has to move at least, between a device's memory and its units.
#
# bytes(batch) = weights + batch x (inputs, outputs and caches of the model)
#
# This is the byte model `fused-ideal` of `traffic`: every weight is read once, activations stay on
# the chip, a cache is read and appended to. It is the headline of decoding: memory bandwidth
# utilization, MBU = bytes / (time x bandwidth).


class Transfer(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of one pass: of the weights once, and of each example. `model` says of what."""

    model: str
    weights: int
    each: int


def of_loads(loads: Iterable[Load], examples: int = 1) -> Transfer:
    """The bytes of one pass over so many examples, from its loads under `fused-ideal`."""
    every = tuple(loads)
    return Transfer(
        model="weights once, caches, inputs and outputs of the model",
        weights=sum(load.weights for load in every),
        each=sum(load.cache + load.activations for load in every) // examples,
    )


# The work of a transformer language model from its sizes, where there is no model at hand.
#
# Per token, forward, with N parameters in matrix products, L layers, H heads of depth Q, and T
# tokens of sequence (or of context, when one token is decoded):
#
# MACs = N + 2 L H Q T
#
# so that training comes to 6 N + 12 L H Q T FLOPs (Chowdhery et al., PaLM, appendix B; nanoGPT and
# llm-foundry compute the same), and without attention to the 6 N D of Kaplan et al. and Hoffmann
# et al. The square of attention is full; a causal mask leaves half of it (6 L H Q T, as
# Megatron-LM and MaxText count), a window of W leaves min(W, T). N leaves out input embeddings,
# which are looked up; the output layer is a matrix product even where it shares their weights. Of
# a mixture of experts N are the parameters that a token uses.
#
# Bytes of one decoding step, batch B, Hkv key and value heads:
#
# weights = N x bytes,   cache = B x T x 2 L Hkv Q x bytes
#
# Grouped queries change the cache and not the products.

PRODUCTS = "6ND"
WITH_ATTENTION = "6N + 12LHQT (PaLM, appendix B)"


def by_sizes(asked: Language) -> Numerator:
    """MACs of one token, forward. Raises InputError for sizes that are not enough."""
    assert asked.params is not None
    params = quantity(asked.params)
    width = _width(asked)
    parts = [Piece(macs=Fraction(params), names=("weights",), passes=FLAT)]
    if width is None:
        note = "attention's score and value products are left out: add --layers, --hidden, --seq"
        return _numerator(PRODUCTS, params, parts, (note,))
    layers, across = width
    length = asked.context or asked.seq
    if length is None:
        raise InputError("attention needs a length", "add --seq T, or --context T for decoding")
    queries = 1 if asked.context else length
    square = AttentionScores(queries=queries, keys=length, causal="declared")
    macs = 2 * layers * across * length
    product = Piece(macs=Fraction(macs), names=("attention",), scores=square, passes=FLAT)
    parts.append(product)
    note = f"2 x {layers} layers x {across} x {length} MACs of attention a token"
    return _numerator(WITH_ATTENTION, params + macs, parts, (note,))


def transfer(asked: Language) -> Transfer | None:
    """The bytes of a decoding step. None where no context is given."""
    if asked.context is None or asked.params is None:
        return None
    width = _width(asked)
    if width is None:
        raise InputError("a cache has layers and a width", "add --layers, --hidden or --heads")
    layers, across = width
    depth = asked.head_dim or (across // asked.heads if asked.heads else None)
    if asked.kv_heads is not None and depth is None:
        raise InputError("--kv-heads have a depth", "add --head-dim")
    kept = across if asked.kv_heads is None or depth is None else asked.kv_heads * depth
    each = 2 * layers * kept * asked.context * asked.cache_bytes
    weights = quantity(asked.params) * asked.param_bytes
    model = "weights once and the cache of keys and values, read for every new token"
    return Transfer(model=model, weights=round(weights), each=round(each))


def tokens(asked: Language) -> int | None:
    """Tokens of one example in one pass: one where it is decoded, else the sequence."""
    return 1 if asked.context else asked.seq


def _numerator(rule: str, macs: int, parts: list[Piece], notes: tuple[str, ...]) -> Numerator:
    return Numerator(
        label=rule,
        macs=macs,
        unit="token",
        pieces=tuple(parts),
        notes=("MACs of a token by a rule, not counted; N are parameters in products", *notes),
    )


def _width(asked: Language) -> tuple[int, int] | None:
    """Layers, and heads x depth; None where neither is given."""
    sizes = (asked.layers, asked.hidden, asked.heads, asked.head_dim)
    if all(size is None for size in sizes):
        return None
    across = asked.hidden
    if asked.heads is not None and asked.head_dim is not None:
        across = asked.heads * asked.head_dim
    if asked.layers is None or across is None:
        raise InputError(
            "attention needs layers and their width",
            "add --layers L and --hidden H, or --heads H --head-dim Q",
        )
    return asked.layers, across
