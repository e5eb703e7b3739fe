"""Training steps as people write them, and steps drawn at random from pieces of such."""

import random
from contextlib import contextmanager
from itertools import pairwise

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

WIDTH, NOISE = 24, 5


class DispatchCount(TorchDispatchMode):
    """MACs of what PyTorch dispatches, by its own formulas; no module is tracked for it."""

    def __init__(self):
        super().__init__()
        self.macs = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        formula = flop_registry.get(func._overloadpacket)
        if formula is None:
            with self:  # inference mode leaves whole what is made of other operators
                out = func.decompose(*args, **(kwargs or {}))
            if out is not NotImplemented:
                return out
        out = func(*args, **(kwargs or {}))
        if formula is not None:
            self.macs += formula(*args, **(kwargs or {}), out_val=out) // 2
        return out


def dispatched(step):
    """The MACs of a step that is run."""
    with DispatchCount() as count:
        step()
    return count.macs


class Heads(nn.Module):
    """One trunk and three heads, in a nest of outputs."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(WIDTH, 16)
        self.heads = nn.ModuleList(nn.Linear(16, size) for size in (2, 3, 4))

    def forward(self, x):
        h = self.trunk(x).tanh()
        return {"first": self.heads[0](h), "more": [head(h) for head in self.heads[1:]]}


class Coder(nn.Module):
    """An encoder and a decoder, which may be called by themselves."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(WIDTH, 12), nn.Tanh(), nn.Linear(12, 6))
        self.decoder = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, WIDTH))

    def forward(self, x):
        return self.decoder(self.encoder(x))


class Attends(nn.Module):
    """Attention over four tokens by two products."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(6, 18), nn.Linear(6, 6)

    def forward(self, x):
        q, k, v = self.qkv(x.reshape(len(x), 4, 6)).chunk(3, -1)
        return self.out((q @ k.transpose(1, 2)).softmax(-1) @ v)


class Images(nn.Module):
    """Two convolutions, a norm and a classifier."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 3, 2)
        )
        self.head = nn.Linear(3 * 2 * 3, 5)

    def forward(self, x):
        return self.head(self.body(x.reshape(len(x), 2, 3, 4)).flatten(1))


class Cell(nn.Module):
    """A cell that a loop of the script runs step by step."""

    def __init__(self):
        super().__init__()
        self.given, self.state = nn.Linear(WIDTH, 8), nn.Linear(8, 8)

    def forward(self, x, h):
        return (self.given(x) + self.state(h)).tanh()


def layers(*sizes):
    """Linear layers with a tanh between them."""
    return nn.Sequential(
        *[m for pair in pairwise(sizes) for m in (nn.Linear(*pair), nn.Tanh())][:-1]
    )


def batch(rows=4, **options):
    """Rows of noise."""
    return torch.randn(rows, WIDTH, **options)


def outputs(value):
    """The tensors of an output."""
    from torch.utils._pytree import tree_leaves

    return tree_leaves(value)


def loss_of(value):
    """A number of all outputs."""
    return sum(tensor.square().mean() for tensor in outputs(value))


# Kinds of steps: each takes the model, a generator, a teacher and their optimizers.


class Scene:
    """The models of a script, each with an optimizer."""

    def __init__(self, net):
        self.net = net
        self.front, self.teacher = layers(NOISE, 9, WIDTH), layers(WIDTH, 11, 3)
        self.optimizer, self.other = (
            torch.optim.SGD(model.parameters(), lr=0.01) for model in (net, self.front)
        )
        self.scaler = torch.amp.GradScaler("cpu")


def plain(scene):
    """Forward, back, step."""
    loss_of(scene.net(batch())).backward()
    scene.optimizer.step()


def validates_within(scene):
    """In eval(), in inference mode, between the backward pass and the step."""
    loss_of(scene.net(batch())).backward()
    scene.net.eval()
    with torch.inference_mode():
        scene.net(batch(6))
    scene.net.train()
    scene.optimizer.step()


def validates_behind(scene):
    """Three batches under no_grad, of which the last is short."""
    plain(scene)
    with torch.no_grad():
        for rows in (6, 6, 2):
            scene.net(batch(rows))


def accumulates(scene):
    """Two batches and a short one."""
    for rows in (4, 4, 3):
        loss_of(scene.net(batch(rows))).backward()
    scene.optimizer.step()


def one_of_three_heads(scene):
    """The loss reads one of the outputs."""
    scene.net(batch())["more"][0].square().mean().backward()
    scene.optimizer.step()


def two_losses(scene):
    """On one trunk, one after the other."""
    out = scene.net(batch())
    out["first"].square().mean().backward(retain_graph=True)
    out["more"][1].square().mean().backward()
    scene.optimizer.step()


def stops_gradient(scene):
    """Between two parts that the script calls."""
    scene.net.decoder(scene.net.encoder(batch()).detach()).square().mean().backward()
    scene.optimizer.step()


def calls_parts(scene):
    """With noise between them."""
    code = scene.net.encoder(batch())
    scene.net.decoder(code + torch.randn_like(code)).square().mean().backward()
    scene.optimizer.step()


def frozen_encoder(scene):
    """One part under no_grad."""
    with torch.no_grad():
        code = scene.net.encoder(batch())
    scene.net.decoder(code).square().mean().backward()
    scene.optimizer.step()


def thaws(scene):
    """A layer is frozen in the first pass of the step, and trained in the second."""
    scene.net[0].requires_grad_(False)
    loss_of(scene.net(batch())).backward()
    scene.net[0].requires_grad_(True)
    plain(scene)


