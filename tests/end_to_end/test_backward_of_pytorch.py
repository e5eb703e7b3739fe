"""Passes of training by where gradients flow, against what PyTorch really did."""

import itertools

import pytest

import crossflops
from crossflops.errors import NormalizeError
from crossflops.ir.training import matches_weight_pattern
from crossflops.ledger.training.weights import TrainedWeights
from crossflops.ledger.training.work import count_training_step, total_work
from crossflops.targets.request import Request
from crossflops.verbs.count import native_count

torch = pytest.importorskip("torch")
from tests import executed  # noqa: E402

pytestmark = pytest.mark.torch


def network():
    """A convolution, attention in pieces, and two linears with an adapter beside one of them."""
    nn = torch.nn

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Conv2d(3, 8, 3, padding=1)
            self.norm = nn.BatchNorm2d(8)
            self.body = nn.Conv2d(8, 8, 3, padding=1)
            self.query, self.key, self.value = (nn.Linear(8, 8) for _ in range(3))
            self.wide = nn.Linear(8, 32)
            self.down, self.up = nn.Linear(8, 2, bias=False), nn.Linear(2, 32, bias=False)
            self.head = nn.Linear(32, 5)

        def forward(self, x):
            h = self.body(self.norm(self.stem(x)).relu()).flatten(2).transpose(1, 2)
            scores = (self.query(h) @ self.key(h).transpose(1, 2)).softmax(-1)
            h = scores @ self.value(h)
            return self.head(self.wide(h) + self.up(self.down(h)))

    return Network()


@pytest.fixture(scope="module")
def counted():
    """The network and its input, and both as they are counted."""
    model, x = network(), torch.zeros(2, 3, 4, 4)
    return model, x, native_count(Request.from_arguments(model, x))[1]


@pytest.mark.parametrize(
    ("frozen", "trainable"),
    [
        ((), ()),
        (("stem", "norm"), ()),
        (("stem", "norm", "body", "query", "key", "value"), ()),
        (("*",), ("down", "up")),
        (("*",), ("query",)),
        (("*",), ("value",)),
        (("*",), ("norm",)),
        (("head", "wide"), ()),
    ],
)
def test_pytorch_does_as_many(counted, frozen, trainable):
    """FLOPs of a real forward and backward pass, counted by PyTorch, are 2 x MACs x passes."""
    from torch.utils.flop_counter import FlopCounterMode

    model, x, own = counted
    step = total_work(count_training_step(own.graph, TrainedWeights(own.trace, frozen, trainable)))
    ours = 2 * (step.forward + step.backward).macs
    for name, weight in model.named_parameters():
        off = any(matches_weight_pattern(name, pattern) for pattern in frozen)
        weight.requires_grad = not off or any(
            matches_weight_pattern(name, pattern) for pattern in trainable
        )
    with FlopCounterMode(display=False) as counter:
        model(x).sum().backward()
    assert ours == counter.get_total_flops()
    assert 2 * own.ledger.total.macs < ours < 6 * own.ledger.total.macs


