"""Tools on a training step: what they print, and why it is not what the step costs.

All numbers are derived by hand. A product with a trained weight costs its forward MACs once more
for the gradient of the weight, and again for that of its input where something trained lies
before it.
"""

from functools import partial
from importlib.metadata import entry_points

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

import crossflops
from crossflops.ir.trace import Setting

NEEDED = {"calflops", "deepspeed", "torch-flop-counter", "torch-profiler"}
MISSING = NEEDED - set(entry_points(group="crossflops.adapters").names)
pytestmark = [
    pytest.mark.tools,
    pytest.mark.skipif(bool(MISSING), reason=f"{', '.join(sorted(MISSING))} is not installed"),
]
GROUPED, BACKWARD = "conv.grouped-weight-gradient", "conv.backward-unsupported"
DIMS, SDPA = "conv.dim-unsupported", "attention.sdpa"
SCALED = "elementwise.add-function"  # no MACs: one for each element


def perceptron():
    """On 7 rows 7 x 6 x 5 = 210 MACs and 7 x 5 x 4 = 140."""
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4))


class Attention(nn.Module):
    """x [2, 3, 4]: 2 x 3 x 4 x 12 = 288 MACs, then two products of 2 x 2 x 3 x 3 x 2 = 72."""

    def __init__(self):
        super().__init__()
        self.project = nn.Linear(4, 12)

    def forward(self, x):
        """Two heads of two."""
        query, key, value = self.project(x).view(2, 3, 3, 2, 2).permute(2, 0, 3, 1, 4)
        return scaled_dot_product_attention(query, key, value)


class Unfused(Attention):
    """The same, with products that keep the scores."""

    def forward(self, x):
        """As PyTorch's math kernel does it."""
        with sdpa_kernel(SDPBackend.MATH):
            return super().forward(x)


class Product(torch.autograd.Function):
    """x w, and its gradients."""

    @staticmethod
    def forward(ctx, x, w):
        """One product."""
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, grad):
        """Two products."""
        x, w = ctx.saved_tensors
        return grad @ w.t(), x.t() @ grad


class Custom(nn.Module):
    """x [2, 4]: 2 x 4 x 5 MACs and 2 x 5 x 3."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 5)
        self.weight = nn.Parameter(torch.zeros(5, 3))

    def forward(self, x):
        """A layer, and a product with a backward pass of its own."""
        return Product.apply(self.first(x), self.weight)


class Checkpointed(nn.Module):
    """x [2, 8]: a layer of 128 MACs, and two of 256 in a checkpoint."""

    def __init__(self, reentrant):
        super().__init__()
        self.reentrant = reentrant
        self.first = nn.Linear(8, 8)
        self.block = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8))

    def forward(self, x):
        """The block is run again in the backward pass."""
        return checkpoint(self.block, self.first(x), use_reentrant=self.reentrant)


class Selecting(Checkpointed):
    """A policy saves results of so many columns."""

    def __init__(self, columns):
        super().__init__(False)
        self.columns = columns

    def forward(self, x):
        """The block is run again but for these."""

        def policy(context, operator, *args, **kwargs):
            product = operator is torch.ops.aten.addmm.default
            return product and context.op_output.shape[-1] == self.columns

        contexts = partial(create_selective_checkpoint_contexts, policy)
        return checkpoint(self.block, self.first(x), use_reentrant=False, context_fn=contexts)


class Nested(Checkpointed):
    """A checkpoint that is all of another one."""

    def __init__(self):
        super().__init__(False)

    def forward(self, x):
        """The outer one has the layer, too."""
        return checkpoint(super().forward, x, use_reentrant=False)


class Again(torch.autograd.Function):
    """A part of a model that is run again in a backward pass of its own."""

    @staticmethod
    def forward(ctx, part, x):
        """The part, of which only the input is kept."""
        ctx.part = part
        ctx.save_for_backward(x)
        return part(x)

    @staticmethod
    def backward(ctx, grad):
        """Forward once more, and back through that."""
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            out = ctx.part(x)
        torch.autograd.backward(out, grad)
        return None, x.grad


class Recomputing(nn.Module):
    """x [2, 4]: a layer of 32 MACs, and two of 48."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.block = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 4))

    def forward(self, x):
        """The block is run again by a function of the model's own."""
        return Again.apply(self.block, self.first(x))


class Heads(nn.Module):
    """x [2, 5]: 40 MACs and 30."""

    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Linear(5, 4), nn.Linear(5, 3)

    def forward(self, x):
        """Two results."""
        return self.one(x), self.other(x)


