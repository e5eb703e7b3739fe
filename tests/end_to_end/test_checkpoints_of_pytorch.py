"""What checkpoints run again in a backward pass: as it is executed, and as tensors are kept."""

from contextlib import nullcontext
from functools import partial, reduce

import pytest

from crossflops.ir.training import matches_weight_pattern
from crossflops.ledger.training.weights import TrainedWeights
from crossflops.ledger.training.work import count_training_step, total_work
from crossflops.targets.request import Request
from crossflops.verbs.count import native_count

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils import checkpoint as library  # noqa: E402

from crossflops.frontends.pytorch.record.checkpoints import operator_kept_values  # noqa: E402
from tests import executed  # noqa: E402

pytestmark = pytest.mark.torch
aten = torch.ops.aten


class Block(nn.Module):
    """A residual block; `after` has its norm behind the sum, which keeps what it gives."""

    def __init__(self, after):
        super().__init__()
        self.norm, self.wide, self.back = nn.LayerNorm(4), nn.Linear(4, 6), nn.Linear(6, 4)
        self.after = after

    def forward(self, x):
        if self.after:
            return self.norm(x + self.back(self.wide(x).relu()))
        return x + self.back(self.wide(self.norm(x)).relu())


class Attending(nn.Module):
    """Attention in front of a block."""

    def __init__(self):
        super().__init__()
        self.attention, self.block = nn.MultiheadAttention(4, 2, batch_first=True), Block(False)

    def forward(self, x):
        return self.block(x + self.attention(x, x, x, need_weights=False)[0])


class Blocks(nn.Module):
    """Three blocks between two layers, each in a checkpoint."""

    def __init__(self, reentrant):
        super().__init__()
        self.stem, self.head = nn.Linear(3, 4), nn.Linear(4, 2)
        self.blocks = nn.ModuleList([Block(False), Block(True), Attending()])
        self.reentrant = reentrant

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = library.checkpoint(block, x, use_reentrant=self.reentrant)
        return self.head(x)


FREEZES = [
    (),
    ("stem",),
    ("*weight*",),
    ("blocks.2", "head"),
    ("blocks",),
    ("*.back",),
    ("*norm*", "*bias"),
    ("*",),
]


@pytest.fixture(scope="module", params=[False, True])
def counted(request):
    """The blocks with one kind of checkpoint, an input, and what is counted."""
    torch.manual_seed(0)
    model, x = Blocks(request.param).eval(), torch.randn(2, 5, 3)
    return model, x, native_count(Request.from_arguments(model, x))[1]


@pytest.mark.parametrize("frozen", FREEZES)
def test_pytorch_runs_as_much_again(counted, frozen):
    """Backward MACs and what checkpoints run again: both are what is executed backward."""
    model, x, native = counted
    exact = count_training_step(native.graph, TrainedWeights(native.trace, frozen, ()))
    for name, parameter in model.named_parameters():
        parameter.requires_grad = not any(
            matches_weight_pattern(name, pattern) for pattern in frozen
        )
    again = sum(cost.macs for cost in exact.checkpointed.values())
    step = total_work(exact)
    ran = executed.step(model, (x,))
    assert (step.forward.macs, step.backward.macs + again) == ran
    assert exact.unknown == ()


def nested(outer, inner, *, both):
    """Two blocks in a checkpoint, and the first or both in one of their own; two more behind."""

    def run(blocks, x):
        first, second, *rest = blocks

        def middle(x):
            x = library.checkpoint(first, x, use_reentrant=inner)
            return library.checkpoint(second, x, use_reentrant=inner) if both else second(x)

        x = library.checkpoint(middle, x, use_reentrant=outer)
        return reduce(lambda x, block: block(x), rest, x)

    return run


def three_deep(blocks, x):
    """A checkpoint in one in one, a block behind each."""
    first, second, third, last = blocks
    plain = partial(library.checkpoint, use_reentrant=False)

    def inner(x):
        return third(plain(lambda x: second(first(x)), x))

    return plain(lambda x: last(plain(inner, x)), x)


