"""A kernel as a list of steps: what each does forwards, and for each gradient that is wanted.

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
from crossflops.operators.access import reduction_operations
from crossflops.operators.formula import Doubt, OperatorCall, operator
from crossflops.operators.gradient import Gradient
from crossflops.operators.normalization import rms, standardization
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
        """The number of its elements."""
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
        """The work of the gradients that are wanted."""
        known = {name: self._operands.get(name, ZERO) for name in self._wanted}
        return Gradient(known, inner=self._inner, recomputed=self._again)

    @contextmanager
    def repeating(self, runs: int) -> Iterator[None]:
        """The steps in this context run so many times."""
        before = self._runs
        self._runs = before * runs
        try:
            yield
        finally:
            self._runs = before

    def operand(self, call: OperatorCall, name: str, *shape: int) -> KernelTensor:
        """Return an operand of the kernel, in another shape where one is given."""
        shape = shape or call.input(name).shape
        return KernelTensor(shape, name in self._wanted, name, next(self._keys))

    def view(self, value: KernelTensor, *shape: int) -> KernelTensor:
        """Return the same elements in another shape: no work."""
        return value._replace(shape=shape)

    def pieces(self, entire: KernelTensor) -> KernelTensor:
        """Return what pieces of a value are cut from: whoever reads them reads the whole once."""
        self.gradient_work(entire, ZERO)
        return entire

    def piece(self, entire: KernelTensor, *shape: int) -> KernelTensor:
        """Return one piece of a value, another one at each call: no work."""
        return entire._replace(shape=shape, key=next(self._keys))

    def constant(self, *shape: int) -> KernelTensor:
        """Return a value without a gradient."""
        return KernelTensor(shape)

    def elementwise(self, work: Cost, back: Sequence[Cost], *values: KernelTensor) -> KernelTensor:
        """Return a function of values that broadcast: so much work for each element of it.

        `back` is the work for each element and the gradient of each value.
        """
        shape = broadcast_shape(*(value.shape for value in values))
        elements = prod(shape)
        self.work(work * elements)
        for value, element_work in zip(values, back, strict=True):
            repeated = reduction_operations(elements, value.numel)
            self.gradient_work(value, element_work * elements + Cost(adds=repeated))
        return self.result(*values, shape=shape)

    def result(self, *values: KernelTensor, shape: Shape) -> KernelTensor:
        """Return what is made of values: it has a gradient where one of them has."""
        has_gradient = any(value.has_gradient for value in values)
        return KernelTensor(shape, has_gradient, "", next(self._keys))

    def add(self, first: KernelTensor, second: KernelTensor) -> KernelTensor:
        """Return a sum: an add for each element."""
        return self.elementwise(_ADD, (_NOTHING, _NOTHING), first, second)

    def subtract(self, first: KernelTensor, second: KernelTensor) -> KernelTensor:
        """Return a difference: an add for each element, and one for the gradient of the second."""
        return self.elementwise(_ADD, (_NOTHING, _ADD), first, second)

    def multiply(self, first: KernelTensor, second: KernelTensor) -> KernelTensor:
        """Return a product of elements: a mul for each, and for each gradient."""
        return self.elementwise(_MUL, (_MUL, _MUL), first, second)

    def exponential(self, value: KernelTensor) -> KernelTensor:
        """Return exp: a special, and a mul for the gradient."""
        return self.elementwise(_SPECIAL, (_MUL,), value)

    def sigmoid(self, value: KernelTensor) -> KernelTensor:
        """Return the sigmoid: a special; y (1 - y) dY is 2 muls and an add."""
        return self.elementwise(_SPECIAL, (_SIGMOID_BACK,), value)

    def softplus(self, value: KernelTensor) -> KernelTensor:
        """Return log(exp(x) + 1): 2 specials and an add; dY e / (1 + e) is a div and a mul."""
        return self.elementwise(SOFTPLUS, (Cost(divs=1, muls=1),), value)

    def silu(self, value: KernelTensor) -> KernelTensor:
        """Return x sigmoid(x): a special and a mul; dY s (1 + x (1 - s)) for the gradient."""
        return self.elementwise(Cost(specials=1, muls=1), (SWISH_BACK,), value)

    def contract(
        self, first: KernelTensor, second: KernelTensor, depth: int, *shape: int
    ) -> KernelTensor:
        """Return a product that sums over `depth`: n(Y) * depth MACs, and for each gradient."""
        macs = Cost(macs=prod(shape) * depth)
        self.work(macs)
        for value in (first, second):
            self.gradient_work(value, macs)
        return self.result(first, second, shape=shape)

    def reduce(self, value: KernelTensor, *shape: int) -> KernelTensor:
        """Return sums of that shape: n - n(Y) adds; their gradients are copied back."""
        self.work(Cost(adds=reduction_operations(value.numel, prod(shape))))
        self.gradient_work(value, ZERO)
        return self.result(value, shape=shape)

    def gather(self, value: KernelTensor, *shape: int) -> KernelTensor:
        """Return elements by their indices; a gradient is added where its element was."""
        self.gradient_work(value, Cost(adds=prod(shape)))
        return self.result(value, shape=shape)

    def normalize(
        self,
        x: KernelTensor,
        scale: KernelTensor | None,
        bias: KernelTensor | None,
        subtracts_mean: bool,
    ) -> KernelTensor:
        """Return the last axis with variance 1, and mean 0 where it is `subtracts_mean`, scaled.

        Forwards and backwards as LayerNormalization and RMSNormalization of ONNX: x^ is made again
        for the gradients of x and of the scale.
        """
        elements, groups = x.numel, x.numel // x.shape[-1]
        means = 2 if subtracts_mean else 1
        if subtracts_mean:
            self.work(standardization(elements, groups))
            self.work(Cost(muls=elements if scale else 0))
        else:
            self.work(rms(elements, groups, scale is not None))
        self.work(Cost(adds=elements if bias else 0))
        combined = means * (elements + reduction_operations(elements, groups))
        back = Cost(muls=(4 if scale else 3) * elements, adds=combined, divs=means * groups)
        self.gradient_work(x, back)
        if scale is not None:
            sums = reduction_operations(elements, scale.numel)
            self.gradient_work(scale, Cost(muls=elements, adds=sums))
        if bias is not None:
            self.gradient_work(bias, Cost(adds=reduction_operations(elements, bias.numel)))
        if x.has_gradient or (scale is not None and scale.has_gradient):
            self._again += Cost(muls=elements, adds=elements if subtracts_mean else 0) * self._runs
        return self.result(*(part for part in (x, scale, bias) if part), shape=x.shape)

    def accumulate(self, value: KernelTensor) -> KernelTensor:
        """Return running sums along an axis: n adds, and so many backwards from the other end."""
        return self.elementwise(_ADD, (_ADD,), value)

    def work(self, cost: Cost) -> None:
        """Add work of the forward pass."""
        self.forward += cost * self._runs

    def gradient_work(self, value: KernelTensor, cost: Cost) -> None:
        """Add the work of the gradient of a value, where it has one, for a step that reads it.

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
    """Return the shape that these broadcast to. Raises ValueError where they do not."""
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    joined = []
    for sizes in zip(*padded, strict=True):
        size = next((item for item in sizes if item != 1), 1)
        if any(item not in (1, size) for item in sizes):
            raise ValueError(f"the shapes {', '.join(map(str, shapes))} do not broadcast")
        joined.append(size)
    return tuple(joined)


