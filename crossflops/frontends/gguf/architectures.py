"""The architectures of .gguf files that crossflops knows, and the config that each means.

The keys of metadata are those of llama.cpp (gguf-py/gguf/constants.py), without the name of the
architecture in front; those of configs are of transformers.
"""

from collections.abc import Mapping

import msgspec

_SIZES = {
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "context_length": "max_position_embeddings",
}
_HEAD = {"attention.key_length": "head_dim"}
_WINDOW = {"attention.sliding_window": "sliding_window"}
_EXPERTS = {
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
}
_CAPS = {
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
}


class GgufArchitecture(msgspec.Struct, frozen=True, kw_only=True):
    """A config of transformers: its model_type, its class, and its keys by those of metadata.

    `biases` are keys that are true where the file has a tensor of this name in its first block.
    Of one that is `partly_rotated` the metadata say how much of a head is rotated, and the config
    has the share.
    """

    model_type: str
    class_name: str
    keys: Mapping[str, str]
    biases: Mapping[str, str] = {}
    partly_rotated: bool = False


LLAMA = GgufArchitecture(
    model_type="llama",
    class_name="LlamaForCausalLM",
    keys={**_SIZES, **_HEAD},
    biases={"attention_bias": "attn_q.bias", "mlp_bias": "ffn_up.bias"},
)
MIXTRAL = GgufArchitecture(
    model_type="mixtral",
    class_name="MixtralForCausalLM",
    keys={
        **_SIZES,
        **_HEAD,
        "expert_count": "num_local_experts",
        "expert_used_count": "num_experts_per_tok",
    },
)
ARCHITECTURES: Mapping[str, GgufArchitecture] = {
    "llama": LLAMA,  # Mistral, too; with experts it is Mixtral
    "qwen2": GgufArchitecture(model_type="qwen2", class_name="Qwen2ForCausalLM", keys=_SIZES),
    "qwen2moe": GgufArchitecture(
        model_type="qwen2_moe",
        class_name="Qwen2MoeForCausalLM",
        keys={
            **_SIZES,
            **_EXPERTS,
            "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
        },
    ),
    "qwen3": GgufArchitecture(
        model_type="qwen3", class_name="Qwen3ForCausalLM", keys={**_SIZES, **_HEAD}
    ),
    "qwen3moe": GgufArchitecture(
        model_type="qwen3_moe",
        class_name="Qwen3MoeForCausalLM",
        keys={**_SIZES, **_HEAD, **_EXPERTS},
    ),
    "gemma": GgufArchitecture(
        model_type="gemma", class_name="GemmaForCausalLM", keys={**_SIZES, **_HEAD}
    ),
    "gemma2": GgufArchitecture(
        model_type="gemma2",
        class_name="Gemma2ForCausalLM",
        keys={**_SIZES, **_HEAD, **_WINDOW, **_CAPS},
    ),
    "gemma3": GgufArchitecture(
        model_type="gemma3_text",
        class_name="Gemma3ForCausalLM",
        keys={**_SIZES, **_HEAD, **_WINDOW, **_CAPS},
    ),
    "gpt2": GgufArchitecture(
        model_type="gpt2",
        class_name="GPT2LMHeadModel",
        keys={
            "block_count": "n_layer",
            "embedding_length": "n_embd",
            "feed_forward_length": "n_inner",
            "attention.head_count": "n_head",
            "context_length": "n_positions",
        },
    ),
    "phi2": GgufArchitecture(
        model_type="phi", class_name="PhiForCausalLM", keys=_SIZES, partly_rotated=True
    ),
    "phi3": GgufArchitecture(
        model_type="phi3",
        class_name="Phi3ForCausalLM",
        keys={**_SIZES, **_WINDOW},
        partly_rotated=True,
    ),
}

# Keys that change values and no sizes, or say what other keys and the tensors say as well.
WITHOUT_EFFECT = (
    "vocab_size",
    "tensor_data_layout",
    "attention.layer_norm_rms_epsilon",
    "attention.layer_norm_epsilon",
    "attention.value_length",
    "attention.scale",
    "attention.causal",
    "expert_weights_scale",
    "expert_weights_norm",
    "rope.",
)
