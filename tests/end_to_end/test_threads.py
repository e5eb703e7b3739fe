"""Questions that were asked upstream and never got an answer: the cause, by name and amount."""

import json
from importlib.metadata import entry_points

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.tools

MODELS = "targets_of_threads.py"


@pytest.fixture(scope="module")
def account(crossflops):
    """The native MACs and one tool's total and causes, all explained."""

    def run(tool, *arguments):
        if tool not in entry_points(group="crossflops.adapters").names:
            pytest.skip(f"{tool} is not installed")
        done = crossflops("compare", *arguments, "--tool", tool, "--json", "--strict")
        assert done.status == 0, done.err
        (reconciliation,) = json.loads(done.out)["reconciliations"]
        assert reconciliation["residual"] == 0
        return (
            reconciliation["ours"],
            reconciliation["theirs"],
            {e["cause"]: e["amount"] for e in reconciliation["explanations"]},
        )

    return run


@pytest.mark.parametrize(
    ("tool", "printed", "why"),
    [
        ("torch-flop-counter", 2 * 4089184256, {"unit.mac-vs-flop": 4089184256}),
        ("fvcore", 4111512576, {"norm.batch": 2 * 11113984, "pool.adaptive": 49 * 2048}),
        ("thop", 4133742592, {"norm.batch": 4 * 11113984, "pool.adaptive": 50 * 2048}),
    ],
    ids=["4.09", "4.11", "4.13"],
)
def test_why_a_resnet50_has_three_numbers(account, zoo, tool, printed, why):
    """4.09, 4.11 and 4.13 G: sovrasov/flops-counter.pytorch#76, TylerYep/torchinfo#312."""
    explained = account(tool, "torchvision.models:resnet50", "--input", "1x3x224x224")
    assert explained == (4089184256, printed, why)


def test_why_thop_counts_no_attention(account):
    """Lyken17/pytorch-OpCounter#197: 2 x 10 tokens of width 32, 4 heads.

    The projections (4 x 20 x 32 x 32) run through F.linear and no module, the products of scores
    and values (2 x 20 x 10 x 32) through no module either.
    """
    ours, theirs, why = account("thop", f"{MODELS}:attention", "--input", "2x10x32")
    assert (ours, theirs) == (81920 + 12800, 0)
    assert why == {"functional.invisible": -81920, "attention.sdpa": -12800}


def test_why_the_flop_counter_counts_no_attention_on_a_cpu(account):
    """pytorch/pytorch#195460: the CPU's fused kernel has no formula. 2 x 4 x 10 x 10 x (8 + 8)."""
    shapes = [part for _ in range(3) for part in ("--input", "2x4x10x8")]
    ours, theirs, why = account("torch-flop-counter", f"{MODELS}:products", *shapes)
    assert (ours, theirs, why) == (12800, 0, {"attention.sdpa": -12800})


@pytest.mark.parametrize("tool", ["torch-flop-counter", "fvcore"])
def test_why_matrix_products_of_a_fused_path_are_missing(account, tool):
    """Without gradients nn.MultiheadAttention is one kernel, with all of its products in it."""
    arguments = (f"{MODELS}:attention", "--input", "2x10x32", "--no-grad")
    ours, theirs, why = account(tool, *arguments)
    assert (ours, theirs) == (94720, 0)
    assert why == {"attention.module-fastpath": -94720}


def test_why_a_relu_counts_twice(account):
    """sovrasov/flops-counter.pytorch#139: once as a module, once as the function that it calls."""
    explained = account("ptflops-pytorch", f"{MODELS}:relu", "--input", "1x8x16x16")
    assert explained == (0, 4096, {"act.relu": 2048, "functional.double-counted": 2048})
