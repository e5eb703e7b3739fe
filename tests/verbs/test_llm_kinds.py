"""Formulas for language models beyond decoders of full attention: encoders, state spaces, delta
rules, shared layers, windows, biases.
"""

import json
from types import SimpleNamespace

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from crossflops.cli import main

pytestmark = pytest.mark.tools
TOKENS = 40

# Sizes of two configs that several tests use.
T5 = {
    "model_type": "t5", "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4,
    "num_decoder_layers": 3, "vocab_size": 100, "feed_forward_proj": "gated-gelu",
    "tie_word_embeddings": False,
}  # fmt: skip
BAMBA = {
    "model_type": "bamba", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100,
    "attn_layer_indices": [1], "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 16,
    "mamba_n_groups": 1, "mamba_chunk_size": 16, "mamba_d_conv": 4, "mamba_expand": 2,
}  # fmt: skip


def einsum(sizes):
    """Return the MACs of an einsum with these letters: the product of their sizes."""
    macs = 1
    for size in sizes:
        macs *= size
    return macs


def mamba_2(tokens, heads, depth, state, chunk):
    """Return the MACs of the five einsums of a scan in chunks, as modeling_bamba.py has them."""
    c = -(-tokens // chunk)
    return (
        einsum((c, chunk, chunk, heads, state))  # bclhn,bcshn->bclsh
        + einsum((c, chunk, chunk, heads, depth))  # bclsh,bcshp->bclhp
        + einsum((c, chunk, heads, state, depth))  # bclhn,bclhp->bchpn
        + einsum((c + 1, c + 1, heads, depth, state))  # bzch,bzhpn->bchpn
        + einsum((c, chunk, heads, state, depth))  # bclhn,bchpn->bclhp
    )


def delta_rule(tokens, heads, key, value, chunk=64):
    """Return the MACs of a gated delta rule, product by product in each chunk. Its triangular
    system is solved, which is not a product.
    """
    macs, chunks = 0, -(-tokens // chunk)
    for index in range(chunks):
        macs += 2 * chunk * chunk * key  # keys with keys, queries with keys
        macs += 2 * chunk * key * value  # keys and queries with the state
        macs += chunk * chunk * value  # scores with new values
        if index < chunks - 1:  # the last state is not used
            macs += key * chunk * value
    return heads * macs


def attention(tokens, heads, depth):
    """Return the MACs of attention over all pairs of tokens."""
    return 2 * tokens * tokens * heads * depth


T = TOKENS
GQA = 32 * 32 * 2 + 32 * 16 * 2  # projections of 4 heads and 2 key heads of 8
CONFIGS = {
    # an encoder of two layers, a decoder of three: self-attention and cross-attention of 32
    "T5ForConditionalGeneration": (
        T5,
        T * (2 * (4 * 32 * 32 + 3 * 32 * 48) + 3 * (8 * 32 * 32 + 3 * 32 * 48) + 32 * 100)
        + (2 + 3 + 3) * attention(T, 4, 8),
    ),
    "BartForConditionalGeneration": (
        {
            "model_type": "bart", "d_model": 32, "encoder_layers": 2, "decoder_layers": 1,
            "encoder_attention_heads": 4, "decoder_attention_heads": 2, "encoder_ffn_dim": 64,
            "decoder_ffn_dim": 96, "vocab_size": 100, "max_position_embeddings": 64,
        },
        T * (2 * (4 * 32 * 32 + 2 * 32 * 64) + 8 * 32 * 32 + 2 * 32 * 96 + 32 * 100)
        + (2 + 1 + 1) * attention(T, 4, 8),
    ),
    "BambaForCausalLM": (
        BAMBA,
        T * (32 * (2 * 64 + 2 * 16 + 8) + 64 * 32 + GQA + 2 * 3 * 32 * 48 + 32 * 100)
        + (64 + 2 * 16) * 4 * (T + 3)
        + mamba_2(T, 8, 8, 16, 16)
        + attention(T, 4, 8),
    ),
    # Mamba of width 64 with a rank of 4 and a state of 8; the second layer has two of four experts
    "JambaForCausalLM": (
        {
            "model_type": "jamba", "hidden_size": 32, "intermediate_size": 48,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
            "vocab_size": 100, "attn_layer_period": 2, "attn_layer_offset": 1,
            "expert_layer_period": 2, "expert_layer_offset": 1, "num_experts": 4,
            "num_experts_per_tok": 2, "mamba_d_state": 8, "mamba_d_conv": 4, "mamba_expand": 2,
            "mamba_dt_rank": 4,
        },
        T * (32 * 128 + 64 * (4 + 2 * 8) + 4 * 64 + 64 * 32 + 3 * 32 * 48)
        + 64 * 4 * (T + 3)
        + T * 64 * 8
        + T * (GQA + 32 * 4 + 2 * 3 * 32 * 48 + 32 * 100)
        + attention(T, 4, 8),
    ),
    # two mamba layers, then a shared block of attention over twice the width, whose queries, keys
    # and values have 64, with a gated part, an adapter of rank 4, and a matrix to the next layer
    "Zamba2ForCausalLM": (
        {
            "model_type": "zamba2", "hidden_size": 32, "intermediate_size": 48,
            "num_hidden_layers": 4, "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"],
            "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 100,
            "mamba_d_state": 16, "n_mamba_heads": 8, "mamba_ngroups": 1, "chunk_size": 16,
            "mamba_d_conv": 4, "mamba_expand": 2, "num_mem_blocks": 1, "adapter_rank": 4,
        },
        4 * T * (32 * (2 * 64 + 2 * 16 + 8) + 64 * 32)
        + 4 * ((64 + 2 * 16) * 4 * (T + 3) + mamba_2(T, 8, 8, 16, 16))
        + 2 * T * (3 * 64 * 64 + 64 * 32 + 3 * 32 * 48 + 32 * 4 + 4 * 96 + 32 * 32)
        + T * 32 * 100
        + 2 * attention(T, 4, 16),
    ),
    # a delta rule of 4 value heads and 2 key heads, then attention with a gate in its queries
    "Qwen3NextForCausalLM": (
        {
            "model_type": "qwen3_next", "hidden_size": 32, "intermediate_size": 48,
            "num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"],
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 100,
            "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8,
            "linear_value_head_dim": 12, "linear_conv_kernel_dim": 4, "num_experts": 0,
        },
        T * (32 * (2 * 16 + 2 * 48 + 2 * 4) + 48 * 32)
        + (2 * 16 + 48) * 4 * (T + 3)
        + delta_rule(T, 4, 8, 12)
        + T * (GQA + 32 * 32 + 2 * 3 * 32 * 48 + 32 * 100)
        + attention(T, 4, 8),
    ),
    # two of four experts, windows of 16 in the first layer, biases and sinks
    "GptOssForCausalLM": (
        {
            "model_type": "gpt_oss", "hidden_size": 32, "intermediate_size": 48,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
            "head_dim": 8, "vocab_size": 100, "num_local_experts": 4, "num_experts_per_tok": 2,
            "sliding_window": 16,
        },
        T * (2 * (GQA + 32 * 4 + 2 * 3 * 32 * 48) + 32 * 100) + 2 * attention(T, 4, 8),
    ),
    # a dense layer, then one in which all four experts run for each token, beside a shared one
    "Llama4ForCausalLM": (
        {
            "model_type": "llama4_text", "hidden_size": 32, "intermediate_size": 48,
            "intermediate_size_mlp": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 100, "num_local_experts": 4,
            "num_experts_per_tok": 1, "interleave_moe_layer_step": 2, "attention_chunk_size": 16,
            "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
        },
        T * (2 * GQA + 3 * 32 * 64 + (4 + 1) * 3 * 32 * 48 + 32 * 4 + 32 * 100)
        + 2 * attention(T, 4, 8),
    ),
    # two recurrences of width 40, whose gates have blocks of 10 x 10, then attention
    "RecurrentGemmaForCausalLM": (
        {
            "model_type": "recurrent_gemma", "hidden_size": 32, "intermediate_size": 96,
            "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
            "lru_width": 40, "attention_window_size": 16, "vocab_size": 100, "conv1d_width": 4,
            "block_types": ["recurrent", "recurrent", "attention"],
        },
        T * (2 * (3 * 32 * 40 + 2 * 4 * 10 * 10) + GQA + 3 * 3 * 32 * 48 + 32 * 100)
        + 2 * 40 * 4 * (T + 3)
        + attention(T, 4, 8),
    ),
    # a decoder alone, whose matrices for an encoder no token passes
    "WhisperForCausalLM": (
        {
            "model_type": "whisper", "d_model": 32, "decoder_layers": 2, "encoder_layers": 1,
            "decoder_attention_heads": 4, "encoder_attention_heads": 2, "decoder_ffn_dim": 48,
            "encoder_ffn_dim": 64, "vocab_size": 100, "max_target_positions": 64,
            "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
        },
        T * (2 * (4 * 32 * 32 + 2 * 32 * 48) + 32 * 100) + 2 * attention(T, 4, 8),
    ),
    # a tied head, and biases everywhere
    "Starcoder2ForCausalLM": (
        {
            "model_type": "starcoder2", "hidden_size": 32, "intermediate_size": 48,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
            "vocab_size": 100, "tie_word_embeddings": True,
        },
        T * (2 * (GQA + 2 * 32 * 48) + 32 * 100) + 2 * attention(T, 4, 8),
    ),
}  # fmt: skip


