"""What conversions keep of one another: the same results, and PyTorch as it was before."""

import linecache

import numpy as np
import pytest

from crossflops import count
from crossflops.frontends.pytorch.convert.model_passes import (
    _evaluation_key,
    reusing_shape_inference,
)
from crossflops.frontends.pytorch.load.tensors import torch_tensor_spec
from tests.models import nn, torch

pytestmark = pytest.mark.torch


class Normalized(nn.Module):
    """A batch normalization, which PyTorch takes apart."""

    def __init__(self, width):
        super().__init__()
        self.convolution = nn.Conv2d(1, width, 1)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x):
        return self.norm(self.convolution(x))


def test_kernels_of_composite_operators_are_put_back():
    """The first model has them noted, the second one set from the notes: MACs by hand."""
    operators = [torch.ops.aten.linear.default, torch.ops.aten.batch_norm.default]
    before = [dict(operator.py_kernels) for operator in operators]
    for width in (61, 67):  # of no other test
        # 4 x 4 places, one channel to so many; the norm is additions and products
        report = count(Normalized(width).eval(), torch.rand(1, 1, 4, 4))
        assert report.macs == 16 * width
        assert [dict(operator.py_kernels) for operator in operators] == before


def test_nothing_keeps_the_code_of_graphs():
    """PyTorch keeps that of every graph for tracebacks."""
    loader = torch.fx.graph_module._loader
    before = set(loader.eval_cache)
    count(nn.Linear(5, 3), torch.rand(2, 5))
    assert set(loader.eval_cache) == before
    assert not {name for name in linecache.cache if name.startswith("<eval_with_key>")} - before


def test_results_of_constants_are_kept_by_what_they_hold():
    """Texts by their texts, and numbers with their sign."""
    texts = [np.array([word], dtype=object) for word in ("one", "two", "one")]
    keys = [_evaluation_key(("", "Identity", 1, text), {}) for text in texts]
    assert keys[0] == keys[2] != keys[1]
    zero = [_evaluation_key(("", "Elu", 6, np.zeros(1)), {"alpha": a}) for a in (0.0, -0.0)]
    assert zero[0] != zero[1]
    assert _evaluation_key(("", "Identity", 1, np.zeros(65)), {}) is None
    assert _evaluation_key(("", "Constant", 1), {"value": np.zeros(1)}) is None


def test_a_kept_result_is_no_others_array():
    """One that is written into does not change the next."""
    from onnxscript.optimizer._constant_folding import ReferenceEvaluator

    one = np.array([1.0], np.float32)
    with reusing_shape_inference():
        for _ in range(3):
            result = ReferenceEvaluator().evaluate("", "Add", 14, one, one)
            assert result.tolist() == [2.0]
            result[0] = 7.0


def test_a_class_of_tensors_is_asked_by_its_own_function():
    """It says another shape than it has, and a mode sees no question about a plain tensor."""

    class Halved(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, kinds, args=(), kwargs=None):
            result = super().__torch_function__(function, kinds, args, kwargs or {})
            return torch.Size([2]) if isinstance(result, torch.Size) else result

    class Counting(torch.overrides.TorchFunctionMode):
        calls = 0

        def __torch_function__(self, function, kinds, args=(), kwargs=None):
            self.calls += 1
            return function(*args, **(kwargs or {}))

    halved = torch.rand(4).as_subclass(Halved)
    plain = torch.rand(4)
    with Counting() as mode:
        assert torch_tensor_spec("x", plain).shape == (4,)
        assert mode.calls == 0
        assert torch_tensor_spec("x", halved).shape == (2,)
        assert mode.calls > 0
