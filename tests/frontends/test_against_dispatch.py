"""The native MACs are those of the kernels that PyTorch runs, taken apart as far as they go."""

import pytest

from tests.models import Apply, F, exported, nn, torch

pytestmark = pytest.mark.torch
parametrizations = nn.utils.parametrizations
IMAGE, WORDS = torch.randn(1, 3, 16, 16), torch.randn(2, 5, 16)


def dispatched(model, inputs):
    """MACs of every product and convolution that is dispatched: no kernel holds two of them."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import flop_registry

    aten, counts = torch.ops.aten, []

    class Kernels(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            packet = func._overloadpacket
            if packet in flop_registry:
                counts.append(flop_registry[packet](*args, **(kwargs or {}), out_val=result) // 2)
            elif packet in (
                aten.mv,
                aten.dot,
                aten.vdot,
            ):  # the counter of PyTorch has none for these
                counts.append(args[0].numel())
            return result

    with torch.backends.mkldnn.flags(enabled=False), sdpa_kernel(SDPBackend.MATH), Kernels():
        model(*inputs)
    return sum(counts)


class Translator(nn.Module):
    """A bidirectional encoder, and a decoder with attention in a loop over time."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(20, 8)
        self.encoder = nn.GRU(8, 6, batch_first=True, bidirectional=True)
        self.decoder, self.gru, self.rnn = (
            nn.LSTMCell(20, 10),
            nn.GRUCell(10, 10),
            nn.RNNCell(10, 10),
        )
        self.query, self.out = nn.Linear(10, 12), nn.Linear(10, 20)

    def forward(self, source, target):
        memory, _ = self.encoder(self.words(source))
        hidden = cell = state = torch.zeros(source.shape[0], 10)
        outputs = []
        for step in range(target.shape[1]):
            weights = (memory @ self.query(hidden)[..., None]).squeeze(-1).softmax(-1)
            context = torch.bmm(weights[:, None], memory)[:, 0]
            word = self.words(target[:, step])
            hidden, cell = self.decoder(torch.cat([word, context], -1), (hidden, cell))
            state = self.rnn(self.gru(hidden, state))
            outputs.append(self.out(state))
        return torch.stack(outputs, 1)


class Experts(nn.Module):
    """Two experts of four for each row, their weights gathered."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(16, 4)
        self.up = nn.Parameter(torch.randn(4, 16, 8))
        self.down = nn.Parameter(torch.randn(4, 8, 16))

    def forward(self, x):
        weights, chosen = self.gate(x).softmax(-1).topk(2)
        inner = torch.einsum("bd,bkdh->bkh", x, self.up[chosen]).relu()
        outputs = torch.einsum("bkh,bkhd->bkd", inner, self.down[chosen])
        return (outputs * weights[..., None]).sum(1)


class Pyramid(nn.Module):
    """A detector's head over two sizes, its best places gathered, the result a dict of lists."""

    def __init__(self):
        super().__init__()
        self.stem, self.side = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 8, 1)
        self.score, self.box = nn.Conv2d(8, 2, 3, padding=1), nn.Conv2d(8, 4, 3, padding=1)

    def forward(self, x):
        fine = self.stem(x)
        coarse = self.side(F.max_pool2d(fine, 2))
        sizes = [self.side(fine) + F.interpolate(coarse, scale_factor=2), coarse]
        scores = torch.cat([self.score(size).flatten(1) for size in sizes], 1)
        boxes = torch.cat([self.box(size).flatten(2) for size in sizes], 2).transpose(1, 2)
        best, places = scores.topk(5)
        chosen = (places % boxes.shape[1])[..., None].expand(-1, -1, 4)
        return {"scores": best, "boxes": [boxes.gather(1, chosen)], "sizes": len(sizes)}


