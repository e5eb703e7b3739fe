"""The backward MACs of a training step are those that PyTorch really runs."""

import pytest

from crossflops import count
from crossflops.errors import CrossflopsWarning
from crossflops.ir.training import matches_weight_pattern
from crossflops.ledger.training.weights import TrainedWeights
from crossflops.ledger.training.work import count_training_step, total_work
from crossflops.targets.request import Request
from crossflops.verbs.count import native_count

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional

pytestmark = pytest.mark.torch


def product(a, b):
    """MACs of a product of matrices, or of one for each member of a batch."""
    return a.numel() * b.shape[-1]


def window(weight, larger):
    """MACs of a convolution: every element of the larger side meets its window."""
    return larger * weight[0].numel()


def forward_convolution(x, weight, bias, stride, padding, dilation, transposed, *_rest, out):
    """MACs of `aten.convolution`."""
    return window(weight, x.numel() if transposed else out.numel())


def backward_convolution(grad, x, weight, sizes, stride, padding, dilation, transposed, *rest):
    """MACs of the gradients that its mask asks for: of the input, and of the weight."""
    *_, mask = rest
    return window(weight, x.numel() if transposed else grad.numel()) * sum(mask[:2])


def macs_of(func, args, out):
    """MACs of one operator that was dispatched: 0 for what multiplies no matrices."""
    aten, packet = torch.ops.aten, func._overloadpacket
    if packet in (aten.mm, aten.bmm):
        return product(*args[:2])
    if packet in (aten.addmm, aten.baddbmm, aten.addmm_, aten.baddbmm_):
        return product(*args[1:3])
    if packet is aten.convolution:
        return forward_convolution(*args, out=out)
    if packet is aten.convolution_backward:
        return backward_convolution(*args)
    assert "mkldnn" not in str(packet), packet
    assert "flash" not in str(packet), packet
    return 0


def run_by_pytorch(model, inputs):
    """MACs of the forward and of the backward pass of a real run, the loss all float outputs."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils._python_dispatch import TorchDispatchMode

    counts = []

    class Products(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            counts.append(macs_of(func, args, out))
            return out

    model.zero_grad()
    with torch.backends.mkldnn.flags(enabled=False), sdpa_kernel(SDPBackend.MATH), Products():
        outputs = model(*inputs)
        forward = sum(counts)
        leaves = [leaf for leaf in torch.utils._pytree.tree_leaves(outputs) if leaf.requires_grad]
        if leaves:
            sum(leaf.sum() for leaf in leaves).backward()
    return forward, sum(counts) - forward


class Convolutions(nn.Module):
    """Strides, groups, dilation, a depthwise one and a transposed one."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.grouped = nn.Conv2d(8, 12, 3, padding=2, dilation=2, groups=4, bias=False)
        self.deep = nn.Conv2d(12, 12, 3, padding=1, groups=12)
        self.up = nn.ConvTranspose2d(12, 6, 4, stride=2, padding=1, groups=2)
        self.line = nn.Conv1d(6, 4, 5)

    def forward(self, x):
        x = self.norm(self.stem(x)).relu()
        x = F.max_pool2d(self.deep(F.gelu(self.grouped(x))), 2)
        return self.line(self.up(x).flatten(2))


class Sequences(nn.Module):
    """An embedding, recurrent layers, attention with its norm, and a tied head."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(11, 6)
        self.lstm = nn.LSTM(6, 5, num_layers=2, batch_first=True)
        self.gru = nn.GRU(5, 3, bidirectional=True, batch_first=True)
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)
        self.norm = nn.LayerNorm(6)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids):
        x = self.gru(self.lstm(self.words(ids))[0])[0]
        x = self.norm(x + self.attention(x, x, x, need_weights=False)[0])
        return self.head(x)


class Sums(nn.Module):
    """Einsum of two operands, a bilinear layer, and products with constants."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 6)
        self.mix = nn.Parameter(torch.randn(2, 3, 5))
        self.turn = nn.Parameter(torch.randn(5, 5))
        self.register_buffer("table", torch.randn(6, 6))

    def forward(self, x):
        h = self.first(x) @ self.table
        h = torch.einsum("bthd,hde->bte", h.unflatten(-1, (2, 3)), self.mix)
        return h @ self.turn


class Cut(nn.Module):
    """What is detached, what runs without gradients, and what no output sees in full."""

    def __init__(self):
        super().__init__()
        self.teacher, self.student = nn.Linear(4, 6), nn.Linear(4, 6)
        self.probe, self.head = nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, x):
        with torch.no_grad():
            aim = self.teacher(x)
        h = self.student(x)
        return self.head(h) * self.probe(h.detach()), aim - h


