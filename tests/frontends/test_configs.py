"""Models of transformers from their configs: types of weights, experts, images; by hand."""

import json

import pytest

import crossflops
from crossflops.errors import CrossflopsWarning, InputError, TargetError
from crossflops.targets import load_target_source
from tests.executed import Executed
from tests.models import torch

pytestmark = [
    pytest.mark.tools,
    pytest.mark.filterwarnings("ignore::crossflops.errors.CrossflopsWarning"),
]
pytest.importorskip("transformers")

LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 1,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
}
# Embeddings and head 2 x 100 x 32, queries and outputs 32², keys and values 32 x 16, an MLP of
# 3 x 32 x 64, three norms of 32.
LLAMA_PARAMS = 6400 + 2 * 1024 + 2 * 512 + 6144 + 96
MIXTRAL = {
    "model_type": "mixtral",
    "architectures": ["MixtralForCausalLM"],
    "num_hidden_layers": 1,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "torch_dtype": "bfloat16",
}
TOKENS = 16


@pytest.fixture
def target(tmp_path):
    """Return what writes a config and names it as a target."""

    def write(content, **more):
        config = tmp_path / "config.json"
        config.write_text(json.dumps({**content, **more}))
        return f"hf:{config}"

    return write


def built(name):
    """The model and its inputs."""
    return load_target_source(name, {}, (), sizes={"seq": TOKENS})


def counted(name, **arguments):
    """The count of a target on 16 tokens."""
    return crossflops.count(name, f"input_ids=1x{TOKENS}:int64", arguments=arguments)


def types(model):
    """The types of its parameters."""
    return {str(weight.dtype).removeprefix("torch.") for weight in model.parameters()}


@pytest.mark.parametrize(
    ("more", "arguments", "expected", "origin"),
    [
        ({"torch_dtype": "bfloat16"}, {}, "bfloat16", "from its config"),
        ({"dtype": "float16"}, {}, "float16", "from its config"),
        ({"torch_dtype": "torch.float16"}, {}, "float16", "from its config"),
        ({"dtype": "float64"}, {}, "float64", "from its config"),
        ({"torch_dtype": "bfloat16"}, {"dtype": "float32"}, "float32", "from --arg"),
        ({}, {"torch_dtype": "bfloat16"}, "bfloat16", "from --arg"),
        ({"torch_dtype": "auto"}, {}, "float32", "names no type"),
        ({"torch_dtype": None}, {}, "float32", "names no type"),
        ({}, {}, "float32", "names no type"),
    ],
)
def test_weights_have_the_type_that_is_named(target, more, arguments, expected, origin):
    """By the config in both spellings, by an argument before it; the origin is said."""
    name = target(LLAMA, **more)
    with pytest.warns(CrossflopsWarning, match=origin):
        source = load_target_source(name, arguments, ())
    assert types(source.model) == {expected}
    assert source.kwargs["input_ids"].dtype == torch.int64


def test_bytes_and_precision_follow_the_type(target):
    """Two bytes for each parameter, and products of bfloat16: half of what float32 moves."""
    name = target(LLAMA, torch_dtype="bfloat16")
    half = counted(name)
    whole = counted(name, dtype="float32")
    assert (half.params, half.memory.param_bytes) == (LLAMA_PARAMS, 2 * LLAMA_PARAMS)
    assert whole.memory.param_bytes == 4 * LLAMA_PARAMS
    assert set(half.macs_by_precision) == {"bfloat16"}
    assert set(whole.macs_by_precision) == {"float32"}
    assert half.macs == whole.macs


@pytest.mark.parametrize("dtype", ["bfloat17", "int8", "float8_e4m3fn", 16])
def test_a_type_that_no_layer_computes_in_is_refused(target, dtype):
    """In a config and as an argument, with one that can be given."""
    with pytest.raises(TargetError) as caught:
        load_target_source(target(LLAMA, torch_dtype=dtype), {}, ())
    assert repr(dtype) in caught.value.message
    assert "float" in caught.value.hint
    with pytest.raises(TargetError, match="--arg dtype"):
        load_target_source(target(LLAMA), {"dtype": dtype}, ())


@pytest.mark.parametrize("more", [{"torch_dtype": "float16"}, {}], ids=["named", "unnamed"])
def test_stored_weights_that_are_quantized_are_said(target, more):
    """They are counted in the type of the config, and in 16 bits where it names none."""
    expected = more.get("torch_dtype", "bfloat16")
    name = target(LLAMA, quantization_config={"quant_method": "fp8"}, **more)
    with pytest.warns(CrossflopsWarning, match=rf"quantized weights \(fp8\).*as {expected}"):
        source = load_target_source(name, {}, ())
    assert types(source.model) == {expected}


