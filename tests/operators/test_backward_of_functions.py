"""Gradients of functions, pools, norms and reductions, written out on counted scalars.

Each is the derivative times the gradient of the result, as PyTorch's derivatives.yaml has it. That
it is the derivative is checked on what ONNX's reference implementation gives for values beside.
"""

import math

import numpy as np
import pytest

from crossflops.ir.cost import ZERO, Cost
from crossflops.operators import rule, rules
from crossflops.operators.gradient import moves_back, no_gradient
from crossflops.testing.graphs import node
from tests.operators.scalars import Tally, reference, total, values
from tests.operators.test_backward_of_contractions import LOOPS


def either(condition, yes, no):
    """What is chosen of two that are both made."""
    return yes if condition else no


def sign(x):
    """-1 or 1, by the compares with 0 from both sides."""
    above, below = x.above(0), not x.above(0)
    return above - below


def square(x):
    """A mul."""
    return x * x


def normal_density(g, x, y):
    """Gelu: dY (F + X f), F and f of a standard normal number."""
    whole = ((x / math.sqrt(2)).special(math.erf) + 1) * 0.5
    density = (x * x * -0.5).exp() * (1 / math.sqrt(2 * math.pi))
    return g * (whole + x * density)


def gelu_by_tanh(g, x, y):
    """Gelu by t = tanh(c (X + k X^3)); what factors of fixed numbers make is one number."""
    c, k, xx = math.sqrt(2 / math.pi), 0.044715, x * x
    t = ((xx * x * k + x) * c).tanh()
    inner = (xx * (3 * k) + 1) * c
    return g * ((t + 1) * 0.5 + x * 0.5 * (1 - t * t) * inner)


def mish(g, x, y):
    """X tanh(log(1 + exp X)): t + X s (1 - t^2)."""
    t = (x.exp() + 1).log().tanh()
    return g * (t + x * x.sigmoid() * (1 - t * t))


def swish(g, x, alpha=1.0):
    """X s(alpha X): s (1 + alpha X (1 - s))."""
    turned = x * alpha if alpha != 1 else x
    s = turned.sigmoid()
    return g * (s * (1 + turned * (1 - s)))


SELU = 1.67326319217681884765625, 1.05070102214813232421875  # alpha, gamma
# By operator: dX of one element, from dY, X and Y; and the attributes.
UNARY = {
    "Neg": (lambda g, x, y: 0 - g, {}),
    "Abs": (lambda g, x, y: g * sign(x), {}),
    "Sign": (lambda g, x, y: None, {}),
    "Reciprocal": (lambda g, x, y: 0 - g * y * y, {}),
    "Exp": (lambda g, x, y: g * y, {}),
    "Log": (lambda g, x, y: g / x, {}),
    "Sqrt": (lambda g, x, y: g / (y * 2), {}),
    "Sigmoid": (lambda g, x, y: g * (1 - y) * y, {}),
    "Tanh": (lambda g, x, y: g * (1 - y * y), {}),
    "Floor": (lambda g, x, y: None, {}),
    "Ceil": (lambda g, x, y: None, {}),
    "Round": (lambda g, x, y: None, {}),
    "Sin": (lambda g, x, y: g * x.special(math.cos), {}),
    "Cos": (lambda g, x, y: g * (0 - x.special(math.sin)), {}),
    "Tan": (lambda g, x, y: g * (y * y + 1), {}),
    "Asin": (lambda g, x, y: g * (1 - x * x).pow(-0.5), {}),
    "Acos": (lambda g, x, y: g * (0 - (1 - x * x).pow(-0.5)), {}),
    "Atan": (lambda g, x, y: g / (x * x + 1), {}),
    "Erf": (lambda g, x, y: g * ((0 - x * x).exp() * (2 / math.sqrt(math.pi))), {}),
    "Sinh": (lambda g, x, y: g * x.special(math.cosh), {}),
    "Cosh": (lambda g, x, y: g * x.special(math.sinh), {}),
    "Asinh": (lambda g, x, y: g / (x * x + 1).sqrt(), {}),
    "Acosh": (lambda g, x, y: g / (x * x - 1).sqrt(), {}),
    "Atanh": (lambda g, x, y: g / (1 - x * x), {}),
    "Relu": (lambda g, x, y: either(y.above(0), g, 0), {}),
    "LeakyRelu": (lambda g, x, y: either(x.above(0), g, g * 0.3), {"alpha": 0.3}),
    "ThresholdedRelu": (lambda g, x, y: either(x.above(0.4), g, 0), {"alpha": 0.4}),
    "Elu": (lambda g, x, y: either(x.above(0), g, g * (x.exp() * 0.7)), {"alpha": 0.7}),
    "Celu": (lambda g, x, y: either(x.above(0), g, g * (x / 0.7).exp()), {"alpha": 0.7}),
    "Selu": (
        lambda g, x, y: g * either(x.above(0), SELU[1], x.exp() * (SELU[0] * SELU[1])),
        {},
    ),
    "HardSigmoid": (
        lambda g, x, y: either(x.above(-2.5) & (not x.above(2.5)), g * 0.2, 0),
        {},
    ),
    "HardSwish": (
        lambda g, x, y: either(x.above(3), g, either(x.above(-3), g * (x * (1 / 3) + 0.5), 0)),
        {},
    ),
    "Softplus": (lambda g, x, y: g * x.sigmoid(), {}),
    "Softsign": (lambda g, x, y: g / square(x.max(-x.value) + 1), {}),
    "Mish": (mish, {}),
    "Shrink": (lambda g, x, y: either(x.above(0.5) | (not x.above(-0.5)), g, 0), {}),
    "Gelu": (normal_density, {}),
    "Gelu tanh": (gelu_by_tanh, {"approximate": "tanh"}),
    "Clip-6": (
        lambda g, x, y: either(x.above(-0.5) & (not x.above(0.5)), g, 0),
        {"min": -0.5, "max": 0.5},
    ),
}
POINTS = np.array([-3.3, -1.7, -0.8, -0.3, 0.2, 0.6, 0.9, 1.4, 2.1, 3.6])
DOMAINS = {
    "Log": POINTS[POINTS > 0],
    "Sqrt": POINTS[POINTS > 0],
    "Acosh": POINTS[POINTS > 1],
    **dict.fromkeys(("Asin", "Acos", "Atanh"), POINTS[abs(POINTS) < 0.85]),
}