class Both(nn.Module):
    """A value beside itself, detached: multiplied, joined, and returned both ways."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.third, self.fourth = nn.Linear(4, 3), nn.Linear(8, 3)

    def forward(self, x):
        h = self.first(x)
        gated = h.detach() @ self.second(h).mT
        joined = self.fourth(torch.cat([h.detach(), h], -1))
        return gated, h @ h.detach().mT, joined, self.third(x).detach()


CASES = {
    "both": (Both, lambda: (torch.randn(2, 4),)),
    "convolutions": (Convolutions, lambda: (torch.randn(2, 3, 16, 16),)),
    "sequences": (Sequences, lambda: (torch.randint(0, 11, (2, 4)),)),
    "sums": (Sums, lambda: (torch.randn(2, 3, 4),)),
    "cut": (Cut, lambda: (torch.randn(2, 4),)),
    "encoder": (
        lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
        lambda: (torch.randn(2, 3, 8),),
    ),
}
FREEZES = {
    "both": [("first",), ("second",), ("third",), ("*weight",)],
    "convolutions": [("stem",), ("stem", "norm"), ("grouped", "deep"), ("*.weight",), ("*",)],
    "sequences": [("words",), ("lstm",), ("lstm", "gru", "words"), ("*weight*",), ("head",)],
    "sums": [("first",), ("mix",), ("turn",), ("first", "mix")],
    "cut": [("student",), ("head",), ("teacher",)],
    "encoder": [("self_attn",), ("*.weight",), ("linear1", "self_attn")],
}


@pytest.fixture(scope="module", autouse=True)
def no_fast_path():
    """Frozen attention would run as one kernel, whose products nobody could see."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.backends.mha.set_fastpath_enabled(before)


@pytest.fixture(scope="module")
def counted():
    """Each model with its inputs and its count, exported once."""
    known = {}

    def count(name):
        if name not in known:
            torch.manual_seed(0)
            make, inputs = CASES[name]
            model = make().eval()
            given = inputs()
            known[name] = model, given, native_count(Request.from_arguments(model, given))[1]
        return known[name]

    return count


@pytest.mark.parametrize(
    ("name", "frozen"), [(name, frozen) for name in CASES for frozen in ((), *FREEZES[name])]
)
def test_pytorch_runs_as_many(counted, name, frozen):
    """Forward and backward MACs, with patterns of frozen parameters."""
    model, inputs, native = counted(name)
    step = total_work(count_training_step(native.graph, TrainedWeights(native.trace, frozen, ())))
    names = {}
    for path, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, []).append(path)
    for parameter, paths in names.items():
        parameter.requires_grad = not any(
            matches_weight_pattern(path, pattern) for path in paths for pattern in frozen
        )
    forward, backward = run_by_pytorch(model, inputs)
    assert (step.forward.macs, step.backward.macs) == (forward, backward)


def test_the_model_says_what_is_trained():
    """`requires_grad` of the parameters decides, and `trainable` goes over it."""
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 5), nn.Linear(5, 2))
    model[0].requires_grad_(False)
    x = torch.randn(7, 3)
    report, native = native_count(Request.from_arguments(model, x, train=True))
    # dW of the two that are trained, and dX of the last one
    assert report.training.backward_weight_macs == 7 * (4 * 5 + 5 * 2)
    assert report.training.backward_input_macs == 7 * 5 * 2
    assert report.training.uncounted == ()
    assert run_by_pytorch(model, (x,))[1] == 7 * (4 * 5 + 2 * 5 * 2)
    step = total_work(count_training_step(native.graph, TrainedWeights(native.trace, (), ("0",))))
    assert step.weights.macs == step.forward.macs


def test_a_parameter_that_no_operator_takes_may_be_frozen():
    """Its name is a name of the model, and nothing changes: 2 x 3 x 4 each way."""
    model = nn.Linear(3, 4)
    model.unused = nn.Linear(4, 5)
    step = count(model, torch.rand(2, 3), train=True, frozen=["unused"]).training
    assert (step.forward_macs, step.backward_weight_macs) == (24, 24)