def test_weights_that_transformers_keeps_wide(target):
    """T5 in float16 keeps the last product of its feed-forward layers in float32."""
    name = target(
        {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "d_model": 32},
        d_ff=64, d_kv=8, num_heads=4, num_layers=1, vocab_size=100, torch_dtype="float16",
    )  # fmt: skip
    named = dict(built(name).model.named_parameters())
    wide = {name for name, weight in named.items() if weight.dtype == torch.float32}
    assert wide == {name for name in named if ".wo." in name}
    ids = [f"{which}=1x{TOKENS}:int64" for which in ("input_ids", "decoder_input_ids")]
    report = crossflops.count(name, ids)
    assert report.macs_by_precision["float32"] == 2 * TOKENS * 32 * 64


@pytest.mark.parametrize("name", ["torchvision:resnet18", "timm:resnet18"])
def test_a_name_takes_a_type_too(name):
    """Its weights, its statistics and its usual input are in it."""
    with pytest.warns(CrossflopsWarning, match="bfloat16"):
        source = load_target_source(name, {"dtype": "bfloat16"}, (), sizes={"image_size": 32})
    assert types(source.model) == {"bfloat16"}
    assert source.args[0].dtype == torch.bfloat16


# Experts. A layer has queries and outputs of 32², keys and values of 32 x 16, a router of 32 x 8,
# and 8 experts of 3 x 32 x 64; two norms of 32 in it, one behind it.
_EXPERT = 3 * 32 * 64
_REST = 6400 + 2 * 1024 + 2 * 512 + 256 + 96
_PRODUCTS = TOKENS * (2 * 1024 + 2 * 512 + 256 + 3200) + 2 * TOKENS * TOKENS * 32


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_a_mixture_runs_as_many_experts_as_tokens_choose(target, dtype):
    """2 of 8 experts for each token, in every type; the implementation is said."""
    report = counted(target(MIXTRAL), dtype=dtype)
    assert report.macs == _PRODUCTS + TOKENS * 2 * _EXPERT
    assert report.params == _REST + 8 * _EXPERT
    assert report.totals.active_params == _REST + 2 * _EXPERT
    assert not report.uncounted
    assert any("grouped_mm" in warning for warning in report.warnings)
    assert not any("not checked" in warning for warning in report.warnings)


def test_experts_whose_rows_the_kernel_refuses_run_in_a_loop(target):
    """Rows of 36 x 2 bytes are no multiple of 16: the same products, one expert at a time."""
    report = counted(target(MIXTRAL, intermediate_size=36))
    assert report.macs == _PRODUCTS + TOKENS * 2 * 3 * 32 * 36
    assert any("'eager'" in warning for warning in report.warnings)


def test_a_mixture_needs_no_memory_for_its_experts(target):
    """A layer of Mixtral 8x7B, 1.4 G parameters in its experts: 16 x 2 of them are multiplied."""
    name = target(
        MIXTRAL, hidden_size=4096, intermediate_size=14336, num_attention_heads=32,
        num_key_value_heads=8, vocab_size=1000,
    )  # fmt: skip
    report = counted(name)
    expert = 3 * 4096 * 14336
    rest = 2 * 1000 * 4096 + 2 * 4096**2 + 2 * 4096 * 1024 + 4096 * 8 + 3 * 4096
    assert report.params == rest + 8 * expert
    assert report.totals.active_params == rest + 2 * expert
    products = 1000 * 4096 + 2 * 4096**2 + 2 * 4096 * 1024 + 4096 * 8 + 2 * expert
    assert report.macs == TOKENS * products + 2 * TOKENS**2 * 4096


# Images and text.

LLAVA = {
    "model_type": "llava",
    "architectures": ["LlavaForConditionalGeneration"],
    "image_token_index": 7,
    "text_config": {**LLAMA, "torch_dtype": "bfloat16"},
    "vision_config": {
        "model_type": "clip_vision_model",
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "image_size": 28,
        "patch_size": 14,
        "projection_dim": 32,
    },
}