def gradient(op, shapes, result, place, **attrs):
    """What the rule says of the gradient of one operand, and of what is run again for it."""
    asked = node(op, shapes, [result], **attrs)
    known = rule(asked.op)
    made = known.backward(asked, frozenset({place}), known.formula(asked))
    return made.operands.get(place, ZERO) + made.inner, made.recomputed


def slope(op, arrays, place, **attrs):
    """d sum(cos(i) Y_i) / dX by central differences of what ONNX's reference gives."""
    step, slopes = 1e-2, np.empty(arrays[place].size)
    for at in range(arrays[place].size):
        moved = []
        for way in (step, -step):
            there = [np.array(array, dtype=float) for array in arrays]
            there[place].flat[at] += way
            y = reference(op, there, **attrs)
            moved.append((y * seeds(y.shape)).sum())
        slopes[at] = (moved[0] - moved[1]) / (2 * step)
    return slopes.reshape(arrays[place].shape)


def seeds(shape):
    """The gradients of the results: other numbers for each."""
    return np.cos(np.arange(math.prod(shape))).reshape(shape)


def plain(numbers):
    """The values of gradients, 0 where there is none."""
    return values(
        np.array([0.0 if number is None else number for number in numbers], dtype=object)
    )


@pytest.mark.parametrize("name", list(UNARY))
def test_gradient_of_a_function(name):
    """Ten points: as much work as the derivative takes, and the derivative is right."""
    derivative, attrs = UNARY[name]
    op, x = name.split()[0], DOMAINS.get(name, POINTS)
    tally, y = Tally(), reference(op, [x], **attrs)
    points = zip(seeds(x.shape), x, y, strict=True)
    made = [derivative(*map(tally.number, point)) for point in points]
    assert np.allclose(plain(made), slope(op, [x], 0, **attrs), atol=5e-2, rtol=5e-2)
    assert gradient(op, [x.shape], x.shape, 0, **attrs) == (tally.cost, ZERO)


