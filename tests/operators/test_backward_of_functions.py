"""Gradients of functions, pools, norms and reductions, written out on counted scalars.

Each is the derivative times the gradient of the result, as PyTorch's derivatives.yaml has it. That
it is the derivative is checked on what ONNX's reference implementation gives for values beside.
"""

import cmath
import math
from statistics import NormalDist

import numpy as np
import pytest

from crossflops.ir.ledger import ZERO, Cost
from crossflops.operators import all_operator_rules, find_operator_rule
from crossflops.operators.gradient import movement_backward, no_gradient
from crossflops.testing.graphs import to_node
from tests.operators.scalars import Tally, reference, total, values
from tests.operators.test_backward_of_contractions import ALGEBRA, AS_PYTORCH_RUNS, LOOPS


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
    asked = to_node(op, shapes, [result], **attrs)
    known = find_operator_rule(asked.op)
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
        costs = gradient("SwiGLU", [x.shape] * 2, x.shape, place, alpha=alpha)
        assert costs == (tally.cost, ZERO)


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


def unit_back(norm):
    """(dY - s sum(Y dY)) / norm, s what the norm has for a slope: Y, or the sign of X."""

    def back(g, x, y):
        plain_x = np.array(values(x))
        length = np.abs(plain_x).sum() if norm == 1 else math.sqrt((plain_x**2).sum())
        dot = total([a * b for a, b in zip(y, g, strict=True)])
        slopes = [sign(a) if norm == 1 else b for a, b in zip(x, y, strict=True)]
        return [(b - dot * s) / length for b, s in zip(g, slopes, strict=True)]

    return back


def product_back(g, x, y):
    """The sums of dY Y from the other end, over X; each sum from an empty start."""
    made, run = [], g[0].tally.number(0)
    for a, b, c in list(zip(g, x, y, strict=True))[::-1]:
        run = run + a * c
        made.append(run / b)
    return made[::-1]


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
    "LpNormalization": unit_back(2),
    "LpNormalization p=1": unit_back(1),
}


@pytest.mark.parametrize("name", list(GROUPED))
def test_gradient_of_a_group(name):
    """Three rows of four, along the last axis."""
    x = np.array([[0.7, 1.9, 2.6, 0.4], [3.1, 0.9, 1.3, 2.2], [1.1, 0.6, 2.9, 1.7]])
    attrs = {} if name.startswith("Reduce") else {"axis": -1}
    attrs |= {"p": 1} if name.endswith("p=1") else {}
    given_name, name = name, name.split()[0]
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
        made += GROUPED[given_name](
            *([tally.number(v) for v in part] for part in (g, row, result))
        )
    assert np.allclose(plain(made).reshape(x.shape), right, atol=1e-2, rtol=1e-2)
    plain_attrs = {key: attrs[key] for key in ("axis", "p") if key in attrs}
    assert gradient(name, [x.shape], y.shape, 0, **plain_attrs) == (tally.cost, ZERO)


def test_gradient_of_a_running_product():
    """Four numbers: the sums from the other end have an add each, as those of CumSum."""
    x, step = np.array([0.7, 1.9, 2.6, 0.4]), 1e-5
    tally, y = Tally(), np.cumprod(x)
    made = product_back(*([tally.number(v) for v in part] for part in (seeds(x.shape), x, y)))
    for at, gradient_ in enumerate(values(made)):
        there = [np.cumprod(x + way * np.eye(4)[at]) @ seeds(x.shape) for way in (step, -step)]
        assert np.isclose(gradient_, (there[0] - there[1]) / (2 * step), atol=1e-6)
    assert gradient("CumProd", [(4,), ":int64"], (4,), 0) == (tally.cost, ZERO)


def test_gradient_of_a_local_response():
    """LRN over 3 of 4 channels; beyond the edge stand zeros, which are added too."""
    attrs = {"alpha": 0.7, "beta": 0.6, "bias": 1.3, "size": 3}
    x, tally = np.array([0.7, -1.9, 1.6, 0.4]), Tally()

    def local(x):
        wide = np.pad(x**2, 1)
        return 1.3 + 0.7 / 3 * (wide[:-2] + wide[1:-1] + wide[2:])

    kept, y = local(x), x / local(x) ** 0.6
    g, xs, ys = ([tally.number(v) for v in part] for part in (seeds(x.shape), x, y))
    shares = [a * b / s for a, b, s in zip(g, ys, kept, strict=True)]
    shares = [tally.number(0), *shares, tally.number(0)]
    factor = 2 * 0.7 * 0.6 / 3
    made = [
        a * tally.number(s).pow(-0.6) - total(shares[at : at + 3]) * b * factor
        for at, (a, b, s) in enumerate(zip(g, xs, kept, strict=True))
    ]
    assert np.allclose(plain(made), slope_of(lambda x: x / local(x) ** 0.6, x))
    assert gradient("LRN", [(1, 4, 1, 1)], (1, 4, 1, 1), 0, **attrs) == (tally.cost, ZERO)


