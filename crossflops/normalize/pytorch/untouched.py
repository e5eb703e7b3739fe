"""What a caller finds as it was: the state of random generators, inputs, the log."""

import contextlib
import io
import keyword
import logging
import random
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np


def compiler_tables() -> None:
    """PyTorch's compiler lists the functions that it knows, once, when it is first used.

    Where that first use is an export whose model has torch.cond, the list would hold wrappers.
    """
    import torch._dynamo.trace_rules as rules

    for table in ("get_torch_obj_rule_map", "get_tensor_method"):
        getattr(rules, table, lambda: None)()


def forget_compiled() -> None:
    """PyTorch's compiler begins anew, and with it what fake tensors remember of operators.

    What it took over (torch.cond) while a run was watched would raise in every other run. While
    it compiles it runs the operators of the model on fake tensors, and fewer of them every time.
    """
    import torch._dynamo
    from torch._subclasses.fake_tensor import FakeTensorMode

    torch._dynamo.reset()
    FakeTensorMode.cache_clear()


@contextmanager
def generators() -> Iterator[None]:
    """The states of PyTorch's, NumPy's and Python's generators are restored."""
    import torch

    python, numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


@contextmanager
def standing_in(state: Any) -> Iterator[None]:
    """In this context PyTorch's generator has this state, where there is one, then its own."""
    import torch

    before = torch.default_generator.get_state()
    if state is not None:
        torch.default_generator.set_state(state)
    try:
        yield
    finally:
        if state is not None:
            torch.default_generator.set_state(before)


class Drawn:
    """Whether random numbers were drawn: by PyTorch's generator, and outside of it."""

    by_torch = False
    outside = False


@contextmanager
def seeded() -> Iterator[Drawn]:
    """All generators begin at seed 0 in this context, and are restored behind it."""
    import torch

    drawn = Drawn()
    with generators():
        torch.manual_seed(0)
        np.random.seed(0)
        random.seed(0)
        before = _states()
        yield drawn
        after = _states()
        drawn.by_torch = after[0] != before[0]
        drawn.outside = after[1:] != before[1:]


def _states() -> tuple[Any, ...]:
    """What the next random numbers of PyTorch, NumPy and Python depend on, to be compared."""
    import torch

    numpy = [str(part) for part in np.random.get_state()]
    return torch.get_rng_state().tolist(), numpy, random.getstate()


def fresh(
    args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Inputs for a real run: a model may work in place on the tensors that it is given."""
    import torch
    from torch.utils._pytree import tree_map_only

    copied: tuple[tuple[Any, ...], dict[str, Any]] = tree_map_only(
        torch.Tensor, torch.clone, (tuple(args), dict(kwargs))
    )
    return copied


@contextmanager
def quiet() -> Iterator[None]:
    """Neither warnings nor log lines nor progress of an export belong on a counter's output."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    void = io.StringIO()
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(void),
            contextlib.redirect_stderr(void),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


@contextmanager
def spelled() -> Iterator[None]:
    """PyTorch writes the names of modules into code as Python can read them.

    It takes every word for an attribute, also a keyword such as "class", and puts others between
    quotes as they are: torch/fx/graph.py, `_format_target`.
    """
    import torch.fx.graph as written

    before = written._format_target
    written._format_target = _format_target
    try:
        yield
    finally:
        written._format_target = before


def _format_target(base: str, target: str) -> str:
    for name in target.split("."):
        plain = name.isidentifier() and not keyword.iskeyword(name)
        base = f"{base}.{name}" if plain else f"getattr({base}, {name!r})"
    return base
