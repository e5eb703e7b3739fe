"""The work of a transformer language model from its sizes, where there is no model at hand.

Per token, forward, with N parameters in matrix products, L layers, H heads of depth Q, and T
tokens of sequence (or of context, when one token is decoded):

    MACs = N + 2 L H Q T

so that training comes to 6 N + 12 L H Q T FLOPs (Chowdhery et al., PaLM, appendix B; nanoGPT and
llm-foundry compute the same), and without attention to the 6 N D of Kaplan et al. and Hoffmann et
al. The square of attention is full; a causal mask leaves half of it (6 L H Q T, as Megatron-LM and
MaxText count), a window of W leaves min(W, T). N leaves out input embeddings, which are looked up;
the output layer is a matrix product even where it shares their weights. Of a mixture of experts N
are the parameters that a token uses.

Bytes of one decoding step, batch B, Hkv key and value heads:

    weights = N x bytes,   cache = B x T x 2 L Hkv Q x bytes

Grouped queries change the cache and not the products.
"""

from fractions import Fraction

from crossflops.errors import InputError
from crossflops.hardware.rates.numerators import Numerator, quantity
from crossflops.hardware.rates.pieces import FLAT, Piece
from crossflops.hardware.rates.question import Language
from crossflops.hardware.rates.scores import Scores
from crossflops.hardware.rates.transfer import Transfer

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
    square = Scores(queries=queries, keys=length, causal="declared")
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
    if all(one is None for one in sizes):
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
