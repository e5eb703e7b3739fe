"""What an optimizer's step updates: as torch.optim does it after a real backward pass."""

import pytest

from crossflops import count

torch = pytest.importorskip("torch")
nn = torch.nn

pytestmark = pytest.mark.torch


class Mixed(nn.Module):
    """A tied, a frozen, an unused, a detached and a recurrent weight; a norm; a head."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(11, 6)
        self.frozen = nn.Linear(6, 6).requires_grad_(False)
        self.unused = nn.Linear(6, 6)
        self.detached = nn.Linear(6, 6)
        self.cell = nn.LSTM(6, 6, batch_first=True)
        self.norm = nn.LayerNorm(6)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.table.weight

    def forward(self, tokens):
        x = self.frozen(self.table(tokens))
        x = x + self.detached(x).detach()
        x, _ = self.cell(x)
        return self.head(self.norm(x))


@pytest.mark.parametrize("frozen", [(), ("cell",), ("table",)])
def test_as_many_parameters_as_pytorch_updates(frozen):
    """The state of AdamW has an entry for each tensor that had a gradient."""
    model, tokens = Mixed(), torch.zeros(2, 3, dtype=torch.long)
    report = count(model, tokens, train=True, frozen=frozen, optimizer="adamw")
    step = report.training.optimizer
    for name in frozen:
        model.get_submodule(name).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters())
    model(tokens).sum().backward()
    optimizer.step()
    assert step.tensors == len(optimizer.state)
    assert step.parameters == sum(tensor.numel() for tensor in optimizer.state)
    assert step.flops == 14 * step.parameters


class Outputs(nn.Module):
    """Layers whose results miss the loss: detached, and of integers."""

    def __init__(self):
        super().__init__()
        self.trained, self.detached, self.chosen = (nn.Linear(4, size) for size in (5, 3, 2))

    def forward(self, x):
        return self.trained(x), self.detached(x).detach(), self.chosen(x).argmax(-1)


def test_what_misses_the_loss_is_not_updated():
    """5 x 4 weights and 5 biases are left."""
    step = count(Outputs(), torch.ones(2, 4), train=True, optimizer="sgd").training.optimizer
    assert (step.parameters, step.tensors) == (25, 2)