def test_an_image_has_its_tokens_in_the_text(target):
    """2 x 2 patches take 4 tokens of 16; all is in the type that the text model names."""
    source = built(target(LLAVA))
    ids = source.kwargs["input_ids"]
    assert ids.tolist() == [[7] * 4 + [0] * 12]
    assert source.kwargs["pixel_values"].dtype == torch.bfloat16
    assert types(source.model) == {"bfloat16"}
    with pytest.raises(InputError, match="more than the 4 tokens of an image, got 4"):
        load_target_source(target(LLAVA), {}, (), sizes={"seq": 4})


def test_a_classifier_of_images_gets_no_text(target):
    """The config of CLIP has text, but the class that it names does not take it."""
    vision = {**LLAVA["vision_config"], "model_type": "clip_vision_model"}
    small = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
    text = {**small, "model_type": "clip_text_model", "num_attention_heads": 4}
    config = {"model_type": "clip", "projection_dim": 32}
    for kind, names in (
        ("CLIPForImageClassification", {"pixel_values"}),
        ("CLIPModel", {"input_ids", "pixel_values"}),
    ):
        named = {**config, "architectures": [kind], "vision_config": vision, "text_config": text}
        source = load_target_source(target(named), {}, ())
        assert source.kwargs.keys() == names


def test_images_and_text_are_counted_as_a_run_executes_them(target):
    """But for the last layer of the vision model, on whose result nothing depends.

    The text model chooses 2 of 4 experts, whose products the exporter asks for after a check of
    the image's tokens has been traced.
    """
    text = {**LLAMA, "model_type": "mixtral", "num_local_experts": 4, "num_hidden_layers": 1}
    name = target(LLAVA, text_config={**text, "torch_dtype": "float32"})
    report = crossflops.count(name)
    source = load_target_source(name, {}, ())
    math = torch.nn.attention.SDPBackend.MATH
    with Executed() as executed, torch.no_grad(), torch.nn.attention.sdpa_kernel(math):
        source.model(**source.kwargs)
    assert report.macs + report.totals.dead_macs == executed.macs
    assert not report.uncounted


def test_a_second_tower_gets_the_image_in_its_own_size(target):
    """Of DeepSeek-VL: 4 patches of 28 x 28 for the tokens, and 64 x 64 for the other tower."""
    fine = {
        "model_type": "sam_vision_model", "hidden_size": 32, "num_hidden_layers": 1,
        "num_attention_heads": 4, "image_size": 64, "patch_size": 16, "output_channels": 16,
        "mlp_dim": 48, "window_size": 2, "global_attn_indexes": [0],
    }  # fmt: skip
    content = {
        "model_type": "deepseek_vl_hybrid",
        "architectures": ["DeepseekVLHybridForConditionalGeneration"],
        "image_token_id": 7,
        "text_config": LLAMA,
        "vision_config": {**LLAVA["vision_config"], "model_type": "siglip_vision_model"},
        "high_res_vision_config": fine,
    }
    source = built(target(content))
    assert source.kwargs["input_ids"].tolist() == [[7] * 4 + [0] * 12]
    assert source.kwargs["high_res_pixel_values"].shape == (1, 3, 64, 64)
    with torch.no_grad():
        source.model(**source.kwargs)


VILT = {
    "model_type": "vilt",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 1,
    "image_size": 64,
    "max_position_embeddings": 40,
    "vocab_size": 100,
}
SPEECH = {
    "model_type": "speecht5",
    "is_encoder_decoder": True,
    "hidden_size": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "speech_decoder_prenet_units": 32,
    "speech_decoder_postnet_units": 32,
    "speaker_embedding_dim": 12,
    "num_mel_bins": 10,
    "vocab_size": 81,
}


_IMAGE = {"input_ids": (1, TOKENS), "pixel_values": (1, 3, 64, 64)}
_SPECTROGRAM = {"decoder_input_values": (1, TOKENS, 10), "speaker_embeddings": (1, 12)}


@pytest.mark.parametrize(
    ("content", "kind", "expected"),
    [
        (VILT, "ViltForQuestionAnswering", _IMAGE),
        (VILT, "ViltModel", _IMAGE),
        (SPEECH, "SpeechT5ForTextToSpeech", {"input_ids": (1, TOKENS), **_SPECTROGRAM}),
        (SPEECH, "SpeechT5ForSpeechToSpeech", {"input_values": (1, 16000), **_SPECTROGRAM}),
    ],
)
def test_all_inputs_that_a_model_needs_are_given(target, content, kind, expected):
    """An image beside text without a config of its own; a spectrogram that is gone on with."""
    source = built(target(content, architectures=[kind]))
    assert {name: tuple(given.shape) for name, given in source.kwargs.items()} == expected
    with torch.no_grad():
        source.model(**source.kwargs)