@pytest.mark.parametrize("power", [1, 2, 3])
@pytest.mark.parametrize("op", ["LpPool", "GlobalLpPool"])
def test_gradient_of_a_norm_of_a_window(op, power):
    """Windows of 2 x 2 without overlap, or all 16; a pool adds to what may overlap."""
    x = np.sin(np.arange(16.0) * 1.7 + 1).reshape(1, 1, 4, 4) * 2
    attrs = {"p": power} | (WINDOW if op == "LpPool" else {})
    tally, made, window = Tally(), np.empty((4, 4), dtype=object), 2 if op == "LpPool" else 4
    for at, seed in zip(np.ndindex(4 // window, 4 // window), np.cos(np.arange(16)), strict=False):
        where = [(at[0] * window + i, at[1] * window + j) for i, j in np.ndindex(window, window)]
        g, under = tally.number(seed), [tally.number(x[(0, 0, *place)]) for place in where]
        y = tally.number((np.abs(values(under)) ** power).sum() ** (1 / power))
        part = {1: lambda g=g: g, 2: lambda g=g, y=y: g / y}.get(
            power, lambda g=g, y=y: g / y.pow(power - 1)
        )()
        for place, a in zip(where, under, strict=True):
            if power == 1:
                made[place] = part * sign(a)
            elif power == 2:
                made[place] = part * a
            else:
                made[place] = part * (a.max(-a.value).pow(power - 1) * sign(a))
    extra = Cost(adds=16) if op == "LpPool" else ZERO
    shape = (1, 1, 4 // window, 4 // window)
    right = slope_of(lambda there: norm_of_windows(there, power, window), x)
    assert np.allclose(plain(made.ravel()), right.ravel(), atol=1e-3)
    assert gradient(op, [x.shape], shape, 0, **attrs) == (tally.cost + extra, ZERO)


def norm_of_windows(x, power, window):
    """What a pool of norms gives, one window after the other."""
    places = np.ndindex(4 // window, 4 // window)
    cuts = (x[0, 0, i * window :, j * window :][:window, :window] for i, j in places)
    return np.array([(np.abs(cut) ** power).sum() ** (1 / power) for cut in cuts])


def slope_of(function, x, step=1e-5):
    """d sum(cos(i) Y_i) / dX by central differences of a function of one array."""
    slopes = np.empty(x.size)
    for at in range(x.size):
        ways = (step * np.eye(x.size)[at].reshape(x.shape) * way for way in (1, -1))
        above, below = (function(x + way) for way in ways)
        slopes[at] = ((above - below).ravel() @ np.cos(np.arange(above.size))) / (2 * step)
    return slopes.reshape(x.shape)


def test_gradient_without_a_scale():
    """MeanVarianceNormalization, 3 groups of 8: that of a norm, by hand.

    g x^: 24 muls; two means: 2 x (24 - 3) adds, 6 divs; x^ mean: 24 muls; two subs: 48; by r: 24
    muls; x^ again: 24 subs and muls.
    """
    x = (2, 3, 2, 2)
    made = gradient("MeanVarianceNormalization", [x], x, 0)
    assert made == (Cost(muls=72, adds=42 + 48, divs=6), Cost(muls=24, adds=24))


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
FIELD, SEGMENTS = (4, 8), ["12x3:float32", "12:int64", ":int64"]
PAIR = "5x2:complex64"
REAL = Cost(muls=96, adds=144, divs=32)  # 4 rows, and a div for each result
# What a run showed of sparse operands: how many each stores, how many are kept, in which rows.
SPARSE_ROWS = {"stored": (5, 5), "distinct": (5, 5), "kept": 5, "groups": 2}
BY_HAND = [
    # 2 boxes of 2 x 2, 4 samples: 24 results, dY / 4, each to the 4 neighbours of 4; or of one
    (
        "RoiAlign",
        [IMAGE, (2, 4), "2:int64"],
        (2, 3, 2, 2),
        0,
        {"sampling_ratio": 2},
        Cost(divs=24, muls=24 * 16, adds=24 * 16),
    ),
    (
        "RoiAlign",
        [IMAGE, (2, 4), "2:int64"],
        (2, 3, 2, 2),
        0,
        {"sampling_ratio": 2, "mode": "max"},
        Cost(muls=96, adds=96),
    ),
    ("RoiAlign", [IMAGE, (2, 4), "2:int64"], (2, 3, 2, 2), 1, {"sampling_ratio": 2}, Cost()),
    ("MaxRoiPool", [IMAGE, (2, 5)], (2, 3, 2, 2), 0, {"pooled_shape": (2, 2)}, Cost(adds=24)),
    (
        "com.microsoft::CropAndResize",
        [IMAGE, (2, 4), "2:int64", "2:int64"],
        (2, 3, 2, 2),
        0,
        {},
        Cost(muls=96, adds=96),
    ),
    # 4 rows of 8 complex numbers: 3 x 8 x (2 muls, 3 adds) each, and back; inverse 16 divs a row
    ("DFT", [(4, 8, 2), None, ":int64"], (4, 8, 2), 0, {}, Cost(muls=192, adds=288)),
    (
        "tensorflow::IFFT",
        ["4x8:complex64"],
        "4x8:complex64",
        0,
        {},
        Cost(muls=192, adds=288, divs=64),
    ),
    # real, so half of it
    ("com.microsoft::Rfft", [(4, 8)], (4, 5, 2), 0, {}, Cost(muls=96, adds=144)),
    ("com.microsoft::Irfft", [(4, 5, 2)], (4, 8), 0, {"signal_ndim": 1}, REAL),
    # 3 frames of 8 real numbers: as many transforms, 24 muls by the window, 24 adds; 24 - 8
    ("STFT", [(1, 16, 1), ":int64", (8,)], (1, 3, 5, 2), 0, {}, Cost(muls=96, adds=108 + 24)),
    ("STFT", [(1, 16, 1), ":int64", (8,)], (1, 3, 5, 2), 2, {}, Cost(muls=96, adds=108 + 16)),
    # alpha X + beta: dY alpha; alpha tanh(beta X): dY (alpha beta - beta / alpha Y^2)
    ("Affine", [FIELD], FIELD, 0, {}, Cost(muls=32)),
    ("ImageScaler", [IMAGE], IMAGE, 0, {}, Cost(muls=96)),
    ("Scale", [FIELD], FIELD, 0, {}, Cost(muls=32)),
    ("ScaledTanh", [FIELD], FIELD, 0, {}, Cost(muls=96, adds=32)),
    ("ParametricSoftplus", [FIELD], FIELD, 0, {}, Cost(muls=96, specials=32)),
    ("ai.onnx.ml::Scaler", [FIELD], FIELD, 0, {"scale": (0.5,)}, Cost(muls=32)),
    ("ai.onnx.ml::ArrayFeatureExtractor", [FIELD, "3:int64"], (4, 3), 0, {}, Cost(adds=12)),
    # straight through, with one mask
    ("QuantizeLinear", [FIELD, ()], "4x8:int8", 0, {}, Cost(muls=32)),
    ("DequantizeLinear", ["4x8:int8", ()], FIELD, 0, {}, Cost()),
    ("com.microsoft::QuantizeLinear", [FIELD, ()], "4x8:int8", 0, {}, Cost(muls=32)),
    ("com.microsoft::DequantizeLinear", ["4x8:int8", ()], FIELD, 0, {}, Cost()),
    # the sums from the other end, over X
    ("tensorflow::Cumprod", [FIELD], FIELD, 0, {}, Cost(muls=32, adds=32, divs=32)),
    ("torch.ops::aten.cumprod.default", [FIELD], FIELD, 0, {}, Cost(muls=32, adds=32, divs=32)),
    # of a real number its sign; z / |z| of a complex one
    # n = 3, solved by two triangles of 3 mul-subs a column, one of them with 3 divs; then dB X^T
    (
        "jax::numpy/linalg.inv",
        [(3, 3)],
        (3, 3),
        0,
        {},
        Cost(macs=27, muls=2 * 9, adds=2 * 9 + 9, divs=9),
    ),
    ("jax::numpy/linalg.slogdet", [(3, 3)], (), 0, {}, Cost(muls=2 * 9, adds=2 * 9, divs=9)),
    ("jax::abs", [FIELD], FIELD, 0, {}, Cost(muls=32, compares=64)),
    ("jax::abs", [PAIR], (5, 2), 0, {}, Cost(muls=20, divs=10)),
    ("tensorflow::ComplexAbs", [PAIR], (5, 2), 0, {}, Cost(muls=20, divs=10)),
    # which are the largest of 12 rows of 3 in 4 segments, how many, and a part for each
    (
        "tensorflow::UnsortedSegmentMax",
        SEGMENTS,
        (4, 3),
        0,
        {},
        Cost(compares=36, adds=36, muls=36, divs=12),
    ),
    (
        "tensorflow::UnsortedSegmentMin",
        SEGMENTS,
        (4, 3),
        0,
        {},
        Cost(compares=36, adds=36, muls=36, divs=12),
    ),
    # the gradient of a gradient: dY where X > 0; of Y and dY in dY Y (1 - Y), dY (1 - Y^2)
    ("tensorflow::ReluGrad", [FIELD, FIELD], FIELD, 0, {}, Cost(compares=32)),
    ("tensorflow::ReluGrad", [FIELD, FIELD], FIELD, 1, {}, Cost()),
    ("tensorflow::Relu6Grad", [FIELD, FIELD], FIELD, 0, {}, Cost(compares=64)),
    ("tensorflow::SigmoidGrad", [FIELD, FIELD], FIELD, 0, {}, Cost(muls=96, adds=32)),
    ("tensorflow::SigmoidGrad", [FIELD, FIELD], FIELD, 1, {}, Cost(muls=64, adds=32)),
    ("tensorflow::TanhGrad", [FIELD, FIELD], FIELD, 0, {}, Cost(muls=96)),
    ("tensorflow::TanhGrad", [FIELD, FIELD], FIELD, 1, {}, Cost(muls=64, adds=32)),
    # patches of 12 numbers are added to 4; copies to what they are of
    ("tensorflow::ExtractImagePatches", [(1, 2, 2, 1)], (1, 1, 1, 12), 0, {}, Cost(adds=12)),
    (
        "jax::lax/other.conv_general_dilated_patches",
        [(1, 1, 2, 2)],
        (1, 12, 1, 1),
        0,
        {},
        Cost(adds=12),
    ),
    # 4 gradients, each added at its place in a field of zeros
    ("jax::bcoo_extract", ["4x2:int64", (6, 5)], (4,), 1, {}, Cost(adds=4)),
    ("jax::bcsr_extract", ["4:int64", "7:int64", (6, 5)], (4,), 2, {}, Cost(adds=4)),
    ("jax::complex_gather", [PAIR, "3:int64"], "3x2:complex64", 0, {}, Cost(adds=6)),
    ("jax::complex_broadcast_in_dim", ["2:complex64"], PAIR, 0, {}, Cost(adds=8)),
    (
        "jax::image/scale._resize",
        [HALF],
        IMAGE,
        0,
        {"mode": "linear"},
        Cost(muls=384, adds=384),
    ),
    # 2 x 3 pairs of rows of 4: both differences again, d / Y dY summed
    (
        "torch.ops::aten._cdist_forward.default",
        [(2, 4), (3, 4)],
        (2, 3),
        0,
        {"p": 2.0},
        Cost(muls=24, divs=24, adds=48),
    ),
    (
        "torch.ops::aten._cdist_forward.default",
        [(2, 4), (3, 4)],
        (2, 3),
        1,
        {"p": 1.0},
        Cost(muls=24, compares=48, adds=48),
    ),
    ("torch.ops::aten._cdist_forward.default", [(2, 4), (3, 4)], (2, 3), 1, {"p": 0.0}, Cost()),
    # both products of 6 distances with rows of 4, whichever operand is trained
    ("torch.ops::aten._euclidean_dist.default", [(2, 4), (3, 4)], (2, 3), 0, {}, Cost(macs=48)),
    ("torch.ops::aten._euclidean_dist.default", [(2, 4), (3, 4)], (2, 3), 1, {}, Cost(macs=48)),
    ("torch.ops::prims.hypot.default", [FIELD, FIELD], FIELD, 1, {}, Cost(muls=32, divs=32)),
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
    # straight through the rounding, times the scale of the gradient: one product for each number
    *(
        (f"{domain}::{name}", [(2, 3), (), (), (), ()][:inputs], (2, 3), 0, {}, Cost(muls=6))
        for domain in ("qonnx.custom_op.general", "finn.custom_op.general", "onnx.brevitas")
        for name, inputs in (("Quant", 4), ("IntQuant", 4), ("BipolarQuant", 2), ("Trunc", 5))
    ),
    # straight through where the bounds hold the number: a mask for each
    (
        "torch.ops::aten.fake_quantize_per_channel_affine_cachemask.default",
        [(2, 3), (2,), (2,)],
        (2, 3),
        0,
        {},
        Cost(muls=6),
    ),
    # straight through where the observer's range holds the number: a mask for each
    (
        "torch.ops::aten._fused_moving_avg_obs_fq_helper_functional.default",
        [(2, 3)],
        (2, 3),
        0,
        {},
        Cost(muls=6),
    ),
    # 5 stored elements in 2 rows; y * (dy - the sum of y dy): 5 products, 3 adds, 5 subtractions,
    # 5 products. Of the logarithm, dy - exp(y) * the sum of dy: 3 adds, 5 exps, products and subs.
    *(
        (f"torch.ops::aten._sparse_{kind}.{form}.sparse", [(5,)], (5,), 0, SPARSE_ROWS, cost)
        for kind, cost in (
            ("softmax", Cost(muls=10, adds=8)),
            ("log_softmax", Cost(muls=5, adds=8, specials=5)),
        )
        for form in ("default", "int")
    ),
    # each factor's gradient is dY times the other, for each stored element of the result
    (
        "torch.ops::aten.mul.Tensor.sparse",
        [(5,), (5,)],
        (5,),
        0,
        SPARSE_ROWS,
        Cost(muls=5),
    ),
]


@pytest.mark.parametrize(("op", "shapes", "result", "place", "attrs", "expected"), BY_HAND)
def test_gradient_by_hand(op, shapes, result, place, attrs, expected):
    """Moving costs nothing, summing an add, weighing a mul."""
    expected = Cost(adds=expected) if isinstance(expected, int) else expected
    assert gradient(op, shapes, result, place, **attrs)[0] == expected


# Special functions as integrals and sums, and their derivatives from dY, X and Y.


def integral(function, end, start=0.0, pieces=20_000):
    """The area under a function, by the rule of the midpoint."""
    places = start + (np.arange(pieces) + 0.5) * (end - start) / pieces
    return function(places).sum() * (end - start) / pieces


def bessel_i(n, x):
    """The mean of e^(x cos t) cos nt."""
    return integral(lambda t: np.exp(x * np.cos(t)) * np.cos(n * t), math.pi) / math.pi


def bessel_j(n, x):
    """The mean of cos(nt - x sin t)."""
    return integral(lambda t: np.cos(n * t - x * np.sin(t)), math.pi) / math.pi


def bessel_k(n, x):
    """All of e^(-x cosh t) cosh nt."""
    return integral(lambda t: np.exp(-x * np.cosh(t)) * np.cosh(n * t), 8.0)


def bessel_y(n, x):
    """The mean of sin(x sin t - nt), less a tail."""
    around = integral(lambda t: np.sin(x * np.sin(t) - n * t), math.pi)
    tail = integral(
        lambda t: (np.exp(n * t) + (-1) ** n * np.exp(-n * t)) * np.exp(-x * np.sinh(t)), 8.0
    )
    return (around - tail) / math.pi


def zeta(s, q, terms=2000):
    """The sum of (q + k)^-s, and what is left of it (Euler and Maclaurin)."""
    end = q + terms
    whole = sum((q + k) ** -s for k in range(terms))
    return whole + end ** (1 - s) / (s - 1) + end**-s / 2 + s * end ** (-s - 1) / 12


def digamma(x):
    """The logarithm far away, less the steps to there."""
    far = x + 1000
    return (
        math.log(far) - 1 / (2 * far) - 1 / (12 * far**2) - sum(1 / (x + k) for k in range(1000))
    )


def polygamma(n, x):
    """The nth derivative of digamma."""
    return digamma(x) if n == 0 else (-1) ** (n + 1) * math.factorial(n) * zeta(n + 1, x)


def igamma(a, x):
    """The lower part of the gamma function, of all of it."""
    return integral(lambda t: t ** (a - 1) * np.exp(-t), x) / math.gamma(a)


def by_a(a, x):
    """The slope of the lower part by a."""
    return (igamma(a + 1e-4, x) - igamma(a - 1e-4, x)) / 2e-4


def ndtri(p):
    """Where the normal distribution is p."""
    return NormalDist().inv_cdf(p)


def density(a, x):
    """x^(a-1) e^-x / gamma(a), of the counted a and x."""
    return (x.special(math.log) * (a - 1) - x - a.special(math.lgamma)).special(math.exp)


def below(function, x, y):
    """f(x) - y / x."""
    return x.special(function) - y / x


# By the function's name: itself, and the derivatives by its operands; the attribute n is 2.
SPECIAL = {
    "lgamma": (math.lgamma, lambda g, x, y: g * x.special(digamma)),
    "digamma": (digamma, lambda g, x, y: g * x.special(lambda x: polygamma(1, x))),
    "polygamma": (
        lambda x: polygamma(2, x),
        lambda g, x, y: g * x.special(lambda x: polygamma(3, x)),
    ),
    "zeta": (
        zeta,
        None,
        lambda g, s, q, y: g * (0 - s * (s + 1).special(lambda s, q: zeta(s, q), q)),
    ),
    "igamma": (
        igamma,
        lambda g, a, x, y: g * a.special(by_a, x),
        lambda g, a, x, y: g * density(a, x),
    ),
    "igammac": (
        lambda a, x: 1 - igamma(a, x),
        lambda g, a, x, y: g * (0 - a.special(by_a, x)),
        lambda g, a, x, y: g * (0 - density(a, x)),
    ),
    "erf_inv": (
        lambda x: ndtri((x + 1) / 2) / math.sqrt(2),
        lambda g, x, y: g * ((y * y).exp() * (math.sqrt(math.pi) / 2)),
    ),
    "ndtri": (ndtri, lambda g, x, y: g * ((y * y * 0.5).exp() * math.sqrt(2 * math.pi))),
    "erfcx": (
        lambda x: math.exp(x * x) * math.erfc(x),
        lambda g, x, y: g * (x * y * 2 - 2 / math.sqrt(math.pi)),
    ),
    "i0": (
        lambda x: bessel_i(0, x),
        lambda g, x, y: g * x.special(lambda x: bessel_i(1, x)),
    ),
    "i0e": (
        lambda x: math.exp(-x) * bessel_i(0, x),
        lambda g, x, y: g * (x.special(lambda x: math.exp(-x) * bessel_i(1, x)) - y * sign(x)),
    ),
    "i1": (
        lambda x: bessel_i(1, x),
        lambda g, x, y: g * below(lambda x: bessel_i(0, x), x, y),
    ),
    "i1e": (
        lambda x: math.exp(-x) * bessel_i(1, x),
        lambda g, x, y: (
            g * (x.special(lambda x: math.exp(-x) * bessel_i(0, x)) - y * (1 / x + sign(x)))
        ),
    ),
    "j0": (
        lambda x: bessel_j(0, x),
        lambda g, x, y: g * (0 - x.special(lambda x: bessel_j(1, x))),
    ),
    "j1": (
        lambda x: bessel_j(1, x),
        lambda g, x, y: g * below(lambda x: bessel_j(0, x), x, y),
    ),
    "y0": (
        lambda x: bessel_y(0, x),
        lambda g, x, y: g * (0 - x.special(lambda x: bessel_y(1, x))),
    ),
    "y1": (
        lambda x: bessel_y(1, x),
        lambda g, x, y: g * below(lambda x: bessel_y(0, x), x, y),
    ),
    "k0": (
        lambda x: bessel_k(0, x),
        lambda g, x, y: g * (0 - x.special(lambda x: bessel_k(1, x))),
    ),
    "k0e": (
        lambda x: math.exp(x) * bessel_k(0, x),
        lambda g, x, y: g * (y - x.special(lambda x: math.exp(x) * bessel_k(1, x))),
    ),
    "k1": (
        lambda x: bessel_k(1, x),
        lambda g, x, y: g * (0 - x.special(lambda x: bessel_k(0, x)) - y / x),
    ),
    "k1e": (
        lambda x: math.exp(x) * bessel_k(1, x),
        lambda g, x, y: g * (y * (1 - 1 / x) - x.special(lambda x: math.exp(x) * bessel_k(0, x))),
    ),
}
ONE_OF_TWO = ("zeta", "igamma", "igammac")


def of_name(op):
    """The special function that an operator is, by one name in all frameworks."""
    name = op.type.lower().removeprefix("prims.").removesuffix(".default").removeprefix("aten.")
    return name.replace("bessel_", "").replace("bessel", "").replace("erfinv", "erf_inv")


SPECIAL_OPERATORS = {
    op: of_name(op)
    for op, known in all_operator_rules().items()
    if known.equation == "n(Y) specials" and known.backward is not no_gradient
}


@pytest.mark.parametrize("op", list(SPECIAL_OPERATORS), ids=str)
def test_gradient_of_a_special_function(op):
    """Three points: as much work as the derivative takes, and the derivative is right."""
    name = SPECIAL_OPERATORS[op]
    function, *derivatives = SPECIAL[name]
    others = (1.7,) if name in ONE_OF_TWO else ()
    for at, derivative in enumerate(derivatives):
        if derivative is None:
            continue
        tally = Tally()
        for x in (0.4, 0.65, 0.8):
            points = [*others, x] if at else [x, *others]
            points[0] += 1 if name == "zeta" else 0
            y, moved = function(*points), []
            for way in (1e-4, -1e-4):
                there = list(points)
                there[at] += way
                moved.append(function(*there))
            made = derivative(*(tally.number(v) for v in (1.0, *points, y)))
            assert np.isclose(made.value, (moved[0] - moved[1]) / 2e-4, rtol=1e-3), (op, x)
        operands = [(3,)] * len(derivatives)
        second = name == "polygamma" and op.domain != "torch.ops"
        operands, at = ([(), (3,)], 1) if second else (operands, at)
        made = gradient(f"{op.domain}::{op.type}", operands, (3,), at)
        assert made == (tally.cost, ZERO)


class Complex:
    """A complex number of which every use is the work on its two parts, as the forward rules say.

    A conjugate is a sign, and no work.
    """

    def __init__(self, value, spent):
        self.value, self.spent = value, spent

    def new(self, value, **work):
        """What is made of it by so much work."""
        self.spent.append(Cost(**work))
        return Complex(value, self.spent)

    def __mul__(self, other):
        if isinstance(other, Complex):
            return self.new(self.value * other.value, muls=4, adds=2)
        return self.new(self.value * other, muls=2)

    def __truediv__(self, other):
        return self.new(self.value / other.value, muls=6, adds=3, divs=2)

    def __add__(self, number):
        return self.new(self.value + number, adds=1)

    def __rsub__(self, number):
        return self.new(number - self.value, adds=1)

    def negative(self):
        """Both signs are turned."""
        return self.new(-self.value, adds=2)

    def by(self, name, function):
        """A function of it, for what the forward rule says."""
        op = f"torch.ops::aten.{name}.default"
        asked = to_node(op, [(1, 2)], [(1, 2)])
        self.spent.append(find_operator_rule(asked.op).formula(asked))
        return Complex(function(self.value), self.spent)


# By the function: dz from dY, z and Y, as if dY were conjugated.
COMPLEX = {
    "exp": (cmath.exp, lambda g, z, y: g * y),
    "expm1": (lambda z: cmath.exp(z) - 1, lambda g, z, y: g * (y + 1)),
    "exp2": (lambda z: 2**z, lambda g, z, y: g * y * math.log(2)),
    "log": (cmath.log, lambda g, z, y: g / z),
    "log1p": (lambda z: cmath.log(1 + z), lambda g, z, y: g / (z + 1)),
    "log2": (lambda z: cmath.log(z) / math.log(2), lambda g, z, y: g / (z * math.log(2))),
    "log10": (cmath.log10, lambda g, z, y: g / (z * math.log(10))),
    "sqrt": (cmath.sqrt, lambda g, z, y: g / (y * 2)),
    "rsqrt": (lambda z: 1 / cmath.sqrt(z), lambda g, z, y: g * (y * y * y * -0.5)),
    "sin": (cmath.sin, lambda g, z, y: g * z.by("cos", cmath.cos)),
    "cos": (cmath.cos, lambda g, z, y: g * z.by("sin", cmath.sin).negative()),
    "sinh": (cmath.sinh, lambda g, z, y: g * z.by("cosh", cmath.cosh)),
    "cosh": (cmath.cosh, lambda g, z, y: g * z.by("sinh", cmath.sinh)),
    "tan": (cmath.tan, lambda g, z, y: g * (y * y + 1)),
    "tanh": (cmath.tanh, lambda g, z, y: g * (1 - y * y)),
    "sigmoid": (lambda z: 1 / (1 + cmath.exp(-z)), lambda g, z, y: g * ((1 - y) * y)),
}


@pytest.mark.parametrize("name", list(COMPLEX))
def test_gradient_of_a_complex_function(name):
    """One number, whose derivative is right, for as much work as the rule says."""
    function, derivative = COMPLEX[name]
    z, spent = 0.6 + 0.7j, []
    made = derivative(*(Complex(v, spent) for v in (1.0, z, function(z))))
    assert cmath.isclose(
        made.value, (function(z + 1e-6) - function(z - 1e-6)) / 2e-6, rel_tol=1e-4
    )
    costs = gradient(f"torch.ops::aten.{name}.default", [(1, 2)], (1, 2), 0)
    assert costs == (sum(spent, ZERO), ZERO)


# Of 5 complex numbers: a product 4 muls and 2 adds, a quotient 6 muls, 3 adds and 2 divs, a scale
# 2 muls, exp 3 specials and 2 muls, log 3 specials, 2 muls and an add.
FIVE = (5, 2)
COMPLEX_BY_HAND = [
    # 2 z dY; p z^(p-1) dY, the power as exp(p log z); Y log(c) dY
    ("pow.Tensor_Scalar", [FIVE], 0, {"exponent": 2.0}, Cost(muls=6, adds=2) * 5),
    (
        "pow.Tensor_Scalar",
        [FIVE],
        0,
        {"exponent": 2.5},
        Cost(specials=6, muls=6 + 6, adds=1 + 2) * 5,
    ),
    ("pow.Scalar", [FIVE], 0, {"self_": 2.0}, Cost(muls=6, adds=2) * 5),
    # w z^(w-1) dY: w - 1, exp((w - 1) log z), two products; Y log(z) dY
    (
        "pow.Tensor_Tensor",
        [FIVE, FIVE],
        0,
        {},
        Cost(specials=6, muls=2 + 4 + 2 + 8, adds=1 + 1 + 2 + 4) * 5,
    ),
    ("pow.Tensor_Tensor", [FIVE, FIVE], 1, {}, Cost(specials=3, muls=2 + 8, adds=1 + 4) * 5),
    ("cumprod.default.complex", [FIVE], 0, {}, Cost(muls=10, adds=2 + 2 + 3, divs=2) * 5),
    ("cumsum.default", [FIVE], 0, {}, Cost(adds=10)),
    ("addcmul.default", [FIVE] * 3, 0, {}, Cost()),
    ("addcmul.default", [FIVE] * 3, 1, {"value": 2}, Cost(muls=6, adds=2) * 5),
    ("addcdiv.default", [FIVE] * 3, 1, {}, Cost(muls=6, adds=3, divs=2) * 5),
    # -a / (b b) dY
    ("addcdiv.default", [FIVE] * 3, 2, {}, Cost(muls=14, adds=2 + 3 + 2 + 2, divs=2) * 5),
    ("index_add.default", [FIVE, "5:int64", FIVE], 2, {"alpha": 2.0}, Cost(muls=10)),
    ("scatter_add.default", [FIVE, "5:int64", FIVE], 2, {}, Cost()),
    ("conj_physical.default", [FIVE], 0, {}, Cost(adds=5)),
]


@pytest.mark.parametrize(("name", "shapes", "place", "attrs", "expected"), COMPLEX_BY_HAND)
def test_gradient_of_complex_numbers_by_hand(name, shapes, place, attrs, expected):
    """By the derivatives of their real kin, in complex numbers."""
    assert gradient(f"torch.ops::aten.{name}", shapes, FIVE, place, **attrs)[0] == expected


@pytest.mark.parametrize("name", ["prod.default", "prod.dim_int"])
def test_gradient_of_a_whole_complex_product(name):
    """5 numbers: dY Y, a product, over each of them, a quotient."""
    expected = Cost(muls=4 + 30, adds=2 + 15, divs=10)
    assert gradient(f"torch.ops::aten.{name}", [FIVE], (2,), 0)[0] == expected
    norm = gradient("torch.ops::aten.linalg_vector_norm.default.complex", [FIVE], (1,), 0)[0]
    assert norm == Cost(muls=10, divs=1)


GATHERED = ("all_gather", "all_gather_invariant", "all_gather_reduced")
DEVICE_SUMS = [
    str(op).removeprefix("jax.")
    for op, known in all_operator_rules().items()
    if op.domain == "jax" and known.equation == "(n-1)*n(Y) adds on each of n devices"
]


# Which choose, or add up: their gradients are moved alone.
MOVE_BACK = {"TopK", "Col2Im", "ai.onnx.ml.Imputer", "jax.scatter-add", "tensorflow.BiasAddGrad"}
# The gradient of a sum over devices is the same on each, or is gathered again.
MOVE_BACK |= {f"jax.{name}" for name in DEVICE_SUMS}
MOVE_BACK |= {"tensorflow.SparseReduceSum", "tensorflow.SparseTensorDenseAdd"}  # gathered
# Sums of stored elements give each of them the gradient of its place.
MOVE_BACK |= {
    f"torch.ops.aten.{name}.sparse"
    for name in (
        "_sparse_sum.default", "_sparse_sum.dim", "_sparse_sum.dtype", "_sparse_sum.dim_dtype",
        "sum.default", "sum.dim_IntList", "add.Tensor", "sub.Tensor", "coalesce.default",
        "_coalesce.default", "to_dense.default", "_to_dense.default",
    )
}  # fmt: skip
MOVE_BACK |= {"jax.bcoo_todense", "jax.bcsr_todense", "jax.bcoo_sum_duplicates"}
MOVE_BACK |= {
    f"tensorflow.{name}" for name in ("SegmentSum", "SegmentSumV2", "UnsortedSegmentSum")
}


def test_what_moves_a_gradient_moves_data():
    """Nothing is computed in front of a gradient that costs nothing, but what is named here."""
    for op, known in all_operator_rules().items():
        if known.backward is movement_backward:
            assert known.equation.startswith("0") or str(op) in MOVE_BACK, op


def test_every_gradient_is_held_against_something():
    """A new rule with a formula for its gradients needs a loop, a derivative or a hand."""
    held = {name.split()[0].partition("-")[0] for name in (*UNARY, *BINARY, *GROUPED, *NORMS)}
    held |= {row[0].replace("::", ".") for row in BY_HAND} | {"Einsum", "Swish", "SwiGLU"}
    held |= {name.split()[0] for name in LOOPS}
    held |= {str(op) for op in SPECIAL_OPERATORS}
    held |= {f"torch.ops.aten.{name}.default" for name in COMPLEX}
    held |= {f"torch.ops.aten.{row[0]}" for row in COMPLEX_BY_HAND} | ALGEBRA | AS_PYTORCH_RUNS
    # as the other inverses; gathering over devices: tests/frontends/jax/test_devices.py
    held |= {"torch.ops.aten.inverse.default"} | {f"jax.{name}" for name in GATHERED}
    held |= {"CumProd", "LRN", "LpPool", "GlobalLpPool", "MeanVarianceNormalization"}
    transforms = {f"tensorflow.{way}{kind}{dims}" for way in ("", "I") for kind in ("FFT", "RFFT")
                  for dims in ("", "2D", "3D")}  # fmt: skip
    held |= transforms | {"jax.fft"}
    held |= {
        f"torch.ops.aten.{name}"
        for name in ("prod.default", "prod.dim_int", "linalg_vector_norm.default.complex")
    }
    kin = {
        "torch.ops.prims.conj_physical.default": "torch.ops.aten.conj_physical.default",
        "torch.ops.aten._conj_physical.default": "torch.ops.aten.conj_physical.default",
        "torch.ops.aten.cholesky.default": "torch.ops.aten.linalg_cholesky.default",
        "torch.ops.aten.linalg_lu.default": "torch.ops.aten.linalg_lu_factor_ex.default",
        "torch.ops.aten._linalg_slogdet.default": "jax.numpy/linalg.slogdet",
        "torch.ops.aten.linalg_lu_factor.default": "torch.ops.aten.linalg_lu_factor_ex.default",
        "torch.ops.prims.fmax.default": "Max",
        "torch.ops.prims.fmin.default": "Min",
        "SimplifiedLayerNormalization": "RMSNormalization",
        "com.microsoft.Gelu": "Gelu",
        "torch.ops.aten.embedding_bag.padding_idx": "torch.ops.aten.embedding_bag.default",
    }
    for op, known in all_operator_rules().items():
        if isinstance(known.backward, str) or known.backward in (no_gradient, movement_backward):
            continue
        solves = "solve" in op.type.lower()  # beside the contractions
        assert solves or kin.get(str(op), str(op)) in held, op