def two_models(scene):
    """A discriminator, and the generator in front of it."""
    fake = scene.front(torch.randn(4, NOISE))
    (loss_of(scene.net(batch())) - loss_of(scene.net(fake.detach()))).backward()
    scene.optimizer.step()
    loss_of(scene.net(fake)).backward()
    scene.other.step()


def two_models_frozen(scene):
    """The discriminator is frozen while the generator is trained."""
    scene.net.requires_grad_(False)
    loss_of(scene.net(scene.front(torch.randn(4, NOISE)))).backward()
    scene.other.step()
    scene.net.requires_grad_(True)
    plain(scene)


def distills(scene):
    """From a teacher under no_grad."""
    x = batch()
    with torch.no_grad():
        wanted = scene.teacher(x)
    (loss_of(scene.net(x)) - wanted.mean()).backward()
    scene.optimizer.step()


def adversarial(scene):
    """The gradient of the input alone, then a pass with what it gives."""
    x = batch(requires_grad=True)
    (gradient,) = torch.autograd.grad(loss_of(scene.net(x)), x)
    loss_of(scene.net((x + gradient.sign()).detach())).backward()
    scene.optimizer.step()


def asks_for_input(scene):
    """The gradient of the input is kept."""
    loss_of(scene.net(batch(requires_grad=True))).backward()
    scene.optimizer.step()


def last_layer_alone(scene):
    """`backward(inputs=...)`."""
    loss_of(scene.net(batch())).backward(inputs=list(scene.net[-1].parameters()))
    scene.optimizer.step()


def closure(scene):
    """The optimizer runs the passes."""

    def run():
        loss = loss_of(scene.net(batch()))
        loss.backward()
        return loss

    scene.optimizer.step(run)


def half_precision(scene):
    """Autocast and a scaler."""
    with torch.autocast("cpu", torch.bfloat16):
        loss = loss_of(scene.net(batch()))
    scene.scaler.scale(loss).backward()
    scene.scaler.step(scene.optimizer)
    scene.scaler.update()


def unrolled_cell(scene):
    """A state is handed from one call to the next."""
    state = torch.zeros(4, 8)
    for _ in range(4):
        state = scene.net(batch(), state)
    state.square().mean().backward()
    scene.optimizer.step()


def deep():
    """Three layers."""
    return layers(WIDTH, 16, 12, 4)


KINDS = {
    plain: deep, validates_within: deep, validates_behind: deep, accumulates: deep,
    one_of_three_heads: Heads, two_losses: Heads, stops_gradient: Coder, calls_parts: Coder,
    frozen_encoder: Coder, thaws: deep, two_models: deep, two_models_frozen: deep,
    distills: deep, adversarial: deep, asks_for_input: deep, last_layer_alone: deep,
    closure: deep, half_precision: deep, unrolled_cell: Cell,
}  # fmt: skip


# Steps at random: what is run, with which inputs, under which mode, and which loss goes back how.


def drawn(seed):
    """A scene, and a step of several pieces that are the same whenever it runs."""
    torch.manual_seed(seed)
    draws = random.Random(seed)
    net = draws.choice((deep, Heads, Coder, Attends, Images))()
    scene = Scene(net)

    def step():
        again = random.Random(seed + 1)
        loss_of(net(batch())).backward()
        for _ in range(again.randint(1, 4)):
            with _frozen(net, again):
                _piece(scene, again)
        scene.optimizer.step()

    return scene, step


@contextmanager
def _frozen(net, draws):
    """Some parameters are frozen, in a third of the pieces."""
    frozen = [w for w in net.parameters() if draws.random() < 0.4] if draws.random() < 0.3 else []
    for weight in frozen:
        weight.requires_grad_(False)
    yield
    for weight in frozen:
        weight.requires_grad_(True)


def _inputs(scene, draws):
    rows = draws.choice((2, 4, 5))
    kind = draws.choice(("data", "data", "asking", "front", "detached"))
    if kind in ("front", "detached"):
        made = scene.front(torch.randn(rows, NOISE))
        return made.detach() if kind == "detached" else made
    return batch(rows, requires_grad=kind == "asking")


def _piece(scene, draws):
    """A call of the model, and none, one or two backward passes."""
    mode = draws.choice(("train", "train", "train", "no_grad", "inference", "teacher"))
    x = _inputs(scene, draws)
    if mode == "teacher":
        with torch.no_grad():
            scene.teacher(x)
    elif mode == "train":
        _back(scene, x, scene.net(x), draws)
    else:
        scene.net.train(draws.random() < 0.5)
        with torch.no_grad() if mode == "no_grad" else torch.inference_mode():
            scene.net(x)
        scene.net.train()


def _back(scene, x, out, draws):
    graded = [tensor for tensor in outputs(out) if tensor.requires_grad]
    if not graded:
        return
    for last in range(passes := draws.choice((1, 1, 2))):
        some = draws.sample(graded, draws.randint(1, len(graded)))
        loss, kept = loss_of(some), last < passes - 1
        weights = [weight for weight in scene.net.parameters() if weight.requires_grad]
        way = draws.choice(("all", "all", "all", "input", "some"))
        if way == "input" and x.is_leaf and x.requires_grad:
            torch.autograd.grad(loss, x, retain_graph=kept)
        elif way == "some" and weights:
            wanted = draws.sample(weights, draws.randint(1, len(weights)))
            loss.backward(inputs=wanted, retain_graph=kept)
        else:
            loss.backward(retain_graph=kept)
