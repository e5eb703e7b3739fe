"""Attention of PyTorch with masks and dropout: its file runs, computes the same, and counts it.

A rate of 1e-12 drops nothing, so that the outputs of a file in training can be compared.
"""

import numpy as np
import pytest

from crossflops import count
from crossflops.ir.trace import Setting
from crossflops.verbs.api import export
from tests.models import nn, torch

pytestmark = pytest.mark.tools
onnxruntime = pytest.importorskip("onnxruntime")
F = torch.nn.functional

ALMOST_NOTHING = 1e-12
HEADS = (2, 2, 5, 4)  # batch, heads, places, width
LOWER = torch.ones(5, 5).tril().bool()
KEPT = torch.tensor([[1, 1, 1, 0, 1], [1, 0, 1, 1, 1]]).bool()
BIAS = torch.linspace(-1, 1, 25).reshape(5, 5)


class Attention(nn.Module):
    """The function itself, with these arguments."""

    def __init__(self, **arguments):
        super().__init__()
        self.arguments = arguments

    def forward(self, query, key, value):
        """Return the attention."""
        return F.scaled_dot_product_attention(query, key, value, **self.arguments)


class Several(nn.Module):
    """Several attentions of the same operands."""

    def __init__(self, attentions):
        super().__init__()
        self.attentions = nn.ModuleList(attentions)

    def forward(self, query, key, value):
        """Return all of them."""
        return tuple(attention(query, key, value) for attention in self.attentions)


class Padded(nn.Module):
    """A layer whose last keys are padding."""

    def __init__(self, layer, operands=1, **arguments):
        super().__init__()
        self.layer = layer
        self.operands = operands
        self.arguments = arguments

    def forward(self, x):
        """Return what the layer makes of x."""
        result = self.layer(*[x] * self.operands, **self.arguments)
        return result[0] if isinstance(result, tuple) else result


def differences(model, inputs, folder):
    """The largest difference of each output of the model in training from that of its file."""
    file = folder / "model.onnx"
    export(model, inputs, to="onnx", file=file, setting=Setting(training=True))
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    given = {name: value.numpy() for name, value in zip(names, inputs, strict=True)}
    want = model.train()(*inputs)
    want = want if isinstance(want, tuple) else (want,)
    pairs = zip(session.run(None, given), want, strict=True)
    return [float(np.abs(ours - theirs.detach().numpy()).max()) for ours, theirs in pairs]


@pytest.mark.parametrize("rate", [0.0, ALMOST_NOTHING])
def test_a_file_computes_attention_with_each_mask(rate, tmp_path):
    """Masks of booleans and numbers, one row for all queries, causal, scales, grouped heads."""
    torch.manual_seed(0)
    masks = [None, LOWER, BIAS, KEPT[:, None, None], KEPT[:, None, None].float(), LOWER[None]]
    forms = [{"attn_mask": mask} for mask in masks]
    forms += [{"is_causal": True}, {"scale": 0.3, "attn_mask": LOWER}, {"scale": -0.5}]
    model = Several([Attention(dropout_p=rate, **form) for form in forms])
    inputs = tuple(torch.randn(HEADS) for _ in range(3))
    assert max(differences(model, inputs, tmp_path)) < 1e-5
    grouped = Several([Attention(dropout_p=rate, enable_gqa=True)])
    few = torch.randn(2, 2, 5, 4)
    assert max(differences(grouped, (torch.randn(2, 4, 5, 4), few, few), tmp_path)) < 1e-5


LAYERS = {
    "multi-head": lambda: Padded(
        nn.MultiheadAttention(8, 2, dropout=ALMOST_NOTHING, batch_first=True),
        operands=3, key_padding_mask=~KEPT, need_weights=False,
    ),
    "encoder": lambda: Padded(
        nn.TransformerEncoderLayer(8, 2, 16, dropout=ALMOST_NOTHING, batch_first=True),
        src_key_padding_mask=~KEPT,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_a_file_computes_a_layer_with_padding(name, tmp_path):
    """Its mask has one row for all queries."""
    torch.manual_seed(0)
    assert max(differences(LAYERS[name](), (torch.randn(2, 5, 8),), tmp_path)) < 1e-5


def test_dropout_of_the_weights_is_counted():
    """5 x 5 weights of 4 heads are multiplied by a mask and a scale, and drawn against a rate."""
    model = Attention(attn_mask=LOWER, dropout_p=0.1)
    inputs = tuple(torch.randn(HEADS) for _ in range(3))
    totals = count(model, inputs, setting=Setting(training=True)).totals
    weights, operand = 4 * 5 * 5, 2 * 2 * 5 * 4
    assert totals.macs == 2 * weights * 4
    assert totals.muls == 2 * operand + 2 * weights  # q and k are scaled
    assert totals.exactness["flops"] == "estimate"
