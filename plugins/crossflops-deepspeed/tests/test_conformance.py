"""DeepSpeed's conventions predict both of its numbers."""

from collections.abc import Iterator

import einops
import pytest
import torch
from crossflops_deepspeed import Deepspeed, DeepspeedMacs
from torch import nn

from crossflops.ir.trace import Setting
from crossflops.testing.conformance import Conformance, Evidence, predict_amount, tool_amount

pytestmark = pytest.mark.tools


class Products(nn.Module):
    """A product written for einops, which calls torch.einsum: DeepSpeed replaces both."""

    def forward(self, a, b):
        """Multiply."""
        return einops.einsum(a, b, "i j, j k -> i k")


INPUTS = (torch.randn(3, 4), torch.randn(4, 5))


class WithEinops(Conformance):
    """The kit, and a function of a library that crossflops does not ask for."""

    def _evidence(self) -> Iterator[tuple[Evidence, Setting]]:
        yield from super()._evidence()
        yield self.observe(Products(), INPUTS, {}, Setting()), Setting()

    def test_a_product_of_einops_is_predicted(self) -> None:
        """Twice 2 x 3 x 4 x 5 + 1, as numpy.einsum_path prints it; and no MACs."""
        prediction = predict_amount(
            self.convention, self.observe(Products(), INPUTS, {}, Setting()), Setting()
        )
        assert prediction == (242 if self.convention.unit == 2 else 0)
        assert tool_amount(self.adapter, Products(), INPUTS, {}, Setting()) == prediction


class TestFlops(WithEinops):
    """FLOPs."""

    adapter = Deepspeed()
    # held by test_padding_that_an_encoder_drops
    held_apart = frozenset(
        f"deepspeed.{name}.nested" for name in ("linear", "relu", "transcendental", "layer_norm")
    )


class TestMacs(WithEinops):
    """MACs."""

    adapter = DeepspeedMacs()
    # held by test_padding_that_an_encoder_drops
    held_apart = frozenset(f"deepspeed-macs.{name}.nested" for name in ("linear",))