def step(model, shape, tools=("torch-flop-counter", "torch-profiler"), **options):
    """The comparison of a training step, in this process."""
    inputs = torch.zeros(shape)
    return crossflops.compare(
        model, inputs, train=True, tools=list(tools), isolate=False, **options
    )


def causes(report, tool):
    """Amounts by cause, but for the unit, and the residual."""
    account = report.reconciliation(tool)
    amounts = {row.cause: row.amount for row in account.explanations}
    amounts.pop("unit.mac-vs-flop", None)
    return amounts, account.residual


@pytest.mark.parametrize(
    ("model", "shape", "options", "macs", "counter", "profiler"),
    [
        pytest.param(nn.Linear(5, 4), (3, 5), {}, 60 + 60, {}, {}, id="first layer"),
        pytest.param(
            nn.Linear(5, 4), (3, 5), {"frozen": ["weight"]}, 60, {}, {}, id="frozen weight"
        ),
        pytest.param(perceptron(), (7, 6), {}, 350 + 350 + 140, {}, {}, id="two layers"),
        pytest.param(
            perceptron(), (7, 6), {"frozen": ["0"]}, 350 + 140, {}, {}, id="first half frozen"
        ),
        pytest.param(
            perceptron(), (7, 6), {"frozen": ["2"]}, 350 + 210 + 140, {}, {}, id="last frozen"
        ),
        # 4 x 4 positions, 2 x 8 x 16 x 2 x 9 = 4608; the mode counts the weight's twice
        pytest.param(
            nn.Conv2d(4, 8, 3, stride=2, padding=1, dilation=2, groups=2),
            (2, 4, 9, 9),
            {},
            2 * 4608,
            {GROUPED: 4608},
            {BACKWARD: -4608},
            id="convolution",
        ),
        # 1 x 1 over 6 x 6, 36 x 3 x 4 = 432; then 16 x 4 x 9 = 576 by four groups, its input too
        pytest.param(
            nn.Sequential(nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 3, groups=4)),
            (1, 3, 6, 6),
            {},
            2 * 432 + 3 * 576,
            {GROUPED: 3 * 576},
            {BACKWARD: -432 - 2 * 576},
            id="depthwise",
        ),
        # 5 x 5 x 4 x 3 x 9 = 2700
        pytest.param(
            nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2),
            (1, 4, 5, 5),
            {},
            2 * 2700,
            {GROUPED: 2700},
            {BACKWARD: -2700, DIMS: -2700},
            id="transposed",
        ),
        # two products forward, four back, and the scores once more
        pytest.param(
            Attention(),
            (2, 3, 4),
            {},
            2 * 288 + 7 * 72,
            {SDPA: -7 * 72},
            {SDPA: -7 * 72},
            id="attention",
        ),
        pytest.param(
            Unfused(),
            (2, 3, 4),
            {},
            2 * 288 + 7 * 72,
            {"backward.attention-recomputed": -72},
            # queries and keys, 24 elements each, are scaled, and so are their gradients
            {"backward.attention-recomputed": -72, SCALED: 4 * 24},
            id="attention by products",
        ),
        pytest.param(
            Checkpointed(True),
            (2, 8),
            {},
            2 * 640 + 512 + 512,
            {},
            {},
            id="reentrant checkpoint",
        ),
        pytest.param(
            nn.Sequential(Checkpointed(True), Checkpointed(True)),
            (2, 8),
            {},
            2 * (2 * 640 + 512 + 512) + 128,
            {},
            {},
            id="two reentrant checkpoints",
        ),
        # the last layer needs its input alone: it is not run again, but begun
        pytest.param(
            Checkpointed(False),
            (2, 8),
            {},
            2 * 640 + 512 + 256,
            {},
            {"backward.checkpoint-begun": 256},
            id="checkpoint",
        ),
        # the profiler sees both layers of the block twice, forward and again; saved results are
        # begun as they are handed out
        pytest.param(
            Selecting(16),
            (2, 8),
            {},
            2 * 640 + 512,
            {},
            {"backward.checkpoint": 512, "backward.checkpoint-begun": 256 + 256},
            id="checkpoint that saves a layer",
        ),
        pytest.param(
            Selecting(0),
            (2, 8),
            {},
            2 * 640 + 512 + 256,
            {},
            {"backward.checkpoint": 512 + 256, "backward.checkpoint-begun": 256},
            id="checkpoint that saves nothing",
        ),
        # the outer one runs the layer again, and the inner one all but the last of the block
        pytest.param(
            Nested(),
            (2, 8),
            {},
            2 * 640 + 512 + 128 + 256,
            {},
            {"backward.checkpoint-begun": 256},
            id="checkpoint in a checkpoint",
        ),
        pytest.param(Custom(), (2, 4), {}, 2 * 40 + 3 * 30, {}, {}, id="custom function"),
        # the product with the frozen layer before it has a gradient for its input all the same
        pytest.param(
            Custom(),
            (2, 4),
            {"frozen": ["first"]},
            40 + 3 * 30,
            {},
            {},
            id="custom function behind what is frozen",
        ),
        # 2 x 4 x 6 and 2 x 6 x 4 run again in the function, then four gradients
        pytest.param(Recomputing(), (2, 4), {}, 2 * 32 + 4 * 96, {}, {}, id="own checkpoint"),
        pytest.param(
            Heads(),
            (2, 5),
            {"loss": lambda result: result[0].sum()},
            40 + 30 + 40,
            {},
            {},
            id="another loss",
        ),
    ],
)
def test_a_backward_pass_that_is_run(model, shape, options, macs, counter, profiler):
    """Both print two for each MAC that they see; what they miss, or see too much of, is named."""
    report = step(model, shape, **options)
    assert report.training.macs == macs
    for tool, expected in (("torch-flop-counter", counter), ("torch-profiler", profiler)):
        account = report.reconciliation(tool)
        assert account.ours == macs
        scaled = expected.get(SCALED, 0)
        assert account.theirs == 2 * (macs + sum(expected.values()) - scaled) + scaled
        assert causes(report, tool) == (expected, 0)


