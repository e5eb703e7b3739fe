"""Batch normalizations and losses as they run: counts by hand, and the file against the model."""

import warnings

import numpy as np
import pytest

from crossflops import count
from crossflops.ir.trace import Setting
from crossflops.verbs.api import export
from tests.models import nn, torch

pytestmark = pytest.mark.tools
onnxruntime = pytest.importorskip("onnxruntime")
F = torch.nn.functional


def trained(norm):
    """The normalization with statistics and weights that are not those of a new one."""
    for tensor in (*norm.parameters(), *norm.buffers()):
        if tensor.is_floating_point():
            tensor.data.uniform_(0.5, 2)
    return norm


def inference(n, c):
    """(x - mean) / sqrt(var + eps) * scale + b, of n elements in c channels."""
    return {"adds": 2 * n + c, "muls": 2 * n, "divs": c, "specials": c}


def batch(n, c, tracked=True):
    """The same after a mean (n - c adds, c divs) and a variance (n muls, n - c adds, c divs).

    Both running statistics are momentum * old + (1 - momentum) * new: 2 muls and an add each.
    """
    cost = inference(n, c)
    cost["adds"] += 2 * (n - c) + (2 * c if tracked else 0)
    cost["muls"] += n + (4 * c if tracked else 0)
    cost["divs"] += 2 * c
    return cost


class Frozen(nn.BatchNorm2d):
    """One that stays in inference, as in a backbone that is fine-tuned."""

    def train(self, mode=True):
        """Stay as it is."""
        return super().train(False)


def partly_frozen():
    """One that trains behind one that does not."""
    return nn.Sequential(trained(Frozen(3)), trained(nn.BatchNorm2d(3)))


def added(*costs):
    """The sum, kind by kind."""
    return {kind: sum(cost[kind] for cost in costs) for kind in costs[0]}


IMAGE, N, C = (4, 3, 5, 5), 300, 3
# The norm, its input, its cost in training and in inference.
NORMS = {
    "rows": (lambda: nn.BatchNorm1d(6), (4, 6), batch(24, 6), inference(24, 6)),
    "1d": (lambda: nn.BatchNorm1d(3), (4, 3, 7), batch(84, 3), inference(84, 3)),
    "2d": (lambda: nn.BatchNorm2d(3), IMAGE, batch(N, C), inference(N, C)),
    "3d": (lambda: nn.BatchNorm3d(2), (3, 2, 4, 3, 2), batch(144, 2), inference(144, 2)),
    "one momentum": (lambda: nn.BatchNorm2d(3, momentum=0.7), IMAGE, batch(N, C), None),
    "mean of all": (lambda: nn.BatchNorm2d(3, momentum=None), IMAGE, batch(N, C), None),
    "no weights": (lambda: nn.BatchNorm2d(3, affine=False), IMAGE, batch(N, C), None),
    "epsilon": (lambda: nn.BatchNorm2d(3, eps=0.5), IMAGE, batch(N, C), inference(N, C)),
    "no statistics": (
        lambda: nn.BatchNorm2d(3, track_running_stats=False),
        IMAGE, batch(N, C, tracked=False), batch(N, C, tracked=False),
    ),
    "neither": (
        lambda: nn.BatchNorm1d(3, affine=False, track_running_stats=False),
        (4, 3, 7), batch(84, 3, tracked=False), batch(84, 3, tracked=False),
    ),
    "synchronized": (lambda: nn.SyncBatchNorm(3), IMAGE, batch(N, C), inference(N, C)),
    "of items": (  # a batch normalization of one item with 4 x 3 channels
        lambda: nn.InstanceNorm2d(3, affine=True, track_running_stats=True),
        IMAGE, batch(N, 12), inference(N, 12),
    ),
    "partly frozen": (partly_frozen, IMAGE, added(inference(N, C), batch(N, C)), None),
}  # fmt: skip


def difference(model, inputs, training, folder):
    """The largest difference between the outputs of the model and those of its file."""
    file = folder / "model.onnx"
    export(model, inputs, to="onnx", file=file, setting=Setting(training=training))
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    given = {name: value.numpy() for name, value in zip(names, inputs, strict=True)}
    want = model.train(training)(*inputs)
    want = want if isinstance(want, tuple) else (want,)
    pairs = list(zip(session.run(None, given), want, strict=True))
    assert all(ours.shape == theirs.shape for ours, theirs in pairs)
    return max(float(np.abs(ours - theirs.detach().numpy()).max()) for ours, theirs in pairs)


def kinds(model, inputs, training=False):
    """The work of the model by kind."""
    totals = count(model, inputs, setting=Setting(training=training)).totals
    return {kind: getattr(totals, kind) for kind in ("adds", "muls", "divs", "specials")}


