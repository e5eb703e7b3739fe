"""Whether masks are causal: what PyTorch's encoders and decoders ask of the values of a mask.

An encoder or a decoder that is given a mask, and not told what it is, compares it with a causal
one, and hands the answer on: attention may then leave the mask out. Tracing knows no values, so
the answers are those of a real run.
Source: torch/nn/modules/transformer.py (`_detect_is_causal_mask`).
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from crossflops.errors import InputError
from crossflops.normalize.pytorch.model import duplicate, run, switch
from crossflops.normalize.pytorch.untouched import seeded

if TYPE_CHECKING:
    from torch import nn


def is_asked(model: "nn.Module") -> bool:
    """Whether a module of the model asks this of its masks."""
    from torch import nn

    kinds = nn.TransformerEncoder, nn.TransformerDecoder
    return any(isinstance(module, kinds) for module in model.modules())


def answers(
    model: "nn.Module", args: tuple[Any, ...], kwargs: Mapping[str, Any], training: bool
) -> list[bool]:
    """What a real run of a copy answers, call after call; nothing where the model raises.

    With gradients: without them an encoder takes its fast path, which not all layers can follow.
    """
    found: list[bool] = []

    def heard(original: Callable[..., bool]) -> Callable[..., bool]:
        def detect(*args: Any, **kwargs: Any) -> bool:
            found.append(original(*args, **kwargs))
            return found[-1]

        return detect

    with seeded(), _replaced(heard):
        try:
            run(switch(duplicate(model), training), args, kwargs, grad=True)
        except InputError:
            return []  # the export runs into it, too, and says so
    return found


@contextmanager
def answered(known: list[bool]) -> Iterator[None]:
    """In this context the answers are these, one after the other; then it is asked as usual."""
    left = iter(known)

    def told(original: Callable[..., bool]) -> Callable[..., bool]:
        def detect(*args: Any, **kwargs: Any) -> bool:
            answer = next(left, None)
            return original(*args, **kwargs) if answer is None else answer

        return detect

    with _replaced(told):
        yield


@contextmanager
def _replaced(make: Callable[[Callable[..., bool]], Callable[..., bool]]) -> Iterator[None]:
    from torch.nn.modules import transformer

    names = vars(transformer)
    original = names["_detect_is_causal_mask"]
    names["_detect_is_causal_mask"] = make(original)
    try:
        yield
    finally:
        names["_detect_is_causal_mask"] = original