def test_the_forward_pass_taken_thrice():
    """3 x (2 x 350 + 35 of the ReLU), where the frozen first layer leaves 490 MACs."""
    report = step(perceptron(), (7, 6), ("calflops", "calflops-macs", "deepspeed"), frozen=["0"])
    rule = {"backward.first-layer": 210, "backward.frozen": 350}
    for tool in ("calflops", "deepspeed"):
        account = report.reconciliation(tool)
        assert (account.ours, account.theirs) == (490, 2205)
        assert causes(report, tool) == (rule | {"act.relu": 105}, 0)
    assert report.reconciliation("calflops-macs").theirs == 3 * 350
    assert causes(report, "calflops-macs") == (rule, 0)


@pytest.mark.parametrize("tool", ["calflops", "deepspeed"])
def test_modules_of_the_forward_pass_taken_thrice(tool):
    """Of the first layer 210 forward alone, of the last one 140 and its weight's gradient."""
    report = step(perceptron(), (7, 6), (tool,), frozen=["0"])
    rows = {row.path: row for row in report.reconciliation(tool).by_path}
    assert {path: (row.ours, row.predicted, row.theirs) for path, row in rows.items()} == {
        "": (490, 2205, 2205),
        "0": (210, 1260, 1260),
        "1": (0, 105, 105),
        "2": (280, 840, 840),
    }
    unit = "unit.mac-vs-flop"
    # neither layer's input has a gradient: the first one's never, the last one's as 0 is frozen
    assert rows["0"].causes == {"backward.first-layer": 210, "backward.frozen": 210, unit: 630}
    assert rows["2"].causes == {"backward.frozen": 140, unit: 420}
    assert all(sum(row.causes.values()) == row.predicted - row.ours for row in rows.values())


def test_the_mode_of_the_model_is_the_one_asked_for():
    """Batch norm in train() or not: 5 x 5 x 4 x 3 MACs, and the gradient of the weight."""
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))
    report = step(model, (2, 3, 5, 5), setting=Setting(training=True))
    assert report.training.macs == 2 * 600
    assert all(profile.setting.training for profile in report.profiles)
    assert report.residuals == {"torch-flop-counter": 0, "torch-profiler": 0}


def test_in_workers(tmp_path):
    """Each tool in a process of its own freezes what was said, and runs backward."""
    (tmp_path / "small.py").write_text(
        "from torch import nn\n\n\n"
        "def make():\n    return nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 4))\n"
    )
    target, tools = f"{tmp_path / 'small.py'}:make", ["torch-flop-counter", "torch-profiler"]
    report = crossflops.compare(target, "7x6", train=True, tools=tools, frozen=["0"])
    assert {row.theirs for row in report.reconciliations} == {2 * (350 + 140)}
    assert report.request.flags["frozen"] == ["0"]
    assert report.request.flags["train"] is True
    plain = report.to_dict()
    assert plain["training"]["backward_weight_macs"] == 140
    assert plain["profiles"][0]["setting"]["step"] == {"frozen": ("0",), "trainable": ()}