_SMALL = {"num_hidden_layers": 1, "hidden_size": 32, "num_attention_heads": 4}
XLNET = {"model_type": "xlnet", "d_model": 32, "n_layer": 1, "n_head": 4, "d_inner": 64}
AST = {
    **_SMALL,
    "model_type": "audio-spectrogram-transformer",
    "intermediate_size": 64,
    "max_length": 64,
    "num_mel_bins": 32,
}
DETR = {
    "model_type": "detr",
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "num_queries": 5,
    "use_timm_backbone": False,
    "backbone": None,
    "use_pretrained_backbone": False,
    "backbone_config": {
        "model_type": "resnet",
        "embedding_size": 8,
        "hidden_sizes": [8, 16],
        "depths": [1, 1],
        "out_features": ["stage2"],
    },
}
DAC = {
    "model_type": "dac",
    "encoder_hidden_size": 4,
    "downsampling_ratios": [2, 4],
    "decoder_hidden_size": 16,
    "n_codebooks": 2,
    "codebook_size": 16,
    "codebook_dim": 4,
}


@pytest.mark.parametrize(
    ("content", "kind", "expected"),
    [
        (XLNET, "XLNetModel", {"input_ids": (1, 128)}),
        (AST, "ASTModel", {"input_values": (1, 64, 32)}),
        (DAC, "DacModel", {"input_values": (1, 1, 16000)}),
        (DETR, "DetrModel", {"pixel_values": (1, 3, 224, 224)}),
    ],
)
def test_the_usual_input_has_the_form_that_the_model_reads(target, content, kind, expected):
    """A length of -1 is no limit; a spectrogram of frames and features; samples in a channel; a
    decoder that reads no tokens.
    """
    source = load_target_source(target(content, architectures=[kind]), {}, ())
    assert {name: tuple(given.shape) for name, given in source.kwargs.items()} == expected
    with torch.no_grad():
        source.model(**source.kwargs)


def test_a_model_whose_image_token_has_no_number_is_refused(target):
    """As old configs of BLIP-2 are: the key to give stands in the hint."""
    small = {"num_hidden_layers": 1, "hidden_size": 32, "intermediate_size": 64}
    heads = {**small, "num_attention_heads": 4}
    blip = {
        "model_type": "blip-2",
        "architectures": ["Blip2ForConditionalGeneration"],
        "num_query_tokens": 4,
        "vision_config": {**heads, "model_type": "blip_2_vision_model", "image_size": 28},
        "qformer_config": {**heads, "model_type": "blip_2_qformer", "vocab_size": 100},
        "text_config": {
            **heads, "model_type": "opt", "ffn_dim": 64, "word_embed_proj_dim": 32,
            "vocab_size": 100,
        },
    }  # fmt: skip
    with pytest.raises(InputError, match="image_token_index") as caught:
        built(target(blip))
    assert "--arg image_token_index=" in caught.value.hint
    source = built(target(blip, image_token_index=99))
    assert source.kwargs["input_ids"].tolist() == [[99] * 4 + [0] * 12]


def test_images_whose_features_are_projected_later(target):
    """Of Llama 4: 2 x 2 patches of 14, of which 4 become a row of features."""
    vision = {
        "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "image_size": 28,
        "intermediate_size": 128, "projector_input_dim": 32, "projector_output_dim": 32,
        "vision_output_dim": 32,
    }  # fmt: skip
    text = {**LLAMA, "model_type": "llama4_text", "head_dim": 8, "num_local_experts": 2}
    text.pop("architectures")
    source = built(
        target({"model_type": "llama4", "architectures": ["Llama4ForConditionalGeneration"]},
               image_token_index=99, vision_config=vision, text_config=text)
    )  # fmt: skip
    assert source.kwargs["input_ids"].tolist() == [[99] + [0] * 15]
    with torch.no_grad():
        source.model(**source.kwargs)


KIMI = {
    "model_type": "kimi_k25",
    "architectures": ["Kimi_K25ForConditionalGeneration"],
    "image_token_id": 99,
    "projection_hidden_size": 32,
    "vision_config": {
        "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1,
        "num_attention_heads": 4,
    },
    "text_config": {
        "model_type": "deepseek_v3", "hidden_size": 32, "intermediate_size": 64,
        "moe_intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 2, "n_routed_experts": 4, "num_experts_per_tok": 2,
        "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
        "kv_lora_rank": 8, "q_lora_rank": 8, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8,
        "v_head_dim": 8, "vocab_size": 100, "pad_token_id": 0,
    },
}  # fmt: skip


