"""Models of the consistency reports that no library brings.

Targets for the command line (`crossflops compare tests/zoo.py:unet`). Weights do not matter.
"""

from itertools import pairwise

import torch
from torch import nn


class Twice(nn.Sequential):
    """Two 3x3 convolutions with batch norm and ReLU."""

    def __init__(self, channels, features):
        super().__init__(
            nn.Conv2d(channels, features, 3, padding=1),
            nn.BatchNorm2d(features),
            nn.ReLU(inplace=True),
            nn.Conv2d(features, features, 3, padding=1),
            nn.BatchNorm2d(features),
            nn.ReLU(inplace=True),
        )


class UNet(nn.Module):
    """Three levels down by max pooling, and up by transposed convolutions, with shortcuts."""

    def __init__(self, widths=(16, 32, 64, 128)):
        super().__init__()
        self.down = nn.ModuleList(
            Twice(before, after) for before, after in zip((3, *widths), widths, strict=False)
        )
        self.pool = nn.MaxPool2d(2)
        back = widths[::-1]
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(wide, narrow, 2, stride=2) for wide, narrow in pairwise(back)
        )
        self.join = nn.ModuleList(Twice(wide, narrow) for wide, narrow in pairwise(back))
        self.head = nn.Conv2d(widths[0], 2, 1)

    def forward(self, x):
        kept = []
        for place, block in enumerate(self.down):
            x = block(self.pool(x) if place else x)
            kept.append(x)
        for up, join, past in zip(self.up, self.join, kept[-2::-1], strict=True):
            x = join(torch.cat([past, up(x)], dim=1))
        return self.head(x)


class Classifier(nn.Module):
    """Words, two recurrent layers in both directions, and a class from the last step."""

    def __init__(self, kind):
        super().__init__()
        self.words = nn.Embedding(1000, 64)
        self.steps = kind(64, 128, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(256, 5)

    def forward(self, words):
        hidden, _ = self.steps(self.words(words))
        return self.head(hidden[:, -1])


def unet():
    """A small U-Net with transposed convolutions."""
    return UNet()


def lstm():
    """A text classifier with an LSTM."""
    return Classifier(nn.LSTM)


def gru():
    """A text classifier with a GRU."""
    return Classifier(nn.GRU)


def bert():
    """BERT of four layers, from its configuration."""
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024}
    return BertModel(BertConfig(num_hidden_layers=4, **sizes))


def gpt2():
    """GPT-2 of four layers, with its head, from its configuration."""
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(n_layer=4, n_embd=256, n_head=4, use_cache=False))


def llama():
    """Llama of four layers with grouped queries, from its configuration."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 256, "intermediate_size": 688, "vocab_size": 8000}
    heads = {"num_attention_heads": 8, "num_key_value_heads": 4}
    return LlamaForCausalLM(LlamaConfig(num_hidden_layers=4, use_cache=False, **sizes, **heads))
