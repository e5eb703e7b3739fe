"""A way to make torch.export accept custom autograd functions under transforms of `torch.func`.

PyTorch runs such a function as an operator of its own, which goes through the transforms, `vmap`
and `grad`, before its forward pass runs. An export traces operators before the transforms have
seen them, and knows no such operator. Here the transforms see it first, as in a run. A `vmap` that
PyTorch makes for a function (`generate_vmap_rule`) takes its results out by a function of C++,
which a trace does not see: here by the one that it sees.
Source: torch/_functorch/autograd_function.py (CustomFunctionHigherOrderOperator), vmap.py.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from crossflops.frontends.pytorch.record.custom_functions import are_transforms_active
from crossflops.patches import inventory
from crossflops.patches.patching import original_attribute, patching_attribute


@contextmanager
def applying_transforms_first() -> Iterator[None]:
    """Apply transforms such as vmap to custom autograd functions before these are traced, inside
    the block.
    """
    from torch._functorch import autograd_function, vmap
    from torch._functorch.pyfunctorch import dispatch_functorch
    from torch.utils._pytree import tree_flatten, tree_unflatten

    operator: Any = autograd_function.CustomFunctionHigherOrderOperator
    call = original_attribute(operator, "__call__", inventory.TRANSFORMED_FUNCTIONS)

    def call_through_transforms(self: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Call the operator of a custom function and return its result, through the transforms if
        any are active.
        """
        if are_transforms_active():
            return dispatch_functorch(self, (function, *args), kwargs)
        return call(self, function, *args, **kwargs)

    transforms: Any = vmap
    remove = transforms._remove_batch_dim
    unwrap = original_attribute(vmap, "unwrap_batched", inventory.TRANSFORMED_RESULTS)

    def without_vmap_batch_axis(results: Any, level: int) -> tuple[Any, Any]:
        """Return the results without the batch axis of a `vmap` level, and the position that this
        axis had in each.
        """
        values, axes = unwrap(results, level)
        flat, tree = tree_flatten(results)
        indices = zip(flat, tree.flatten_up_to(values), tree.flatten_up_to(axes), strict=True)
        taken = [
            value if axis is None else remove(result, level, value.shape[axis], axis)
            for result, value, axis in indices
        ]
        return tree_unflatten(taken, tree), axes

    with (
        patching_attribute(
            operator, "__call__", call_through_transforms, inventory.TRANSFORMED_FUNCTIONS
        ),
        patching_attribute(
            vmap, "unwrap_batched", without_vmap_batch_axis, inventory.TRANSFORMED_RESULTS
        ),
    ):
        yield
