"""Small mixtures of experts of transformers, from their configs, against what a run dispatches.

Each is the config of its class with small numbers in it. With CROSSFLOPS_EVERY_EXPORT=1 all of
them are counted, else three: experts in a list, experts that all run, and a mixture whose linear
attention leaves a state that nothing reads.
"""

import json
import os
import warnings

import pytest

import crossflops
from crossflops.targets import load_target_source
from tests.executed import Executed
from tests.models import torch

pytestmark = [
    pytest.mark.tools,
    pytest.mark.filterwarnings("ignore::crossflops.errors.CrossflopsWarning"),
]
pytest.importorskip("transformers")

EXPERTS, CHOSEN, TOKENS = 8, 2, 16
_TEXT = (
    "afmoe AfmoeForCausalLM|aria_text AriaTextForCausalLM|cohere2_moe Cohere2MoeForCausalLM|"
    "deepseek_v3 DeepseekV3ForCausalLM|ernie4_5_moe Ernie4_5_MoeForCausalLM|"
    "exaone_moe ExaoneMoeForCausalLM|flex_olmo FlexOlmoForCausalLM|glm4_moe Glm4MoeForCausalLM|"
    "glm4_moe_lite Glm4MoeLiteForCausalLM|gpt_oss GptOssForCausalLM|"
    "granitemoe GraniteMoeForCausalLM|granitemoehybrid GraniteMoeHybridForCausalLM|"
    "granitemoeshared GraniteMoeSharedForCausalLM|jetmoe JetMoeForCausalLM|"
    "mimo_v2_flash MiMoV2FlashForCausalLM|minimax_m2 MiniMaxM2ForCausalLM|"
    "mixtral MixtralForCausalLM|nemotron_h NemotronHForCausalLM|olmoe OlmoeForCausalLM|"
    "phimoe PhimoeForCausalLM|qwen2_moe Qwen2MoeForCausalLM|qwen3_moe Qwen3MoeForCausalLM|"
    "qwen3_next Qwen3NextForCausalLM|solar_open SolarOpenForCausalLM|"
    "switch_transformers SwitchTransformersForConditionalGeneration|"
    "llama4_text Llama4ForCausalLM|minimax MiniMaxForCausalLM|"
    "nllb-moe NllbMoeForConditionalGeneration|bailing_hybrid BailingHybridForCausalLM|"
    "doge DogeForCausalLM"
)
KINDS = dict(pair.split() for pair in _TEXT.split("|"))
EVERY = bool(os.environ.get("CROSSFLOPS_EVERY_EXPORT"))
DRAWN = list(KINDS) if EVERY else ["llama4_text", "minimax", "nllb-moe"]

# Numbers of a config by its keys, as the classes spell them.
_SIZES = (
    (64, "hidden_size d_model"),
    (
        96,
        "intermediate_size intermediate_size_mlp encoder_ffn_dim decoder_ffn_dim d_ff"
        " dense_intermediate_size shared_intermediate_size",
    ),
    (
        32,
        "moe_intermediate_size shared_expert_intermediate_size moe_latent_size"
        " moe_shared_expert_intermediate_size block_size",
    ),
    (
        16,
        "head_dim kv_channels kv_lora_rank qk_nope_head_dim qk_rope_head_dim v_head_dim d_kv"
        " linear_key_head_dim linear_value_head_dim linear_head_dim mamba_head_dim mamba_d_head"
        " mamba_d_state"
        " ssm_state_size swa_head_dim swa_v_head_dim",
    ),
    (24, "q_lora_rank"),
    (
        4,
        "num_attention_heads num_heads encoder_attention_heads decoder_attention_heads"
        " linear_num_value_heads linear_num_heads swa_num_attention_heads",
    ),
    (
        2,
        "num_key_value_heads num_hidden_layers num_layers encoder_layers decoder_layers"
        " num_decoder_layers linear_num_key_heads encoder_sparse_step decoder_sparse_step"
        " swa_num_key_value_heads",
    ),
    (
        1,
        "n_group topk_group first_k_dense_replace moe_layer_start_index num_shared_experts"
        " n_shared_experts n_groups mamba_n_groups num_sparse_encoder_layers"
        " num_sparse_decoder_layers",
    ),
    (300, "vocab_size"),
    (512, "max_position_embeddings"),
    (8, "sliding_window mamba_num_heads mamba_n_heads"),
    (CHOSEN, "num_experts_per_tok num_experts_per_token moe_k"),
)
_SMALL = {}
for _number, _keys in _SIZES:
    _SMALL.update(dict.fromkeys(_keys.split(), _number))
_COUNTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_LISTS = ("layer_types", "mlp_layer_types", "layers_block_type", "hybrid_override_pattern")
_MORE = {
    "bailing_hybrid": {"num_key_value_heads": 4, "num_expert_group": 1, "layer_group_size": 2},
    "deepseek_v3": {"num_key_value_heads": 4},
    "doge": {"is_moe": True},
    "glm4_moe_lite": {"num_key_value_heads": 4},
    "llama4_text": {"no_rope_layers": [1, 0], "moe_layers": [0, 1], "layer_types": None},
    "minimax": {"layer_types": ["full_attention", "linear_attention"]},
    "qwen3_next": {"num_hidden_layers": 4},
}
# Of a linear attention nothing reads the state behind the last token: keys by values, 16 x 16 of
# them in 4 heads.
_LAST_STATE = {"minimax": TOKENS * 4 * 16 * 16}
_EXPERTS = (".experts.", "_embed.weight")  # in the names of their weights


def small(kind):
    """The config of a class with small numbers; what the class works out of others is left out."""
    from transformers import AutoConfig

    content = AutoConfig.for_model(kind).to_dict()
    for key, value in content.items():
        if key in _SMALL and type(value) is int:
            content[key] = min(value, _SMALL[key]) if value else value
        elif key in _LISTS:
            content[key] = None
        elif key.endswith("_token_id") and type(value) is int:
            content[key] = value % 7
    content.update({key: EXPERTS for key in _COUNTS if key in content})
    content.update(_MORE.get(kind, {}))
    left = {key: value for key, value in content.items() if key not in _LISTS or value}
    return {**left, "model_type": kind, "architectures": [KINDS[kind]], "dtype": None}


def dispatched(name):
    """The MACs that a run of the same model executes, and its parameters by their names."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source = load_target_source(name, {}, (), sizes={"seq": TOKENS})
    plain = torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)
    with (
        Executed() as executed,
        torch.no_grad(),
        plain,
        torch.backends.mkldnn.flags(enabled=False),
    ):
        source.model(*source.args, **source.kwargs)
    return executed.macs, dict(source.model.named_parameters())


@pytest.mark.parametrize("kind", DRAWN)
def test_a_small_mixture_is_counted_as_it_runs(kind, tmp_path):
    """Nothing is uncounted, and of each layer's experts a token uses 2 of 8 (of Llama 4, 1)."""
    config = tmp_path / "config.json"
    config.write_text(json.dumps(small(kind)))
    macs, weights = dispatched(f"hf:{config}")
    given = [f"input_ids=1x{TOKENS}:int64"]
    if kind in ("nllb-moe", "switch_transformers"):
        given.append(f"decoder_input_ids=1x{TOKENS}:int64")
    report = crossflops.count(f"hf:{config}", given)
    assert report.macs + report.totals.dead_macs == macs
    assert not report.uncounted
    if state := _LAST_STATE.get(kind):
        assert report.totals.dead_macs == state
        assert any(f"{state} in model.layers.1.self_attn" in said for said in report.warnings)
    held = sum(
        weight.numel()
        for name, weight in weights.items()
        if any(part in name for part in _EXPERTS)
    )
    used = 1 if kind in ("llama4_text", "switch_transformers") else CHOSEN
    assert report.params == sum(weight.numel() for weight in weights.values())
    if held and kind != "jetmoe":  # whose attention has experts of other names, too
        assert report.totals.active_params == report.params - held * (EXPERTS - used) // EXPERTS
    else:
        assert report.totals.active_params < report.params
