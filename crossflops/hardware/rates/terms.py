"""The work of one example, split by what it is divided by: FLOPs of a precision, in passes.

    FLOPs_i    = 2 x MACs_i x k_i                     the model's work
    executed_i = 2 x MACs_i x (k_i + recomputed_i)    with what is computed again

k is 1 in inference. In training it is 3, or the passes of each node by where gradients flow, or
what is given. Recomputed is 1 with full activation checkpointing (so 4 instead of 3: Korthikanti
et al., Reducing Activation Recomputation, and DeepSpeed's `recompute_fwd_factor` = 1), a fraction
with a selective one, 1 for the products of attention alone where only these are recomputed, and
another half for these in a fused kernel that keeps no scores (FlashAttention: 3.5 instead of 3).
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction

import msgspec

from crossflops.errors import InputError
from crossflops.hardware.rates.backward import matches
from crossflops.hardware.rates.pieces import FLAT, Piece
from crossflops.hardware.rates.question import Causality, Precisions, Training

_PRECISIONS = {  # as an element type is called in a graph -> as a peak is called
    "float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16",
    "float8e4m3fn": "fp8", "float8e4m3fnuz": "fp8", "float8e5m2": "fp8", "float8e5m2fnuz": "fp8",
    "float4e2m1": "fp4", "int8": "int8", "int4": "int4",
}  # fmt: skip
GRAPH = "graph"  # the precision by which every node runs as its operands are stored


class Term(msgspec.Struct, frozen=True, kw_only=True):
    """MACs of one example in one precision, the model's passes over them and those executed."""

    macs: Fraction
    passes: Fraction
    executed: Fraction
    precision: str
    attention: bool = False

    @property
    def flops(self) -> Fraction:
        """2 x MACs x k, of the model."""
        return 2 * self.macs * self.passes

    @property
    def executed_flops(self) -> Fraction:
        """2 x MACs x k, with what is computed again."""
        return 2 * self.macs * self.executed


def terms(
    pieces: Iterable[Piece], training: Training, causality: Causality, precisions: Precisions
) -> tuple[Term, ...]:
    """What is asked of the pieces of a count. Equal ones are added up.

    Raises InputError for a pattern that matches nothing and a precision that nobody knows.
    """
    half, window = causality.causal == "half", causality.window
    patterns = kinds(precisions)
    met: set[str] = set()
    sums: dict[tuple[Fraction, Fraction, str, bool], Fraction] = {}
    for piece in pieces:
        k = passes(piece, training)
        left = piece.scores.left(half, window) if piece.scores else Fraction(1)
        for precision, share in _split(piece, precisions, patterns, met).items():
            key = (k, k + again(piece, k, training), precision, piece.scores is not None)
            sums[key] = sums.get(key, Fraction(0)) + piece.macs * left * share
    for pattern in patterns:
        if pattern not in met:
            raise InputError(
                f"--precision-of {pattern!r} matches no node with MACs",
                "give an operator, a node or a module, such as Conv or 'layer1*'",
            )
    return tuple(
        Term(macs=macs, passes=k, executed=done, precision=precision, attention=attention)
        for (k, done, precision, attention), macs in sums.items()
    )


def passes(piece: Piece, training: Training) -> Fraction:
    """k of the model for one piece."""
    if not training.train:
        return Fraction(1)
    if training.train_multiplier is not None:
        return Fraction(training.train_multiplier)
    if training.by_graph and piece.passes is not None:
        return piece.passes
    return FLAT


def again(piece: Piece, k: Fraction, training: Training) -> Fraction:
    """Forward passes over a piece that are done once more. What has no backward is not."""
    recompute = training.recompute
    if not training.train or k <= 1:
        return Fraction(0)
    fused = Fraction(1, 2) if training.flash and piece.scores else Fraction(0)
    if recompute == "attention":
        return fused + (1 if piece.scores else 0)
    return fused + {"none": Fraction(0), "full": Fraction(1)}.get(recompute, _factor(recompute))


def _factor(recompute: str) -> Fraction:
    """A selective factor, the part of the forward work that is done again."""
    text = recompute.removeprefix("selective=")
    try:
        found = Fraction(text) if text not in ("none", "full") else Fraction(0)
    except (ValueError, ZeroDivisionError):
        found = Fraction(-1)
    if not 0 <= found <= 1:
        raise InputError(
            f"--recompute {recompute!r} is no part of the forward pass",
            "give none, full, attention, or a part between 0 and 1 such as 0.3",
        )
    return found


def kinds(precisions: Precisions) -> dict[str, str]:
    """Precisions by pattern, from texts such as Conv=tf32."""
    found = {}
    for text in precisions.precision_of:
        pattern, equals, precision = text.rpartition("=")
        if not equals or not pattern or not precision:
            raise InputError(
                f"--precision-of {text!r} is not PATTERN=P", "write for example Conv=tf32"
            )
        found[pattern] = precision.casefold()
    return found


def _split(
    piece: Piece, asked: Precisions, patterns: Mapping[str, str], met: set[str]
) -> dict[str, Fraction]:
    """The precisions of a piece, with their shares. The last pattern that matches wins."""
    found = ""
    for pattern, precision in patterns.items():
        if any(matches(name, pattern) for name in piece.names):
            met.add(pattern)
            found = precision
    if found:
        return {found: Fraction(1)}
    if asked.mix:
        return shares(asked.mix)
    if asked.precision == GRAPH:
        return {as_stored(piece.stored): Fraction(1)}
    return {asked.precision: Fraction(1)}


def as_stored(stored: str) -> str:
    """The peak for what a graph stores. Raises InputError where there is no one such peak."""
    if stored not in _PRECISIONS:
        raise InputError(
            f"nobody knows in which precision {stored or 'this'} runs",
            "say it by --precision, or --precision-of PATTERN=P for these nodes",
        )
    return _PRECISIONS[stored]


def shares(mix: Iterable[str]) -> dict[str, Fraction]:
    """Shares of the work by precision, from texts such as bf16=0.5. They add up to one."""
    found: dict[str, Fraction] = {}
    for text in mix:
        name, equals, value = text.partition("=")
        try:
            found[name.casefold()] = Fraction(value)
        except (ValueError, ZeroDivisionError):
            equals = ""
        if not equals or not name or not 0 < found.get(name.casefold(), 0) <= 1:
            raise InputError(f"--mix {text!r} is not P=SHARE", "write for example bf16=0.5")
    if sum(found.values()) != 1:
        raise InputError(
            f"the shares of --mix add up to {float(sum(found.values())):g}, not to 1",
            "write for example --mix bf16=0.5 --mix fp8=0.5",
        )
    return found
