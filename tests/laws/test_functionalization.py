"""Writes into views are decomposed without a trace as PyTorch decomposes them in one."""

import random
from unittest import mock

import pytest

import crossflops
from crossflops.frontends.pytorch.convert import decomposition
from tests.models import nn, torch

pytestmark = pytest.mark.torch
EXTENT = 6


class RandomWrites(nn.Module):
    """A model that cuts a new tensor by random slices and selects, writes and reads."""

    def __init__(self, seed):
        super().__init__()
        self.seed = seed

    def view(self, rng, base):
        """Return a view of the tensor through at most three cuts."""
        for _ in range(rng.randint(0, 3)):
            axis = rng.randrange(base.dim()) if base.dim() else None
            if axis is None:
                break
            if rng.random() < 0.3:
                base = base.select(
                    axis, rng.randrange(base.shape[axis]) if base.shape[axis] else 0
                )
                continue
            start = rng.choice([None, 0, 1, -3])
            end = rng.choice([None, 4, -1])
            cut = [slice(None)] * base.dim()
            cut[axis] = slice(start, end, rng.choice([None, None, 2]))
            base = base[tuple(cut)]
            if 0 in base.shape:
                break
        return base

    def write(self, rng, view):
        """Write into the view by one of six operators."""
        kind = rng.randrange(6)
        if kind == 0:
            view.fill_(rng.randint(1, 9))
        elif kind == 1:
            view[...] = rng.randint(1, 9)
        elif kind == 2:
            view.add_(1.5)
        elif kind == 3:
            view.mul_(2)
        elif kind == 4:
            view.copy_(torch.ones_like(view))
        else:
            view.zero_()

    def forward(self, x):
        rng = random.Random(self.seed)
        base = x.new_zeros(EXTENT, EXTENT, EXTENT) if rng.random() < 0.7 else x * 2
        kept = [base]
        total = 0
        for _ in range(rng.randint(2, 8)):
            view = self.view(rng, rng.choice(kept))
            if 0 in view.shape:
                continue
            if rng.random() < 0.3:
                kept.append(view)
            self.write(rng, view)
            if rng.random() < 0.4:
                total = total + self.view(rng, rng.choice(kept)).sum()
        last = base.view(EXTENT, 1, -1).permute(2, 0, 1).reshape(-1, 2)
        return last @ x.new_ones(2, 3) + total


def test_pieces_of_random_writes_are_those_of_pytorch():
    """Steps, results and layouts are equal; half of 16 models are decomposed without a trace."""
    alike, rest = 0, 0
    functionalize = decomposition.Decomposer._cache_decompositions_of_long_sequences

    def compared(self, runs):
        nonlocal alike, rest
        left = functionalize(self, runs)
        rest += len(left)
        for signature, run in runs.items():
            if signature not in left:
                with self._kernels.decomposing_with_cached_kernels():
                    (piece,) = decomposition._decompose_sequences_by_table([run], self._table)
                assert self._pieces[signature] == piece
                alike += 1
        return left

    with mock.patch.object(
        decomposition.Decomposer, "_cache_decompositions_of_long_sequences", compared
    ):
        for seed in range(16):
            crossflops.count(RandomWrites(seed), torch.zeros(EXTENT, EXTENT, EXTENT))
    assert alike >= 8
