"""The MACs from which a rate is computed: the native count, that of a tool, a given number, or an
estimate from sizes.

A tool's total is divided by what the tool counts for one MAC, so that the 2 FLOPs per MAC of a
rate are not applied twice.
"""

import re
from collections.abc import Iterable
from fractions import Fraction
from math import isfinite
from typing import Literal

import msgspec

from crossflops.errors import InputError
from crossflops.hardware.rates.question import POWERS, Language
from crossflops.hardware.rates.terms import FLAT, AttentionScores, Piece, single_piece
from crossflops.ir.profile import Amount, Profile
from crossflops.ir.roofline import Load
from crossflops.report.report import Report
from crossflops.tools.registry import find_convention

NATIVE = "native MACs"
GIVEN = "given"

_QUANTITY = re.compile(r"(\d{1,30}(?:\.\d{1,30})?)(?:[eE]\+?(\d{1,2})|\s?([kKMGBTP]?))")
_POWERS = {**POWERS, "B": 9}  # of tokens and parameters, B is the usual word for 10^9


class OmittedTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool whose total cannot be turned into MACs. `per_mac`, what it counts for one MAC, is
    None if unknown.
    """

    tool: str
    total: Amount
    per_mac: int | None


class Numerator(msgspec.Struct, frozen=True, kw_only=True):
    """The MACs of one unit (example or token), with their origin.

    `pieces` add up to them; () where nothing is known but their number. A tool `printed` its
    total, in which a MAC counts `per_mac`; with `assumed` it could not have run. `left_out` are
    tools without MACs. Sizes have `attention`: layers, their width, the tokens that are attended.
    """

    label: str
    macs: int
    unit: str = "example"
    pieces: tuple[Piece, ...] = ()
    origin: Literal["given", "native", "convention", "tool", "sizes"] = "given"
    printed: Amount | None = None
    per_mac: int = 1
    assumed: bool = False
    left_out: tuple[OmittedTool, ...] = ()
    attention: tuple[int, int, int] | None = None

    @property
    def work_pieces(self) -> tuple[Piece, ...]:
        """The pieces of work that add up to the MACs; one piece with all of them if nothing else
        is known.
        """
        return self.pieces or single_piece(self.macs)


def parse_count(text: str) -> int:
    """Parse a count such as "4.112G", "300B" or "1e9" into an integer.

    >>> parse_count("4.112G"), parse_count("57"), parse_count("1.5e12"), parse_count("300B")
    (4112000000, 57, 1500000000000, 300000000000)

    Raises InputError for anything else, and for a number that is not whole.
    """
    match = _QUANTITY.fullmatch(text.strip())
    if not match:
        raise InputError(
            f"a count must be a number, got {text!r}", "write, for example, 4.112G or 4111514624"
        )
    power: int = 10 ** (int(match[2]) if match[2] else _POWERS[match[3] or ""])
    value = Fraction(match[1]) * power
    if value.denominator != 1:
        raise InputError(
            f"a count must be a whole number, got {text}",
            "write, for example, 4.112G or 4111514624",
        )
    return value.numerator


def external_numerator(macs: int) -> Numerator:
    """Return a Numerator with the MACs per example that the user gives."""
    return Numerator(label=GIVEN, macs=macs)


def native_numerator(report: Report) -> Numerator:
    """Return a Numerator with the natively counted MACs of a report."""
    return Numerator(label=NATIVE, macs=report.macs, origin="native")


def convention_numerators(report: Report, train: bool = False) -> tuple[Numerator, ...]:
    """Return for each requested tool convention a Numerator: its total in the report, divided by
    what it counts for one MAC.

    Raises InputError for a formula over a language model that is about other passes than those of
    the question: about training, which is asked for by `train`, or about a forward pass.
    """
    for fold in report.folds:
        formula = find_convention(fold.tool, fold.edition).formula
        if formula is not None and (formula.passes == "training") != train:
            name = f"{fold.tool}@{fold.edition}"
            if train:
                raise InputError(
                    f"--as {name} is a formula for a forward pass", "leave out --train"
                )
            raise InputError(f"--as {name} is a formula for training", "add --train")
    return tuple(
        convention_numerator(msgspec.structs.replace(report, as_=fold)) for fold in report.folds
    )


def convention_numerator(report: Report) -> Numerator:
    """Return a Numerator with the total of the report's requested convention, divided by what it
    counts for one MAC. Raises ValueError without a convention.

    Raises InputError for a convention that counts bytes, or nothing of contractions.
    """
    if report.as_ is None:
        raise ValueError("the report has no number of that tool")
    tool, edition = report.as_.tool, report.as_.edition
    unit = find_convention(tool, edition).unit
    if not unit:
        raise InputError(
            f"--as {tool} cannot be used: {tool} does not count multiply-accumulates",
            "choose a tool that counts them, such as --as thop",
        )
    return Numerator(
        label=f"{tool}@{edition}",
        macs=round(Fraction(report.as_.total) / unit),
        origin="convention",
        printed=report.as_.total,
        per_mac=unit,
        assumed=report.as_.assumed,
    )


def numerators_by_tool(report: Report) -> tuple[Numerator, ...]:
    """Return the Numerator of the native MACs, then one for each tool that printed a total.

    The native count names the tools whose total cannot be turned into MACs.
    """
    accounts = {account.tool: account for account in report.reconciliations or ()}
    numerators, left = [], []
    for profile in report.profiles or ():
        if not isinstance(profile, Profile):
            continue
        account = accounts.get(profile.tool)
        unit = find_convention(profile.tool, account.edition).unit if account else None
        if not unit or not isfinite(profile.total) or profile.total < 0:
            left.append(OmittedTool(tool=profile.tool, total=profile.total, per_mac=unit))
            continue
        numerators.append(
            Numerator(
                label=profile.tool,
                macs=round(Fraction(profile.total) / unit),
                origin="tool",
                printed=profile.total,
                per_mac=unit,
            )
        )
    return (msgspec.structs.replace(native_numerator(report), left_out=tuple(left)), *numerators)


# The bytes that a pass has to move at least, between a device's memory and its units.
#
# bytes(batch) = weights + batch x (inputs, outputs and caches of the model)
#
# This is the byte model `fused-ideal` of hardware/step_traffic.py: every weight is read once,
# activations stay on the chip, a cache is read and appended to. It is the headline of decoding:
# memory bandwidth utilization, MBU = bytes / (time x bandwidth).


class Transfer(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes that one pass moves: `weights` once, and `per_example`; `model` describes what is
    counted.
    """

    model: str
    weights: int
    per_example: int