def write_config(folder, name):
    """Write the config of a model, and return its target."""
    path = folder / "config.json"
    path.write_text(json.dumps({"architectures": [name], **CONFIGS[name][0]}))
    return f"hf:{path}"


def compare_as_json(capsys, *words):
    """Return the formulas of a comparison, which must succeed."""
    assert main(["compare", *words, "--llm", "--strict", "--json"]) == 0
    return json.loads(capsys.readouterr().out)["llm"]


_REPORTS = {}


def formulas_of(name, folder, capsys):
    """Return the formulas of a model of CONFIGS, which is compared once for all tests."""
    if name not in _REPORTS:
        _REPORTS[name] = compare_as_json(capsys, write_config(folder, name), "--seq", str(T))
    return _REPORTS[name]


def accounts_by_name(answers):
    """Return the accounts of a report by tool and edition."""
    return {f"{one['tool']}@{one['edition']}": one for one in answers["accounts"]}


def amounts_by_cause(account):
    """Return the booked amounts of an account by cause."""
    return {row["cause"]: row["amount"] for row in account["explanations"]}


@pytest.mark.parametrize("name", CONFIGS)
def test_the_graph_is_the_sum_by_hand_and_each_formula_is_explained(name, tmp_path, capsys):
    """The trainer's own function returns the number of total-flos."""
    answers = formulas_of(name, tmp_path, capsys)
    assert answers["native_macs"] == answers["closed_form_macs"] == CONFIGS[name][1]
    for account in answers["accounts"]:
        assert account["residual"] == 0
        assert bool(account["obstacle"]) == (account["per_token"] is None)
    accounts = accounts_by_name(answers)
    model = _meta_model({"architectures": [name], **CONFIGS[name][0]})
    assert accounts["6nd@2022"]["theirs"] == 6 * T * sum(p.numel() for p in model.parameters())
    assert accounts["total-flos@5.23"]["theirs"] == _trainer_flops(model, T)


