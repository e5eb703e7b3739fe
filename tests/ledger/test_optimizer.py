"""The step of an optimizer: by naive loops on counted scalars, and by hand."""

from collections import Counter
from math import prod, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossflops import count
from crossflops.errors import InputError, UnknownNameError
from crossflops.ir.trace import Parameter
from crossflops.ledger.optimizer import OPTIMIZERS, gradient_clipping_cost, parse_optimizer
from tests.onnx_files import saved, with_weights

WORK = Counter()


class Scalar:
    """A number whose operations are counted. With a plain number too: it is one operand."""

    def __init__(self, value):
        self.value = value

    def _with(self, other, kind, function):
        WORK[kind] += 1
        return Scalar(function(self.value, getattr(other, "value", other)))

    def __add__(self, other):
        return self._with(other, "adds", lambda a, b: a + b)

    def __sub__(self, other):
        return self._with(other, "adds", lambda a, b: a - b)

    def __mul__(self, other):
        return self._with(other, "muls", lambda a, b: a * b)

    __rmul__ = __mul__

    def __truediv__(self, other):
        return self._with(other, "divs", lambda a, b: a / b)

    def __rtruediv__(self, other):
        return self._with(other, "divs", lambda a, b: b / a)

    def sqrt(self):
        return self._with(0, "specials", lambda a, _: sqrt(abs(a)))

    def larger(self, other):
        return self._with(other, "compares", max)

    def smaller(self, other):
        return self._with(other, "compares", min)


def total(numbers):
    """The sum of numbers, an add less than there are."""
    first, *others = numbers
    for other in others:
        first = first + other
    return first


def norm(numbers):
    """The root of the sum of squares."""
    return total([x * x for x in numbers]).sqrt()


def lerp(start, end, weight):
    """As torch.lerp: two adds and a mul."""
    return start + weight * (end - start)


def naive_sgd(shape, o):
    """_single_tensor_sgd, in its second step."""
    p, g, m = tensors(shape, 3)
    for i in range(len(p)):
        if o["weight_decay"]:
            g[i] = g[i] + o["weight_decay"] * p[i]
        if o["momentum"]:
            new = (1 - o["dampening"]) * g[i] if o["dampening"] else g[i]
            m[i] = o["momentum"] * m[i] + new
            g[i] = g[i] + o["momentum"] * m[i] if o["nesterov"] else m[i]
        p[i] = p[i] - 0.1 * g[i]


def naive_adam(shape, o, decoupled=False):
    """_single_tensor_adam."""
    p, g, m, v, largest = tensors(shape, 5)
    for i in range(len(p)):
        if o["weight_decay"] and decoupled:
            p[i] = p[i] * (1 - 0.1 * o["weight_decay"])
        elif o["weight_decay"]:
            g[i] = g[i] + o["weight_decay"] * p[i]
        m[i] = lerp(m[i], g[i], 0.1)
        v[i] = 0.999 * v[i] + 0.001 * g[i] * g[i]
        if o["amsgrad"]:
            largest[i] = largest[i].larger(v[i])
        root = v[i].sqrt()
        if o["bias_correction"]:
            root = root / 0.5
        p[i] = p[i] - 0.1 * m[i] / (root + 1e-8)


def naive_adamw(shape, o):
    """The same with a decoupled weight decay."""
    naive_adam(shape, o, decoupled=True)


def naive_lamb(shape, o):
    """Algorithm 2 of the paper, phi the identity."""
    p, g, m, v, r = tensors(shape, 5)
    for i in range(len(p)):
        m[i] = 0.9 * m[i] + 0.1 * g[i]
        v[i] = 0.999 * v[i] + 0.001 * (g[i] * g[i])
        first, second = m[i], v[i]
        if o["bias_correction"]:
            first, second = m[i] / 0.5, v[i] / 0.5
        r[i] = first / (second.sqrt() + 1e-6)
        if o["weight_decay"]:
            r[i] = r[i] + o["weight_decay"] * p[i]
    rate = 0.1 * (norm(p) / norm(r))
    for i in range(len(p)):
        p[i] = p[i] - rate * r[i]


def naive_adafactor(shape, o):
    """_single_tensor_adafactor."""
    p, g, u = tensors(shape, 3)
    alpha = (norm(p) / sqrt(len(p))).larger(1e-3) * 0.1
    if o["weight_decay"]:
        p = [x * 0.9 for x in p]
    estimate = factored(shape, g) if len(shape) > 1 else whole(g)
    for i in range(len(p)):
        u[i] = 1 / estimate[i].larger(1e-6).sqrt() * g[i]
    step = alpha / (norm(u) / sqrt(len(p))).larger(1.0)
    for i in range(len(p)):
        p[i] = p[i] - step * u[i]


def factored(shape, g):
    """V of every matrix in the last two axes, from the means of its rows and columns."""
    rows, columns = shape[-2:]
    estimate = []
    for start in range(0, len(g), rows * columns):
        matrix = [g[start + r * columns :][:columns] for r in range(rows)]
        row = [mean_square(line, Scalar(1.0)) for line in matrix]
        column = [mean_square(line, Scalar(1.0)) for line in zip(*matrix, strict=True)]
        mean = (total(row) / rows).larger(1e-6)
        estimate += [row[r] * column[c] / mean for r in range(rows) for c in range(columns)]
    return estimate


def mean_square(line, state):
    """What the norm of a line comes to, and its running mean."""
    length = norm(line)
    return lerp(state, length * length / len(line), 0.1)


def whole(g):
    """V of a vector."""
    return [lerp(Scalar(1.0), x * x, 0.1) for x in g]