# By operator: dA and dB of one element, from dY, A, B and Y; and the attributes.
BINARY = {
    "Add": (lambda g, a, b, y: g, lambda g, a, b, y: g, {}),
    "Sub": (lambda g, a, b, y: g, lambda g, a, b, y: 0 - g, {}),
    "Mul": (lambda g, a, b, y: g * b, lambda g, a, b, y: g * a, {}),
    "Div": (lambda g, a, b, y: g / b, lambda g, a, b, y: 0 - g * (a / b / b), {}),
    "Mod": (
        lambda g, a, b, y: g,
        lambda g, a, b, y: 0 - g * (a / b).special(math.trunc),
        {"fmod": 1},
    ),
    "Pow": (
        lambda g, a, b, y: g * b * a.special(math.pow, b - 1),
        lambda g, a, b, y: g * y * a.special(math.log),
        {},
    ),
    "PRelu": (
        lambda g, a, b, y: either(a.above(0), g, g * b),
        lambda g, a, b, y: either(a.above(0), 0, g * a),
        {},
    ),
    "Sum": (lambda g, a, b, y: g, lambda g, a, b, y: g, {}),
    "Mean": (lambda g, a, b, y: g / 2, lambda g, a, b, y: g / 2, {}),
    "Max": (
        lambda g, a, b, y: either(a.above(b), g, 0),
        lambda g, a, b, y: either(b.above(a), g, 0),
        {},
    ),
    "Min": (
        lambda g, a, b, y: either(b.above(a), g, 0),
        lambda g, a, b, y: either(a.above(b), g, 0),
        {},
    ),
}


@pytest.mark.parametrize("name", list(BINARY))
@pytest.mark.parametrize("narrow", [False, True])
def test_gradient_of_two_operands(name, narrow):
    """Of both; what an operand of one element was repeated for is summed, n - 1 adds."""
    *derivatives, attrs = BINARY[name]
    a = POINTS[POINTS > 0] if name in ("Pow", "Mod") else POINTS
    b = np.array([1.55]) if narrow else np.linspace(1.1, 2.7, a.size)
    y = reference(name, [a, b], **attrs)
    points = list(zip(seeds(y.shape), a, np.broadcast_to(b, a.shape), y, strict=True))
    for place, derivative in enumerate(derivatives):
        tally = Tally()
        made = [derivative(*map(tally.number, point)) for point in points]
        made = [tally.number(0) if number == 0 else number for number in made]
        made = [total(made)] if narrow and place else made
        assert np.allclose(plain(made), slope(name, [a, b], place, **attrs), atol=5e-2, rtol=5e-2)
        shapes = [a.shape, b.shape]
        assert gradient(name, shapes, y.shape, place, **attrs) == (tally.cost, ZERO)


@pytest.mark.parametrize("alpha", [1.0, 1.7])
def test_gradient_of_a_swish(alpha):
    """X s(alpha X), and the same times B; a factor of 1 multiplies nothing."""
    x, step = POINTS, 1e-4
    tally = Tally()
    made = [swish(tally.number(1), tally.number(point), alpha) for point in x]
    there = [v / (1 + np.exp(-alpha * v)) for v in (x + step, x - step)]
    assert np.allclose(plain(made), (there[0] - there[1]) / (2 * step), atol=1e-4)
    assert gradient("Swish", [x.shape], x.shape, 0, alpha=alpha) == (tally.cost, ZERO)
    gated, gate = Tally(), Tally()
    for point in x:
        swish(gated.number(1) * 2.0, gated.number(point), alpha)
        a = gate.number(point)
        gate.number(1) * (a * (a * alpha if alpha != 1 else a).sigmoid())
    for place, tally in enumerate((gated, gate)):
        found = gradient("SwiGLU", [x.shape] * 2, x.shape, place, alpha=alpha)
        assert found == (tally.cost, ZERO)


def softmax_back(g, x, y):
    """Y (dY - sum(Y dY))."""
    dot = total([a * b for a, b in zip(y, g, strict=True)])
    return [a * (b - dot) for a, b in zip(y, g, strict=True)]


def log_softmax_back(g, x, y):
    """dY - exp(Y) sum(dY)."""
    whole = total(g)
    return [b - a.exp() * whole for a, b in zip(y, g, strict=True)]


def largest_back(g, x, y):
    """To those that are the largest or smallest, in equal parts."""
    count = g[0].tally.number(0)
    chosen = [a.above(y[0].value - 1e-6) and a.value < y[0].value + 1e-6 for a in x]
    for hit in chosen:
        count = count + float(hit)
    part = g[0] / count
    return [part * float(hit) for hit in chosen]


