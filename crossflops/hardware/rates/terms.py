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
from crossflops.hardware.rates.attention_scores import AttentionScores, scores
from crossflops.hardware.rates.question import Causality, Precisions, Training
from crossflops.hardware.roofline.dataflow import key_before
from crossflops.hardware.roofline.step_traffic import PRECISIONS
from crossflops.ir.graph import Graph, Node
from crossflops.ir.ledger import Ledger
from crossflops.ir.tensor import TensorSpec
from crossflops.ledger.training import matches as matches

# How often the work of a forward contraction is done in training, from where gradients flow.
#
# A contraction C = A B costs m MACs. Its gradients dA = dC B^T and dB = A^T dC cost m each, and
# each is computed only where somebody needs it: a weight that is trained, or an operand that a
# trained weight lies above. So the passes of a node are
#
# k = 1 + [A needs a gradient] + [B needs a gradient]
#
# which is 3 within a network that is trained as a whole, 2 for its first layer (whose input needs
# none) and for frozen layers above a trained one, and 1 below the lowest trained weight. The score
# and value products of attention have no weights, but gradients for both operands: 3 as well.
# Source: Kaplan et al., Scaling Laws for Neural Language Models, 2.1, for the factor; the rule by
# operand is what automatic differentiation does (PyTorch, derivatives.yaml: mm, convolution).

_FLOATS = ("float", "bfloat", "complex")
_ATTENTION = ("Attention", "FlexAttention", "MultiHeadAttention", "GroupQueryAttention")
_CONTRACTED = {"Gemm": (0, 1), "Conv": (0, 1), "ConvTranspose": (0, 1), "MatMul": (0, 1)}


class Gradients:
    """Which values need a gradient, for weights that are trained unless they are frozen."""

    def __init__(self, frozen: Iterable[str] = (), trainable: Iterable[str] = ()) -> None:
        self._frozen, self._trainable = tuple(frozen), tuple(trainable)
        self._met: set[str] = set()
        self.passes: dict[str, Fraction] = {}

    def of(self, graph: Graph) -> Mapping[str, Fraction]:
        """The passes of every node, by its key in the ledger.

        Raises InputError for a pattern that matches no weight, and where nothing is trained.
        """
        self._scope("", graph, {})
        for pattern in (*self._frozen, *self._trainable):
            if pattern not in self._met:
                raise InputError(
                    f"{pattern!r} matches no weight of {graph.name}",
                    "give modules or parameters, such as 'layer1*'; count --by module shows them",
                )
        return self.passes

    def _scope(self, prefix: str, graph: Graph, needs: dict[str, bool]) -> dict[str, bool]:
        """Walk the nodes in order; `needs` says of names from outside whether they need one."""
        for node in graph.nodes:
            asked = tuple(
                spec is not None and self._needed(spec, node, needs) for spec in node.inputs
            )
            through_bodies = self._bodies(prefix, node, asked, needs) if node.bodies else ()
            through = any(asked) or any(through_bodies)
            for place, spec in enumerate(node.outputs):
                if spec is not None:
                    inner = through_bodies[place] if place < len(through_bodies) else False
                    needs[spec.name] = _real(spec) and (inner or (through and not node.bodies))
            k = backward_passes(node, asked)
            self.passes[prefix + node.key] = max(k, self.passes.get(prefix + node.key, k))
        return needs

    def _bodies(
        self, prefix: str, node: Node, asked: tuple[bool, ...], needs: dict[str, bool]
    ) -> tuple[bool, ...]:
        """Whether the outputs need a gradient, of a node with bodies.

        A function takes the inputs of its node in order, so does Scan; Loop has two of its own
        before them, and one result before its others. What a run hands to the next one is followed
        once more. The branches of an If have no inputs.
        """
        skipped = {"Loop": 1}.get(node.op.type, 0)
        results: list[bool] = []
        for body in node.bodies:
            given = dict(zip((spec.name for spec in body.inputs), asked, strict=False))
            for _ in range(1 if node.choice == "function" else 2):
                outer = {} if node.choice == "function" else dict(needs)
                inner = self._scope(key_before(prefix, node, body), body, {**outer, **given})
                ends = [inner.get(spec.name, False) for spec in body.outputs][skipped:]
                for name, end in zip(list(given)[2 * skipped :], ends, strict=False):
                    given[name] = given[name] or end
            results = [
                old or new for old, new in zip(results or [False] * len(ends), ends, strict=False)
            ]
        return tuple(results)

    def _needed(self, spec: TensorSpec, node: Node, needs: dict[str, bool]) -> bool:
        if spec.name in needs:
            return needs[spec.name]
        return spec.role == "parameter" and _real(spec) and self._is_trained(spec, node)

    def _is_trained(self, spec: TensorSpec, node: Node) -> bool:
        names = (spec.name, node.path, node.key)
        frozen, trained = (
            self._matching(self._frozen, names),
            self._matching(self._trainable, names),
        )
        return trained or not frozen

    def _matching(self, patterns: tuple[str, ...], names: tuple[str, ...]) -> bool:
        matching = [
            pattern for pattern in patterns if any(matches(name, pattern) for name in names)
        ]
        self._met.update(matching)
        return bool(matching)