def _meta_model(content):
    """Return the model of a config on the meta device."""
    import torch
    import transformers

    config = transformers.AutoConfig.for_model(**content)
    with torch.device("meta"):
        return getattr(transformers, content["architectures"][0])._from_config(config)


def _trainer_flops(model, tokens):
    """Return what the Trainer of transformers logs as total_flos of a step of one sequence."""
    import torch
    import transformers

    pytest.importorskip("accelerate", reason="the Trainer requires accelerate")
    inputs = {"input_ids": torch.zeros(1, tokens, dtype=torch.int64)}
    trainer = transformers.Trainer
    return trainer.floating_point_ops(SimpleNamespace(model=model), inputs)


def test_source_and_target_of_other_lengths(tmp_path, capsys):
    """The encoder reads 24 tokens and the decoder 10; formulas multiply by the 24."""
    target = write_config(tmp_path, "T5ForConditionalGeneration")
    words = ("--input", "input_ids=2x24:int64", "--input", "decoder_input_ids=2x10:int64")
    answers = compare_as_json(capsys, target, *words)
    encoder, decoder = 2 * (4 * 32 * 32 + 3 * 32 * 48), 3 * (4 * 32 * 32 + 3 * 32 * 48)
    queries = keys = 3 * 2 * 32 * 32
    pairs = 2 * 32 * (2 * 24 * 24 + 3 * 10 * 10 + 3 * 10 * 24)
    native = 24 * (encoder + keys) + 10 * (decoder + queries + 3200) + pairs
    assert answers["native_macs"] == 2 * native
    assert (answers["tokens"], answers["target_tokens"], answers["sequences"]) == (24, 10, 2)
    accounts = accounts_by_name(answers)
    causes = amounts_by_cause(accounts["total-flos@5.23"])
    assert causes["formula.other-stack"] == 6 * 2 * 14 * (decoder + queries + 3200)
    assert causes["formula.attention-missing"] == -6 * 2 * pairs
    assert "An encoder" in accounts["megatron-lm@d98e8a6"]["obstacle"]
    assert main(["compare", target, *words, "--as", "6nd"]) == 0
    page = capsys.readouterr().out
    assert "2 sequences of 24 source tokens and 10 target tokens" in page