def selective(saved):
    """Each block in a checkpoint that saves what the list or policy says."""
    contexts = partial(library.create_selective_checkpoint_contexts, saved)
    chosen = partial(library.checkpoint, use_reentrant=False, context_fn=contexts)
    return lambda blocks, x: reduce(lambda x, block: chosen(block, x), blocks, x)


def every_other_product(context, operator, *_args, **_kwargs):
    """A policy: the wide layers' products are saved."""
    wide = operator is aten.addmm.default and context.op_output.shape[-1] == 6
    policy = library.CheckpointPolicy
    return policy.MUST_SAVE if wide else policy.PREFER_RECOMPUTE


class Arranged(nn.Module):
    """Four blocks between two layers, called by a function."""

    def __init__(self, run):
        super().__init__()
        self.stem, self.head = nn.Linear(3, 4), nn.Linear(4, 2)
        self.blocks = nn.ModuleList([Block(False), Block(True), Block(False), Block(True)])
        self.run = run

    def forward(self, x):
        return self.head(self.run(self.blocks, self.stem(x)))


ARRANGED = [
    *(nested(a, b, both=both) for a in (0, 1) for b in (0, 1) for both in (False, True)),
    three_deep,
    lambda blocks, x: library.checkpoint_sequential(list(blocks), 3, x, use_reentrant=False),
    lambda blocks, x: library.checkpoint_sequential(list(blocks), 2, x, use_reentrant=True),
    selective([]),
    selective([aten.addmm.default]),
    selective([aten.relu.default]),
    selective(every_other_product),
]


@pytest.mark.parametrize("run", ARRANGED)
def test_arrangements_run_as_much_again(run):
    """One in another, of both kinds; in sequence; and by a policy: what PyTorch executes."""
    model, x = Arranged(run).eval(), torch.randn(2, 3)
    native = native_count(Request.from_arguments(model, x))[1]
    for frozen in ((), ("stem", "blocks.0", "blocks.1"), ("*weight*",), ("blocks.3", "head")):
        exact = count_training_step(native.graph, TrainedWeights(native.trace, frozen, ()))
        for name, parameter in model.named_parameters():
            parameter.requires_grad = not any(
                matches_weight_pattern(name, pattern) for pattern in frozen
            )
        again = sum(cost.macs for cost in exact.checkpointed.values())
        step = total_work(exact)
        assert (step.forward.macs, step.backward.macs + again) == executed.step(model, (x,))
        assert exact.unknown == ()


class Layers(nn.Module):
    """Two layers in a checkpoint that stands in `around`, where it is asked for."""

    def __init__(self, around=None, **options):
        super().__init__()
        self.stem = nn.Linear(3, 4)
        self.first, self.second = nn.Linear(4, 5), nn.Linear(5, 6)
        self.around, self.options = around, {"use_reentrant": False} | options

    def run(self, x):
        return self.second(self.first(x))

    def nested(self, x):
        return library.checkpoint(self.run, x, **self.options)

    def forward(self, x):
        x = self.stem(x)
        if self.around is None:
            return library.checkpoint(self.run, x, **self.options)
        return self.around(self.nested, x)


def step_of(model):
    """The step of two rows: 24 MACs of the stem, 40 of the first layer, 60 of the next."""
    return native_count(Request.from_arguments(model, torch.randn(2, 3), train=True))[0].training


