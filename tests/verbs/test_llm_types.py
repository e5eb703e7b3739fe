"""The closed form of a config is what PyTorch's FlopCounterMode counts, for each type of language
model.

Models have two layers, random weights and eager attention. The reference runs them; our own graph
is held against the same closed form wherever formulas are asked for (test_llm_kinds.py).
"""

import importlib
import inspect

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from crossflops.frontends.pytorch.load.architecture import read_architecture
from crossflops.frontends.pytorch.load.libraries import repair_torchvision_import
from crossflops.ir.architecture import TokenSequence

pytestmark = pytest.mark.tools
TOKENS = 16
VALUES = {
    32: "hidden_size d_model n_embd dim embedding_size word_embed_proj_dim",
    2: "num_hidden_layers n_layer num_layers n_layers decoder_layers encoder_layers "
       "num_decoder_layers num_key_value_heads num_kv_heads num_experts_per_tok eos_token_id "
       "top_k_experts",
    4: "num_attention_heads n_head n_heads decoder_attention_heads encoder_attention_heads "
       "num_heads num_experts num_local_experts n_routed_experts",
    8: "head_dim qk_nope_head_dim qk_rope_head_dim v_head_dim sliding_window state_size "
       "mamba_d_state ssm_state_size mamba_chunk_size chunk_size rotary_dim index_head_dim "
       "hidden_size_per_layer_input attention_window_size",
    48: "intermediate_size n_inner ffn_dim ffn_hidden_size decoder_ffn_dim encoder_ffn_dim "
        "shared_expert_intermediate_size",
    100: "vocab_size vocab_size_per_layer_input",
    24: "moe_intermediate_size expert_ffn_hidden_size",
    16: "kv_lora_rank q_lora_rank",
    64: "max_position_embeddings n_positions max_seq_len n_ctx max_target_positions",
    1: "bos_token_id n_group topk_group num_shared_experts n_shared_experts first_k_dense_replace",
    0: "pad_token_id",
}  # fmt: skip
SIZES = {name: value for value, names in VALUES.items() for name in names.split()}
_LATENT = {"num_key_value_heads": 4}  # of which each head has its own keys
OTHERS = {
    "bamba": {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_n_groups": 1},
    "granitemoehybrid": {
        "mamba_n_heads": 8, "mamba_d_head": 8, "layers_block_type": ["mamba", "attention"],
        "layer_types": ["mamba", "attention"],
    },
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "mamba2": {"num_heads": 8, "n_groups": 1},
    "recurrent_gemma": {
        "num_hidden_layers": 3, "lru_width": 40,
        "block_types": ["recurrent", "recurrent", "attention"],
    },
    "rwkv": {"attention_hidden_size": 32},
    "zamba2": {
        "layers_block_type": ["mamba", "hybrid"], "n_mamba_heads": 8, "mamba_ngroups": 1,
        "num_mem_blocks": 1, "num_key_value_heads": 4, "hybrid_layer_ids": [1],
    },
    **dict.fromkeys(
        ("axk1", "deepseek_v2", "deepseek_v3", "deepseek_v32", "glm4_moe_lite", "glm_moe_dsa",
         "minicpm3", "youtu"), _LATENT,
    ),
}  # fmt: skip
TYPES = [
    "afmoe", "apertus", "arcee", "axk1", "bamba", "bart", "beam", "bert", "bert-generation",
    "big_bird", "bigbird_pegasus", "biogpt", "bitnet", "blenderbot", "bloom", "camembert",
    "codegen", "cohere", "cohere2", "cohere2_moe", "ctrl", "cwm", "data2vec-text", "deepseek_v2",
    "deepseek_v3", "deepseek_v32", "diffllama", "doge", "dots1", "electra", "ernie", "ernie4_5",
    "ernie4_5_moe", "exaone4", "exaone_moe", "falcon", "falcon_h1", "falcon_mamba", "flex_olmo",
    "flint", "gemma", "gemma2", "gemma3_text", "gemma4_text", "gemma4_unified_text", "glm",
    "glm4", "glm4_moe", "glm4_moe_lite", "glm_moe_dsa", "gpt-sw3", "gpt2", "gpt_bigcode",
    "gpt_neo", "gpt_neox", "gpt_neox_japanese", "gpt_oss", "gptj", "granite", "granite_swa",
    "granitemoe", "granitemoe_swa", "granitemoehybrid", "granitemoeshared", "helium",
    "hunyuan_v1_dense", "hunyuan_v1_moe", "hy_v3", "hyperclovax", "internlm3", "iquestcoder",
    "jais2", "jamba", "kolibri1", "laguna", "lfm2", "lfm2_moe", "lfm3", "llama", "llama4_text",
    "mamba", "mamba2", "marian", "mbart", "megatron-bert", "mellum", "mimo_v2_flash", "minicpm3",
    "minimax_m2", "minimax_m3_vl_text", "ministral", "ministral3", "mistral", "mixtral",
    "modernbert-decoder", "mpt", "mvp", "nanochat", "nemotron", "nemotron_h", "olmo", "olmo2",
    "olmo3", "olmoe", "openai-gpt", "opt", "pegasus", "persimmon", "phi", "phi3", "phimoe",
    "plbart", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "recurrent_gemma", "roberta",
    "roberta-prelayernorm", "roc_bert", "roformer", "rwkv", "seed_oss", "smollm3", "solar_open",
    "stablelm", "starcoder2", "trocr", "vaultgemma", "whisper", "xglm", "xlm", "xlm-roberta",
    "xlm-roberta-xl", "youtu", "zamba2",
]  # fmt: skip
# the forward pass of these computes what its outputs do not need: a pooler of one token
UNUSED = {"big_bird": 32 * 32}


@pytest.fixture(scope="module", autouse=True)
def _importable():
    """Modules of transformers import torchvision, whose wheel lacks operators on some machines."""
    try:
        importlib.import_module("torchvision")
    except ImportError:
        return
    except RuntimeError as error:
        if not repair_torchvision_import(error):
            raise


def small_config(model_type):
    """Return the config of a small model of a type, with the names that this type has."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    kind = CONFIG_MAPPING[model_type]
    names = {*vars(kind()), *inspect.signature(kind).parameters, *kind.__dataclass_fields__}
    aliases = getattr(kind, "attribute_map", {})
    sizes = {name: value for name, value in SIZES.items() if name in names | set(aliases)}
    for alias, name in aliases.items():
        if alias in sizes and name in sizes:
            del sizes[alias]
    return kind(**{**sizes, **OTHERS.get(model_type, {})})


def small_model(model_type):
    """Return the causal language model of a type, with attention as products of matrices."""
    import torch
    import transformers

    kind = transformers.MODEL_FOR_CAUSAL_LM_MAPPING[type(small_config(model_type))]
    torch.manual_seed(0)
    try:
        model = kind._from_config(small_config(model_type), attn_implementation="eager")
    except (TypeError, ValueError):  # of models with one implementation
        model = kind._from_config(small_config(model_type))
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")
    return model.eval()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model_type", TYPES)
def test_the_closed_form_is_what_the_counter_counts(model_type):
    """With as many FLOPs as two for each MAC."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    model = small_model(model_type)
    words = {"input_ids": torch.arange(3, 3 + TOKENS)[None]}
    if "use_cache" in inspect.signature(model.forward).parameters:
        words["use_cache"] = False
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(**words)
    macs = TokenSequence(read_architecture(model), TOKENS).macs
    assert counter.get_total_flops() == 2 * (macs + UNUSED.get(model_type, 0))