def each(function):
    """A function of dY, X and Y for each element, which share what is made of dY and Y once."""

    def of_group(once):
        def back(g, x, y):
            part = once(g[0], y[0])
            return [function(part, a, y[0]) for a in x]

        return back

    return of_group


same = each(lambda part, x, y: part)
# By operator: dX of one group of elements, from the lists of dY, X and Y.
GROUPED = {
    "Softmax": softmax_back,
    "LogSoftmax": log_softmax_back,
    "ReduceSum": same(lambda g, y: g),
    "ReduceMean": same(lambda g, y: g / 4),
    "ReduceMax": largest_back,
    "ReduceMin": largest_back,
    "ReduceProd": each(lambda part, x, y: part / x)(lambda g, y: g * y),
    "ReduceL1": each(lambda part, x, y: part * sign(x))(lambda g, y: g),
    "ReduceL2": each(lambda part, x, y: part * x)(lambda g, y: g / y),
    "ReduceSumSquare": each(lambda part, x, y: part * x)(lambda g, y: g * 2),
    "ReduceLogSum": same(lambda g, y: g / y.exp()),
    "ReduceLogSumExp": each(lambda part, x, y: part * (x - y).exp())(lambda g, y: g),
}


@pytest.mark.parametrize("name", list(GROUPED))
def test_gradient_of_a_group(name):
    """Three rows of four, along the last axis."""
    x = np.array([[0.7, 1.9, 2.6, 0.4], [3.1, 0.9, 1.3, 2.2], [1.1, 0.6, 2.9, 1.7]])
    attrs = {} if name.startswith("Reduce") else {"axis": -1}
    op = f"{name}-13" if name in ("ReduceSum", "Softmax", "LogSoftmax") else f"{name}-11"
    if name == "ReduceSum":
        y = x.sum(-1, keepdims=True)
        right = np.broadcast_to(seeds((3, 1)), x.shape)
    else:
        attrs |= {"axes": [1]} if name.startswith("Reduce") else {}
        y = reference(op, [x], **attrs)
        right = slope(op, [x], 0, **attrs)
    tally, made = Tally(), []
    for g, row, result in zip(seeds(y.shape), x, y, strict=True):
        made += GROUPED[name](*([tally.number(v) for v in part] for part in (g, row, result)))
    assert np.allclose(plain(made).reshape(x.shape), right, atol=1e-2, rtol=1e-2)
    plain_attrs = {"axis": -1} if "axis" in attrs else {}
    assert gradient(name, [x.shape], y.shape, 0, **plain_attrs) == (tally.cost, ZERO)


def standard_back(g, x, scale, centred):
    """r (g' - mean(g') - x^ mean(g' x^)), g' = dY scale: the work, that again, and dscale's.

    The mean and r are kept; x^ is made again. Without a mean its terms fall away.
    """
    kept = np.array(values(x))
    mean = kept.mean() if centred else 0.0
    r = 1 / math.sqrt(((kept - mean) ** 2).mean() + 1e-5)
    again, work, of_scale = Tally(), g[0].tally, Tally()
    hats = [(again.number(a) - mean if centred else again.number(a)) * r for a in values(x)]
    hats = [work.number(hat.value) for hat in hats]
    scaled = [a * s for a, s in zip(g, scale, strict=True)]
    second = total([a * hat for a, hat in zip(scaled, hats, strict=True)]) / len(x)
    if centred:
        first = total(scaled) / len(x)
        scaled = [a - first for a in scaled]
    made = [(a - hat * second) * r for a, hat in zip(scaled, hats, strict=True)]
    for a, hat in zip(values(g), values(hats), strict=True):
        of_scale.number(a) * hat
    return made, again.cost, of_scale.cost


# By operator: its groups of an x [2, 4, 3], the scale of each element, and the attributes.
SCALES = {"each": np.arange(1.0, 4.0), "channel": np.arange(1.0, 5.0)}
NORMS = {
    "LayerNormalization-17": ("rows", "each", {"axis": -1, "epsilon": 1e-5}),
    "RMSNormalization-23": ("rows", "each", {"axis": -1, "epsilon": 1e-5}),
    "GroupNormalization-21": ("groups", "channel", {"num_groups": 2, "epsilon": 1e-5}),
    "InstanceNormalization-6": ("channels", "channel", {"epsilon": 1e-5}),
}