@pytest.mark.parametrize("name", NORMS)
def test_a_normalization_counts_the_statistics_that_it_uses(name, tmp_path):
    """In training those of the batch, as docs/ops.md says, and the file computes the same."""
    build, shape, in_training, in_inference = NORMS[name]
    model, inputs = trained(build()), (torch.randn(shape),)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert kinds(model, inputs, training=True) == in_training
        if in_inference is not None:
            assert kinds(model, inputs) == in_inference
        assert difference(model, inputs, True, tmp_path) < 1e-5


@pytest.mark.parametrize("tracked", [True, False])
def test_a_new_norm_in_training_keeps_its_file_right(tracked, tmp_path):
    """Whose bias is its mean, and its weight its variance: onnxruntime merges equal constants.

    It writes the new statistics over the old ones, and so over what it merged with these.
    """
    norm = nn.BatchNorm2d(4, track_running_stats=tracked)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), norm, nn.ReLU(), nn.BatchNorm2d(4, affine=False))
    assert difference(model, (torch.randn(2, 3, 8, 8),), True, tmp_path) < 1e-5


class Losses(nn.Module):
    """Losses of one input; their targets and weights are constants of the model."""

    def __init__(self, *losses):
        super().__init__()
        self.losses = losses

    def forward(self, x):
        """Return all of them."""
        return tuple(loss(x) for loss in self.losses)


LABELS, ROW = torch.tensor([0, 1, 2, 3, 1]), torch.tensor([1.0, 2.0, 0.5, 3.0])
SHARES = torch.rand(5, 4).softmax(1)
# The losses of 5 x 4 scores, and the FLOPs by hand beyond the log-softmax: 15 compares, 20
# differences, 20 exps, 15 adds, 5 logs, 20 differences.
SOFTMAX = 95
# 5 negations, 5 compares with the ignored class, 4 adds of the losses and of their weights, a div
MEAN = 5 + 5 + 2 * 4 + 1
# 3 adds for each of 5 labels, 5 negations, 5 compares, and the mix: 2 muls, an add
ALIKE = 5 * 3 + 5 + 5 + 3
LOSSES = {
    "plain": (lambda x: F.cross_entropy(x, LABELS), MEAN),
    "smoothed": (  # 5 logical nots, 4 adds of the losses and of what is not ignored, a div
        lambda x: F.cross_entropy(x, LABELS, label_smoothing=0.1),
        MEAN + ALIKE + 5 + 4 + 4 + 1,
    ),
    "smoothed, weighted": (  # 5 muls of the likelihood, 20 of all classes
        lambda x: F.cross_entropy(x, LABELS, ROW, label_smoothing=0.3),
        MEAN + 5 + ALIKE + 20 + 4 + 4 + 1,
    ),
    "smoothed sum": (  # no weights to add
        lambda x: F.cross_entropy(x, LABELS, reduction="sum", label_smoothing=0.1),
        5 + 5 + 4 + ALIKE + 4,
    ),
    "smoothed, none": (  # the mix is by label
        lambda x: F.cross_entropy(x, LABELS, reduction="none", label_smoothing=0.1),
        5 + 5 + ALIKE + 4 * 3,
    ),
    "smoothed, ignoring": (
        lambda x: F.cross_entropy(x, LABELS, ROW, ignore_index=1, label_smoothing=0.1),
        MEAN + 5 + ALIKE + 20 + 4 + 4 + 1,
    ),
    "shares": (lambda x: F.cross_entropy(x, SHARES), 20 + 19 + 1 + 1),
    "smoothed shares": (  # a mul and an add more for each, a mul by its weight
        lambda x: F.cross_entropy(x, SHARES, ROW, label_smoothing=0.2),
        20 * 3 + 20 + 19 + 1 + 1,
    ),
    "shares, none": (lambda x: F.cross_entropy(x, SHARES, reduction="none"), 20 + 15 + 5),
    "shares, sum": (lambda x: F.cross_entropy(x, SHARES, reduction="sum"), 20 + 19 + 1),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_counts_its_options(name):
    """Smoothed labels, weights, ignored classes and probabilities of classes."""
    loss, work = LOSSES[name]
    assert count(Losses(loss), (torch.randn(5, 4),)).totals.flops == SOFTMAX + work


def test_the_file_of_each_loss_computes_it(tmp_path):
    """All at once, with those of one row, and of rows of places."""
    places = torch.randint(4, (2, 5))
    others = (
        lambda x: F.cross_entropy(x[0], LABELS[2]),
        lambda x: F.cross_entropy(x[0], LABELS[2], ROW, label_smoothing=0.1),
        lambda x: F.cross_entropy(x[0], SHARES[1], reduction="none"),
        lambda x: F.cross_entropy(x.T.expand(2, 4, 5), places, ROW, label_smoothing=0.2),
        lambda x: F.cross_entropy(x.T.expand(2, 4, 5), SHARES.T.expand(2, 4, 5), ROW),
    )
    model = Losses(*(loss for loss, _ in LOSSES.values()), *others)
    assert difference(model, (torch.randn(5, 4),), False, tmp_path) < 1e-5
