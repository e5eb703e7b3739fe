"""What a run does in Python, and an export only where values are known."""

from collections import UserDict
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

import crossflops
from tests.models import nn, torch

pytestmark = pytest.mark.torch
ROWS = torch.randn(10, 8, generator=torch.Generator().manual_seed(3))


def loop(*given):
    """PyTorch's loop, which goes on while a tensor says so."""
    from torch._higher_order_ops.while_loop import while_loop

    return while_loop(*given)


class Repeated(nn.Module):
    """A layer until a counter is 5, or until the numbers are small."""

    def __init__(self, counted):
        super().__init__()
        self.layer = nn.Linear(8, 8, bias=False)
        nn.init.eye_(self.layer.weight)
        self.counted = counted

    def forward(self, x):
        """The layer halves its input."""

        def goes_on(step, x):
            return step < 5 if self.counted else x.abs().max() > 1

        def body(step, x):
            return step + 1, self.layer(x) / 2

        return loop(goes_on, body, (torch.tensor(0), x))[1]


@pytest.mark.parametrize(("counted", "trips"), [(True, 5), (False, 3)])
def test_a_loop_runs_as_often_as_values_say(counted, trips):
    """8 is halved three times until it is 1; a trip multiplies 10 rows by 8x8."""
    report = crossflops.count(Repeated(counted), torch.full((10, 8), 8.0))
    assert (report.totals.macs, report.uncounted) == (trips * 10 * 8 * 8, ())
    products = [node for node in report.nodes if node.macs]
    assert [node.path for node in products] == ["layer"] * trips


class Sorted(nn.Module):
    """Experts by the numbers of their rows, which NumPy adds up."""

    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(8, 4 * (n + 1), bias=False) for n in range(3))

    def forward(self, x, chosen):
        """Rows in the order of experts; each has as many as `chosen` says."""
        ends = torch.bincount(chosen, minlength=3).cpu().numpy().cumsum()
        rows, outputs = x[chosen.argsort()], []
        for expert, start, end in zip(self.experts, [0, *ends[:-1]], ends, strict=True):
            if start < end:
                outputs.append(expert(rows[start:end]).sum(-1))
        return torch.cat(outputs)


def test_an_array_of_numpy_has_the_values_of_a_run():
    """7 rows to 4, none to 8, 3 rows to 12; what follows the array depends on values."""
    chosen = torch.tensor([0] * 7 + [2] * 3)
    report = crossflops.count(Sorted(), (ROWS, chosen))
    assert report.totals.macs == 7 * 8 * 4 + 3 * 8 * 12
    assert report.uncounted == ()
    assert any("runs in NumPy" in note for note in report.observed.notes)
    products = [node for node in report.nodes if node.macs]
    assert [node.depends_on_inputs for node in products] == [True, True]


class Packed(nn.Module):
    """A recurrence on sequences without their padding, and a layer on the padded result."""

    def __init__(self, kind, **given):
        super().__init__()
        self.cell = kind(8, 6, batch_first=True, **given)
        self.out = nn.Linear(12 if given.get("bidirectional") else 6, 2, bias=False)

    def forward(self, x, lengths):
        """Packed, run, and padded again."""
        from torch.nn.utils import rnn

        packed = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return self.out(rnn.pad_packed_sequence(self.cell(packed)[0], batch_first=True)[0])


@pytest.mark.parametrize(
    ("model", "gates", "directions"),
    [(Packed(nn.LSTM), 4, 1), (Packed(nn.GRU, bidirectional=True), 3, 2)],
    ids=["lstm", "gru both ways"],
)
def test_packed_sequences_cost_their_own_steps(model, gates, directions):
    """Of 3 sequences of at most 5 steps 9 are there; the layer behind takes all 3 x 4 rows."""
    report = crossflops.count(model, (torch.randn(3, 5, 8), torch.tensor([4, 2, 3])))
    cell = gates * 6 * (8 + 6)
    assert report.totals.macs == 9 * cell * directions + 3 * 4 * 6 * directions * 2
    assert report.uncounted == ()


