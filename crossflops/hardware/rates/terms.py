"""The work of one example, as MACs by precision and number of passes.

    FLOPs_i    = 2 x MACs_i x k_i                     the model's work
    executed_i = 2 x MACs_i x (k_i + recomputed_i)    with what is computed again

k is 1 in inference. In training it is what the exact count of the step comes to for each node
(`crossflops.ledger.training`), 3 where there is no graph, or what is given. Recomputed is 1 with
full activation checkpointing (so 4 instead of 3: Korthikanti et al., Reducing Activation
Recomputation, and DeepSpeed's `recompute_fwd_factor` = 1), a fraction with a selective one, 1 for
the products of attention alone where only these are recomputed. A fused kernel that keeps no
scores does half of these products again (FlashAttention: 3.5 instead of 3); the exact count knows
which.

Among them are the score and value products of attention, and what a causal mask leaves of them.
Attention over Sq queries and St keys costs B H Sq St (D + Dv) MACs. A causal mask leaves of the
Sq x St scores the part 1 - Sq / (2 St): half of a square (the diagonal is taken as half, as
Megatron-LM, MaxText and FlashAttention's benchmark do). The newest token alone masks nothing.
A sliding window of W leaves a causal attention min(W, St) of St keys; beside a causal mask the
triangle at its beginning is left out, too: of a square W S - W^2 / 2 scores remain. Attention that
is not causal keeps all keys. Tools count the full square in most cases.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from crossflops.errors import InputError
from crossflops.hardware.dataflow import graphs_with_key_prefix
from crossflops.hardware.rates.question import Causality, Precisions, TrainingOptions
from crossflops.hardware.step_traffic import PRECISIONS
from crossflops.ir.graph import Graph, Node, TensorSpec
from crossflops.ir.ledger import Ledger
from crossflops.ir.training import NO_STEP, Steps, matches_weight_pattern

_FUSED = ("Attention", "FlexAttention")
_PRODUCTS = ("MatMul", "Einsum", "FusedMatMul")
# what may stand between a product and the softmax, and between the softmax and a product
_BETWEEN = frozenset(
    (
        *("Mul", "Div", "Add", "Sub", "Where", "Cast", "CastLike", "Identity", "Dropout", "Tanh"),
        *("Reshape", "Expand", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Max", "IsNaN"),
    )
)
_MASKS = ("Add", "Where", "Sub")


class AttentionScores(msgspec.Struct, frozen=True, kw_only=True):
    """The sizes of one attention, and whether the graph shows that it is causal.

    `causal` is "declared", "masked" (a mask whose values are not read) or "no". `window` are the
    keys that a query sees, 0 for all; `masked_window` those that a causal mask leaves it, which
    like the mask is left out of the work where that is asked.
    """

    queries: int
    keys: int
    causal: str
    window: int = 0
    masked_window: int = 0

    @property
    def may_be_causal(self) -> bool:
        """True if the attention may be causal: it is declared so, is masked and square, or has one
        query.

        One query is the newest token: it sees all keys, or those of a window.
        """
        return (
            self.causal == "declared"
            or (self.causal == "masked" and self.queries == self.keys)
            or self.queries == 1 < self.keys
        )

    @property
    def can_causal_mask_hide_scores(self) -> bool:
        """True if a causal mask may hide a part of the attention scores."""
        return self.may_be_causal and 1 < self.queries <= self.keys

    def share_of_remaining_scores(self, half: bool, window: int | None = None) -> Fraction:
        """Return the share of all attention scores that remain after a window of keys and, with
        `half`, a causal mask.
        """
        asked = (window, self.masked_window if half else 0) if self.may_be_causal else ()
        width = self.window or min(filter(None, asked), default=self.keys)
        full = self.queries * self.keys
        if not half or not self.can_causal_mask_hide_scores:
            return Fraction(min(width, self.keys) * self.queries, full)
        first = self.keys - self.queries  # the keys that the first query sees, itself left aside
        growing = min(max(width - first, 0), self.queries)
        triangle = first * growing + Fraction(growing * growing, 2)
        return (triangle + min(width, self.keys) * (self.queries - growing)) / full


Walk: TypeAlias = Callable[[Node], Iterable[Node]]


def attention_scores_by_node(graph: Graph) -> dict[str, AttentionScores]:
    """Return for each matrix product or fused node of attention, by node key, the sizes of its
    attention.
    """
    products: dict[str, AttentionScores] = {}
    for prefix, scope in graphs_with_key_prefix(graph):
        for node, sizes in (*_single_node_attention(scope), *_multi_node_attention(scope)):
            window = _module_window(node.path, graph.windows)
            products[prefix + node.key] = replace(sizes, masked_window=window)
    return products


def _module_window(path: str, windows: Mapping[str, int]) -> int:
    """Return the attention window (in keys) of the module at `path` or of its nearest ancestor; 0
    for none.
    """
    while path and path not in windows:
        path = path.rpartition(".")[0]
    return windows.get(path, 0)


def _single_node_attention(graph: Graph) -> Iterator[tuple[Node, AttentionScores]]:
    """Yield (node, its attention sizes) for each fused attention node of a graph."""
    for node in graph.nodes:
        shapes = [spec.shape if spec else None for spec in node.inputs]
        if node.op.type not in _FUSED or node.op.domain == "com.microsoft" or len(shapes) < 3:
            continue
        query, key = shapes[0], shapes[1]
        past = shapes[4] if len(shapes) > 4 else None
        if query is None or key is None or len(query) < 3:
            continue
        total = key[-2] + (past[2] if past else 0)
        left, masked = node.attrs.get("left_window_size", -1), len(shapes) > 3 and shapes[3]
        causal = "declared" if node.attrs.get("is_causal") else "masked" if masked else "no"
        window = left + 1 if isinstance(left, int) and left >= 0 else 0
        yield node, AttentionScores(queries=query[-2], keys=total, causal=causal, window=window)


def _multi_node_attention(graph: Graph) -> Iterator[tuple[Node, AttentionScores]]:
    """Yield (matrix product, its attention sizes) for each product before or after a softmax of
    attention.
    """
    makers = {spec.name: node for node in graph.nodes for spec in node.outputs if spec}
    users: dict[str, list[Node]] = {}
    for node in graph.nodes:
        for spec in node.inputs:
            if spec is not None:
                users.setdefault(spec.name, []).append(node)
    fixed = _constant_value_names(graph)

    def producer_nodes(node: Node) -> Iterator[Node]:
        """Yield the nodes that compute the inputs of a node."""
        return (makers[spec.name] for spec in node.inputs if spec and spec.name in makers)

    def user_nodes(node: Node) -> Iterator[Node]:
        """Yield the nodes that use the outputs of a node."""
        return (user for spec in node.outputs if spec for user in users.get(spec.name, ()))

    for node in graph.nodes:
        shape = node.outputs[0].shape if node.outputs and node.outputs[0] else None
        if node.op.type != "Softmax" or shape is None or len(shape) < 3:
            continue
        above, between = _reachable_products_and_pointwise_nodes(node, producer_nodes, fixed)
        below, _ = _reachable_products_and_pointwise_nodes(node, user_nodes, fixed)
        if above and below:
            masked = any(passed.op.type in _MASKS for passed in between)
            sizes = AttentionScores(
                queries=shape[-2], keys=shape[-1], causal="masked" if masked else "no"
            )
            yield from ((product, sizes) for product in (*above, *below))


def _reachable_products_and_pointwise_nodes(
    start: Node, step: Walk, fixed: set[str]
) -> tuple[list[Node], list[Node]]:
    """Return the matrix products that are reached from `start` by `step` through pointwise nodes,
    and these pointwise nodes; products with weights are left out.
    """
    products: list[Node] = []
    passed: dict[str, Node] = {}
    waiting = [start]
    while waiting:
        for node in step(waiting.pop()):
            if node.op.type in _PRODUCTS:
                if not any(spec and _is_constant_value(spec, fixed) for spec in node.inputs[:2]):
                    products.append(node)
            elif node.op.type in _BETWEEN and node.key not in passed:
                passed[node.key] = node
                waiting.append(node)
    return products, list(passed.values())


def _constant_value_names(graph: Graph) -> set[str]:
    """Return the names of values that are computed from weights and constants alone."""
    fixed: set[str] = set()
    for node in graph.nodes:
        if not node.bodies and all(
            _is_constant_value(spec, fixed) for spec in node.inputs if spec
        ):
            fixed |= {spec.name for spec in node.outputs if spec}
    return fixed


def _is_constant_value(spec: TensorSpec, fixed: set[str]) -> bool:
    """Return True if the value is a parameter, a constant or computed from these only."""
    return spec.role in ("parameter", "constant") or spec.name in fixed


# The parts that a count of MACs is made of, as far as a rate tells them apart.

FLAT = Fraction(3)  # passes of training where nothing tells nodes apart


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """MACs of one example that have the same names, precision and passes.

    `names` are what a pattern may match (operator, node, module), `stored` is the precision of
    the operands in the graph, "" where it is unknown. `passes` is k of training by the exact count
    of the step, and `again` what that does a second time, None where there is no graph. `scores`
    are those of a product of attention.
    """

    macs: Fraction
    names: tuple[str, ...] = ()
    stored: str = ""
    passes: Fraction | None = None
    again: Fraction | None = None
    scores: AttentionScores | None = None


def single_piece(macs: int | Fraction) -> tuple[Piece, ...]:
    """Return one piece of work with these MACs, in a tuple."""
    return (Piece(macs=Fraction(macs)),)


def pieces_of_graph(
    graph: Graph, ledger: Ledger, *, examples: int = 1, exact: Steps | None = None
) -> tuple[Piece, ...]:
    """Return for each node with MACs a piece of work: its MACs per example, its names and its
    passes.

    `exact` are the training steps of the nodes, where they are counted.
    """
    attention = attention_scores_by_node(graph)
    counted = []
    for count in ledger.counted:
        macs, key = count.cost.macs, count.node.key
        if not macs:
            continue
        step = exact.by_key.get(key, NO_STEP) if exact else NO_STEP
        piece = Piece(
            macs=Fraction(macs, examples),
            names=(str(count.node.op), key, count.node.path),
            stored=count.precision,
            passes=1 + Fraction(step.backward.macs, macs) if exact else None,
            again=Fraction(step.recomputed.macs, macs) if exact else None,
            scores=attention.get(key),
        )
        counted.append(piece)
    return tuple(counted)


GRAPH = "graph"  # the precision by which every node runs as its operands are stored


class WorkTerm(msgspec.Struct, frozen=True, kw_only=True):
    """MACs of one example in one precision, with the number of passes over them: of the model, and
    executed ones.
    """

    macs: Fraction
    passes: Fraction
    executed: Fraction
    precision: str
    attention: bool = False

    @property
    def flops(self) -> Fraction:
        """FLOPs of the model: 2 x MACs x passes."""
        return 2 * self.macs * self.passes

    @property
    def hardware_flops(self) -> Fraction:
        """FLOPs of the hardware: 2 x MACs x passes, with recomputation."""
        return 2 * self.macs * self.executed


def work_terms(
    pieces: Iterable[Piece],
    training: TrainingOptions,
    causality: Causality,
    precisions: Precisions,
) -> tuple[WorkTerm, ...]:
    """Return the MACs of all pieces, summed for each precision and number of passes.

    Raises InputError for a pattern that matches nothing and an unknown precision.
    """
    sums: dict[tuple[Fraction, Fraction, str, bool], Fraction] = {}
    for piece, macs, precision in _macs_by_piece_and_precision(pieces, causality, precisions):
        k = model_pass_factor(piece, training)
        done = k + sum(recompute_factors(piece, k, training).values())
        key = (k, done, precision, piece.scores is not None)
        sums[key] = sums.get(key, Fraction(0)) + macs
    return tuple(
        WorkTerm(macs=macs, passes=k, executed=done, precision=precision, attention=attention)
        for (k, done, precision, attention), macs in sums.items()
    )


def recomputation_terms(
    pieces: Iterable[Piece],
    training: TrainingOptions,
    causality: Causality,
    precisions: Precisions,
) -> dict[str, tuple[WorkTerm, ...]]:
    """Return for each reason of recomputation the work that is done again in a training step, as
    terms with its MACs.
    """
    sums: dict[str, dict[tuple[Fraction, str], Fraction]] = {}
    for piece, macs, precision in _macs_by_piece_and_precision(pieces, causality, precisions):
        for reason, times in recompute_factors(
            piece, model_pass_factor(piece, training), training
        ).items():
            parts = sums.setdefault(reason, {})
            parts[times, precision] = parts.get((times, precision), Fraction(0)) + macs
    return {
        reason: tuple(
            WorkTerm(macs=macs, passes=times, executed=times, precision=precision)
            for (times, precision), macs in parts.items()
        )
        for reason, parts in sums.items()
    }


def _macs_by_piece_and_precision(
    pieces: Iterable[Piece], causality: Causality, precisions: Precisions
) -> Iterator[tuple[Piece, Fraction, str]]:
    """Yield (piece, MACs, precision) for each precision in which a piece runs, after the causal
    mask.
    """
    half, window = causality.causal == "half", causality.window
    patterns = parse_precision_patterns(precisions)
    met: set[str] = set()
    for piece in pieces:
        left = (
            piece.scores.share_of_remaining_scores(half, window) if piece.scores else Fraction(1)
        )
        for precision, part in _piece_precision_shares(piece, precisions, patterns, met).items():
            yield piece, piece.macs * left * part, precision
    for pattern in patterns:
        if pattern not in met:
            raise InputError(
                f"--precision-of {pattern!r} matches no node with MACs",
                "use the name of an operator, a node or a module, such as Conv or 'layer1*'",
            )


def model_pass_factor(piece: Piece, training: TrainingOptions) -> Fraction:
    """Return the number of passes over a piece's forward MACs: 1 in inference, else that of a
    training step.
    """
    if not training.train:
        return Fraction(1)
    if training.train_multiplier is not None:
        return Fraction(training.train_multiplier)
    if training.has_graph_passes and piece.passes is not None:
        return piece.passes
    return FLAT


class Overstatement(msgspec.Struct, frozen=True, kw_only=True):
    """The share by which 3 passes of all work exceed the counted passes, and the pieces with fewer
    passes.
    """

    share: Fraction
    pieces: tuple[Piece, ...]


def three_passes_overstatement(pieces: Iterable[Piece]) -> Overstatement | None:
    """Return by how much 3 passes over all pieces exceed the counted passes; None if they do
    not.
    """
    known = [(piece, piece.passes) for piece in pieces if piece.passes is not None]
    exact = sum((piece.macs * k for piece, k in known), Fraction(0))
    flat = sum((piece.macs for piece, _ in known), Fraction(0)) * FLAT
    if not exact or flat <= exact:
        return None
    return Overstatement(
        share=flat / exact - 1, pieces=tuple(piece for piece, k in known if k < FLAT)
    )


# Why work of the forward pass is done once more, in the words of a report.
FUSED_SCORES = "attention scores in a fused kernel"
CHECKPOINTS = "checkpoints of the model"
_RECOMPUTED = {"full": "the whole forward pass", "attention": "the products of attention"}


def recompute_factors(piece: Piece, k: Fraction, training: TrainingOptions) -> dict[str, Fraction]:
    """Return for each reason how many times the forward work of a piece is recomputed; {} in
    inference.
    """
    if not training.train or k <= 1:
        return {}
    known = (piece.again if training.has_graph_passes else None) or Fraction(0)
    reasons = {CHECKPOINTS: known}
    if piece.scores:  # a fused kernel does half of its products again, a checkpoint all of them
        fused = known % 1 or (Fraction(1, 2) if training.flash else Fraction(0))
        reasons = {FUSED_SCORES: fused, CHECKPOINTS: Fraction(known.__floor__())}
    asked = _option_recompute_factors(piece, training.recompute)
    if reasons.get(CHECKPOINTS) and any(asked.values()):
        raise InputError(
            f"--recompute {training.recompute} and the model's own checkpoints both recompute "
            f"{piece.names[1]}",
            "leave out --recompute; the recomputation of the checkpoints is already counted",
        )
    reasons |= asked
    return {reason: times for reason, times in reasons.items() if times}


def _option_recompute_factors(piece: Piece, recompute: str) -> dict[str, Fraction]:
    """Return how many times --recompute repeats the forward work of a piece, under its reason as
    text.
    """
    if recompute == "attention":
        return {_RECOMPUTED[recompute]: Fraction(1 if piece.scores else 0)}
    times = Fraction(1) if recompute == "full" else _parse_recompute_share(recompute)
    return {_RECOMPUTED.get(recompute, f"{recompute} of the forward pass"): times}


def _parse_recompute_share(recompute: str) -> Fraction:
    """Parse the share of the forward work that is recomputed, such as "selective=0.5" or "0.5"; 0
    for "none".
    """
    text = recompute.removeprefix("selective=")
    try:
        part = Fraction(text) if text not in ("none", "full") else Fraction(0)
    except (ValueError, ZeroDivisionError):
        part = Fraction(-1)
    if not 0 <= part <= 1:
        raise InputError(
            "--recompute must be none, full, attention or a number from 0 to 1, got "
            f"{recompute!r}",
            "give, for example, full or 0.3",
        )
    return part


def parse_precision_patterns(precisions: Precisions) -> dict[str, str]:
    """Parse texts such as "Conv=tf32"; return the precisions by name pattern."""
    by_pattern = {}
    for text in precisions.precision_of:
        pattern, equals, precision = text.rpartition("=")
        if not equals or not pattern or not precision:
            raise InputError(
                f"--precision-of must be PATTERN=P, got {text!r}", "write, for example, Conv=tf32"
            )
        by_pattern[pattern] = precision.casefold()
    return by_pattern


def _piece_precision_shares(
    piece: Piece, precisions: Precisions, patterns: Mapping[str, str], used_patterns: set[str]
) -> dict[str, Fraction]:
    """Return for each precision the share of a piece that runs in it, and add the matching
    patterns to `used_patterns`.
    """
    chosen = ""
    for pattern, precision in patterns.items():
        if any(matches_weight_pattern(name, pattern) for name in piece.names):
            used_patterns.add(pattern)
            chosen = precision
    if chosen:
        return {chosen: Fraction(1)}
    if precisions.mix:
        return parse_precision_mix(precisions.mix)
    if precisions.precision == GRAPH:
        remedy = (
            "give --precision fp16 (or another) instead of graph, or --precision-of OPERATOR=P "
            "for these nodes, such as --precision-of Conv=tf32"
            if piece.stored
            else "give --precision fp16 (or another) instead of graph"
        )
        return {precision_of_stored_type(piece.stored, remedy): Fraction(1)}
    return {precisions.precision: Fraction(1)}


def precision_of_stored_type(stored: str, remedy: str) -> str:
    """Return the precision that a stored dtype means, such as "fp32" for "float32". Raises
    InputError with `remedy` if it is unknown.
    """
    if stored not in PRECISIONS:
        raise InputError(
            f"no precision is known for values stored as {stored}"
            if stored
            else "the type in which the values are stored is unknown, so the precision is unknown",
            remedy,
        )
    return PRECISIONS[stored]


def parse_precision_mix(mix: Iterable[str]) -> dict[str, Fraction]:
    """Parse texts such as "bf16=0.5"; return by precision its share of the work, with a sum of
    1.
    """
    parts: dict[str, Fraction] = {}
    for text in mix:
        name, equals, value = text.partition("=")
        try:
            parts[name.casefold()] = Fraction(value)
        except (ValueError, ZeroDivisionError):
            equals = ""
        if not equals or not name or not 0 < parts.get(name.casefold(), 0) <= 1:
            raise InputError(
                f"--mix must be P=SHARE, got {text!r}", "write, for example, bf16=0.5"
            )
    if sum(parts.values()) != 1:
        raise InputError(
            f"the shares of --mix must add up to 1, got {float(sum(parts.values())):g}",
            "write, for example, --mix bf16=0.5 --mix fp8=0.5",
        )
    return parts
