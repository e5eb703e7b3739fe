"""Rooflines of whole models: a decoder of transformers by hand, and the bytes of the count."""

import pytest

from crossflops.frontends import load_with_retry
from crossflops.hardware.step_traffic import Formats, node_loads
from crossflops.ir.trace import Setting
from crossflops.ledger.count import count_nodes_with_their_bodies
from crossflops.ledger.memory import memory_of_graph
from crossflops.targets.request import Request
from crossflops.verbs.count import count_source

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.tools

LAYERS, WIDTH, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, VOCAB, BATCH, PAST = (
    2,
    64,
    160,
    4,
    2,
    16,
    300,
    3,
    15,
)


def of(model, inputs):
    """A model as it is counted."""
    request = Request.from_arguments(model, inputs)
    return count_source(request.source(), Setting(), [])


def bytes_of(native, model):
    """Bytes by what they hold, summed over the nodes."""
    ledger = native.ledger if model == "unfused" else count_nodes_with_their_bodies(native.graph)
    rows = node_loads(native.graph, ledger, model, Formats())
    return tuple(
        sum(getattr(row, name) for row in rows) for name in ("weights", "cache", "activations")
    )


def llama():
    """One step of transformers' Llama, with keys and values as plain inputs and results."""
    transformers = pytest.importorskip("transformers")
    config = load_with_retry(lambda: transformers.LlamaConfig)(
        hidden_size=WIDTH, intermediate_size=HIDDEN, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, head_dim=HEAD_DIM,
        vocab_size=VOCAB, max_position_embeddings=64,
    )  # fmt: skip

    class Step(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = load_with_retry(lambda: transformers.LlamaForCausalLM)(config)

        def forward(self, ids, *past):
            cache = transformers.DynamicCache()
            for layer in range(LAYERS):
                cache.update(past[2 * layer], past[2 * layer + 1], layer)
            out = self.model(input_ids=ids, past_key_values=cache, use_cache=True)
            kept = (
                tensor
                for layer in out.past_key_values.layers
                for tensor in (layer.keys, layer.values)
            )
            return out.logits, *kept

    past = [torch.zeros(BATCH, KV_HEADS, PAST, HEAD_DIM) for _ in range(2 * LAYERS)]
    return of(Step().eval(), (torch.zeros(BATCH, 1, dtype=torch.int64), *past))


def test_a_step_of_transformers_llama():
    """Weights of the products, norms and looked-up rows once; keys and values once, 16 long."""
    native = llama()
    attention = 2 * WIDTH * HEAD_DIM * (HEADS + KV_HEADS)
    products = LAYERS * (attention + 3 * WIDTH * HIDDEN) + WIDTH * VOCAB
    norms, rows = (2 * LAYERS + 1) * WIDTH, BATCH * WIDTH
    scores = LAYERS * 2 * BATCH * HEADS * HEAD_DIM * (PAST + 1)
    assert native.ledger.total.macs == BATCH * products + scores
    weights, cache, activations = bytes_of(native, "weights-once")
    assert cache == 4 * LAYERS * 2 * BATCH * KV_HEADS * HEAD_DIM * (PAST + 1)
    assert activations == 0
    # frequencies of the rotation and single numbers are weights, too, of some hundred bytes
    assert 0 <= weights - 4 * (products + norms + rows) < 400
    ids, logits = 8 * BATCH, 4 * BATCH * VOCAB
    assert bytes_of(native, "fused-ideal")[2] == ids + logits


def test_unfused_is_what_the_count_moves():
    """All but the transpositions of weights, which run before the step."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
    native = of(model.eval(), (torch.zeros(2, 8),))
    before = [row.cost for row in native.ledger.counted if row.node.constant]
    folded = sum(cost.bytes_read + cost.bytes_written for cost in before)
    access = memory_of_graph(native.graph, native.ledger).access_bytes
    assert sum(bytes_of(native, "unfused")) == access - folded
