"""Formulas on encoder-decoders, state spaces and shared layers: sums by token, and causes."""

import random

import msgspec
import pytest

from crossflops.ir.architecture import (
    CrossAttention,
    DecoderLayer,
    FeedForward,
    GatedDelta,
    StateSpace,
    TokenSequence,
)
from crossflops.reconcile.formulas import reconcile_formulas
from crossflops.tools.registry import formula_conventions
from tests.tools.formulas.published import attention, made, random_architecture


def scan_by_tokens(tokens, heads, depth, state, chunk):
    """Return the MACs of a scan in chunks, multiplication by multiplication of whole rows."""
    macs = 0
    chunks = [range(start, start + chunk) for start in range(0, tokens, chunk)]
    for _ in range(heads):
        for positions in chunks:
            for _ in positions:
                macs += chunk * state  # scores of a row with all of its chunk
                macs += chunk * depth  # and their product with values
                macs += 2 * state * depth  # into the state of the chunk, and out of the last one
        for _ in range(len(chunks) + 1):  # the state after each chunk, and before the first
            macs += (len(chunks) + 1) * depth * state
    return macs


@pytest.mark.parametrize("tokens", [1, 7, 8, 9, 30])
def test_a_scan_in_chunks_is_the_sum_over_tokens(tokens):
    """The last chunk is padded."""
    space = StateSpace(
        projections=0, channels=5, kernel=4, heads=3, head_dim=2, state=6, groups=1, chunk=8
    )
    padded = -(-tokens // 8) * 8
    assert space.scan_macs(tokens) == scan_by_tokens(padded, 3, 2, 6, 8)
    one_by_one = msgspec.structs.replace(space, chunk=0)
    assert one_by_one.scan_macs(tokens) == sum(3 * 2 * 6 for _ in range(tokens))


def test_a_convolution_has_results_after_the_last_token():
    """Nine results of ten weights each: six tokens, and kernel - 1 behind them."""
    space = StateSpace(projections=0, channels=10, kernel=4, heads=1, head_dim=10, state=2)
    assert space.convolution_macs(6) == sum(10 * 4 for _ in range(6 + 3))


def decoder_layer(cross=None, state_space=None, heads=2):
    """Return a layer of width 8 and a feed-forward part of 20."""
    core = attention(8, heads, heads, 4) if heads else None
    ffn = FeedForward(hidden=8, width=20, gated=False)
    return DecoderLayer(core, ffn, state_space, cross)


def test_an_encoder_decoder_is_the_sum_of_its_tokens():
    """Source tokens pass the encoder and make keys; target tokens pass decoder and head."""
    cross = CrossAttention(query_projections=128, key_projections=130, macs_per_pair=16)
    model = msgspec.structs.replace(
        made("t5", 8, 50, [decoder_layer(cross)], norms=7),
        encoder=(decoder_layer(), decoder_layer()),
    )
    source, target, macs = 5, 3, 0
    for _ in range(source):
        macs += 2 * (4 * 64 + 2 * 160) + 130
        macs += 2 * source * 16
    for _ in range(target):
        macs += 4 * 64 + 2 * 160 + 128 + 50 * 8
        macs += (target + source) * 16
    assert TokenSequence(model, source, target).macs == macs


def random_kind(draw):
    """Return a random architecture with an encoder, state spaces, layers that share weights
    or other matrices.
    """
    model = random_architecture(draw)
    kind = draw.choice(["encoder", "space", "shared", "matrix"])
    if kind == "matrix":
        model = msgspec.structs.replace(model, other_matrices=77)
    if kind == "encoder":
        cross = CrossAttention(
            query_projections=draw.randint(1, 99), key_projections=draw.randint(1, 99),
            macs_per_pair=draw.randint(1, 99),
        )  # fmt: skip
        layers = tuple(msgspec.structs.replace(layer, cross=cross) for layer in model.layers)
        model = msgspec.structs.replace(
            model, layers=layers, encoder=random_architecture(draw).layers
        )
    elif kind == "space":
        layers = tuple(_with_state_space(layer, draw) for layer in model.layers)
        model = msgspec.structs.replace(model, layers=layers)
    repeated = draw.choice([0, 50]) if kind == "space" else 100 if kind == "shared" else 0
    convolutions = sum(space.convolution_weights for space in model.state_spaces)
    parameters = model.parameters
    matrices = model.extra_shared_weights + parameters.matrices - repeated
    return msgspec.structs.replace(
        model,
        parameters=msgspec.structs.replace(
            parameters,
            matrices=matrices,
            convolutions=convolutions,
            total=parameters.total - parameters.matrices + matrices + convolutions,
        ),
    )


def _with_state_space(layer, draw):
    """Return a layer with a state space or a delta rule, mostly instead of its attention."""
    sizes = {"projections": draw.randint(1, 999), "channels": 12, "kernel": 4}
    space = draw.choice(
        [
            StateSpace(heads=1, head_dim=12, state=8, **sizes),
            StateSpace(heads=3, head_dim=4, state=8, chunk=5, **sizes),
            StateSpace(heads=3, head_dim=4, state=8, chunk=5, **sizes),
            GatedDelta(heads=2, key_dim=4, value_dim=3, chunk=5, **sizes),
            None,
        ]
    )
    if space is None:
        return layer
    core = layer.attention if draw.random() < 0.1 else None
    return msgspec.structs.replace(layer, attention=core, state_space=space)


def test_each_formula_explains_its_number_or_names_the_part_that_it_lacks():
    """No residual on 300 random models; those by parameters have a number for every one."""
    draw = random.Random(39)
    known = formula_conventions()
    answered = {}
    for _ in range(300):
        model = random_kind(draw)
        tokens = draw.randint(1, 30)
        target = draw.randint(1, 30) if model.encoder else None
        macs = TokenSequence(model, tokens, target).macs
        report = reconcile_formulas(known, model, tokens, 1, macs, target_tokens=target)
        for account in report.accounts:
            assert account.residual == 0, (account.tool, account.edition, model)
            answered[account.tool] = answered.get(account.tool, 0) + (not account.obstacle)
            if model.encoder and account.obstacle:
                assert "encoder" in account.obstacle
            if account.tool == "palm":
                others = model.encoder or model.state_spaces or model.extra_shared_weights
                assert bool(account.obstacle) == bool(others)
    assert {tool for tool, number in answered.items() if number == 300} == {
        "6nd", "eu", "aws", "total-flos",
    }  # fmt: skip
    assert answered["megatron-lm"] > 5
