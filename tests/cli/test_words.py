"""Words that people type after `explain`: each finds a page that is about it."""

import pytest

from crossflops.causes import WORDS, all_causes, search_causes


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("mfu", "mfu"), ("hfu", "hfu"), ("mbu", "mbu"), ("roofline", "roofline"),
        ("palm", "6nd"), ("megatron", "causal"), ("causal", "causal"), ("kv cache", "kv-cache"),
        ("lora", "lora"), ("gqa", "kv-cache"), ("flash attention", "hfu"), ("6nd", "6nd"),
        ("chinchilla", "6nd"), ("nanogpt", "6nd"), ("gradient checkpointing", "hfu"),
        ("activation checkpointing", "hfu"), ("moe", "moe"), ("quantization", "quantization"),
        ("memory-bound", "roofline"), ("macs vs flops", "unit.mac-vs-flop"),
        ("dropout", "graph.identity-or-constant-nodes"), ("softmax", "softmax"),
        ("swiglu", "swiglu"), ("geglu", "swiglu"), ("rope", "rope"), ("rotary", "rope"),
        ("mixture of experts", "moe"), ("arithmetic intensity", "roofline"),
    ],
)  # fmt: skip
def test_words_find_their_page(words, page):
    """It is among those that are found."""
    found = [cause.id for cause in search_causes(words, (*WORDS, *all_causes()))]
    assert page in found
