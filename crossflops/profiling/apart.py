"""What stands beside the watched step: its calls by kind, its place, and a world left alone."""

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from crossflops.profiling.watch import Watch, device_of, plain, tensors

if TYPE_CHECKING:
    from torch import nn


class RunPlace(NamedTuple):
    """Where a model runs: "cpu" or the name of an accelerator."""

    device: str
    runtime: str
    threads: int


def place(model: "nn.Module") -> RunPlace:
    """The place of a model's weights."""
    import torch

    device = device_of(model)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return RunPlace(name, f"torch {torch.__version__}", torch.get_num_threads())


def device_of_keras() -> str:
    """The name of the first accelerator that its backend uses, else "cpu"."""
    from keras import backend

    if backend.backend() == "tensorflow":
        import tensorflow

        gpus = tensorflow.config.list_physical_devices("GPU")
        details = tensorflow.config.experimental.get_device_details(gpus[0]) if gpus else {}
        return str(details.get("device_name", "gpu")) if gpus else "cpu"
    if backend.backend() == "jax":
        import jax

        first = jax.devices()[0]
        return "cpu" if first.platform == "cpu" else str(first.device_kind)
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"


def calls_of(
    model: "nn.Module", watch: Watch
) -> Iterator[tuple["nn.Module", tuple[Any, ...], dict[str, Any], int]]:
    """The model without its wrappers, the inputs of each kind, and how many calls had such."""
    from torch import Tensor
    from torch.utils._pytree import tree_map_only

    kinds: dict[Any, list[Any]] = {}
    for call in watch.calls:
        kinds.setdefault(_kind(call.args, call.kwargs), []).append(call)
    for calls in kinds.values():
        inputs = (calls[0].args, calls[0].kwargs)
        args, kwargs = tree_map_only(Tensor, Tensor.detach, inputs)
        yield plain(model), args, kwargs, len(calls)


def _kind(args: Any, kwargs: Any) -> Any:
    """What decides about the count: shapes and types, and values that are no tensors."""
    shapes = tuple((tuple(t.shape), str(t.dtype)) for t in tensors((args, kwargs)))
    plainly = tuple(repr(value) for value in (*args, *kwargs.values()) if not tensors(value))
    return shapes, tuple(kwargs), plainly


@contextmanager
def undisturbed() -> Iterator[None]:
    """What runs in the block draws random numbers that nobody misses, without autocast."""
    import torch

    state, host = random.getstate(), torch.get_rng_state()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    try:
        with ExitStack() as stack:
            for kind in ("cpu", "cuda"):
                if torch.is_autocast_enabled(kind):
                    stack.enter_context(torch.autocast(kind, enabled=False))
            stack.enter_context(torch.enable_grad())
            yield
    finally:
        random.setstate(state)
        torch.set_rng_state(host)
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)
