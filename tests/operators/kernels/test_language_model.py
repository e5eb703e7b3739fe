"""A language model of flash attention, Mamba layers and grouped products, on fake tensors."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

import crossflops  # noqa: E402
from tests.operators.kernels.libraries import declare_libraries  # noqa: E402

BATCH, LENGTH, WIDTH, HEADS, STATES, EXPERTS, INNER = 2, 8, 16, 2, 4, 2, 24


class Attention(nn.Module):
    """flash_attn's operator between two linear layers."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, HEADS, -1).unbind(2)
        attend = torch.ops.flash_attn._flash_attn_forward
        done, *_ = attend(q, k, v, 0.0, 0.35, True, -1, -1, 0.0, None, False)
        return self.out(done.reshape(x.shape))


class Convolution(torch.autograd.Function):
    """As causal_conv1d calls its two operators, which write into tensors that they are given."""

    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight, bias)
        done = torch.empty_like(x)
        torch.ops.DaoAILab._causal_conv1d_fwd_cpp(x, weight, bias, None, None, done, None, True)
        return done

    @staticmethod
    def backward(ctx, gradient):
        x, weight, bias = ctx.saved_tensors
        own = [torch.empty_like(operand) for operand in (x, weight, bias)]
        torch.ops.DaoAILab._causal_conv1d_bwd_cpp(
            x, weight, bias, gradient, None, None, None, *own, None, True
        )
        return tuple(own)


class Mamba(nn.Module):
    """A causal convolution, and a selective scan of its result."""

    def __init__(self):
        super().__init__()
        self.into, self.out = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.weight, self.bias = (
            nn.Parameter(torch.rand(WIDTH, 4)),
            nn.Parameter(torch.rand(WIDTH)),
        )
        self.select = nn.Linear(WIDTH, WIDTH + 2 * STATES)
        self.A, self.D = nn.Parameter(torch.rand(WIDTH, STATES)), nn.Parameter(torch.rand(WIDTH))

    def forward(self, x):
        u, z = self.into(x).transpose(1, 2).chunk(2, 1)
        done = Convolution.apply(u, self.weight, self.bias)
        selected = self.select(done.transpose(1, 2)).transpose(1, 2)
        delta, b, c = selected.split([WIDTH, STATES, STATES], 1)
        scan = torch.ops.mamba_ssm.selective_scan_fwd
        scanned = scan(done, delta, self.A, b, c, self.D, z, None, True)
        return self.out(scanned.transpose(1, 2))


class Experts(nn.Module):
    """Half of the tokens for each of two experts, by grouped products."""

    def __init__(self):
        super().__init__()
        self.up = nn.Parameter(torch.rand(EXPERTS, WIDTH, INNER).bfloat16())
        self.down = nn.Parameter(torch.rand(EXPERTS, INNER, WIDTH).bfloat16())

    def forward(self, x):
        groups = x.reshape(EXPERTS, -1, WIDTH).bfloat16()
        done = torch._grouped_mm(F.relu(torch._grouped_mm(groups, self.up)), self.down)
        return done.float().view(x.shape)


class Model(nn.Module):
    """One layer of each kind between an embedding and the logits."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(32, WIDTH)
        self.layers = nn.ModuleList([Attention(), Mamba(), Experts()])
        self.head = nn.Linear(WIDTH, 32, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)


pytestmark = pytest.mark.torch

TOKENS = BATCH * LENGTH
# Attention: 4 W^2 a token, and whole squares of scores twice W deep. Mamba: (2 + 1) W^2 and
# W (W + 2N) a token, the convolution 4 W, the read of the state N W. Experts: 2 W * INNER.
MACS = (
    TOKENS * 4 * WIDTH**2
    + BATCH * LENGTH**2 * 2 * WIDTH
    + TOKENS * (3 * WIDTH**2 + WIDTH * (WIDTH + 2 * STATES) + 4 * WIDTH + STATES * WIDTH)
    + TOKENS * 2 * WIDTH * INNER
    + TOKENS * WIDTH * 32
)


@pytest.fixture(scope="module", autouse=True)
def libraries():
    """The operators of flash_attn, Mamba and causal_conv1d."""
    declare_libraries()


def model_and_tokens():
    """The model with its input."""
    return Model(), torch.zeros(BATCH, LENGTH, dtype=torch.int64)


@pytest.mark.parametrize("where", ["fake", "meta"])
def test_nothing_of_a_language_model_is_uncounted(where):
    """Forwards and in a training step, without values of any weight."""
    if where == "meta":
        with torch.device("meta"):
            model, tokens = model_and_tokens()
        report = crossflops.count(model, tokens, train=True)
    else:
        report = crossflops.count(f"{__file__}:model_and_tokens", weights="fake", train=True)
    assert report.uncounted == ()
    assert report.training.uncounted == ()
    assert report.macs == MACS
    training = report.training
    # The scores are made again; and the convolution, whose activation keeps no input.
    assert training.recomputed_macs == BATCH * LENGTH**2 * WIDTH
    again = TOKENS * 4 * WIDTH
    assert training.backward_input_macs + training.backward_weight_macs == 2 * MACS + again
