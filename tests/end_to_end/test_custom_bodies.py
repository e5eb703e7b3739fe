"""Custom operators whose kernel is Python, with the tools that count what it calls.

The layer is 8 x 6 x 6 = 288 MACs, a product of its result with 4 x 6 is 8 x 6 x 4 = 192.
"""

import pytest

import crossflops
from tests.models import Apply, F, nn, torch

pytestmark = pytest.mark.tools
MACS = ("deepspeed-macs", "calflops-macs")
TOOLS = [*MACS, "torch-profiler"]
LAYER, PRODUCT = 8 * 6 * 6, 8 * 6 * 4


def rows(x, w):
    """What each product gives, without values."""
    return x.new_empty(x.shape[0], w.shape[0])


@torch.library.custom_op("bodies::linear", mutates_args=())
def linear(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """A replaced function."""
    return F.linear(x, w)


@torch.library.custom_op("bodies::at", mutates_args=())
def at(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """The operator @, which calflops leaves as it is."""
    return x @ w.t()


@torch.library.custom_op("bodies::nested", mutates_args=())
def nested(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """One that calls another one, and a function."""
    return linear(x, w) + torch.matmul(x, w.t())


@torch.library.custom_op("bodies::pair", mutates_args=())
def pair(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Two results."""
    return F.linear(x, w), torch.matmul(x, w.t())


@torch.library.custom_op("bodies::conv", mutates_args=())
def conv(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """A convolution, whose event tells no padding."""
    return F.conv2d(x, w, padding=1)


@torch.library.custom_op("bodies::fill", mutates_args=("out", "other"))
def fill(x: torch.Tensor, out: torch.Tensor, w: torch.Tensor, other: torch.Tensor) -> None:
    """It writes what two functions give."""
    out.copy_(F.linear(x, w))
    other.copy_(torch.matmul(x, w.t()))


@torch.library.custom_op("bodies::many", mutates_args=("outs",))
def many(x: torch.Tensor, outs: list[torch.Tensor], w: torch.Tensor) -> None:
    """It writes into each tensor of a list."""
    for out in outs:
        out.copy_(F.linear(x, w))


LIBRARY = torch.library.Library("bodies", "FRAGMENT")
LIBRARY.define("scale_(Tensor(a!) x, Tensor w) -> Tensor(a!)")
LIBRARY.impl("scale_", lambda x, w: x.add_((x @ w.t()) @ w), "CompositeExplicitAutograd")


def filled(x, w):
    """What is written into parts of a tensor, twice."""
    out = x.new_zeros(2, x.shape[0], w.shape[0])
    for _ in range(2):
        fill(x, out[0], w, out[1])
    return out


for operator in (linear, at, nested):
    operator.register_fake(rows)
pair.register_fake(lambda x, w: (rows(x, w), rows(x, w)))
conv.register_fake(lambda x, w: x.new_empty(x.shape[0], w.shape[0], *x.shape[2:]))
torch.library.define("bodies::defined", "(Tensor x, Tensor w) -> Tensor")
torch.library.impl("bodies::defined", "default")(lambda x, w: F.linear(x, w))
torch.library.register_fake("bodies::defined")(rows)


def layered(operator):
    """A layer, and the operator on its result and a weight of its own."""
    return Apply(
        lambda s, x: operator(s.layer(x), s.w),
        layer=nn.Linear(6, 6, bias=False),
        w=nn.Parameter(torch.ones(4, 6)),
    )


LAYER = 8 * 6 * 6


def bodies(model, inputs, outside=LAYER):
    """Return the MACs that each tool counts, without those outside of bodies; residuals are 0.

    Bodies that write to no operand are opened, and counted in the native MACs, too.
    """
    report = crossflops.compare(model, [inputs], tools=TOOLS, isolate=False)
    assert set(report.residuals) == set(TOOLS), report.profiles
    assert set(report.residuals.values()) == {0}
    booked = {}
    for tool in TOOLS:
        steps = report.reconciliation(tool).explanations
        booked[tool] = report.macs + sum(step.macs for step in steps) - outside
    return tuple(booked[tool] for tool in TOOLS)


@pytest.mark.parametrize(
    ("operator", "deepspeed", "calflops"),
    [
        (linear, PRODUCT, PRODUCT),
        (at, PRODUCT, 0),
        (nested, 2 * PRODUCT, 2 * PRODUCT),
        (lambda x, w: pair(x, w)[1], 2 * PRODUCT, 2 * PRODUCT),
        (lambda x, w: linear(x, w) + linear(x, w), 2 * PRODUCT, 2 * PRODUCT),
        (torch.ops.bodies.defined, PRODUCT, PRODUCT),
        (filled, 4 * PRODUCT, 4 * PRODUCT),
    ],
    ids=["linear", "at", "nested", "pair", "twice", "defined", "fill"],
)
def test_body_is_predicted(operator, deepspeed, calflops):
    """In MACs: DeepSpeed replaces the operator @, calflops does not."""
    assert bodies(layered(operator), "8x6") == (deepspeed, calflops, deepspeed)


def test_convolution_in_a_body():
    """3 channels of 6 x 6, each of 2 x 3 x 3 products."""
    model = Apply(lambda s, x: conv(x, s.w), w=nn.Parameter(torch.ones(3, 2, 3, 3)))
    assert bodies(model, "1x2x6x6", outside=0) == (3 * 36 * 2 * 9,) * 3


def test_an_opened_body_needs_no_cause():
    """8 x 6 by 6 x 4 once: the native count and the tools have the same product."""
    report = crossflops.compare(layered(linear), ["8x6"], tools=TOOLS, isolate=False)
    assert (report.macs, report.uncounted) == (LAYER + PRODUCT, ())
    assert not report.reconciliation("calflops-macs").explanations


def added(x, w):
    """Each tensor of a list is written, and has no gradient."""
    results = [x.new_zeros(x.shape[0], w.shape[0]) for _ in range(3)]
    many(x, results, w)
    return sum(results) + F.linear(x, w)


def scale_a_copy(x, w):
    """A copy is written and returned: PyTorch sees the copy in its backward pass."""
    return torch.ops.bodies.scale_(x.clone(), w) @ w.t()


@pytest.mark.parametrize(
    ("operator", "opened", "outside", "backward"),
    [
        (filled, 4 * PRODUCT, 0, 0),
        (added, 3 * PRODUCT, PRODUCT, 2 * PRODUCT),
        (scale_a_copy, 2 * PRODUCT, PRODUCT, None),
    ],
    ids=["views", "list", "returned"],
)
def test_a_body_that_writes_is_opened(operator, opened, outside, backward):
    """Its products are counted; it has no gradient, and the tools see what PyTorch sees."""
    tools = [*TOOLS, "fvcore", "torch-flop-counter"]
    report = crossflops.compare(layered(operator), ["8x6"], tools=tools, isolate=False)
    assert (report.macs, report.uncounted) == (LAYER + opened + outside, ())
    assert report.residuals == dict.fromkeys(tools, 0)
    steps = report.reconciliation("torch-flop-counter").explanations
    unseen = sum(step.amount for step in steps if step.cause.startswith("operator.custom"))
    assert unseen == -opened
    assert all(row.by == "body" for row in report.custom_operators)
    if backward is None:  # the copy is changed, and autograd raises an error
        return
    step = crossflops.compare(layered(operator), ["8x6"], train=True, isolate=False,
                              tools=["torch-flop-counter"])  # fmt: skip
    assert step.residuals == {"torch-flop-counter": 0}
    training = step.training
    # The layer has a gradient for its weight where one comes to it.
    own = LAYER if backward else 0
    assert training.backward_input_macs + training.backward_weight_macs == backward + own


def test_work_of_a_dead_operator():
    """Its result is not used."""

    def run(s, x):
        linear(x, s.w)
        return s.layer(x)

    report = crossflops.compare(
        Apply(run, layer=nn.Linear(6, 6, bias=False), w=nn.Parameter(torch.ones(4, 6))),
        ["8x6"],
        tools=["deepspeed-macs"],
        isolate=False,
    )
    (step,) = report.reconciliation("deepspeed-macs").explanations
    assert (step.cause, step.amount) == ("control.dead-code", PRODUCT)
    assert report.residuals == {"deepspeed-macs": 0}


@torch.library.custom_op("bodies::numpy", mutates_args=())
def numpy(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """A body that PyTorch does not see."""
    return torch.from_numpy(x.detach().numpy() @ w.detach().numpy().T)


numpy.register_fake(rows)


def test_a_body_outside_of_pytorch_is_not_zero():
    """Work of NumPy is named and not counted, and no tool counts it either."""
    report = crossflops.compare(layered(numpy), ["8x6"], tools=TOOLS, isolate=False)
    assert report.macs == LAYER
    (node,) = report.uncounted
    assert "NumPy" in node.reason
    assert set(report.residuals.values()) == {0}


class Product(torch.autograd.Function):
    """A function whose `apply` a module may hold."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w.t()

    @staticmethod
    def backward(ctx, gradient):
        x, w = ctx.saved_tensors
        return gradient @ w, gradient.t() @ x


def test_a_function_held_by_reference():
    """torch.jit traces through `apply` that was taken before: 288 and 192 in both tools."""
    report = crossflops.compare(
        layered(Product.apply), ["8x6"], tools=["fvcore", "torchprofile"], isolate=False
    )
    assert report.residuals == {"fvcore": 0, "torchprofile": 0}
    assert report.macs == LAYER + PRODUCT


class Gate(nn.Module):
    """A module that a formula counts whole."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 6, bias=False)

    def forward(self, x):
        return x * torch.sigmoid(self.inner(x))


class Leaf(nn.Module):
    """A module around an operator."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(4, 6))

    def forward(self, x):
        return linear(x, self.w)


def test_a_file_has_what_a_formula_counts_whole(tmp_path):
    """The native count is the formula's; tools of files count the product in the module."""
    formulas = tmp_path / "own.py"
    formulas.write_text(
        "import crossflops\n\n\n"
        f'@crossflops.operator("bodies::gate", module="{Gate.__module__}:Gate")\n'
        "def gate(call):\n"
        "    return crossflops.Cost(macs=7)\n"
    )
    report = crossflops.compare(
        nn.Sequential(Gate()),
        ["8x6"],
        tools=["onnx-tool", "onnx-opcounter"],
        isolate=False,
        formulas=[formulas],
    )
    assert report.macs == 7
    assert report.residuals == {"onnx-tool": 0, "onnx-opcounter": 0}
    steps = report.reconciliation("onnx-opcounter").explanations
    assert ("operator.custom-body", LAYER - 7) in [(step.cause, step.amount) for step in steps]


def test_an_operator_in_what_a_formula_counts_whole(tmp_path):
    """A formula of the operator reads names and defaults in the file of tools, too."""
    formulas = tmp_path / "own.py"
    formulas.write_text(
        "import crossflops\n\n\n"
        f'@crossflops.operator("bodies::leaf", module="{Leaf.__module__}:Leaf")\n'
        "def leaf(call):\n"
        "    return crossflops.Cost(macs=7)\n\n\n"
        '@crossflops.operator("bodies::linear")\n'
        "def linear(call):\n"
        '    return crossflops.Cost(macs=call.result.numel * call.input("x").shape[1])\n'
    )
    tools = ["deepspeed-macs", "onnx-tool"]
    report = crossflops.compare(
        nn.Sequential(nn.Linear(6, 6, bias=False), Leaf()),
        ["8x6"],
        tools=tools,
        isolate=False,
        formulas=[formulas],
    )
    assert report.macs == LAYER + 7
    assert report.residuals == {"deepspeed-macs": 0}  # onnx-tool knows no such operator