def test_images_that_come_as_patches_of_two_axes(target):
    """Of Kimi: 4 x 4 patches of 3 x 14 x 14, of which a kernel of 2 x 2 becomes a token each."""
    name = target(KIMI)
    source = load_target_source(name, {}, (), sizes={"image_size": 56, "seq": 8})
    assert source.kwargs["pixel_values"].shape == (16, 3, 14, 14)
    assert source.kwargs["input_ids"].tolist() == [[99] * 4 + [0] * 4]
    plain = torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)
    with Executed() as executed, torch.no_grad(), plain:
        source.model(**source.kwargs)
    report = crossflops.count(source.model, dict(source.kwargs))
    assert report.macs + report.totals.dead_macs == executed.macs
    assert report.params == sum(held.numel() for held in source.model.parameters())
    # of one layer of experts, three matrices of 32 x 16 each, two of four
    assert report.totals.active_params == report.params - 2 * 3 * 32 * 16


def test_a_model_without_a_forward_is_refused(target):
    """The configs of its parts, which have one, stand in the hint."""
    omni = {
        "architectures": ["Qwen3OmniMoeForConditionalGeneration"],
        "enable_audio_output": False,
    }
    with pytest.raises(TargetError, match=r"generate\(\)") as caught:
        built(target(omni, model_type="qwen3_omni_moe"))
    assert "thinker_config" in caught.value.hint


def test_a_model_that_reads_images_its_own_way_is_counted_on_text(target):
    """Where no image can be made, the report says so."""
    broken = {**LLAVA["vision_config"], "num_channels": 0}
    with pytest.warns(CrossflopsWarning, match="on text alone"):
        source = load_target_source(target(LLAVA, vision_config=broken), {}, ())
    assert list(source.kwargs) == ["input_ids"]


# Scores and values of 4 heads of 8: 4 x (8 + 8) MACs for each pair of tokens.
_OF_A_PAIR = 4 * (8 + 8)
_TRIANGLE = TOKENS * TOKENS // 2
_BAND = 4 * TOKENS - 4 * 4 // 2  # the triangle of the first 4 tokens, and 4 keys for the others


@pytest.mark.parametrize(
    ("more", "pairs"),
    [
        ({"model_type": "mistral", "architectures": ["MistralForCausalLM"]}, [_BAND, _BAND]),
        (
            {
                "model_type": "qwen3",
                "architectures": ["Qwen3ForCausalLM"],
                "head_dim": 8,
                "use_sliding_window": True,
                "layer_types": ["sliding_attention", "full_attention"],
            },
            [_BAND, _TRIANGLE],
        ),
        ({}, [_TRIANGLE, _TRIANGLE]),  # Llama has no window
    ],
    ids=["all layers", "by layer", "none"],
)
def test_windows_of_a_config_are_left_out_with_the_causal_mask(target, more, pairs):
    """A window of 4 on 16 tokens: a triangle, and behind it a band; the square is counted."""
    config = target(LLAMA | {"num_hidden_layers": 2, "sliding_window": 4} | more)
    asked = {"seq": TOKENS, "latency_ms": 1.0, "peak_tflops": ("1",)}
    full = crossflops.efficiency(config, **asked)
    half = crossflops.efficiency(config, causal="half", **asked)
    square = 2 * TOKENS * TOKENS
    (whole,), (left,) = full.efficiency, half.efficiency
    assert whole.work - left.work == 2 * _OF_A_PAIR * (square - sum(pairs))


def test_a_model_that_only_generates(target):
    """Bark generates in three models, and has no forward: one of their configs can be counted."""
    with pytest.raises(TargetError, match=r"BarkModel has generate\(\), but no forward") as caught:
        built(target({"model_type": "bark"}))
    assert caught.value.hint == (
        'count one part: copy "semantic_config" from its config.json into a new file, add '
        '"architectures": [CLASS], and give hf:FILE'
    )


def test_a_config_without_a_type(target):
    """The key that is missing is named, and None is not a type."""
    with pytest.raises(TargetError, match="has no model_type") as caught:
        built(target({"hidden_size": 8}))
    assert "model_type" in caught.value.hint
