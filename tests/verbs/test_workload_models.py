"""Workloads of small models of several kinds, against FlopCounterMode around `generate`.

They take minutes, so that the environment with all frameworks runs them.
"""

import copy
import json

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

import torch

import crossflops
from crossflops.errors import CrossflopsWarning
from tests.verbs.language_models import (
    BATCH,
    LLAMA,
    NEW,
    PROMPT,
    SIZES,
    check_against_generate,
    eager_model,
)

pytestmark = pytest.mark.frameworks
# Mixtral has one layer, since its layers are alike; those of the others are of two kinds, or share
# a bias.
GEMMA = {
    "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "head_dim": 16,
    "sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"], **SIZES,
}  # fmt: skip
CONFIGS = {
    "LlamaForCausalLM": LLAMA | {"num_hidden_layers": 2},
    "MixtralForCausalLM": {"model_type": "mixtral", "num_local_experts": 4, **SIZES,
                           "num_hidden_layers": 1},
    "Gemma3ForCausalLM": GEMMA,
    "T5ForConditionalGeneration": {
        "model_type": "t5", "d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2,
        "num_decoder_layers": 2, "num_heads": 4, "vocab_size": 100, "torch_dtype": "float32",
        "decoder_start_token_id": 0,
    },
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::crossflops.errors.CrossflopsWarning")
@pytest.mark.parametrize("name", CONFIGS)
def test_a_workload_is_what_generate_does(name, tmp_path):
    """All passes together have the MACs of a real run, at 30 pairs of lengths."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"architectures": [name], **CONFIGS[name]}))
    target = f"hf:{path}"
    workload = crossflops.count(target, prompt=12, generate=9, batch=BATCH).workload
    check_against_generate(workload, target, lengths=30)


MOST = 3  # tokens that a draft proposes


def assisted_macs(target, accepted):
    """Return the MACs of a real run whose draft always, or never, proposes what the model says."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    model = eager_model(target)
    draft = copy.deepcopy(model)
    if not accepted:
        with torch.no_grad():  # its likeliest token is the least likely one of the model
            draft.get_output_embeddings().weight.neg_()
    config = draft.generation_config
    config.num_assistant_tokens, config.num_assistant_tokens_schedule = MOST, "constant"
    config.assistant_confidence_threshold = 0
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.generate(
            torch.arange(PROMPT)[None], assistant_model=draft, max_new_tokens=NEW,
            min_new_tokens=NEW, do_sample=False, use_cache=True, eos_token_id=None,
            pad_token_id=0,
        )  # fmt: skip
    return counter.get_total_flops() // 2


@pytest.mark.filterwarnings("ignore::crossflops.errors.CrossflopsWarning")
@pytest.mark.parametrize("accepted", [0, MOST])
@pytest.mark.parametrize("config", [LLAMA, GEMMA], ids=["llama", "gemma3"])
def test_the_passes_are_those_of_assisted_generation(config, accepted, tmp_path):
    """Both models together have the MACs of a real run."""
    (tmp_path / "config.json").write_text(json.dumps(config))
    target = f"hf:{tmp_path}/config.json"
    workload = crossflops.count(
        target, prompt=PROMPT, generate=NEW, draft=target, draft_tokens=MOST, acceptance=accepted
    ).workload
    assert workload.macs == assisted_macs(target, accepted)
    assert workload.speculation.rounds == (NEW if accepted == 0 else 2)


# 28 x 28 pixels in patches of 14 are 4 tokens; the encoder has a class token in addition.
LLAVA = {
    "architectures": ["LlavaForConditionalGeneration"], "model_type": "llava",
    "image_token_index": 99, "torch_dtype": "float32",
    "text_config": {"model_type": "llama", **SIZES, "num_hidden_layers": 1},
    "vision_config": {
        "model_type": "clip_vision_model", "hidden_size": 32, "intermediate_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 28, "patch_size": 14,
    },
}  # fmt: skip
# of an image in the last layer of the encoder, whose result LLaVA does not use: 5 tokens in four
# matrices of 32 x 32 and two of 32 x 64, and in 25 pairs
UNUSED = 5 * (4 * 32 * 32 + 2 * 32 * 64) + 2 * 25 * 32


def macs_with_images(target, images, text):
    """Return the MACs of a real run over prompts of images, then text."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    model = eager_model(target)
    image_ids = torch.full((BATCH, 4 * images), 99)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.generate(
            torch.cat([image_ids, torch.ones(BATCH, text, dtype=torch.int64)], 1),
            pixel_values=torch.zeros(BATCH * images, 3, 28, 28), max_new_tokens=NEW,
            min_new_tokens=NEW, do_sample=False, use_cache=True, eos_token_id=None, pad_token_id=0,
        )  # fmt: skip
    return counter.get_total_flops() // 2


@pytest.mark.filterwarnings("ignore::crossflops.errors.CrossflopsWarning")
def test_images_in_a_prompt(tmp_path):
    """The encoder, the projector and all tokens have the MACs of a real run, without the layer
    that has no effect.
    """
    (tmp_path / "config.json").write_text(json.dumps(LLAVA))
    target = f"hf:{tmp_path}/config.json"
    workload = crossflops.count(
        target, prompt=PROMPT, generate=NEW, batch=BATCH, images=2
    ).workload
    assert (workload.prompt, workload.image_tokens) == (PROMPT + 8, 8)
    assert workload.macs == macs_with_images(target, 2, PROMPT) - 2 * BATCH * UNUSED


@pytest.mark.filterwarnings("ignore::crossflops.errors.CrossflopsWarning")
def test_a_decoder_with_fewer_layers_than_its_encoder(tmp_path):
    """The cache that transformers makes has a layer that stays empty."""
    config = {**CONFIGS["T5ForConditionalGeneration"], "num_decoder_layers": 1}
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"architectures": ["T5ForConditionalGeneration"], **config}))
    workload = crossflops.count(f"hf:{path}", prompt=PROMPT, generate=NEW, batch=BATCH).workload
    check_against_generate(workload, f"hf:{path}", lengths=3)


@pytest.mark.filterwarnings("ignore::crossflops.errors.CrossflopsWarning")
def test_a_decoder_with_more_layers_than_its_encoder(tmp_path):
    """transformers makes a cache for the encoder's layers, which generate cannot use; it takes the
    one that the decoder makes.
    """
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import DynamicCache, EncoderDecoderCache

    config = {**CONFIGS["T5ForConditionalGeneration"], "num_layers": 1, "num_decoder_layers": 3}
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"architectures": ["T5ForConditionalGeneration"], **config}))
    with pytest.warns(CrossflopsWarning, match="makes a cache of 1 layers for the 3 layers"):
        workload = crossflops.count(f"hf:{path}", prompt=PROMPT, generate=3).workload
    model = eager_model(f"hf:{path}")
    ids = torch.ones(1, PROMPT, dtype=torch.int64)
    options = {"max_new_tokens": 3, "min_new_tokens": 3, "use_cache": True, "eos_token_id": None}
    with pytest.raises(IndexError):
        model.generate(ids, **options)
    empty = EncoderDecoderCache(DynamicCache(), DynamicCache())  # of as many layers as are used
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.generate(ids, past_key_values=empty, **options)
    assert workload.macs == counter.get_total_flops() // 2
