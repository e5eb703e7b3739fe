"""Steps of optimizers: pointwise work on tensors that come in groups after R and T."""

from crossflops.core.cost import Cost
from crossflops.core.graph import Node
from crossflops.ops.access import number, size, text
from crossflops.ops.operands import equal, joint, single
from crossflops.ops.rule import TRAINING, Constraint, Entry, entry


def _parameters(node: Node, kinds: int) -> int:
    """Elements of the optimized tensors: inputs 2.. are `kinds` groups of as many tensors."""
    count, rest = divmod(len(node.inputs) - 2, kinds)
    if rest or count < 0:
        raise ValueError(f"{node.op} has {len(node.inputs)} inputs, not 2 + {kinds}n")
    return sum(size(node, 2 + index) for index in range(count))


def momentum(node: Node) -> Cost:
    """Momentum: G' = norm*X + G; V = alpha*V + beta*G'; X = X - R*V.

    4 muls, 3 adds per element; nesterov X = X - R*(G' + alpha*V): a mul and an add more.
    inputs X..., G..., V... The factor of beta in the first step is not looked at.
    https://onnx.ai/onnx/operators/onnx_aionnxpreviewtraining_Momentum.html
    """
    ahead = 1 if text(node, "mode") == "nesterov" else 0
    return Cost(muls=4 + ahead, adds=3 + ahead) * _parameters(node, 3)


def adagrad(node: Node) -> Cost:
    """Adagrad: G' = norm*X + G; H = H + G'*G'; X = X - r*G' / (sqrt(H) + epsilon).

    3 muls, 4 adds, sqrt, div per element; once r = R / (1 + T*decay). inputs X..., G..., H...
    https://onnx.ai/onnx/operators/onnx_aionnxpreviewtraining_Adagrad.html
    """
    step = Cost(divs=1, adds=1, muls=1)
    return Cost(muls=3, adds=4, specials=1, divs=1) * _parameters(node, 3) + step


def adam(node: Node) -> Cost:
    """Adam: G' = norm*X + G; V = a*V + (1-a)*G'; H = b*H + (1-b)*G'*G'; X -= r*V/(sqrt(H)+eps).

    7 muls, 5 adds, sqrt, div per element; norm_coefficient_post a mul more. What is once per
    step is not counted. inputs X..., G..., V..., H...
    https://onnx.ai/onnx/operators/onnx_aionnxpreviewtraining_Adam.html
    """
    post = 1 if number(node, "norm_coefficient_post", 0.0) != 0 else 0
    return Cost(muls=7 + post, adds=5, specials=1, divs=1) * _parameters(node, 4)


def _groups(kinds: int) -> Constraint:
    """R and T are numbers; a tensor, its gradient and what is kept of it have one shape."""

    def constraint(node: Node) -> str:
        count = (len(node.inputs) - 2) // kinds
        alike = (equal(*range(2 + at, len(node.inputs), count)) for at in range(count))
        return joint(single(0, 1), *alike)(node)

    return constraint


ENTRIES: tuple[Entry, ...] = (
    entry(
        "Momentum",
        momentum,
        "n(X)*(4 muls, 3 adds); nesterov: mul, add",
        domain=TRAINING,
        requires=_groups(3),
    ),
    entry(
        "Adagrad",
        adagrad,
        "n(X)*(3 muls, 4 adds, sqrt, div) + (div, add, mul)",
        domain=TRAINING,
        requires=_groups(3),
    ),
    entry(
        "Adam",
        adam,
        "n(X)*(7 muls, 5 adds, sqrt, div); norm_coefficient_post: n(X) muls",
        domain=TRAINING,
        requires=_groups(4),
    ),
)
