"""The models of the consistency reports, and what makes them: one row each.

Targets for the command line (`crossflops compare tests/zoo.py:unet`). Weights do not matter.
"""

from itertools import pairwise
from types import SimpleNamespace

import torch
from torch import nn

IMAGE = ("--input", "1x3x224x224")
TOKENS = ("--input", "input_ids=1x128:int64")


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
        found, _ = self.steps(self.words(words))
        return self.head(found[:, -1])


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


def _row(target, *arguments):
    return SimpleNamespace(target=target, arguments=arguments)


def _torchvision(name, *arguments):
    return _row(f"torchvision.models:{name}", *IMAGE, *arguments)


WEIGHTLESS = ("--arg", "weights=null", "--arg", "init_weights=false")

# Name of the report -> how the comparison is asked for.
REPORTS = {
    "resnet50": _torchvision("resnet50"),
    "resnet18": _torchvision("resnet18"),
    "mobilenet_v2": _torchvision("mobilenet_v2"),
    "vit_b_16": _torchvision("vit_b_16"),
    "vit_b_16-no-grad": _torchvision("vit_b_16", "--no-grad"),
    "swin_t": _torchvision("swin_t"),
    "efficientnet_b0": _torchvision("efficientnet_b0"),
    "swin_v2_t": _torchvision("swin_v2_t"),
    "convnext_tiny": _torchvision("convnext_tiny"),
    "shufflenet_v2_x1_0": _torchvision("shufflenet_v2_x1_0"),
    "densenet121": _torchvision("densenet121"),
    "googlenet": _torchvision("googlenet", *WEIGHTLESS),
    "timm-vit_tiny": _row("timm:vit_tiny_patch16_224", *IMAGE),
    "unet": _row("tests/zoo.py:unet", "--input", "1x3x128x128"),
    "lstm": _row("tests/zoo.py:lstm", "--input", "1x40:int64"),
    "gru": _row("tests/zoo.py:gru", "--input", "1x40:int64"),
    "bert": _row("tests/zoo.py:bert", *TOKENS),
    "gpt2": _row("tests/zoo.py:gpt2", *TOKENS),
    "llama": _row("tests/zoo.py:llama", *TOKENS),
}