class TwoWays(nn.Module):
    """A bilinear layer of what two linear ones give."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(2, 3), nn.Linear(2, 4)
        self.mix = nn.Bilinear(3, 4, 5)

    def forward(self, x):
        return self.mix(self.left(x), self.right(x))


class Attending(nn.Module):
    """Attention of two heads of depth 2, to itself."""

    def __init__(self):
        super().__init__()
        self.heads = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x):
        return self.heads(x, x, x, need_weights=False)[0]


def normed():
    """A convolution of one pixel, and its norm."""
    return nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3))


def in_turn():
    """Two layers."""
    return nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 5))


@pytest.mark.parametrize(
    ("make", "shape", "frozen", "parts"),
    [
        # x by 3 x 4 and 4 x 5 for two rows
        (in_turn, (2, 3), (), (64, 40, 64, 0)),
        (in_turn, (2, 3), ("0",), (64, 0, 40, 0)),
        (in_turn, (2, 3), ("1",), (64, 40, 24, 0)),
        # 16 pixels by 3 x 2; a norm has no MACs, and its weights need nothing of the image
        (normed, (1, 2, 4, 4), (), (96, 0, 96, 0)),
        (normed, (1, 2, 4, 4), ("0",), (96, 0, 0, 0)),
        # for three rows 18 and 24, then h = left W of 3 * 3 * 20, and h right of 3 * 5 * 4;
        # as PyTorch derives it: dleft dY W and that by right, 180 each; dright left W and that by
        # dY, 180 and 60; dW left dY of 3 * 3 * 5 and that by right, 180
        (TwoWays, (3, 2), (), (282, 600, 267, 0)),
        (TwoWays, (3, 2), ("mix",), (282, 600, 42, 0)),
        (TwoWays, (3, 2), ("left",), (282, 240, 249, 0)),
        # six tokens by 4 x 12 and 4 x 4; 2 * 2 * 9 scores of depth 2, and as much for the values
        (Attending, (2, 3, 4), (), (528, 4 * 72 + 96, 384, 72)),
        (Attending, (2, 3, 4), ("heads.out_proj",), (528, 384, 288, 72)),
        (Attending, (2, 3, 4), ("heads.in_proj*",), (528, 0, 96, 0)),
    ],
)
def test_layers_by_hand(make, shape, frozen, parts):
    """Forward, gradients of inputs and of weights, run again."""
    step = count(make(), torch.ones(shape), train=True, frozen=frozen).training
    assert parts == (
        step.forward_macs,
        step.backward_input_macs,
        step.backward_weight_macs,
        step.recomputed_macs,
    )


class Solved(nn.Module):
    """A X = B, both of them from linear layers."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(2, 4), nn.Linear(2, 3)

    def forward(self, x):
        return torch.linalg.solve(self.left(x) + torch.eye(4), self.right(x))


@pytest.mark.parametrize("frozen", [(), ("left",), ("right",)])
def test_a_solve_multiplies_once_backward(frozen):
    """dA = -dB X^T of 4 * 4 * 3 MACs; dB is solved, which has none."""
    model, x = Solved(), torch.randn(4, 2)
    for name, parameter in model.named_parameters():
        parameter.requires_grad = not any(
            matches_weight_pattern(name, pattern) for pattern in frozen
        )
    step = count(model, x, train=True).training
    assert step.uncounted == ()
    # each column is solved twice by half of A: 6 muls and subs, and once 4 divisions
    solve = 3 * (2 * (6 + 6) + 4)
    product = 0 if frozen == ("left",) else 2 * 48 + 16
    assert step.backward_input_flops == solve + product
    backward = step.backward_input_macs + step.backward_weight_macs
    assert backward == run_by_pytorch(model, (x,))[1]


class Scored(nn.Module):
    """Words and their products with each other."""

    def __init__(self):
        super().__init__()
        self.words, self.layer = nn.Embedding(11, 4), nn.Linear(4, 5)

    def forward(self, input_ids):
        h = self.layer(self.words(input_ids))
        return h @ h.mT


def test_six_n_d_stands_beside_three_times_forward():
    """69 parameters, 6 tokens: 3 * 69 * 6. The layer has 120 MACs, the products of words 90."""
    ids = {"input_ids": torch.ones(2, 3, dtype=torch.long)}
    step = count(Scored(), ids, train=True).training
    assert step.six_n_d_macs == 1242
    causes = {row.cause: row.macs for row in step.six_n_d_differences}
    assert causes == {"forward.parameters": 3 * 120 - 1242, "forward.attention": 270}
    assert step.six_n_d_macs + sum(causes.values()) == step.three_forward_macs == 630


def hooked_value(model, x):
    """A hook of the value of the first layer."""
    x.register_hook(lambda grad: grad @ torch.ones(5, 5))
    return x