def transfer_from_loads(loads: Iterable[Load], examples: int = 1, experts: str = "") -> Transfer:
    """Return the bytes that one pass over the examples moves: those of weights, and those of each
    example.

    `experts` says what is assumed of the experts whose weights it reads, where it has some.
    """
    every = tuple(loads)
    assumed = f"; {experts}" if experts else ""
    return Transfer(
        model=f"weights once, caches, inputs and outputs of the model{assumed}",
        weights=sum(load.weights for load in every),
        per_example=sum(load.cache + load.activations for load in every) // examples,
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

# FLOPs of a token: of a forward pass, and of the three passes of training.
_PRODUCTS = {False: "2N", True: "6N (6ND)"}
_WITH_ATTENTION = {False: "2N + 4LHQT", True: "6N + 12LHQT (PaLM, appendix B)"}


def numerator_from_sizes(language: Language, train: bool = False) -> Numerator:
    """Return the forward MACs of one token, estimated from the sizes of a language model.

    Raises InputError for sizes that are not enough.
    """
    assert language.params is not None
    params = parse_count(language.params)
    width = _layers_and_width(language)
    parts = [Piece(macs=Fraction(params), names=("weights",), passes=FLAT)]
    if width is None:
        return Numerator(
            label=_PRODUCTS[train], macs=params, unit="token", pieces=tuple(parts), origin="sizes"
        )
    layers, across = width
    length = language.context or language.seq
    if length is None:
        raise InputError(
            "the work of attention depends on the sequence length, which is not given",
            "add --seq T, or --context T for decoding",
        )
    queries = 1 if language.context else length
    square = AttentionScores(queries=queries, keys=length, causal="declared")
    macs = 2 * layers * across * length
    product = Piece(macs=Fraction(macs), names=("attention",), scores=square, passes=FLAT)
    parts.append(product)
    label = _WITH_ATTENTION[train]
    return Numerator(
        label=label if language.seq else f"{label}, T tokens in the cache",
        macs=params + macs,
        unit="token",
        pieces=tuple(parts),
        origin="sizes",
        attention=(layers, across, length),
    )


def decoding_transfer(language: Language) -> Transfer | None:
    """Return the estimated bytes of decoding one token after a context: those of weights, and
    those of each example; None without a context.
    """
    if language.context is None or language.params is None:
        return None
    width = _layers_and_width(language)
    if width is None:
        raise InputError(
            "--context needs the number of layers and the width of attention",
            "add --layers L, and --hidden H or --heads H with --head-dim Q",
        )
    layers, across = width
    depth = language.head_dim or (across // language.heads if language.heads else None)
    if language.kv_heads is not None and depth is None:
        raise InputError("--kv-heads requires the dimension of a head", "add --head-dim Q")
    kept = across if language.kv_heads is None or depth is None else language.kv_heads * depth
    of_example = 2 * layers * kept * language.context * language.cache_bytes
    weights = parse_count(language.params) * language.param_bytes
    model = "weights once, and the key and value cache once, for each new token"
    return Transfer(model=model, weights=round(weights), per_example=round(of_example))


def language_token_count(language: Language) -> int | None:
    """Return the tokens of one example in a pass: 1 in decoding, else the sequence length; None if
    it is not given.
    """
    return 1 if language.context else language.seq


def _layers_and_width(language: Language) -> tuple[int, int] | None:
    """Return the number of layers and the width of attention (heads x head dimension); None if no
    size is given.
    """
    sizes = (language.layers, language.hidden, language.heads, language.head_dim)
    if all(size is None for size in sizes):
        return None
    across = language.hidden
    if language.heads is not None and language.head_dim is not None:
        across = language.heads * language.head_dim
    if language.layers is None or across is None:
        raise InputError(
            "the work of attention depends on the number of layers and the width, which are "
            "not given",
            "add --layers L, and the width: --hidden H, or --heads H with --head-dim Q",
        )
    return language.layers, across
