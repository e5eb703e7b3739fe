"""What transformers asks of a tensor, and what a run answers."""

import pytest

import crossflops
from tests.models import nn, torch

pytestmark = pytest.mark.tools
ROWS = torch.randn(10, 8, generator=torch.Generator().manual_seed(3))


class Asks(nn.Module):
    """Asks transformers whether a tensor is fake, and does other work for one that is."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 4, bias=False)

    def forward(self, x):
        """A real run takes the layer alone."""
        from transformers.utils.import_utils import is_fake_tensor

        return self.layer(x @ x.T @ x) if is_fake_tensor(x) else self.layer(x)


def test_what_is_fake_is_no_question_of_a_run():
    """The path of a run: 10 rows of 8 to 4."""
    pytest.importorskip("transformers")
    assert crossflops.count(Asks(), ROWS).totals.macs == 10 * 8 * 4