class BiasAtTheEnd(nn.Module):
    """Two layers in a checkpoint, each in one of its own where they stand `apart`."""

    def __init__(self, apart):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(3, 4), nn.Linear(4, 5), nn.Linear(5, 2)
        self.apart = apart

    def run(self, x):
        if not self.apart:
            return self.second(self.first(x).relu())
        plain = partial(library.checkpoint, use_reentrant=False)
        return plain(self.second, plain(self.first, x).relu())

    def forward(self, x):
        return self.head(library.checkpoint(self.run, x, use_reentrant=False))


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("trained", [("second.bias", "head"), ("first.weight", "head"), ("head",)])
def test_a_bias_alone_asks_for_nothing(apart, trained):
    """Its gradient is a sum: that nothing is kept for it holds in one another as well."""
    model, x = BiasAtTheEnd(apart), torch.randn(2, 3)
    model.requires_grad_(False)
    for name, parameter in model.named_parameters():
        parameter.requires_grad = name.startswith(trained)
    step = native_count(Request.from_arguments(model, x, train=True))[0].training
    backward = step.backward_input_macs + step.backward_weight_macs + step.recomputed_macs
    assert (step.forward_macs, backward) == executed.step(model, (x,))
    if trained == ("second.bias", "head"):
        assert step.recomputed_macs == 0


class Given(nn.Module):
    """A weight that goes through a reentrant checkpoint by itself."""

    def __init__(self):
        super().__init__()
        self.weight, self.turn = nn.Parameter(torch.randn(4, 5)), nn.Parameter(torch.randn(5, 6))

    def forward(self, x):
        turn = self.turn.detach()
        return x @ library.checkpoint(
            lambda weight: weight @ turn, self.weight, use_reentrant=True
        )


def test_a_parameter_may_be_what_a_checkpoint_is_given():
    """It is no value of the model, and has a gradient all the same."""
    model, x = Given(), torch.randn(3, 4)
    step = native_count(Request.from_arguments(model, x, train=True))[0].training
    backward = step.backward_input_macs + step.backward_weight_macs + step.recomputed_macs
    # the product in the checkpoint again, the gradient of the weight, and that of what x meets
    assert backward == 4 * 5 * 6 + 4 * 5 * 6 + 3 * 4 * 6
    assert (step.forward_macs, backward) == executed.step(model, (x,))


class HandingOut(nn.Module):
    """A reentrant checkpoint of a layer, and of what is detached in it and meets a weight."""

    def __init__(self, around):
        super().__init__()
        self.stem, self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 5), nn.Linear(4, 6)
        self.around = around

    def run(self, x):
        fixed = x.detach() * 2
        return self.first(x), fixed, self.second(fixed)

    def forward(self, x):
        hidden, fixed, inside = self.around(
            partial(library.checkpoint, self.run, use_reentrant=True), self.stem(x)
        )
        return hidden, inside, self.second(fixed)


@pytest.mark.parametrize("outer", [None, False, True])
def test_all_that_a_reentrant_checkpoint_hands_out_has_a_gradient(outer):
    """Behind it what is detached has a gradient, in it none.

    Layers of 2 x 3 x 4, 2 x 4 x 5 and, twice, 2 x 4 x 6 MACs.
    """

    def around(run, x):
        return run(x) if outer is None else library.checkpoint(run, x, use_reentrant=outer)

    model, x = HandingOut(around), torch.randn(2, 3)
    step = native_count(Request.from_arguments(model, x, train=True))[0].training
    backward = step.backward_input_macs + step.backward_weight_macs
    assert step.forward_macs == 24 + 40 + 2 * 48
    assert backward == 24 + 2 * 40 + 3 * 48
    ran = executed.step(model, (x,))
    assert (step.forward_macs, backward + step.recomputed_macs) == ran


class Detaching(HandingOut):
    """Its last operator detaches what a layer made, behind it a frozen one."""

    def run(self, x):
        return self.first(x), self.second(x).detach(), x

    def forward(self, x):
        hidden, fixed, _ = library.checkpoint(self.run, self.stem(x), use_reentrant=True)
        return hidden, self.last(fixed)