HOOKED = "a hook receives its gradient; the work of the hook is not counted"


@pytest.mark.parametrize("place", ["value", "module", "parameter"])
def test_what_hooks_do_to_gradients_is_named(place):
    """What they do is not known: the layer's own backward pass is in the sums, 40 and 30 + 30."""
    from tests.custom_functions import Layers

    model = Layers(hooked_value if place == "value" else lambda s, x: x)
    if place == "module":
        model.first.register_full_backward_hook(lambda module, given, grads: None)
    if place == "parameter":
        model.first.weight.register_hook(lambda grad: 2 * grad)
    step = count(model, torch.ones(2, 4), train=True).training
    assert [row.reason for row in step.uncounted] == [HOOKED]
    assert (step.backward_input_macs, step.backward_weight_macs) == (30, 70)


def test_accumulation_repeats_the_step_and_adds_its_gradients():
    """Three micro-batches run three times the MACs of one; PyTorch adds twice a tensor."""
    from tests import executed

    model, x = in_turn(), torch.randn(2, 3)
    step = count(model, x, train=True).training
    with executed.Executed() as ran:
        for _ in range(3):
            model(x).sum().backward()
    assert ran.macs == 3 * step.macs


class Autocast(nn.Module):
    """Layers under autocast."""

    def __init__(self):
        super().__init__()
        self.layers = in_turn()

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            return self.layers(x)


def test_autocast_changes_types_and_no_macs():
    """The step of the layers themselves, and what PyTorch runs."""
    from tests import executed

    model, x = Autocast(), torch.randn(2, 3)
    step = count(model, x, train=True).training
    backward = step.backward_input_macs + step.backward_weight_macs
    assert (step.forward_macs, backward) == executed.step(model, (x,)) == (64, 104)


class Starting(nn.Module):
    """Frozen words and a frozen layer, and one that is trained; `ask` is done to the words."""

    def __init__(self, ask):
        super().__init__()
        self.words = nn.Embedding(7, 4).requires_grad_(False)
        self.frozen, self.trained = nn.Linear(4, 5).requires_grad_(False), nn.Linear(5, 6)
        self.ask = ask

    def forward(self, ids):
        words = self.words(ids)
        self.ask(words)
        return self.trained(self.frozen(words))


@pytest.mark.parametrize(
    ("ask", "backward"),
    [
        (lambda words: words.requires_grad_(False), 90),
        (lambda words: words.requires_grad_(requires_grad=False), 90),
        (lambda words: words.requires_grad_(), 90 + 90 + 60),
        (lambda words: setattr(words, "requires_grad", True), 90 + 90 + 60),
    ],
)
def test_a_model_may_ask_for_gradients_of_a_value(ask, backward):
    """As transformers does with words for a checkpoint: three rows by 4 x 5 and 5 x 6."""
    model, ids = Starting(ask), torch.tensor([1, 2, 3])
    step = count(model, ids, train=True).training
    assert step.backward_input_macs + step.backward_weight_macs == backward
    assert run_by_pytorch(model, (ids,))[1] == backward


class OfData(nn.Module):
    """Two layers, of one of which only the numbers are taken."""

    def __init__(self, change=None):
        super().__init__()
        self.kept, self.cut, self.change = nn.Linear(4, 5), nn.Linear(4, 5), change

    def forward(self, x):
        kept = self.kept(x)
        if self.change is not None:
            self.change(kept)
        return kept * self.cut(x).data


def test_data_is_cut_as_what_is_detached():
    """2 x 4 x 5 MACs for each layer; the weights of one have a gradient."""
    report = count(OfData(), torch.ones(2, 4), train=True)
    assert (report.macs, report.training.backward_weight_macs) == (80, 40)
    assert report.warnings == ()


def add(kept):
    """+= of what is detached."""
    detached = kept.detach()
    detached += 1


@pytest.mark.parametrize(
    "change", [lambda kept: kept.data.mul_(2), add, lambda kept: kept.detach().fill_(1)]
)
def test_a_detached_tensor_that_is_changed_in_place_is_said(change):
    """PyTorch does not see the change; where all is written over, the graph has nothing else."""
    with pytest.warns(CrossflopsWarning, match="overwrites a detached tensor in place"):
        count(OfData(change), torch.ones(2, 4), train=True)


class Changed(nn.Module):
    """A layer, a weight and a head; `change` is done to the value of the layer and the weight."""

    def __init__(self, change):
        super().__init__()
        self.layer, self.weight = nn.Linear(4, 5), nn.Parameter(torch.randn(5, 5))
        self.head, self.change = nn.Linear(5, 3), change

    def forward(self, x):
        value = self.layer(x)
        with torch.no_grad():
            self.change(value, self.weight)
        return self.head(value @ self.weight)


