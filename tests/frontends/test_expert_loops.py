"""DBRX, whose experts have a loop of their own: with numbers as it is, without them grouped."""

import json
import warnings

import pytest

import crossflops
from crossflops.targets import load_target_source
from tests.models import torch

pytestmark = [
    pytest.mark.tools,
    pytest.mark.filterwarnings("ignore::crossflops.errors.CrossflopsWarning"),
]
pytest.importorskip("transformers")

DIM, HEADS, KV, INNER, EXPERTS, CHOSEN, VOCAB = 6144, 48, 8, 10752, 16, 4, 100
TOKENS = 8


def config(folder, layers, dim=DIM, heads=HEADS, inner=INNER):
    """A config of DBRX as its card has it, but for the sizes that are given."""
    content = {
        "model_type": "dbrx",
        "architectures": ["DbrxForCausalLM"],
        "d_model": dim,
        "n_heads": heads,
        "n_layers": layers,
        "max_seq_len": 32768,
        "vocab_size": VOCAB,
        "attn_config": {"kv_n_heads": KV, "clip_qkv": 8, "rope_theta": 500000},
        "ffn_config": {
            "ffn_hidden_size": inner,
            "moe_num_experts": EXPERTS,
            "moe_top_k": CHOSEN,
        },
        "torch_dtype": "float32",
    }
    path = folder / "config.json"
    path.write_text(json.dumps(content))
    return f"hf:{path}"


def test_a_layer_of_the_whole_model_by_hand(tmp_path):
    """Attention, router, 3 matrices of each of 4 experts, and the scores of every pair."""
    size = DIM // HEADS
    attention = DIM * (DIM + 2 * KV * size) + DIM * DIM
    expert = 3 * DIM * INNER
    report = crossflops.count(config(tmp_path, 1), [f"input_ids=1x{TOKENS}:int64"])
    rest = attention + EXPERTS * DIM + 2 * DIM + 2 * VOCAB * DIM + DIM
    assert report.params == rest + EXPERTS * expert
    assert report.totals.active_params == rest + CHOSEN * expert
    products = attention + EXPERTS * DIM + CHOSEN * expert + VOCAB * DIM
    assert report.macs == TOKENS * products + 2 * HEADS * TOKENS**2 * size
    assert not report.uncounted
    assert any("one grouped product for each matrix" in text for text in report.warnings)


def test_the_grouped_products_give_what_the_loop_gives(tmp_path):
    """Rows of 3 sequences, each with its own experts; a small model keeps its loop."""
    from crossflops.frontends.pytorch.load.expert_loops import (
        _FORWARDS,
        make_expert_loops_grouped_products,
    )

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = load_target_source(
            config(tmp_path, 1, 64, 8, 48), {}, (), sizes={"seq": TOKENS}
        ).model
    assert not make_expert_loops_grouped_products(model)
    (experts,) = (m for m in model.modules() if type(m).__name__ == "DbrxExperts")
    torch.manual_seed(0)
    for weight in experts.parameters():
        torch.nn.init.normal_(weight, std=0.1)
    rows = torch.randn(3, TOKENS, 64)
    scores, chosen = torch.rand(3 * TOKENS, EXPERTS).topk(CHOSEN)
    with torch.no_grad():
        loop = experts(rows, chosen, scores)
        grouped = _FORWARDS["DbrxExperts"](experts, rows, chosen, scores)
    torch.testing.assert_close(grouped, loop, rtol=1e-4, atol=1e-5)
