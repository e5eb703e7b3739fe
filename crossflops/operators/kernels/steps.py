"""A kernel as a list of steps, each with its work in the forward pass and for each requested
gradient.

A formula walks through the steps of its kernel once, on shapes alone. Forwards it sums their work.
Backwards a step works for each operand that depends on a tensor whose gradient is wanted, as the
derivative of that step says (PyTorch, tools/autograd/derivatives.yaml): a product again for each
factor, an elementwise function by its own derivative. An operand that is repeated sums the
gradients of its copies, and a tensor that several steps read sums what they hand back.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from itertools import count
from math import prod
from typing import Any, NamedTuple, TypeAlias

from crossflops.ir.ledger import ZERO, Cost
from crossflops.operators.access import reduction_operation_count
from crossflops.operators.formula import Doubt, OperatorCall, operator
from crossflops.operators.gradient import Gradient
from crossflops.operators.normalization import rms_norm_cost, standardization_cost
from crossflops.operators.pointwise import SOFTPLUS, SWISH_BACK

Shape: TypeAlias = tuple[int, ...]

_NOTHING, _ADD, _MUL, _SPECIAL = ZERO, Cost(adds=1), Cost(muls=1), Cost(specials=1)
_SIGMOID_BACK = Cost(muls=2, adds=1)


class KernelTensor(NamedTuple):
    """A tensor between two steps: its shape, whether it has a gradient, whose part it is.

    `operand` is the name of the operand of the kernel that it is a part of, "" for a value that
    the kernel makes. `key` says which tensor it is, whatever its shape.
    """

    shape: Shape
    has_gradient: bool = False
    operand: str = ""
    key: int = 0

    @property
    def numel(self) -> int:
        """The number of elements."""
        return prod(self.shape)


class KernelSteps:
    """The work of the steps so far: forwards, and of gradients by operand and between them."""

    def __init__(self, trainable: frozenset[Any] = frozenset()) -> None:
        self.forward = ZERO
        self._wanted = trainable
        self._operands: dict[Any, Cost] = {}
        self._inner = ZERO
        self._again = ZERO
        self._runs = 1
        self._keys = count(1)
        self._reads: dict[int, int] = {}

    @property
    def gradient(self) -> Gradient:
        """The cost of all gradients that are requested, as recorded so far."""
        known = {name: self._operands.get(name, ZERO) for name in self._wanted}
        return Gradient(known, inner=self._inner, recomputed=self._again)

    @contextmanager
    def repeating(self, runs: int) -> Iterator[None]:
        """Count each step recorded in the block `runs` times."""
        before = self._runs
        self._runs = before * runs
        try:
            yield
        finally:
            self._runs = before

    def operand(self, call: OperatorCall, name: str, *shape: int) -> KernelTensor:
        """Return an operand of the kernel as a tensor for steps, in another shape if one
        is given.
        """
        shape = shape or call.input(name).shape
        return KernelTensor(shape, name in self._wanted, name, next(self._keys))

    def view(self, value: KernelTensor, *shape: int) -> KernelTensor:
        """Return the tensor with another shape and the same elements, which costs nothing."""
        return value._replace(shape=shape)

    def record_read_by_pieces(self, entire: KernelTensor) -> KernelTensor:
        """Return the tensor, after recording that all its pieces together read it once."""
        self.add_gradient_cost(entire, ZERO)
        return entire

    def piece(self, entire: KernelTensor, *shape: int) -> KernelTensor:
        """Return a new piece of a tensor, with this shape, which costs nothing."""
        return entire._replace(shape=shape, key=next(self._keys))

    def constant_tensor(self, *shape: int) -> KernelTensor:
        """Return a tensor of this shape without a gradient."""
        return KernelTensor(shape)

    def elementwise(self, work: Cost, back: Sequence[Cost], *values: KernelTensor) -> KernelTensor:
        """Record a function of tensors that broadcast, with this work per element, and return its
        result.

        `back` is the work for each element and the gradient of each value.
        """
        shape = broadcast_shape(*(value.shape for value in values))
        elements = prod(shape)
        self.add_forward_cost(work * elements)
        for value, element_work in zip(values, back, strict=True):
            repeated = reduction_operation_count(elements, value.numel)
            self.add_gradient_cost(value, element_work * elements + Cost(adds=repeated))
        return self.tensor_from(*values, shape=shape)

    def tensor_from(self, *values: KernelTensor, shape: Shape) -> KernelTensor:
        """Return a tensor of this shape that is made from others; it has a gradient if one of them
        has.
        """
        has_gradient = any(value.has_gradient for value in values)
        return KernelTensor(shape, has_gradient, "", next(self._keys))

    def add(self, first: KernelTensor, second: KernelTensor) -> KernelTensor:
        """Record a sum, an add per element, and return its result."""
        return self.elementwise(_ADD, (_NOTHING, _NOTHING), first, second)

    def subtract(self, first: KernelTensor, second: KernelTensor) -> KernelTensor:
        """Record a difference, an add per element and one for the gradient of the second, and
        return its result.
        """
        return self.elementwise(_ADD, (_NOTHING, _ADD), first, second)

    def multiply(self, first: KernelTensor, second: KernelTensor) -> KernelTensor:
        """Record a product element by element, a mul each and for each gradient, and return its
        result.
        """
        return self.elementwise(_MUL, (_MUL, _MUL), first, second)

    def exponential(self, value: KernelTensor) -> KernelTensor:
        """Record exp(x), a special per element and a mul for the gradient, and return
        its result.
        """
        return self.elementwise(_SPECIAL, (_MUL,), value)

    def sigmoid(self, value: KernelTensor) -> KernelTensor:
        """Record a sigmoid, a special per element and y (1 - y) dY for the gradient, and return
        its result.
        """
        return self.elementwise(_SPECIAL, (_SIGMOID_BACK,), value)

    def softplus(self, value: KernelTensor) -> KernelTensor:
        """Record log(exp(x) + 1), 2 specials and an add per element, a div and a mul for the
        gradient; return its result.
        """
        return self.elementwise(SOFTPLUS, (Cost(divs=1, muls=1),), value)

    def silu(self, value: KernelTensor) -> KernelTensor:
        """Record x sigmoid(x), a special and a mul per element, dY s (1 + x (1 - s)) for the
        gradient; return its result.
        """
        return self.elementwise(Cost(specials=1, muls=1), (SWISH_BACK,), value)

    def contract(
        self, first: KernelTensor, second: KernelTensor, depth: int, *shape: int
    ) -> KernelTensor:
        """Record a product that sums over `depth` elements, which is `depth` MACs per result, in
        the forward pass and for each gradient; return its result.
        """
        macs = Cost(macs=prod(shape) * depth)
        self.add_forward_cost(macs)
        for value in (first, second):
            self.add_gradient_cost(value, macs)
        return self.tensor_from(first, second, shape=shape)

    def sum_to_shape(self, value: KernelTensor, *shape: int) -> KernelTensor:
        """Record sums with a result of this shape, and return it; their gradients are
        only copied.
        """
        self.add_forward_cost(Cost(adds=reduction_operation_count(value.numel, prod(shape))))
        self.add_gradient_cost(value, ZERO)
        return self.tensor_from(value, shape=shape)

    def gather(self, value: KernelTensor, *shape: int) -> KernelTensor:
        """Record elements taken by indices, and return them; the gradient of each is added at its
        place.
        """
        self.add_gradient_cost(value, Cost(adds=prod(shape)))
        return self.tensor_from(value, shape=shape)

    def normalize(
        self,
        x: KernelTensor,
        scale: KernelTensor | None,
        bias: KernelTensor | None,
        subtracts_mean: bool,
    ) -> KernelTensor:
        """Record a LayerNormalization (`subtracts_mean`) or RMSNormalization along the last axis,
        and return its result.

        Forwards and backwards as LayerNormalization and RMSNormalization of ONNX: x^ is made again
        for the gradients of x and of the scale.
        """
        elements, groups = x.numel, x.numel // x.shape[-1]
        means = 2 if subtracts_mean else 1
        if subtracts_mean:
            self.add_forward_cost(standardization_cost(elements, groups))
            self.add_forward_cost(Cost(muls=elements if scale else 0))
        else:
            self.add_forward_cost(rms_norm_cost(elements, groups, scale is not None))
        self.add_forward_cost(Cost(adds=elements if bias else 0))
        combined = means * (elements + reduction_operation_count(elements, groups))
        back = Cost(muls=(4 if scale else 3) * elements, adds=combined, divs=means * groups)
        self.add_gradient_cost(x, back)
        if scale is not None:
            sums = reduction_operation_count(elements, scale.numel)
            self.add_gradient_cost(scale, Cost(muls=elements, adds=sums))
        if bias is not None:
            self.add_gradient_cost(
                bias, Cost(adds=reduction_operation_count(elements, bias.numel))
            )
        if x.has_gradient or (scale is not None and scale.has_gradient):
            self._again += Cost(muls=elements, adds=elements if subtracts_mean else 0) * self._runs
        return self.tensor_from(*(part for part in (x, scale, bias) if part), shape=x.shape)

    def running_sum(self, value: KernelTensor) -> KernelTensor:
        """Record running sums along an axis, an add per element forwards and backwards, and return
        them.
        """
        return self.elementwise(_ADD, (_ADD,), value)

    def add_forward_cost(self, cost: Cost) -> None:
        """Add a cost to the forward pass, times the runs of the enclosing block."""
        self.forward += cost * self._runs

    def add_gradient_cost(self, value: KernelTensor, cost: Cost) -> None:
        """Add a cost for the gradient of a tensor, if it has one, for a step that reads the
        tensor.

        What the second step and further ones hand back is added to that of the first.
        """
        if not value.has_gradient:
            return
        reads = self._reads.get(value.key, 0)
        self._reads[value.key] = reads + 1
        cost = cost + Cost(adds=value.numel) if reads else cost
        if value.operand:
            known = self._operands.get(value.operand, ZERO)
            self._operands[value.operand] = known + cost * self._runs
        else:
            self._inner += cost * self._runs


def broadcast_shape(*shapes: Shape) -> Shape:
    """Return the shape to which these shapes broadcast. Raises ValueError if they do not."""
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    joined = []
    for sizes in zip(*padded, strict=True):
        size = next((item for item in sizes if item != 1), 1)
        if any(item not in (1, size) for item in sizes):
            raise ValueError(f"the shapes {', '.join(map(str, shapes))} do not broadcast")
        joined.append(size)
    return tuple(joined)


def call_argument(call: OperatorCall, name: str) -> Any:
    """Return an argument of a call that is not a tensor. Raises UncountedCallError if it is
    unknown.

    Of an autograd.Function the graph has the tensors alone.
    """
    if name not in call.attributes:
        raise call.uncounted(f"its argument {name!r} is unknown")
    return call.attributes[name]


Walk: TypeAlias = Callable[[OperatorCall, KernelSteps], None]


def register_kernel(
    *names: str,
    source: str,
    doubt: Doubt = "exact",
    modules: Sequence[str] = (),
    writes: bool = False,
) -> Callable[[Walk], Walk]:
    """Return a decorator that registers a function, which records the steps of a kernel, as the
    formula of these operators.

    Args:
        names: of operators, "namespace::name".
        source: where the kernel, and what it computes, is written down.
        doubt: as for `crossflops.operator`.
        modules: autograd.Functions or modules that run the same kernel, "package.module:Class".
            Each bears the name "namespace::Class", whose namespace is the package.
        writes: whether the operators write into their arguments. PyTorch derives no such one: its
            gradient is what the function around it computes.
    """

    def register_step_recorder(walk: Walk) -> Walk:
        """Register the function as forward and backward formula of the operators, and
        return it.
        """

        @wraps(walk)
        def count_forward_steps(call: OperatorCall) -> Cost:
            """Return the cost of the steps that the function records for a call."""
            steps = KernelSteps()
            walk(call, steps)
            return steps.forward

        def gradient_of_recorded_steps(call: OperatorCall, trainable: frozenset[Any]) -> Gradient:
            """Return the cost of those gradients of the recorded steps that are trainable."""
            steps = KernelSteps(trainable)
            walk(call, steps)
            return steps.gradient

        for name in names:
            operator(
                name,
                backward=None if writes else gradient_of_recorded_steps,
                doubt=doubt,
                source=source,
            )(count_forward_steps)
        for module in modules:
            name = f"{module.partition('.')[0]}::{module.rpartition(':')[2]}"
            operator(
                name,
                module=module,
                backward=gradient_of_recorded_steps,
                doubt=doubt,
                source=source,
            )(count_forward_steps)
        return walk

    return register_step_recorder