def test_what_a_reentrant_checkpoint_detaches_at_its_end_is_named():
    """The layer before it has no gradient in PyTorch: its 2 x 2 x 4 x 6 are in the count."""
    model, x = Detaching(None), torch.randn(2, 3)
    model.last = nn.Linear(6, 7).requires_grad_(False)
    step = native_count(Request.from_arguments(model, x, train=True))[0].training
    named = "the output of a reentrant checkpoint is detached; counted as if it were attached"
    assert [row.reason for row in step.uncounted] == [named]
    backward = step.backward_input_macs + step.backward_weight_macs + step.recomputed_macs
    forward, ran = executed.step(model, (x,))
    assert (step.forward_macs, backward - 2 * 2 * 4 * 6) == (forward, ran)


SAVED = [aten.addmm.default]


def early_stop_is_off(run, x):
    """A checkpoint that is told not to stop."""
    with library.set_checkpoint_early_stop(False):
        return run(x)


@pytest.mark.parametrize(
    ("model", "again"),
    [
        (Layers(), 40),  # the second layer keeps its input, and need not run
        (Layers(around=early_stop_is_off), 100),
        (Layers(use_reentrant=True), 100),
        # the inner one keeps what it is given before it runs: nothing is left to the outer one
        (Layers(around=partial(library.checkpoint, use_reentrant=False)), 40),
        # both run all of it, the outer one so that the inner one can
        (Layers(around=partial(library.checkpoint, use_reentrant=True), use_reentrant=True), 200),
        (Layers(context_fn=partial(library.create_selective_checkpoint_contexts, [])), 40),
        (Layers(context_fn=partial(library.create_selective_checkpoint_contexts, SAVED)), 0),
    ],
)
def test_two_layers_by_hand(model, again):
    """It is in what is recomputed, and the rule of thumb says why: 3 x 124 = 372."""
    step = step_of(model)
    assert (step.forward_macs, step.recomputed_macs) == (124, again)
    causes = {row.cause: row.macs for row in step.differences}
    repeated = {"backward.checkpoint": again} if again else {}
    assert causes == {"backward.first-layer": -24} | repeated
    assert step.macs == 372 - 24 + again


@pytest.mark.parametrize(
    "model",
    [
        Layers(context_fn=lambda: (nullcontext(), nullcontext())),
        Layers(
            around=partial(
                library.checkpoint,
                use_reentrant=False,
                context_fn=partial(library.create_selective_checkpoint_contexts, []),
            )
        ),
    ],
)
def test_what_is_not_followed_is_named(model):
    """Contexts of a model's own, and a checkpoint in one that chooses: unknown is never zero."""
    step = step_of(model)
    assert step.recomputed_macs == 0
    assert [row.reason for row in step.uncounted] == [
        "it is unknown how much of it a checkpoint recomputes"
    ] * 2


def as_pytorch_keeps(target, args):
    """Whether tensors are packed, and whether one is after a product or another kernel ran."""
    from torch.utils._python_dispatch import TorchDispatchMode

    events = []

    class Kernels(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            events.append("ran")
            return func(*args, **(kwargs or {}))

    def pack(tensor):
        events.append("kept")
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), Kernels():
        target(*args)
    if "kept" not in events:
        return "nothing"
    return "results" if events[-1] == "kept" else "operands"


def grown(*shape):
    """A tensor that is trained."""
    return torch.rand(*shape, requires_grad=True)


