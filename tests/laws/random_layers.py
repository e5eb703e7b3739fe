"""Random models of layers, of operators that write in place, and of views, for laws of exports."""

import random

import torch
from torch import nn
from torch.nn import functional

SIDE = 8


class RandomLayers(nn.Module):
    """Steps on images, of which many write into what they are given, then a head.

    A step is a function of the tensor so far and of those before it, or a module.
    """

    def __init__(self, seed, steps=9):
        super().__init__()
        choose = random.Random(seed)
        self.parts = nn.ModuleDict()
        self.steps = []
        channels = 4 * choose.randint(1, 3)
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        for number in range(steps):
            make = choose.choice(_STEPS)
            part = make(choose, channels)
            if isinstance(part, nn.Module):
                self.parts[str(number)] = part
                channels = getattr(part, "out_channels", channels)
                part = None
            self.steps.append(part)
        self.head = choose.choice(_HEADS)
        self.out = nn.Linear(channels, 5)

    def forward(self, x):
        """Run the steps; each is given what the one before the last gave, too."""
        past = x = self.stem(x)
        for number, step in enumerate(self.steps):
            y = step(x, past) if callable(step) else self.parts[str(number)](x)
            past, x = x, y
        return self.out(self.head(x))


def _convolution(choose, channels):
    groups = choose.choice([1, 2, channels])
    bias = choose.random() < 0.5
    return nn.Conv2d(channels, channels, choose.choice([1, 3]), padding="same", groups=groups,
                     bias=bias)  # fmt: skip


def _activation(choose, channels):
    kinds = (nn.ReLU, nn.Hardswish, nn.SiLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.Hardsigmoid)
    return choose.choice(kinds)(inplace=choose.random() < 0.6)


def _normalization(choose, channels):
    kinds = (nn.BatchNorm2d(channels), nn.GroupNorm(2, channels), nn.InstanceNorm2d(channels))
    return choose.choice(kinds)


def _pool(choose, channels):
    kinds = (nn.MaxPool2d(3, 1, 1), nn.AvgPool2d(3, 1, 1), nn.Dropout(0.1), nn.Identity())
    return choose.choice((*kinds, nn.Dropout(0.1, inplace=True), nn.ChannelShuffle(2)))


class _Squeeze(nn.Module):
    """A scale for each channel by the means of all, written into the input or not."""

    def __init__(self, channels, inplace):
        super().__init__()
        self.down, self.up = nn.Linear(channels, 4), nn.Linear(4, channels)
        self.inplace = inplace

    def forward(self, x):
        scale = functional.adaptive_avg_pool2d(x, 1).flatten(1)
        scale = torch.sigmoid(self.up(functional.relu_(self.down(scale))))[:, :, None, None]
        return x.mul_(scale) if self.inplace else x * scale


class _LastAxis(nn.Module):
    """A layer norm over channels, behind a change of axes."""

    def __init__(self, channels):
        super().__init__()
        self.norm = nn.LayerNorm(channels)

    def forward(self, x):
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class _Attention(nn.Module):
    """Attention over places."""

    def __init__(self, channels):
        super().__init__()
        self.all = nn.Linear(channels, 3 * channels)

    def forward(self, x):
        rows = x.flatten(2).transpose(1, 2)
        query, key, value = self.all(rows).unflatten(-1, (3, -1)).unbind(-2)
        rows = functional.scaled_dot_product_attention(
            query[:, None], key[:, None], value[:, None]
        )
        return rows.squeeze(1).transpose(1, 2).reshape(x.shape)


def _squeeze(choose, channels):
    return _Squeeze(channels, choose.random() < 0.4)


def _last_axis(choose, channels):
    return _LastAxis(channels)


def _attention(choose, channels):
    return _Attention(channels)


def _function(choose, channels):
    return choose.choice(_FUNCTIONS)


def _write_slice(x, past):
    y = x.clone()
    y[:, :1] = 0.5
    y[:, :, 1:3].mul_(2)
    return y


def _write_mask(x, past):
    mask = x.new_zeros(x.shape[-2:])
    mask[:2, :2] = 1
    mask[-3:].fill_(2)
    return x.masked_fill(mask.unsqueeze(0) != 0, 0.25)


def _add_in_place(x, past):
    x = x * 2
    x += past
    return x


def _view_then_write(x, past):
    y = x + 1
    rows = y.flatten(2)
    rows.clamp_(min=0)
    return y


def _write_then_view(x, past):
    y = x - 1
    y.relu_()
    return y.transpose(2, 3).contiguous()


def _chunk(x, past):
    first, second = (x + past).chunk(2, dim=1)
    return torch.cat([second.tanh(), functional.relu(first)], dim=1)


def _shift(x, past):
    return torch.roll(x, shifts=(1, -1), dims=(2, 3)) + 1


def _reused(x, past):
    y = x.sigmoid()
    z = y.mul_(2)
    return y + z


def _integers(x, past):
    places = torch.arange(x.shape[-1]) // 2
    return x[..., places] * (places > 1) + places


def _resized(x, past):
    smaller = functional.interpolate(x, scale_factor=0.5, mode="bilinear")
    return functional.interpolate(smaller, size=x.shape[-2:], mode="nearest")


def _padded(x, past):
    return functional.pad(x, (1, 1, 1, 1))[..., 1:-1, 1:-1] / 3


def _kept_in_half(x, past):
    return x.to(torch.float64).softmax(1).to(x.dtype).expand_as(x)


_FUNCTIONS = (
    _write_slice, _write_mask, _add_in_place, _view_then_write, _write_then_view, _chunk, _shift,
    _reused, _integers, _resized, _padded, _kept_in_half,
)  # fmt: skip
_STEPS = (
    _convolution, _convolution, _activation, _activation, _normalization, _pool, _squeeze,
    _last_axis, _attention, _function, _function, _function,
)  # fmt: skip
_HEADS = (
    lambda x: functional.adaptive_avg_pool2d(x, 1).flatten(1),
    lambda x: x.mean((2, 3)),
    lambda x: x.amax((-2, -1)).view(x.shape[0], -1),
)
