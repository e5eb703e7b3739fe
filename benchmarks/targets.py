"""The models that measure.py counts and compares, with random weights or none.

PyTorch is imported with this file: a function that imports it itself builds a model with numbers.
"""

from importlib import import_module
from typing import Any

import torch
from torch import nn


def small() -> Any:
    """A convolution, a batch normalization and a linear layer, with their input."""
    layers = (nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(7200, 10))
    return nn.Sequential(*layers), torch.zeros(1, 3, 32, 32)


def resnet50() -> Any:
    """ResNet-50 of torchvision, and an image."""
    return _of_torchvision("resnet50")


def vgg16() -> Any:
    """VGG-16 of torchvision, and an image."""
    return _of_torchvision("vgg16")


def _of_torchvision(name: str) -> Any:
    from crossflops.frontends import load_with_retry

    models = load_with_retry(lambda: import_module("torchvision.models"))
    return getattr(models, name)(weights=None).eval(), torch.zeros(1, 3, 224, 224)


def bert_base() -> Any:
    """BERT-base of transformers, and a text of 128 words."""
    return _bert()


def bert_large() -> Any:
    """BERT-large of transformers, and a text of 128 words."""
    return _bert(
        hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096
    )


def _bert(**settings: int) -> Any:
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig(**settings)), torch.ones(1, 128, dtype=torch.int64)


def llama_8b() -> Any:
    """Llama 3 of 8 B parameters on the meta device, and a text of 128 words."""
    return _llama(
        hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32
    )


def llama_70b() -> Any:
    """Llama 3 of 70 B parameters on the meta device, and a text of 128 words."""
    return _llama(
        hidden_size=8192, intermediate_size=28672, num_hidden_layers=80, num_attention_heads=64
    )


def llama_405b() -> Any:
    """Llama 3.1 of 405 B parameters on the meta device, and a text of 128 words."""
    return _llama(
        hidden_size=16384, intermediate_size=53248, num_hidden_layers=126, num_attention_heads=128
    )


def checkpointed_llama_405b() -> Any:
    """The same, with each block in a checkpoint."""
    model, words = llama_405b()
    model.gradient_checkpointing_enable()
    return model, words


def adapted_llama_8b() -> Any:
    """Llama 3 of 8 B parameters, frozen, with adapters of rank 16 on all its projections."""
    model, words = llama_8b()
    model.requires_grad_(False)
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if name.endswith("_proj"):
                setattr(module, name, _Adapted(child))
    return model, words


class _Adapted(nn.Module):
    """A linear layer with an adapter of low rank: 2106.09685."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        with torch.device("meta"):
            self.down = nn.Linear(layer.in_features, 16, bias=False)
            self.up = nn.Linear(16, layer.out_features, bias=False)
        self.layer = layer

    def forward(self, x: torch.Tensor) -> Any:
        """The layer, and the adapter scaled by 2."""
        return self.layer(x) + 2 * self.up(self.down(x))


def _llama(**settings: int) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(**settings, num_key_value_heads=8, vocab_size=128256, use_cache=False)
    with torch.device("meta"):
        return LlamaForCausalLM(config), torch.ones(1, 128, dtype=torch.int64)