class Scan(nn.Module):
    """A selective state space: a grouped convolution, and a recurrence written out."""

    def __init__(self):
        super().__init__()
        self.enter, self.mix, self.leave = nn.Linear(16, 8), nn.Linear(8, 14), nn.Linear(8, 16)
        self.near = nn.Conv1d(8, 8, 4, groups=8, padding=3)

    def forward(self, x):
        inner = self.near(self.enter(x).mT)[..., : x.shape[1]].mT
        into, out, step = self.mix(F.silu(inner)).split([3, 3, 8], -1)
        state, outputs = torch.zeros(x.shape[0], 8, 3), []
        for time in range(x.shape[1]):
            fresh = (F.softplus(step[:, time]) * inner[:, time])[..., None] * into[:, time, None]
            state = state * 0.9 + fresh
            outputs.append((state @ out[:, time, :, None]).squeeze(-1))
        return self.leave(torch.stack(outputs, 1))


class Cached(nn.Module):
    """One step of a decoder: grouped queries over a cache, with a bias by distance."""

    def __init__(self):
        super().__init__()
        self.query, self.both = nn.Linear(16, 16), nn.Linear(16, 16)
        self.near = nn.Embedding(19, 4)

    def forward(self, x, keys, values):
        rows, length, _ = x.shape
        query = self.query(x).view(rows, length, 4, 4).transpose(1, 2)
        key, value = self.both(x).view(rows, length, 2, 2, 4).permute(2, 0, 3, 1, 4)
        keys, values = torch.cat([keys, key], 2), torch.cat([values, value], 2)
        apart = torch.arange(keys.shape[2])[None] - torch.arange(length)[:, None]
        bias = self.near(apart.clamp(-9, 9) + 9).permute(2, 0, 1)
        return F.scaled_dot_product_attention(query, keys, values, attn_mask=bias, enable_gqa=True)


def made_kernel(self, x):
    """A convolution whose kernel a layer makes from the image."""
    return F.conv2d(x, self.make(x.mean((0, 2, 3))).view(4, 3, 3, 3), padding=1)


MODELS = {
    "translator": (Translator(), (torch.randint(0, 20, (2, 4)), torch.randint(0, 20, (2, 3)))),
    "experts": (Experts(), (torch.randn(5, 16),)),
    "pyramid": (Pyramid(), (IMAGE,)),
    "scan": (Scan(), (WORDS,)),
    "cached": (Cached(), (WORDS[:, :1], *[torch.randn(2, 2, 7, 4)] * 2)),
    "made kernel": (Apply(made_kernel, make=nn.Linear(3, 108)), (IMAGE,)),
    "transformer": (nn.Transformer(16, 2, 1, 1, 32, batch_first=True), (WORDS, WORDS[:, :3])),
    "other widths": (
        Apply(
            lambda s, q, k, v: s.m(q, k, v)[0],
            m=nn.MultiheadAttention(16, 4, kdim=6, vdim=3, batch_first=True, add_bias_kv=True),
        ),
        (WORDS, torch.randn(2, 7, 6), torch.randn(2, 7, 3)),
    ),
    "normalized weights": (
        nn.Sequential(
            parametrizations.weight_norm(nn.ConvTranspose2d(3, 4, 3, 2, output_padding=1)),
            parametrizations.spectral_norm(nn.Conv2d(4, 6, 3, groups=2, dilation=2)),
            nn.PixelShuffle(1),
        ),
        (IMAGE,),
    ),
    "volumes": (
        nn.Sequential(nn.Conv3d(4, 6, (3, 1, 2), groups=2), nn.ConvTranspose3d(6, 2, 3, 2, 1, 1)),
        (torch.randn(2, 4, 6, 5, 4),),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_native_macs_are_those_of_the_kernels(name):
    """Counted while it runs, kernel by kernel, the model does the work of its graph."""
    model, inputs = MODELS[name]
    model.eval()
    _, _, ledger = exported(model, *inputs)
    assert ledger.uncounted == ()
    assert ledger.total.macs == dispatched(model, inputs) > 0
