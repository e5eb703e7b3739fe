"""Count the FLOPs of a model, one for each MAC of its `nn.Linear`."""

from typing import Any


def count_flops(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Run the model with a hook on every `nn.Linear`, by exact type."""
    from torch import nn

    flops = 0

    def hook(layer: Any, inputs: tuple[Any, ...], output: Any) -> None:
        nonlocal flops
        flops += inputs[0].numel() * layer.out_features

    handles = [m.register_forward_hook(hook) for m in model.modules() if type(m) is nn.Linear]
    model(*args, **kwargs)
    for handle in handles:
        handle.remove()
    return flops