@pytest.mark.parametrize("name", list(NORMS))
def test_gradient_of_a_norm(name):
    """Of x, and of the scale, whose gradients are summed: 24 elements."""
    kind, of, attrs = NORMS[name]
    x = np.sin(np.arange(24) * 1.7).reshape(2, 4, 3) * 2
    rows = {"rows": (8, 3), "groups": (4, 6), "channels": (8, 3)}[kind]
    scale = SCALES[of]
    whole = np.broadcast_to(scale if of == "each" else scale[:, None], x.shape)
    centred = not name.startswith("RMS")
    tally, made, again, of_scale = Tally(), [], ZERO, ZERO
    grouped = (array.reshape(rows) for array in (seeds(x.shape), x, whole))
    for g, row, factors in zip(*grouped, strict=True):
        numbers_ = [tally.number(v) for v in g], [tally.number(v) for v in row]
        dx, more, other = standard_back(*numbers_, factors, centred)
        made, again, of_scale = made + dx, again + more, of_scale + other
    arrays = [x, scale, scale * 0] if centred else [x, scale]
    right = slope(name, arrays, 0, **attrs)
    assert np.allclose(plain(made).reshape(x.shape), right, atol=5e-2, rtol=5e-2)
    shapes = [array.shape for array in arrays]
    assert gradient(name, shapes, x.shape, 0, **attrs) == (tally.cost, again)
    summed = Cost(adds=24 - scale.size)
    assert gradient(name, shapes, x.shape, 1, **attrs) == (of_scale + summed, again)
    if centred:
        assert gradient(name, shapes, x.shape, 2, **attrs) == (summed, ZERO)