@pytest.mark.parametrize("frozen", [(), ("first",), ("second",)])
def test_a_model_that_learns_to_be_quantized(frozen):
    """Fake quantization of a weight and of what is between two layers, as PyTorch trains it."""

    class Rounded(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = torch.nn.Linear(3, 4), torch.nn.Linear(4, 5)

        def forward(self, x):
            zeros = torch.zeros(4, dtype=torch.int32)
            weight = torch.fake_quantize_per_channel_affine(
                self.first.weight, torch.ones(4), zeros, 0, -128, 127
            )
            hidden = torch.nn.functional.linear(x, weight, self.first.bias)
            return self.second(torch.fake_quantize_per_tensor_affine(hidden, 0.1, 0, -128, 127))

    model, x = Rounded(), torch.rand(2, 3)
    for name in frozen:
        getattr(model, name).requires_grad_(False)
    _, native = native_count(Request.from_arguments(model, x))
    exact = count_training_step(native.graph, TrainedWeights(native.trace, (), ()))
    assert exact.unknown == ()
    assert total_work(exact).backward.macs == executed.step(model, (x,))[1]


def test_a_packed_recurrence_of_two_directions_is_named():
    """The batch sizes are not known: how many rows begin backwards is assumed, and said."""

    class Packed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.cells = torch.nn.GRU(4, 3, bidirectional=True)

        def forward(self, x):
            packed = torch.nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 3, 2]))
            return torch.nn.utils.rnn.pad_packed_sequence(self.cells(packed)[0])[0]

    _, native = native_count(Request.from_arguments(Packed(), torch.rand(5, 3, 4)))
    exact = count_training_step(native.graph, TrainedWeights(native.trace, (), ()))
    assert [row.reason for row in exact.unknown] == [
        "the number of its longest sequences is unknown; counted as if all sequences were the "
        "longest"
    ]
    # forward 10 rows, 2 ways of 9 gates by 4 + 3; backward that of the weights, and 7 rows by 3
    assert total_work(exact).forward.macs == 10 * 2 * 9 * 7
    assert total_work(exact).backward.macs == 10 * 2 * 9 * 7 + 7 * 2 * 9 * 3


def fused(q, mask):
    """Attention with a mask [4, 4]."""
    return torch.nn.functional.scaled_dot_product_attention(q, q, q, mask)


def graded(*shape):
    """A constant that has a gradient."""
    return torch.zeros(shape).requires_grad_()


class Constant(torch.nn.Module):
    """A layer, and what is done with a constant that is made there: x [1, 4, 8]."""

    def __init__(self, run):
        super().__init__()
        self.run, self.project = run, torch.nn.Linear(8, 8, bias=False)

    def forward(self, x):
        return self.run(self.project(x))


@pytest.mark.parametrize(
    "run",
    [
        # PyTorch takes a kernel for such a mask that makes no scores again
        lambda x: fused(x[:, None], graded(1, 1, 4, 4)),
        lambda x: fused(x[:, None], graded(4, 4)[None] + torch.ones(4, 4)),
        lambda x: fused(x[:, None], graded(4, 4).detach() * 2) * 0 + x @ graded(8, 8),
        lambda x: x @ graded(8, 6) @ (torch.ones(6, 3) * 2).requires_grad_(),
        lambda x: x @ (graded(48).view(8, 6) + torch.ones(6)),
        lambda x: x @ graded(8, 6).detach(),
        lambda x: x @ torch.ones(8, 6, requires_grad=True),
        lambda x: x @ x.new_zeros(8, 6, requires_grad=True),
        lambda x: x @ torch.ones_like(x, requires_grad=True)[0].t(),
        # which PyTorch's exporter takes apart, and calls otherwise
        lambda x: x @ torch.eye(8).requires_grad_(),
        lambda x: x @ torch.tensor([[1.0, 2.0]] * 8, requires_grad=True),
    ],
)
@pytest.mark.parametrize("trained", [True, False])
def test_a_constant_with_a_gradient(run, trained):
    """As PyTorch dispatches it, with what a fused attention makes again beside."""
    model, x = Constant(run).requires_grad_(trained), torch.rand(1, 4, 8)
    step = crossflops.count(model, x, train=True).training
    backward = step.backward_input_macs + step.backward_weight_macs
    assert step.uncounted == ()
    assert (step.forward_macs, backward) == executed.step(model, (x,))


@pytest.mark.parametrize(("graded_mask", "again"), [(True, 0), (False, 4 * 4 * 8)])
def test_a_mask_that_has_a_gradient_is_given_scores(graded_mask, again):
    """The fused kernel, which makes 4 x 4 x 8 again, hands no gradient to a mask."""
    model = Constant(lambda x: fused(x[:, None], torch.zeros(4, 4).requires_grad_(graded_mask)))
    step = crossflops.count(model, torch.rand(1, 4, 8), train=True).training
    assert step.recomputed_macs == again


