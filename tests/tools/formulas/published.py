"""Eight architectures, written down from their published configs, and one made at random.

Parameters are the numbers of elements of the models of transformers and litgpt. Nothing here is
read by the code under test.
"""

import msgspec

from crossflops.ir.architecture import (
    AttentionSizes,
    DecoderLayer,
    FeedForward,
    LanguageArchitecture,
    ParameterTable,
)


def made(
    model_type, hidden, vocabulary, layers, *, activation="silu", tied=False, norms, **parameters
):
    """Return an architecture whose matrices are those of its layers."""
    matrices = sum(
        layer.attention.projections
        + layer.ffn.macs
        + layer.ffn.inactive_weights
        + layer.ffn.router
        for layer in layers
    )
    table = vocabulary * hidden
    rows = {
        "positions": 0, "head_norms": 0, "rank_norms": 0, "final_norm": hidden, "biases": 0,
        "expert_biases": 0, **parameters,
    }  # fmt: skip
    head = 0 if tied else table
    total = matrices + table + head + norms + rows["biases"] + rows["positions"]
    return LanguageArchitecture(
        model_type=model_type,
        hidden=hidden,
        vocabulary=vocabulary,
        tied=tied,
        activation=activation,
        layers=tuple(layers),
        parameters=ParameterTable(
            total=total, table=table, head=head, norms=norms, matrices=matrices, **rows
        ),
    )


def attention(hidden, heads, kv_heads, depth, window=None, gates=0):
    """Return attention whose projections are Q, K, V, the output, and `gates` more elements."""
    return AttentionSizes(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=depth,
        value_dim=depth,
        projections=2 * hidden * heads * depth + 2 * hidden * kv_heads * depth + gates,
        window=window,
    )


def llama(hidden, layers, heads, width, norms):
    """Return a Llama 3."""
    ffn = FeedForward(hidden=hidden, width=width, gated=True)
    block = DecoderLayer(attention(hidden, heads, 8, 128), ffn)
    return made("llama", hidden, 128256, [block] * layers, norms=norms)


def experts(hidden, width, number, active, shared=0):
    """Return a gated mixture."""
    return FeedForward(
        hidden=hidden, width=width, gated=True, experts=number, active=active,
        shared_width=shared, router=hidden * number,
    )  # fmt: skip


def deepseek():
    """Return DeepSeek V3: ranks of 1536 and 512, heads of 128 + 64 and 128."""
    h, heads = 7168, 128
    projections = (
        h * 1536 + 1536 * heads * 192 + h * (512 + 64) + 512 * heads * 256 + heads * 128 * h
    )
    latent = AttentionSizes(
        heads=heads, kv_heads=heads, head_dim=192, value_dim=128, projections=projections,
        query_rank=1536, key_rank=512, rotary_dim=64,
    )  # fmt: skip
    dense = DecoderLayer(latent, FeedForward(hidden=h, width=18432, gated=True))
    sparse = DecoderLayer(latent, experts(h, 2048, 256, 8, 2048))
    return made(
        "deepseek_v3", h, 129280, [dense] * 3 + [sparse] * 58, norms=1006592, rank_norms=61 * 2048
    )


def gpt_oss():
    """Return GPT-OSS-120B: a window of 128 in each second layer, biases and sinks."""
    h, ffn = 2880, experts(2880, 2880, 128, 4)
    layers = [DecoderLayer(attention(h, 64, 8, 64, w), ffn) for w in [128, None] * 18]
    return made(
        "gpt_oss", h, 201088, layers, activation="clamped_swish", norms=210240,
        biases=40108032, expert_biases=36 * 128 * 3 * 2880,
    )  # fmt: skip


def gemma():
    """Return Gemma 3 27B: tied, a window of 1024 in five of six layers."""
    h, ffn = 5376, FeedForward(hidden=5376, width=21504, gated=True)
    windows = [None if layer % 6 == 5 else 1024 for layer in range(62)]
    return made(
        "gemma3_text", h, 262144,
        [DecoderLayer(attention(h, 32, 16, 128, w), ffn) for w in windows],
        activation="gelu_pytorch_tanh", tied=True, norms=1354496, head_norms=62 * 256,
    )  # fmt: skip


MIXTRAL = made(
    "mixtral", 4096, 32000,
    [DecoderLayer(attention(4096, 32, 8, 128), experts(4096, 14336, 8, 2))] * 32, norms=266240,
)  # fmt: skip
QWEN = made(
    "qwen3_moe", 2048, 151936,
    [DecoderLayer(attention(2048, 32, 4, 128), experts(2048, 768, 128, 8))] * 48, norms=210944,
    head_norms=48 * 256,
)  # fmt: skip

PUBLISHED = {
    "L8": llama(4096, 32, 32, 14336, 266240),
    "L70": llama(8192, 80, 64, 28672, 1318912),
    "L405": llama(16384, 126, 128, 53248, 4145152),
    "Mix": MIXTRAL,
    "Q30": QWEN,
    "DS3": deepseek(),
    "OSS": gpt_oss(),
    "G27": gemma(),
}


def random_architecture(draw):
    """Return a decoder of random sizes; `draw` is a random.Random."""
    heads = draw.choice([2, 4, 6])
    hidden = heads * draw.choice([8, 12, 20])
    groups = draw.choice([g for g in (1, 2, heads) if heads % g == 0])
    layers = []
    mixture = draw.random() < 0.5
    gated = draw.random() < 0.6
    latent = draw.random() < 0.2
    for _ in range(draw.randint(1, 5)):
        if latent:
            core = AttentionSizes(
                heads=heads, kv_heads=heads, head_dim=draw.choice([12, 20]),
                value_dim=draw.choice([8, 12]), projections=draw.randint(100, 9000),
                query_rank=16, key_rank=8, rotary_dim=4,
            )  # fmt: skip
        else:
            core = attention(
                hidden, heads, heads // groups, draw.choice([8, 10, 32]), draw.choice([None, 9]),
                draw.choice([0, 0, 33]),
            )  # fmt: skip
        ffn = FeedForward(hidden=hidden, width=draw.randint(8, 90), gated=gated)
        if mixture and draw.random() < 0.7:
            ffn = FeedForward(
                hidden=hidden, width=draw.randint(8, 90), gated=gated, experts=4, active=2,
                shared_width=draw.choice([0, 7]), router=hidden * 4 + draw.choice([0, hidden]),
                runs_all=draw.random() < 0.2,
            )  # fmt: skip
        if draw.random() < 0.1:
            core = msgspec.structs.replace(core, extra_macs_per_pair=draw.randint(1, 99))
        layers.append(DecoderLayer(core, ffn))
    kinds = [
        "llama",
        "gpt2",
        "gemma2",
        "gemma3_text",
        "qwen3",
        "qwen2_moe",
        "gpt_oss",
        "bert",
        "nemotron_h",
    ]
    return made(
        draw.choice(kinds), hidden, draw.randint(50, 999), layers,
        activation=draw.choice(["silu", "gelu"]), tied=draw.random() < 0.5,
        norms=draw.randint(1, 999), positions=draw.choice([0, 640]), biases=800,
        expert_biases=400 if mixture else 0, head_norms=8, final_norm=hidden,
    )  # fmt: skip