KEPT = [
    (aten.linear.default, (grown(2, 3), grown(4, 3), grown(4))),
    (aten.linear.default, (grown(2, 5, 3), grown(4, 3))),
    (aten.matmul.default, (grown(2, 2, 3), grown(2, 3, 4))),
    (aten.bmm.default, (grown(2, 2, 3), grown(2, 3, 4))),
    (aten.einsum.default, ("bi,ij->bj", [grown(2, 3), grown(3, 4)])),
    (aten.conv2d.default, (grown(1, 2, 5, 5), grown(3, 2, 3, 3), grown(3))),
    (aten.add.Tensor, (grown(2, 3), grown(2, 3))),
    (aten.sub.Tensor, (grown(2, 3), grown(2, 3))),
    (aten.mul.Tensor, (grown(2, 3), grown(2, 3))),
    (aten.mul.Tensor, (grown(2, 3), 2.0)),
    (aten.div.Tensor, (grown(2, 3), 2.0)),
    (aten.relu.default, (grown(2, 3),)),
    (aten.gelu.default, (grown(2, 3),)),
    (aten.silu.default, (grown(2, 3),)),
    (aten.sigmoid.default, (grown(2, 3),)),
    (aten.tanh.default, (grown(2, 3),)),
    (aten.exp.default, (grown(2, 3),)),
    (aten.rsqrt.default, (grown(2, 3),)),
    (aten.pow.Tensor_Scalar, (grown(2, 3), 2)),
    (aten.pow.Tensor_Tensor, (grown(2, 3), grown(2, 3))),
    (aten.pow.Scalar, (2.0, grown(2, 3))),
    (aten.softmax.int, (grown(2, 3), -1)),
    (aten.layer_norm.default, (grown(2, 3), [3], grown(3), grown(3))),
    (aten.group_norm.default, (grown(2, 4, 3), 2, grown(4), grown(4))),
    (aten.embedding.default, (grown(7, 3), torch.tensor([1, 2]))),
    (aten.where.self, (torch.tensor([True, False]), grown(2), grown(2))),
    (aten.masked_fill.Scalar, (grown(2), torch.tensor([True, False]), 0.0)),
    (aten.cat.default, ([grown(2, 3), grown(2, 3)],)),
    (aten.view.default, (grown(2, 3), [6])),
    (aten.transpose.int, (grown(2, 3), 0, 1)),
    (aten.mean.dim, (grown(2, 3), [1])),
    (aten.sum.dim_IntList, (grown(2, 3), [1])),
    (aten.slice.Tensor, (grown(4, 3), 0, 1, 2)),
    (aten.dropout.default, (grown(2, 3), 0.5, True)),
    (aten.dropout.default, (grown(2, 3), 0.5, False)),
    (aten.avg_pool2d.default, (grown(1, 2, 4, 4), [2, 2])),
    (aten.max_pool2d.default, (grown(1, 2, 4, 4), [2, 2])),
    (aten.upsample_nearest2d.default, (grown(1, 2, 4, 4), [8, 8])),
    (aten.scaled_dot_product_attention.default, tuple(grown(1, 2, 3, 4) for _ in range(3))),
]


@pytest.mark.parametrize(("target", "args"), KEPT, ids=lambda value: str(value)[:40])
def test_what_an_operator_keeps_is_what_pytorch_packs(target, args):
    """By the hooks for saved tensors, which checkpoints themselves use."""
    graph = torch.fx.Graph()
    assert operator_kept_values(graph.call_function(target, args)) == as_pytorch_keeps(
        target, args
    )


@pytest.mark.parametrize("reentrant", [True, False])
def test_what_a_checkpoint_does_for_nothing_is_said(reentrant):
    """A result that nobody takes: a reentrant checkpoint gives it a gradient of zeros."""

    class Idle(Layers):
        def run(self, x):
            hidden = self.first(x).tanh()
            return hidden, self.second(hidden).tanh()

        def forward(self, x):
            hidden, _ = library.checkpoint(self.run, self.stem(x), use_reentrant=reentrant)
            return hidden

    report = native_count(Request.from_arguments(Idle(), torch.randn(2, 3), train=True))[0]
    # 24 of the stem, 40 of the first layer; the second one has 2 x 5 x 6, and twice that back
    assert report.training.forward_macs == 24 + 40
    assert executed.step(Idle(), (torch.randn(2, 3),))[0] == 24 + 40 + 60
    assert [text for text in report.warnings if text.startswith("60 of these MACs are inside")]