def backward_passes(node: Node, needed: tuple[bool, ...]) -> Fraction:
    """k of one node, from which of its inputs need a gradient.

    Of attention O = softmax(Q K^T) V both products have the same size (to the depth of a head):
    dV is half of the node's work, dP = dO V^T another half where Q or K need one, dQ and dK half
    each. Operators that this knows nothing about are taken as one contraction of their data with
    their weights.
    """
    if node.op.type in _ATTENTION:
        query, key, value = (*needed, False, False, False)[:3]
        halves = value + (query or key) + query + key
        return 1 + Fraction(int(halves), 2)
    places = _CONTRACTED.get(node.op.type, range(len(needed)))
    return Fraction(1 + min(2, sum(needed[place] for place in places if place < len(needed))))


def _real(spec: TensorSpec) -> bool:
    return spec.dtype.startswith(_FLOATS)


# The parts that a count of MACs is made of, as far as a rate tells them apart.

FLAT = Fraction(3)  # passes of training where nothing tells nodes apart


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """MACs of one example that are treated alike.

    `names` are what a pattern may match (operator, node, module), `stored` is the precision of
    the operands in the graph, "" where it is unknown. `passes` is k of training by where gradients
    flow, None where there is no graph. `scores` are those of a product of attention.
    """

    macs: Fraction
    names: tuple[str, ...] = ()
    stored: str = ""
    passes: Fraction | None = None
    scores: AttentionScores | None = None


def whole(macs: int | Fraction) -> tuple[Piece, ...]:
    """A count of which nothing more is known."""
    return (Piece(macs=Fraction(macs)),)


def pieces(
    graph: Graph,
    ledger: Ledger,
    *,
    examples: int = 1,
    frozen: Iterable[str] = (),
    trainable: Iterable[str] = (),
) -> tuple[Piece, ...]:
    """A piece for every node with MACs; the graph is one pass over so many examples.

    Raises InputError for a pattern that matches no weight.
    """
    backward = Gradients(frozen, trainable).of(graph)
    attention = scores(graph)
    return tuple(
        Piece(
            macs=Fraction(count.cost.macs, examples),
            names=(str(count.node.op), count.node.key, count.node.path),
            stored=count.precision,
            passes=backward.get(count.node.key),
            scores=attention.get(count.node.key),
        )
        for count in ledger.counted
        if count.cost.macs
    )


GRAPH = "graph"  # the precision by which every node runs as its operands are stored


class WorkTerm(msgspec.Struct, frozen=True, kw_only=True):
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
) -> tuple[WorkTerm, ...]:
    """What is asked of the pieces of a count. Equal ones are added up.

    Raises InputError for a pattern that matches nothing and an unknown precision.
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
        WorkTerm(macs=macs, passes=k, executed=done, precision=precision, attention=attention)
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
        part = Fraction(text) if text not in ("none", "full") else Fraction(0)
    except (ValueError, ZeroDivisionError):
        part = Fraction(-1)
    if not 0 <= part <= 1:
        raise InputError(
            f"--recompute {recompute!r} is no part of the forward pass",
            "give none, full, attention, or a part between 0 and 1 such as 0.3",
        )
    return part


def kinds(precisions: Precisions) -> dict[str, str]:
    """Precisions by pattern, from texts such as Conv=tf32."""
    by_pattern = {}
    for text in precisions.precision_of:
        pattern, equals, precision = text.rpartition("=")
        if not equals or not pattern or not precision:
            raise InputError(
                f"--precision-of {text!r} is not PATTERN=P", "write for example Conv=tf32"
            )
        by_pattern[pattern] = precision.casefold()
    return by_pattern


def _split(
    piece: Piece, asked: Precisions, patterns: Mapping[str, str], met: set[str]
) -> dict[str, Fraction]:
    """The precisions of a piece, with their shares. The last pattern that matches wins."""
    chosen = ""
    for pattern, precision in patterns.items():
        if any(matches(name, pattern) for name in piece.names):
            met.add(pattern)
            chosen = precision
    if chosen:
        return {chosen: Fraction(1)}
    if asked.mix:
        return shares(asked.mix)
    if asked.precision == GRAPH:
        return {as_stored(piece.stored): Fraction(1)}
    return {asked.precision: Fraction(1)}


def as_stored(stored: str) -> str:
    """The peak for what a graph stores. Raises InputError where there is no one such peak."""
    if stored not in PRECISIONS:
        raise InputError(
            f"the precision in which {stored or 'this'} runs is unknown",
            "say it by --precision, or --precision-of PATTERN=P for these nodes",
        )
    return PRECISIONS[stored]


def shares(mix: Iterable[str]) -> dict[str, Fraction]:
    """Shares of the work by precision, from texts such as bf16=0.5. They add up to one."""
    parts: dict[str, Fraction] = {}
    for text in mix:
        name, equals, value = text.partition("=")
        try:
            parts[name.casefold()] = Fraction(value)
        except (ValueError, ZeroDivisionError):
            equals = ""
        if not equals or not name or not 0 < parts.get(name.casefold(), 0) <= 1:
            raise InputError(f"--mix {text!r} is not P=SHARE", "write for example bf16=0.5")
    if sum(parts.values()) != 1:
        raise InputError(
            f"the shares of --mix add up to {float(sum(parts.values())):g}, not to 1",
            "write for example --mix bf16=0.5 --mix fp8=0.5",
        )
    return parts
