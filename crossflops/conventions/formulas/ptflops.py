"""What ptflops computes: ptflops/pytorch_ops.py, pytorch_engine.py and aten_ops.py."""

from collections.abc import Sequence

from crossflops.conventions.addition import Batch, Share, Sum
from crossflops.core.profile import Amount
from crossflops.core.trace import Trace


def batch(trace: Trace) -> int:
    """len(x), x what the model is given by position, 1 if nothing is; summed over its calls.

    pytorch_engine.py: batch_counter_hook. Raises LookupError for a scalar, which has no length.
    """
    found = 0
    for call in trace.calls:
        if call.storey == "module" and call.module == 0 and call.via == "call":
            shapes = [one.shape for one in call.inputs if one.name == "0"]
            if len(shapes) == len(call.inputs) == 1 and shapes[0] is not None:
                found += shapes[0][0]
            else:
                found += 1
    return found


def total(shares: Sequence[Share]) -> Amount:
    """int(modules / batch + functions + methods), in floats and in this order.

    pytorch_engine.py: compute_average_flops_cost, get_flops_pytorch.
    """
    modules = [one for one in shares if one.clause.batch]
    others = [one for one in shares if not one.clause.batch]
    functions = [one.amount for one in others if _is_functional(one)]
    methods = [one.amount for one in others if not _is_functional(one)]
    count: Amount = sum(one.amount for one in modules)
    count = count / modules[0].divisor if modules else 0.0
    count += sum(functions)
    count += sum(methods)
    return int(count)


def _is_functional(share: Share) -> bool:
    return any(one.startswith("torch.nn.functional.") for one in share.clause.match.targets)


BATCHES: dict[str, Batch] = {"ptflops.batch": batch}
SUMS: dict[str, Sum] = {"ptflops.total": total}
