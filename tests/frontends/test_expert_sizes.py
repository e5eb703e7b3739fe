"""A mixture of experts whose inner width no kernel of grouped products takes, without values."""

import json

import pytest

import crossflops
from tests.models import Apply, torch

pytestmark = [
    pytest.mark.tools,
    pytest.mark.filterwarnings("ignore::crossflops.errors.CrossflopsWarning"),
]
pytest.importorskip("transformers")

DIM, LAYERS, SHARED, CHOSEN, TOKENS = 2048, 1, 2, 6, 8
EXPERTS, INNER, HEADS, NOPE, ROPE, VALUE, RANK, VOCAB = 256, 1407, 16, 16, 8, 16, 32, 100


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_width_that_is_no_multiple_of_sixteen_bytes(dtype, tmp_path):
    """Three matrices of each expert that a token chose, the router, attention and the scores.

    With 256 experts of 2048 x 1407 the weights have no values, so nothing can choose in a loop.
    """
    content = {
        "model_type": "deepseek_v2", "architectures": ["DeepseekV2ForCausalLM"],
        "num_hidden_layers": LAYERS, "first_k_dense_replace": 0, "hidden_size": DIM,
        "moe_intermediate_size": INNER, "num_experts_per_tok": CHOSEN, "n_routed_experts": EXPERTS,
        "n_shared_experts": SHARED, "num_attention_heads": HEADS, "num_key_value_heads": HEADS,
        "q_lora_rank": None, "kv_lora_rank": RANK, "qk_nope_head_dim": NOPE,
        "qk_rope_head_dim": ROPE, "v_head_dim": VALUE, "vocab_size": VOCAB, "torch_dtype": dtype,
    }  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps(content))
    report = crossflops.count(f"hf:{path}", [f"input_ids=1x{TOKENS}:int64"])
    assert not report.uncounted
    projections = DIM * HEADS * (NOPE + ROPE) + DIM * (RANK + ROPE)
    projections += RANK * HEADS * (NOPE + VALUE) + HEADS * VALUE * DIM
    scores = HEADS * TOKENS * (NOPE + ROPE + VALUE)
    experts = DIM * EXPERTS + (CHOSEN + SHARED) * 3 * DIM * INNER
    by_hand = TOKENS * (LAYERS * (projections + scores + experts) + DIM * VOCAB)
    assert report.macs == by_hand
    assert any("'grouped_mm'" in text for text in report.warnings)


def test_a_histogram_of_integers_is_that_of_floats():
    """A model without values counts its experts so, as accelerators do."""
    ends = {"bins": 8, "min": 0, "max": 7}
    floats = Apply(lambda self, x: torch.histc(x, **ends))
    integers = Apply(lambda self, x: torch.histc(x.int(), **ends))
    integers.scale = torch.nn.Parameter(torch.empty(1, device="meta"))
    expected = crossflops.count(floats, torch.rand(6)).totals
    counted = crossflops.count(integers, torch.empty(6, device="meta"))
    assert not counted.uncounted
    assert counted.totals.flops == expected.flops >= 6 * 9  # each number is compared with 9 edges