def twice(value, _):
    """One change behind another."""
    value.mul_(2)
    value.add_(1)


@pytest.mark.filterwarnings("ignore:the model overwrites a detached tensor")
@pytest.mark.parametrize(
    "change",
    [
        lambda value, weight: weight.mul_(0.5),
        lambda value, weight: weight.copy_(weight / weight.norm()),
        lambda value, weight: weight.clamp_(-1, 1),
        lambda value, weight: weight[0].fill_(1),
        lambda value, weight: weight.t().mul_(2),
        lambda value, weight: weight.copy_(value.T @ value),
        lambda value, weight: weight.data.mul_(2),
        lambda value, weight: value.mul_(2),
        lambda value, weight: value.view(-1).mul_(2),
        lambda value, weight: value.data.mul_(2),
        twice,
    ],
)
@pytest.mark.parametrize("frozen", [(), ("layer",), ("weight",), ("head",)])
def test_what_is_changed_in_place_keeps_its_gradient(change, frozen):
    """Without gradients: a parameter stays one, and a value is that of its layer."""
    model, x = Changed(change), torch.ones(2, 4)
    for name, parameter in model.named_parameters():
        parameter.requires_grad = not any(
            matches_weight_pattern(name, pattern) for pattern in frozen
        )
    step = count(model, x, train=True).training
    forward, backward = run_by_pytorch(model, (x,))
    assert step.forward_macs == forward
    assert step.backward_input_macs + step.backward_weight_macs == backward


def test_a_table_with_a_largest_norm_is_trained():
    """Its rows are scaled in place when they are looked up: both operands of 2 x 4 x 3 MACs."""
    model = nn.Sequential(nn.Embedding(7, 4, max_norm=1.0), nn.Linear(4, 3))
    ids = torch.tensor([1, 2])
    step = count(model, ids, train=True).training
    assert (step.backward_input_macs, step.backward_weight_macs) == (24, 24)
    assert run_by_pytorch(model, (ids,)) == (24, 48)


def test_a_parameter_beside_its_module_is_trained():
    """One in a list, one that a function closes over: products of 2 x 3 x 3, each trained."""

    class Beside(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Parameter(torch.ones(3, 3)), nn.Parameter(torch.ones(3, 3))
            b = self.b
            self.held, self.times = [self.a], lambda x: x @ b

        def forward(self, x):
            return x @ self.held[0] + self.times(x)

    x = torch.ones(2, 3)
    step = count(Beside(), (x,), train=True).training
    assert step.backward_weight_macs == 36
    assert run_by_pytorch(Beside(), (x,)) == (36, 36)
    assert count(Beside(), (x,), train=True, frozen=("a",)).training.backward_weight_macs == 18


class Clashing(nn.Module):
    """Names that a program of PyTorch's own cannot have: `code`, `graph`."""

    def __init__(self):
        super().__init__()
        self.code = nn.Parameter(torch.ones(4, 4))
        self.graph = nn.Linear(4, 4, bias=False)

    def forward(self, x):
        return self.graph(x @ self.code)


def layers():
    """Two of 5 x 4 x 4 and 5 x 4 x 2 MACs."""
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)).eval()


@pytest.mark.parametrize(
    ("make", "inputs", "weights"),
    [
        (Clashing, 80, 160),
        (lambda: torch.fx.symbolic_trace(layers()), 40, 120),
        (lambda: torch.jit.trace(layers(), torch.ones(5, 4)), 40, 120),
        (lambda: torch.export.export(layers(), (torch.ones(5, 4),)).module(), 40, 120),
    ],
    ids=["names of a program", "torch.fx", "TorchScript", "torch.export"],
)
def test_a_model_that_torch_export_takes_within_another_is_trained(make, inputs, weights):
    """The parameters have longer names there, and are those of the model."""
    model = make()
    step = count(model, (torch.ones(5, 4),), train=True).training
    assert (step.backward_input_macs, step.backward_weight_macs) == (inputs, weights)
    last = [name for name, _ in model.named_parameters()][-1].rpartition(".")[0]
    frozen = count(model, (torch.ones(5, 4),), train=True, frozen=(f"{last}.*",)).training
    kept = weights - {"graph": 80, "2": 40}[last]
    assert (frozen.backward_input_macs, frozen.backward_weight_macs) == (inputs, kept)