def setting(call: OperatorCall, name: str) -> Any:
    """Return a plain argument of a call, which is uncounted where it is not known.

    Of an autograd.Function the graph has the tensors alone.
    """
    if name not in call.attributes:
        raise call.uncounted(f"its argument {name!r} is not known")
    return call.attributes[name]


Walk: TypeAlias = Callable[[OperatorCall, KernelSteps], None]


def kernel(
    *names: str,
    source: str,
    doubt: Doubt = "exact",
    modules: Sequence[str] = (),
    writes: bool = False,
) -> Callable[[Walk], Walk]:
    """Register a walk through the steps of a kernel as the formula of these operators.

    Args:
        names: of operators, "namespace::name".
        source: where the kernel, and what it computes, is written down.
        doubt: as for `crossflops.operator`.
        modules: autograd.Functions or modules that run the same kernel, "package.module:Class".
            Each bears the name "namespace::Class", whose namespace is the package.
        writes: whether the operators write into their arguments. PyTorch derives no such one: its
            gradient is what the function around it computes.
    """

    def register(walk: Walk) -> Walk:
        """Register a walk of kernel steps as forward and backward formula, and return it."""

        @wraps(walk)
        def forward(call: OperatorCall) -> Cost:
            """Return the forward cost that the walk gives for a call."""
            steps = KernelSteps()
            walk(call, steps)
            return steps.forward

        def back(call: OperatorCall, trainable: frozenset[Any]) -> Gradient:
            """Return the backward cost that the walk gives for a call."""
            steps = KernelSteps(trainable)
            walk(call, steps)
            return steps.gradient

        for name in names:
            operator(name, backward=None if writes else back, doubt=doubt, source=source)(forward)
        for module in modules:
            name = f"{module.partition('.')[0]}::{module.rpartition(':')[2]}"
            operator(name, module=module, backward=back, doubt=doubt, source=source)(forward)
        return walk

    return register