def test_megatron_counts_state_spaces_by_an_estimate(tmp_path, capsys):
    """2 h (2 D + 2 G N + H) + 7 D N + 2 D h forward of Mamba-2, three times; D = 2 h."""
    answers = formulas_of("BambaForCausalLM", tmp_path, capsys)
    account = accounts_by_name(answers)["megatron-lm@d98e8a6"]
    d = 2 * 32
    mamba = 2 * 32 * (2 * d + 2 * 16 + 8) + 7 * d * 16 + 2 * d * 32
    others = GQA + 2 * 3 * 32 * 48 + 32 * 128  # the vocabulary of 100 is padded to 128
    assert account["theirs"] == T * (3 * mamba + 6 * others) + 3 * attention(T, 4, 8)
    causes = amounts_by_cause(account)
    assert causes == {
        "formula.vocab-padded": 6 * T * 32 * 28,
        "formula.convolution-missing": -6 * (64 + 32) * 4 * (T + 3),
        "formula.scan-estimated": 3 * 7 * d * 16 * T - 6 * mamba_2(T, 8, 8, 16, 16),
        "formula.causal-half": -3 * attention(T, 4, 8),
    }


def test_megatron_assumes_twice_the_width(tmp_path, capsys):
    """Nemotron-H has an inner width of its own; layers have one part each."""
    path = tmp_path / "config.json"
    config = {
        "architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "hidden_size": 32,
        "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
        "vocab_size": 128, "layers_block_type": ["mamba", "attention", "mlp"],
        "mamba_num_heads": 6, "mamba_head_dim": 8, "ssm_state_size": 16, "n_groups": 2,
        "chunk_size": 16, "conv_kernel": 4,
    }  # fmt: skip
    path.write_text(json.dumps(config))
    answers = compare_as_json(capsys, f"hf:{path}", "--seq", str(T))
    inner = 6 * 8
    assert answers["native_macs"] == (
        T * (32 * (2 * inner + 2 * 2 * 16 + 6) + inner * 32 + GQA + 2 * 32 * 48 + 32 * 128)
        + (inner + 2 * 2 * 16) * 4 * (T + 3)
        + mamba_2(T, 6, 8, 16, 16)
        + attention(T, 4, 8)
    )
    causes = amounts_by_cause(accounts_by_name(answers)["megatron-lm@d98e8a6"])
    assert causes["formula.state-space-width"] == 6 * T * 3 * 32 * (64 - inner)
    # NeMo, nemotronh: h for H d, three matrices, D N of the scan, half of all pairs
    account = accounts_by_name(answers)["nemo@2.5.0"]
    mamba = 32 * (2 * inner + 2 * 2 * 16 + 6) + inner * 16 + inner * 32
    assert account["theirs"] == 6 * T * (
        mamba + 32 * (32 + 2 * 32 // 2 + T // 2 * 2 + 32) + 3 * 32 * 48 + 32 * 128
    )
    causes = amounts_by_cause(account)
    assert causes["formula.gate-assumed"] == 6 * T * 32 * 48
    assert causes["formula.scan-estimated"] == 6 * (T * inner * 16 - mamba_2(T, 6, 8, 16, 16))


QWEN2_VL = {
    "architectures": ["Qwen2VLForConditionalGeneration"], "model_type": "qwen2_vl",
    "text_config": {
        "model_type": "qwen2_vl_text", "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "vocab_size": 100, "rope_parameters": {
            "rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2],
        },
    },
    "vision_config": {
        "depth": 1, "embed_dim": 32, "hidden_size": 32, "num_heads": 4, "mlp_ratio": 2,
    },
}  # fmt: skip