@pytest.mark.parametrize(
    "run",
    [
        lambda x: x @ (graded(8, 6) * 2),
        lambda x: x @ (lambda c: (c * 2) @ c.sin())(graded(8, 8)),
    ],
)
@pytest.mark.parametrize("trained", [True, False])
def test_work_on_a_constant_with_a_gradient(run, trained):
    """Work on constants stands in the graph, and its gradients are counted as they ran."""
    model, x = Constant(run).requires_grad_(trained), torch.rand(1, 4, 8)
    step = crossflops.count(model, x, train=True).training
    assert step.uncounted == ()
    backward = step.backward_input_macs + step.backward_weight_macs
    assert (step.forward_macs, backward) == executed.step(model, (x,))


@pytest.mark.parametrize("bias", [True, False])
def test_a_derivative_along_a_direction(bias):
    """Without a bias the export loses the tangent: refused, not counted as if there were none."""
    layer = torch.nn.Linear(5, 6, bias=bias)

    class Derived(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            return torch.func.jvp(self.layer, (x,), (torch.ones_like(x),))

    if bias:
        step = crossflops.count(Derived(), torch.rand(3, 5), train=True).training
        backward = step.backward_input_macs + step.backward_weight_macs
        assert (step.forward_macs, backward) == executed.step(Derived(), (torch.rand(3, 5),))
    else:
        with pytest.raises(NormalizeError, match="it differentiates while it runs"):
            crossflops.count(Derived(), torch.rand(3, 5), train=True)


@pytest.mark.parametrize("takes", ["tangent", "both"])
def test_a_tangent_of_forward_mode_is_refused(takes):
    """The export loses it: the result alone would be counted, or nothing at all."""
    from torch.autograd import forward_ad

    class Derived(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(5, 6)

        def forward(self, x):
            with forward_ad.dual_level():
                dual = forward_ad.make_dual(x, torch.ones_like(x))
                primal, tangent = forward_ad.unpack_dual(self.layer(dual))
                return tangent if takes == "tangent" else (primal, tangent)

    with pytest.raises(NormalizeError, match=r"it runs, by torch\.autograd\.forward_ad"):
        crossflops.count(Derived(), torch.rand(3, 5))


class Leaf(torch.nn.Module):
    """Two layers, and a value that is made to need a gradient: x [2, 4]."""

    def __init__(self, run):
        super().__init__()
        self.run, self.first, self.last = run, torch.nn.Linear(4, 4), torch.nn.Linear(4, 3)

    def forward(self, x):
        return self.run(self, x)


def assigned(model, x):
    """By the attribute."""
    x = x.detach()
    x.requires_grad = True
    return model.first(x)


def both_ways(model, x):
    """As it is to the one layer, and as a leaf to the other one."""
    h = model.first(x)
    return model.last(h) + model.last(h.detach().requires_grad_())


@pytest.mark.parametrize(
    ("run", "frozen"),
    [
        (lambda s, x: s.first(x.requires_grad_()), ()),
        (lambda s, x: s.first(x.clone().requires_grad_()), ()),
        (lambda s, x: s.first(x.detach().requires_grad_()), ("first",)),
        (assigned, ()),
        (lambda s, x: s.last(s.first(x).detach().requires_grad_()), ()),
        (lambda s, x: s.last(s.first(x).detach().requires_grad_().view(4, 2).view(2, 4)), ()),
        (lambda s, x: s.last(x.requires_grad_().tanh()), ("last",)),
        (both_ways, ()),
        (both_ways, ("first",)),
    ],
)
def test_a_leaf_that_is_made_in_the_model(run, frozen):
    """It has a gradient, which goes no further."""
    model, x = Leaf(run), torch.rand(2, 4)
    for name in frozen:
        getattr(model, name).requires_grad_(False)
    step = crossflops.count(model, x, train=True).training
    backward = step.backward_input_macs + step.backward_weight_macs
    assert step.uncounted == ()
    assert (step.forward_macs, backward) == executed.step(model, (x.clone(),))


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("frozen", ["weight_ih_l0", "weight_hh_l0_reverse", "_l0", "_reverse"])
def test_one_direction_of_a_recurrent_layer_is_frozen(kind, frozen):
    """In part or all of it: the other one does as much as ever."""

    class Both(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.cells = getattr(torch.nn, kind)(6, 4, bidirectional=True)

        def forward(self, x):
            return self.cells(x)[0]

    model, x = Both(), torch.rand(3, 2, 6)
    for name, parameter in model.named_parameters():
        parameter.requires_grad = not name.endswith(frozen)
    step = crossflops.count(model, x, train=True).training
    backward = step.backward_input_macs + step.backward_weight_macs
    assert (step.forward_macs, backward) == executed.step(model, (x,))


@pytest.mark.parametrize("loss", ["mse_loss", "l1_loss", "smooth_l1_loss"])
@pytest.mark.parametrize("frozen", [(), ("encode",)])
def test_a_codebook_with_two_losses(loss, frozen):
    """Codes and what is encoded meet twice, one or the other detached (2017's VQ-VAE)."""

    class Quantized(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.encode, self.decode = torch.nn.Linear(6, 4), torch.nn.Linear(4, 6)
            self.codes = torch.nn.Parameter(torch.rand(7, 4))

        def forward(self, x):
            z = self.encode(x)
            codes = self.codes[torch.cdist(z, self.codes).argmin(-1)]
            between = getattr(torch.nn.functional, loss)
            losses = between(codes, z.detach()), between(z, codes.detach())
            return self.decode(z + (codes - z).detach()), *losses

    model, x = Quantized(), torch.rand(3, 6)
    for name in frozen:
        getattr(model, name).requires_grad_(False)
    step = crossflops.count(model, x, train=True).training
    assert step.uncounted == ()
    assert step.macs == sum(executed.step(model, (x,)))


@pytest.mark.parametrize("frozen", ["", "encode", "codes"])
@pytest.mark.parametrize("rows", [26, 3])
def test_distances_to_many_codes(rows, frozen):
    """Of more than 25 rows PyTorch derives a product, both ways whichever operand is trained."""

    class Codes(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.encode = torch.nn.Linear(6, 4)
            self.codes = torch.nn.Parameter(torch.rand(7, 4))

        def forward(self, x):
            return torch.cdist(self.encode(x), self.codes)

    model, x = Codes(), torch.rand(2, rows, 6)
    for name, parameter in model.named_parameters():
        parameter.requires_grad = not frozen or not name.startswith(frozen)
    step = crossflops.count(model, x, train=True).training
    assert step.uncounted == ()
    backward = step.backward_input_macs + step.backward_weight_macs
    assert backward == executed.step(model, (x,))[1]


class TwoNames(torch.nn.Module):
    """A weight [4, 4] under two names in one module, used once by each."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Parameter(torch.rand(4, 4))
        self.second = self.first

    def forward(self, x):
        return x @ self.first @ self.second


def tied_directions():
    """A recurrent layer whose two directions, and two layers, share a weight each."""
    cells = torch.nn.GRU(6, 3, 2, bidirectional=True)
    cells.weight_ih_l0_reverse, cells.weight_hh_l1 = cells.weight_ih_l0, cells.weight_hh_l0
    return cells


@pytest.mark.parametrize(("make", "shape"), [(TwoNames, (3, 4)), (tied_directions, (3, 2, 6))])
@pytest.mark.parametrize("frozen", [(), ("first",), ("weight_ih_l0",), ("weight_hh_l0",)])
def test_a_parameter_may_have_two_names_in_one_module(make, shape, frozen):
    """It is trained under the one that the export chooses as under the other."""
    model, x = make(), torch.rand(shape)
    for name, parameter in model.named_parameters():
        parameter.requires_grad = name not in frozen
    step = crossflops.count(model, x, train=True).training
    backward = step.backward_input_macs + step.backward_weight_macs
    assert (step.forward_macs, backward) == executed.step(model, (x,))


def test_a_parameter_of_two_names_by_hand():
    """3 rows by 4 by 4, twice: two gradients of the weight, and one of what is between."""
    step = crossflops.count(TwoNames(), torch.rand(3, 4), train=True).training
    product = 3 * 4 * 4
    assert step.forward_macs == 2 * product
    assert (step.backward_input_macs, step.backward_weight_macs) == (product, 2 * product)


def without_gradients(model, x):
    """Parts that are split off without gradients, beside one that has some."""
    h = model.first(x)
    with torch.no_grad():
        left, right = (part.tanh() for part in h.chunk(2, -1))
    return model.last(torch.cat([left, right], -1)) + h[:, :3]


@pytest.mark.parametrize(
    "run",
    [
        lambda s, x: (lambda q, k: q @ k.detach().t())(*s.first(x).chunk(2, -1)),
        lambda s, x: (lambda q, k: q @ k.t().detach())(*s.first(x).split([2, 2], -1)),
        lambda s, x: (lambda q, k: torch.cat([q.detach(), k], -1) @ s.last.weight.t())(
            *s.first(x).unflatten(-1, (2, 2)).unbind(-2)
        ),
        without_gradients,
    ],
)
def test_a_part_that_is_split_off_is_cut_alone(run):
    """Of a value that is split some parts are detached, or none has a gradient."""
    model, x = Leaf(run), torch.rand(2, 4)
    step = crossflops.count(model, x, train=True).training
    backward = step.backward_input_macs + step.backward_weight_macs
    assert step.uncounted == ()
    assert (step.forward_macs, backward) == executed.step(model, (x,))


def test_torchscript_that_has_run_before_has_its_gradients():
    """From its second run on TorchScript derives by itself, and detaches what goes in there."""
    parts = torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, 4)
    scripted = torch.jit.script(torch.nn.Sequential(*parts))
    model, x = torch.nn.Sequential(torch.nn.Linear(3, 4), scripted), torch.rand(5, 3)
    for _ in range(3):
        ran = executed.step(model, (x,))
        step = crossflops.count(model, x, train=True).training
        backward = step.backward_input_macs + step.backward_weight_macs
        assert (step.forward_macs, backward) == ran


CLOSED_OVER = torch.nn.Linear(4, 6)


class Beside(torch.nn.Module):
    """A layer before, and one behind, what has a gradient and is no parameter of the model."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.first, self.last = kind, torch.nn.Linear(4, 4), torch.nn.Linear(6, 3)
        self.listed = [torch.nn.Linear(4, 6)]
        self.plain = torch.rand(4, 6).requires_grad_()
        self.register_buffer("buffer", torch.rand(4, 6).requires_grad_())
        self.register_buffer("forgotten", torch.rand(4, 6).requires_grad_(), persistent=False)

    def forward(self, x):
        x = self.first(x)
        if self.kind in ("plain", "buffer", "forgotten"):
            return self.last(x @ getattr(self, self.kind))
        if self.kind == "computed":
            return self.last(x @ (self.first.weight @ self.buffer))
        layer = self.listed[0] if self.kind == "listed" else CLOSED_OVER
        return self.last(layer(x))


@pytest.mark.parametrize(
    "kind", ["plain", "buffer", "forgotten", "computed", "listed", "closed over"]
)
@pytest.mark.parametrize("trained", [True, False])
def test_what_has_a_gradient_need_be_no_parameter(kind, trained):
    """Buffers, plain tensors and layers that a model does not know: no optimizer has them."""
    model, x = Beside(kind).requires_grad_(trained), torch.rand(2, 4)
    step = crossflops.count(model, x, train=True, optimizer="sgd").training
    backward = step.backward_input_macs + step.backward_weight_macs
    assert (step.forward_macs, backward) == executed.step(model, (x,))
    # 4 x 4 and 4, 6 x 3 and 3
    assert step.optimizer.parameters == (41 if trained else 0)


def test_what_turns_the_gradient_of_a_weight_is_named():
    """A discriminator that is frozen for the generator's turn, and trained in its own."""

    class Adversarial(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.make, self.judge = torch.nn.Linear(3, 4), torch.nn.Linear(4, 1)

        def forward(self, z):
            made = self.make(z)
            self.judge.requires_grad_(False)
            fooled = self.judge(made)
            self.judge.weight.requires_grad = True
            return fooled, self.judge(made.detach())

    step = crossflops.count(Adversarial(), torch.rand(2, 3), train=True).training
    reasons = [row.reason for row in step.uncounted]
    assert (
        reasons
        == [
            "the model switches the gradient of its weight on or off while it runs; counted as it "
            "was before the run"
        ]
        * 2
    )


@pytest.mark.parametrize("graded", [True, False])
def test_an_input_that_has_a_gradient(graded):
    """`requires_grad` of what is given counts: 5 rows by 4 by 6 back to it, and 5 x 6 x 2."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, 2))
    x = torch.rand(5, 4, requires_grad=graded)
    step = crossflops.count(model, x, train=True).training
    assert step.backward_input_macs == 5 * 6 * 2 + graded * 5 * 4 * 6
    backward = step.backward_input_macs + step.backward_weight_macs
    assert (step.forward_macs, backward) == executed.step(model, (x,))


FACTORED = {
    "svd": (lambda a: torch.linalg.svd(a, full_matrices=False), 3),
    "qr": (torch.linalg.qr, 2),
    "eigh": (lambda a: torch.linalg.eigh(a + a.mT), 2),
}
SELECTED = [
    (name, shape, places)
    for name, (_, results) in FACTORED.items()
    for shape in ((7, 3), (3, 7), (5, 5))
    if name != "eigh" or shape == (5, 5)
    for size in range(1, results + 1)
    for places in itertools.combinations(range(results), size)
]


@pytest.mark.parametrize(("name", "shape", "places"), SELECTED)
def test_a_factorization_of_which_a_part_reaches_the_loss(name, shape, places):
    """Values, vectors of one side or of both: PyTorch makes the gradients of those alone."""
    factored = FACTORED[name][0]

    class Factored(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(shape))

        def forward(self, x):
            results = factored(x * self.scale)
            return [results[place] for place in places]

    model, x = Factored(), torch.rand(shape) + 2 * torch.eye(*shape)
    step = crossflops.count(model, x, train=True).training
    assert step.uncounted == ()
    assert step.backward_input_macs + step.backward_weight_macs == executed.step(model, (x,))[1]


def test_vectors_of_a_factorization_by_hand():
    """U of 7 x 3 alone: U^T dU twice, 63 each, and three products of 7 x 3 by 3 x 3."""
    from crossflops.operators import linear_algebra

    assert linear_algebra.svd_gradient_cost(7, 3, left=True, right=False).macs == 5 * 7 * 3 * 3
    assert linear_algebra.svd_gradient_cost(7, 3, left=False, right=True).macs == 2 * 27 + 63
    assert linear_algebra.svd_gradient_cost(7, 3, left=False, right=False).macs == 63
    assert linear_algebra.qr_gradient_cost(7, 3, q=True, r=False).macs == 2 * 63


class TakesAView(torch.nn.Module):
    """Two layers, and what is taken from the first under torch.no_grad()."""

    def __init__(self, taken):
        super().__init__()
        self.first = torch.nn.Linear(6, 6, bias=False)
        self.second = torch.nn.Linear(3, 4, bias=False)
        self.taken = taken

    def forward(self, x):
        h = self.first(x)
        with torch.no_grad():
            part = self.taken(h)
        return self.second(part)


@pytest.mark.parametrize(
    ("taken", "named", "more"),
    [
        (lambda h: h.view(5, 2, 3), True, 1),
        (lambda h: h.chunk(2, 1)[0], True, 0),
        (lambda h: (h + 1).view(5, 2, 3), False, 0),
        (lambda h: h.detach().view(5, 2, 3), False, 0),
    ],
    ids=["view", "one of several", "view of a copy", "view of what is detached"],
)
def test_a_view_without_gradients_is_named(taken, named, more):
    """PyTorch makes a gradient that goes nowhere where the layer takes a view of it in turn."""
    model, x = TakesAView(taken), torch.zeros(5, 6)
    report = crossflops.count(model, x, train=True)
    assert bool(report.training.uncounted) == named
    _, executed_back = executed.step(model, (x,))
    counted_back = report.training.backward_input_macs + report.training.backward_weight_macs
    gradient = taken(model.first(x)).numel() * 4  # of a weight of 3 x 4, or of what it meets
    assert counted_back == gradient
    assert executed_back == (1 + more) * gradient