def test_packed_rows_go_where_pytorch_puts_them():
    """The replacement gives what PyTorch's own function gives, sorted or not."""
    from torch.nn.utils import rnn

    from crossflops.frontends.pytorch.record import python_steps

    x, own = torch.randn(4, 6, 3), torch._VF._pad_packed_sequence
    for lengths in ([6, 4, 4, 1], [2, 2, 2, 2], [6, 5, 4, 3]):
        packed = rnn.pack_padded_sequence(x, torch.tensor(lengths), batch_first=True)
        for total in (-1, 8):
            given = (packed.data, packed.batch_sizes, True, -1.5, total)
            packed.batch_sizes.real_tensor = packed.batch_sizes
            padded, sizes = python_steps._pad_packed_sequence_by_pieces(own, *given)
            expected, expected_sizes = own(*given)
            assert torch.equal(padded, expected)
            assert torch.equal(sizes, expected_sizes)


class Resampled(nn.Module):
    """Images that are resampled to a size that two tensors say, in a tuple of them."""

    def forward(self, x):
        """Twice as many rows and columns."""
        rows, columns = 2 * (x > -1).sum((0, 1)).amax(1)[0], 2 * (x > -1).sum((0, 1)).amax(0)[0]
        return torch.cat(
            [
                nn.functional.interpolate(x, size=size, mode="bilinear", align_corners=True)
                for size in zip(rows[None], columns[None], strict=True)
            ]
        )


@pytest.mark.parametrize("tool", ["calflops", "deepspeed"])
def test_a_size_of_tensors_is_a_size(tool):
    """These tools multiply the given sizes: 2 x 2."""
    report = crossflops.count(Resampled(), torch.ones(1, 1, 3, 5), as_=[tool])
    assert report.as_.total == 4


@dataclass(frozen=True)
class Pair:
    """Two tensors."""

    x: torch.Tensor
    y: torch.Tensor


class Held(nn.Module):
    """Takes a container, and gives one of the same kind."""

    def __init__(self, kind):
        super().__init__()
        self.layer, self.kind = nn.Linear(8, 3, bias=False), kind

    def forward(self, pair):
        """Values by their names, or by their keys."""
        x, y = (pair["x"], pair["y"]) if self.kind is UserDict else (pair.x, pair.y)
        return [self.kind(x=self.layer(x), y=y.relu_())]


@pytest.mark.parametrize("kind", [Pair, UserDict, SimpleNamespace])
def test_containers_are_taken_apart(kind):
    """Inputs and results may be dataclasses, UserDicts and namespaces; none is changed."""
    from torch.utils._pytree import SUPPORTED_NODES

    pair = kind(x=ROWS, y=-torch.ones(2))
    report = crossflops.count(Held(kind), ((pair,), {}))
    assert (report.totals.macs, report.uncounted) == (10 * 8 * 3, ())
    held = pair.data if kind is UserDict else vars(pair)
    assert held["y"].tolist() == [-1, -1]
    assert kind not in SUPPORTED_NODES


class Met(nn.Module):
    """An Einstein sum over an axis of one element."""

    def forward(self, x, y):
        """PyTorch multiplies here, and sums nothing."""
        return torch.einsum("blhd,bshd->blsh", x, y)


@pytest.mark.parametrize(("size", "macs"), [(1, 0), (3, 4 * 5 * 2 * 3)])
def test_an_einsum_over_one_element_is_a_multiplication(size, macs):
    """As dispatched: `mul` for a size of 1, `bmm` else."""
    from torch.utils.flop_counter import FlopCounterMode

    given = torch.randn(1, 4, 2, size), torch.randn(1, 5, 2, size)
    report = crossflops.count(Met(), given)
    with FlopCounterMode(display=False) as counter:
        Met()(*given)
    assert report.totals.macs == macs == counter.get_total_flops() // 2
    assert report.totals.muls == (0 if macs else 4 * 5 * 2)
