"""The work of generating text: a prefill of the prompt, and a decoding step for each new token.

Lengths are tokens of one request. The prefill of a prompt gives the first new token, and every
step one more: `generate` tokens take generate - 1 steps. A step has a `context`: the tokens that
its query attends to, the cached ones and its own. Of an encoder-decoder the context is in the
decoder, which begins with one token; the prefill is the encoder and the first pass of the decoder.
"""

from typing import Literal

import msgspec

from crossflops.ir.polynomial import Polynomial

KINDS = ("macs", "flops", "bytes_read", "bytes_written", "cache_read", "cache_written")


class WorkAmounts(msgspec.Struct, frozen=True, kw_only=True):
    """Amounts of all requests of a batch together.

    `bytes_read` and `bytes_written` are those of each operator separately, without fusion. A pass
    receives `cache_read` bytes of keys and values, and adds `cache_written` to them.
    """

    macs: int
    flops: int
    bytes_read: int
    bytes_written: int
    cache_read: int
    cache_written: int


class LengthPiece(msgspec.Struct, frozen=True, kw_only=True):
    """The work of one pass of a batch as polynomials, from a `first` to a `last` length.

    The lengths are those of `along`, prompt or context. A kind that has no polynomial there is
    None.
    """

    along: Literal["prompt", "context"]
    first: int
    last: int
    macs: Polynomial | None
    flops: Polynomial | None
    bytes_read: Polynomial | None
    bytes_written: Polynomial | None
    cache_read: Polynomial | None
    cache_written: Polynomial | None


class WorkShare(msgspec.Struct, frozen=True):
    """The part of one request or token: an integer where it is one."""

    macs: int | float
    flops: int | float


class GenerationPhase(msgspec.Struct, frozen=True, kw_only=True):
    """The prefill, or all decoding steps: `passes` of the model.

    Each pass reads `weight_bytes` once, and `moved_bytes` are all that the phase must move at
    least: weights of each pass, and caches. `peak_activation_bytes` are those of its longest
    pass, None where that was not counted as a whole. `tokens` are those that it takes in.
    `pieces` are polynomials of one pass.
    """

    passes: int
    tokens: int
    amounts: WorkAmounts
    weight_bytes: int
    moved_bytes: int
    peak_activation_bytes: int | None
    per_request: WorkShare
    per_token: WorkShare
    pieces: tuple[LengthPiece, ...]

    @property
    def intensity(self) -> float:
        """The FLOPs for each byte that must be moved; 0.0 if no bytes are."""
        return self.amounts.flops / self.moved_bytes if self.moved_bytes else 0.0


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """The work of `batch` requests, each with a `prompt` and `generate` new tokens.

    `decode_macs` and `decode_flops` are all decoding steps as polynomials in prompt and generate,
    None where the steps have no polynomial for all contexts; they hold for contexts in the pieces
    of `decode`. `cache_bytes` is the size of the cache at the end, in `cache_dtype`. Where this
    was asked for, `model_cache_dtype` is the type in which the model itself keeps it. It has
    `cache_heads` of keys and values in the layer with the fewest, 0 where they are unknown.
    `model_bytes` are those of all parameters, which all have the type `weight_dtype`, "" where
    they differ. `counted` are passes that were counted; where most were counted with fewer
    layers, `layers` says so.
    `experts` says what is assumed of the experts whose weights a pass reads.
    With `speculation` the phases are those of the model that checks what a draft model proposes:
    its first pass takes the prompt and the first proposed tokens, and decoding the passes of later
    rounds, whose polynomials are those of a full round. The totals are those of both models.
    `image_tokens` of the prompt are those of its `images`.
    """

    kind: Literal["decoder", "encoder-decoder"]
    prompt: int
    generate: int
    batch: int
    cache_dtype: str
    cache_bytes: int
    prefill: GenerationPhase
    decode: GenerationPhase | None
    decode_macs: Polynomial | None
    decode_flops: Polynomial | None
    macs: int
    flops: int
    moved_bytes: int
    per_request: WorkShare
    per_new_token: WorkShare
    counted: int
    layers: str = ""
    experts: str = ""
    cache_heads: int = 0
    model_bytes: int = 0
    weight_dtype: str = ""
    model_cache_dtype: str = ""
    speculation: "Speculation | None" = None
    images: int = 0
    image_tokens: int = 0


class Speculation(msgspec.Struct, frozen=True, kw_only=True):
    """How a `draft` model, which is named by `target`, took part in the decoding of a request.

    In each of the `rounds` it proposes `draft_tokens` tokens, or as many as are left. Of those
    `acceptance` are accepted on average, a fraction as text, spread evenly over the rounds. All
    rounds of a request together have `proposed_tokens`, of which `accepted_tokens` are accepted.
    """

    draft: Workload
    target: str
    draft_tokens: int
    acceptance: str
    rounds: int
    proposed_tokens: int
    accepted_tokens: int
