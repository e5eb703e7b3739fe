"""Restore, seed and watch the random number generators of PyTorch, NumPy and Python.

It stands beside the frontends: what runs a tool needs it, and no frontend.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def restoring_random_states() -> Iterator[None]:
    """Return a context after which PyTorch, NumPy and Python have their random states again."""
    import numpy as np
    import torch

    python, numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


@contextmanager
def setting_torch_random_state(state: Any) -> Iterator[None]:
    """Return a context in which PyTorch has this random state (if not None)."""
    import torch

    before = torch.default_generator.get_state()
    if state is not None:
        torch.default_generator.set_state(state)
    try:
        yield
    finally:
        if state is not None:
            torch.default_generator.set_state(before)


class RandomDraws:
    """Flags on random numbers that were drawn: by PyTorch's generator, and by another one.

    `left` says whether a trace with values left PyTorch for NumPy.
    """

    by_torch = False
    outside = False
    left = False


@contextmanager
def seeding_random_generators() -> Iterator[RandomDraws]:
    """Return a context in which all generators begin at seed 0; it notes who drew numbers."""
    import numpy as np

    drawn = RandomDraws()
    with restoring_random_states():
        _seed_torch()
        np.random.seed(0)
        random.seed(0)
        before = _random_generator_states()
        yield drawn
        after = _random_generator_states()
        drawn.by_torch = after[0] != before[0]
        drawn.outside = after[1:] != before[1:]


def _seed_torch() -> None:
    """Seed PyTorch's generators with 0: that of the CPU, and those of accelerators if any.

    Without an accelerator `torch.manual_seed` still formats stack traces, for what it would seed
    later: thousands of times the time of the seed.
    """
    import torch

    if torch.accelerator.is_available():
        torch.manual_seed(0)
    else:
        torch.default_generator.manual_seed(0)


def _random_generator_states() -> tuple[Any, ...]:
    """Return the states of PyTorch's, NumPy's and Python's generators, in a form to compare."""
    import numpy as np
    import torch

    parts = np.random.get_state(legacy=True)
    numpy = [part.tobytes() if isinstance(part, np.ndarray) else part for part in parts]
    return torch.get_rng_state().numpy().tobytes(), numpy, random.getstate()