def test_the_text_of_a_vision_language_model(tmp_path, capsys):
    """All parameters are those of the vision part, too, which text does not pass."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(QWEN2_VL))
    answers = compare_as_json(capsys, f"hf:{path}", "--input", f"input_ids=1x{T}:int64")
    matrices = 2 * (GQA + 3 * 32 * 48) + 32 * 100
    assert answers["native_macs"] == T * matrices + 2 * attention(T, 4, 8)
    model = _meta_model(QWEN2_VL)
    vision = sum(p.numel() for name, p in model.named_parameters() if ".visual." in name)
    accounts = accounts_by_name(answers)
    assert amounts_by_cause(accounts["6nd@2022"])["formula.other-modality"] == 6 * T * vision
    assert accounts["total-flos@5.23"]["theirs"] == _trainer_flops(model, T)
    assert accounts["maxtext@e591f30"]["theirs"] == 6 * T * matrices + 2 * 3 * attention(T, 4, 8)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            {"model_type": "switch_transformers", "d_model": 32, "d_kv": 8, "d_ff": 48,
             "num_layers": 2, "num_decoder_layers": 2, "num_heads": 4, "vocab_size": 100,
             "num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1, "num_experts": 2},
            "of its encoder is not attention and one feed-forward part",
        ),
        (
            {"model_type": "longt5", "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 1,
             "num_decoder_layers": 1, "num_heads": 4, "vocab_size": 100, "local_radius": 4},
            "do not support longt5 with this input: its graph has",
        ),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused(content, message, tmp_path, capsys):
    """Two lines: experts of an encoder-decoder, and attention over blocks."""
    path = tmp_path / "config.json"
    name = {"longt5": "LongT5", "switch_transformers": "SwitchTransformers"}[content["model_type"]]
    path.write_text(json.dumps({"architectures": [f"{name}ForConditionalGeneration"], **content}))
    assert main(["compare", f"hf:{path}", "--seq", "24", "--llm"]) == 2
    lines = capsys.readouterr().err.splitlines()[-2:]
    assert message in lines[0]
    assert lines[1].startswith("hint: leave out --llm")