# What moves a gradient does arithmetic where it meets another one, or where it is weighed.
# X [2, 3, 4, 4] by windows of 2 x 2 with stride 2: Y [2, 3, 2, 2] of 24.
IMAGE, HALF, ONE = (2, 3, 4, 4), (2, 3, 2, 2), (2, 3, 1, 1)
WINDOW = {"kernel_shape": (2, 2), "strides": (2, 2)}
ROTATED = (2, 3, 5, 8)
BY_HAND = [
    # each dY is added to the place of the largest in its window
    ("MaxPool", [IMAGE], HALF, 0, WINDOW, Cost(adds=24)),
    ("GlobalMaxPool", [IMAGE], ONE, 0, {}, Cost(adds=6)),
    # dY / 4, added to each of 4
    ("AveragePool", [IMAGE], HALF, 0, WINDOW, Cost(divs=24, adds=96)),
    # dY / 16, copied
    ("GlobalAveragePool", [IMAGE], ONE, 0, {}, Cost(divs=6)),
    # 5 rows of 4 are added into a table of 7
    ("Gather", [(7, 4), "5:int64"], (5, 4), 0, {}, Cost(adds=20)),
    ("GatherElements", [(7, 4), "5x4:int64"], (5, 4), 0, {"axis": 0}, Cost(adds=20)),
    ("GatherND", [(7, 4), "5x1:int64"], (5, 4), 0, {}, Cost(adds=20)),
    # 12 results of 3 numbers: 9 adds
    ("Where", ["4x3:bool", (3,), (4, 3)], (4, 3), 1, {}, Cost(adds=9)),
    ("Where", ["4x3:bool", (3,), (4, 3)], (4, 3), 2, {}, Cost()),
    ("Expand", [(3,), "2:int64"], (4, 3), 0, {}, Cost(adds=9)),
    ("Tile", [(3,), "1:int64"], (12,), 0, {}, Cost(adds=9)),
    # the sums from the other end
    ("CumSum", [(4, 3), ":int64"], (4, 3), 0, {}, Cost(adds=12)),
    # the border is cut away, or added to where it is from
    ("Pad", [(4,), "2:int64"], (6,), 0, {}, Cost()),
    ("Pad", [(4,), "2:int64"], (6,), 0, {"mode": "reflect"}, Cost(adds=2)),
    ("ScatterND", [(7, 4), "5x1:int64", (5, 4)], (7, 4), 2, {"reduction": "add"}, Cost()),
    ("ScatterElements", [(7, 4), "5x4:int64", (5, 4)], (7, 4), 0, {}, Cost()),
    # dY by the mask and by the factor, or nothing
    ("Dropout", [(5, 4), ":float32", ":bool"], (5, 4), 0, {"training_mode": 1}, Cost(muls=40)),
    ("Dropout", [(5, 4)], (5, 4), 0, {}, Cost()),
    # a rotation back: 2 x 3 x 5 x 4 pairs of 4 muls and 2 adds
    ("RotaryEmbedding", [ROTATED, (5, 4), (5, 4)], ROTATED, 0, {}, Cost(muls=480, adds=240)),
    # 6 indices in 2 bags add rows of 4; of a mean each is divided
    ("torch.ops::aten.embedding_bag.default", [(7, 4), "6:int64", "2:int64"], (2, 4), 0, {}, 24),
    # nearest: 4 copies of each of 96 become one sum; linear: 4 neighbours of each of 96 results
    ("Resize", [HALF, None, (4,)], IMAGE, 0, {}, Cost(adds=96 - 24)),
    ("Upsample", [HALF, (4,)], IMAGE, 0, {"mode": "linear"}, Cost(muls=384, adds=384)),
    # x: each of 24 results to 4 neighbours. grid: for each of them and 2 axes 2 muls and an add,
    # and 2 muls for each of 2 x 4 places
    ("GridSample", [IMAGE, (2, 2, 2, 2)], HALF, 0, {}, Cost(muls=96, adds=96)),
    ("GridSample", [IMAGE, (2, 2, 2, 2)], HALF, 1, {}, Cost(muls=24 * 16 + 16, adds=24 * 8)),
    # C = 3: dY (scale r), r = 1 / sqrt(var + epsilon)
    (
        "BatchNormalization",
        [IMAGE, *[(3,)] * 4],
        IMAGE,
        0,
        {},
        Cost(muls=96 + 3, adds=3, specials=3, divs=3),
    ),
    # 4 targets: negations, the mean; of scores [4, 3] the softmax: 12 exps and muls, 8 + 12 adds
    ("NegativeLogLikelihoodLoss", [(4, 3), "4:int64"], (), 0, {}, Cost(adds=4, divs=1)),
    (
        "NegativeLogLikelihoodLoss",
        [(4, 3), "4:int64", (3,)],
        (),
        0,
        {"reduction": "sum", "ignore_index": 0},
        Cost(adds=4, muls=4, compares=4),
    ),
    (
        "SoftmaxCrossEntropyLoss",
        [(4, 3), "4:int64"],
        (),
        0,
        {},
        Cost(adds=4 + 8 + 12, muls=12, specials=12, divs=1),
    ),
]


@pytest.mark.parametrize(("op", "shapes", "result", "place", "attrs", "expected"), BY_HAND)
def test_gradient_by_hand(op, shapes, result, place, attrs, expected):
    """Moving costs nothing, summing an add, weighing a mul."""
    expected = Cost(adds=expected) if isinstance(expected, int) else expected
    assert gradient(op, shapes, result, place, **attrs)[0] == expected


MOVE_BACK = {"TopK", "Col2Im"}  # which choose, or add up: their gradients are moved alone


def test_what_moves_a_gradient_moves_data():
    """Nothing is computed in front of a gradient that costs nothing, but what is named here."""
    for op, known in rules().items():
        if known.backward is moves_back:
            assert known.equation.startswith("0") or str(op) in MOVE_BACK, op


def test_every_gradient_is_held_against_something():
    """A new rule with a formula for its gradients needs a loop, a derivative or a hand."""
    held = {name.split()[0].partition("-")[0] for name in (*UNARY, *BINARY, *GROUPED, *NORMS)}
    held |= {row[0].replace("::", ".") for row in BY_HAND} | {*LOOPS, "Einsum", "Swish", "SwiGLU"}
    kin = {
        "SimplifiedLayerNormalization": "RMSNormalization",
        "com.microsoft.Gelu": "Gelu",
        "torch.ops.aten.embedding_bag.padding_idx": "torch.ops.aten.embedding_bag.default",
    }
    for op, known in rules().items():
        if isinstance(known.backward, str) or known.backward in (no_gradient, moves_back):
            continue
        solves = "solve" in op.type.lower()  # beside the contractions
        assert solves or kin.get(str(op), str(op)) in held, op
