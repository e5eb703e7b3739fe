"""The models that measure.py counts and compares, with random weights or none."""

from typing import Any


def small() -> Any:
    """A convolution, a batch normalization and a linear layer, with their input."""
    import torch
    from torch import nn

    layers = (nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(7200, 10))
    return nn.Sequential(*layers), torch.zeros(1, 3, 32, 32)


def bert_base() -> Any:
    """BERT-base of transformers, and a text of 128 words."""
    import torch
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig()), torch.ones(1, 128, dtype=torch.int64)


def llama_405b() -> Any:
    """Llama 3.1 of 405 B parameters on the meta device, and a text of 128 words."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=16384, intermediate_size=53248, num_hidden_layers=126,
        num_attention_heads=128, num_key_value_heads=8, vocab_size=128256, use_cache=False,
    )  # fmt: skip
    with torch.device("meta"):
        return LlamaForCausalLM(config), torch.ones(1, 128, dtype=torch.int64)