def tensors(shape, count):
    """So many tensors of scalars."""
    return [[Scalar(1.5 + i) for i in range(prod(shape))] for _ in range(count)]


NAIVE = {
    "sgd": naive_sgd,
    "momentum": naive_sgd,
    "adam": naive_adam,
    "adamw": naive_adamw,
    "adafactor": naive_adafactor,
    "lamb": naive_lamb,
}
KINDS = ("adds", "muls", "divs", "compares", "specials")


def kinds(cost):
    """The operations of a cost."""
    return {kind: getattr(cost, kind) for kind in KINDS}


@given(st.data())
def test_an_update_is_the_work_of_a_loop(data):
    """Every optimizer, with each of its options on and off, on tensors of one to four axes."""
    name = data.draw(st.sampled_from(sorted(OPTIMIZERS)))
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    options = {key: data.draw(st.sampled_from([0.0, 0.5])) for key in OPTIMIZERS[name].options}
    WORK.clear()
    NAIVE[name](shape, options)
    cost = OPTIMIZERS[name].update(Parameter("w", shape, 1), options)
    assert kinds(cost) == {kind: WORK[kind] for kind in KINDS}
    assert cost.macs == 0


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_clipping_is_the_work_of_a_loop(sizes):
    """clip_grad_norm_ with the largest norm 1, over tensors of these sizes."""
    WORK.clear()
    gradients = [tensors((size,), 1)[0] for size in sizes]
    factor = (1 / (norm([norm(gradient) for gradient in gradients]) + 1e-6)).smaller(1.0)
    for gradient in gradients:
        for i in range(len(gradient)):
            gradient[i] = gradient[i] * factor
    cost = gradient_clipping_cost([Parameter(f"w{size}", (size,), size) for size in sizes])
    assert kinds(cost) == {kind: WORK[kind] for kind in KINDS}


@pytest.mark.parametrize(
    ("text", "flops", "read", "written"),
    [
        ("sgd", 2, 2, 1),  # p, g -> p
        ("momentum", 4, 3, 2),  # p, g, m -> m, p
        ("sgd,momentum=0.9,nesterov=true,weight_decay=1e-4", 8, 3, 2),
        ("adam", 13, 4, 3),  # p, g, m, v -> m, v, p
        ("adam,bias_correction=0", 12, 4, 3),
        ("adamw", 14, 4, 3),
        ("adamw,amsgrad=1", 15, 5, 4),
    ],
)
def test_one_parameter_by_hand(text, flops, read, written):
    """Operations of one element, and how many elements move; a float16 one has two bytes each."""
    chosen, options = parse_optimizer(text)
    cost = chosen.update(Parameter("w", (5, 2), 1, "float16"), options)
    assert (cost.flops, cost.bytes_read, cost.bytes_written) == (
        10 * flops,
        20 * read,
        20 * written,
    )


def test_sums_over_a_tensor_end_a_pass():
    """LAMB writes r of 2x3 and reads it again; Adafactor reads g twice, and rows and columns."""
    chosen, options = parse_optimizer("lamb")
    cost = chosen.update(Parameter("w", (2, 3), 1), options)
    assert (cost.bytes_read, cost.bytes_written) == (4 * 6 * 6, 4 * 4 * 6)
    chosen, options = parse_optimizer("adafactor")
    cost = chosen.update(Parameter("w", (2, 3), 1), options)
    read = 6 + 6 + 5 + (6 + 5) + 6 + 6  # p, g, R and C; g, R and C; p, u
    assert (cost.bytes_read, cost.bytes_written) == (4 * read, 4 * (5 + 6 + 6))


# A hidden layer of x [2,3] by a [3,4] + c [4], ReLU, b [4,5]: 12 + 4 + 20 weights.
TWO = """
g (float[2,3] x, float[3,4] a, float[4] c, float[4,5] b) => (float[2,5] y)
{ h = Gemm(x, a, c) r = Relu(h) y = MatMul(r, b) }
"""


@pytest.fixture
def file(tmp_path):
    """The two layers, all of whose weights are stored."""
    return saved(tmp_path, with_weights(TWO, "a", "b", "c", opset=17))


@pytest.mark.parametrize(
    ("frozen", "parameters", "tensors"), [((), 36, 3), (("a",), 24, 2), (("a", "b", "c"), 0, 0)]
)
def test_frozen_weights_are_not_updated(file, frozen, parameters, tensors):
    """14 FLOPs each by AdamW, and for clipping 3 each, less one add a tensor, and the norms."""
    report = count(file, train=True, frozen=frozen, optimizer="adamw,clip_norm=1")
    step = report.training.optimizer
    assert (step.parameters, step.tensors, step.flops) == (parameters, tensors, 14 * parameters)
    norms = 2 * parameters - tensors + tensors  # products, adds, a root each
    of_norms = 2 * tensors - 1 + 1 + 3 if tensors else 0
    assert step.clipping.flops == norms + parameters + of_norms
    assert "optimizer" not in count(file, train=True).to_dict()["training"]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("adamm", UnknownNameError),
        ("sgd,beta=1", UnknownNameError),
        ("sgd,momentum=-1", InputError),
        ("sgd,momentum", InputError),
        ("sgd,momentum=nan", InputError),
        ("sgd,nesterov=1", InputError),
    ],
)
def test_what_is_no_optimizer_is_refused(text, error):
    """Unknown names, options that are no numbers, and nesterov without momentum."""
    with pytest.raises(error):
        parse_optimizer(text)


def test_an_optimizer_needs_training(file):
    """It is no part of a forward count."""
    with pytest.raises(InputError, match="--optimizer requires --train"):
        count(file, optimizer="adamw")
