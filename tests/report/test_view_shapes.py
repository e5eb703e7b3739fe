"""The shapes of modules: of their first calls, or of the tensors that cross their borders."""

import pytest

from crossflops.report.view import view, with_shapes
from crossflops.targets.request import Request
from crossflops.verbs.count import native_count
from tests.onnx_files import saved, with_weights


def table(target, inputs=()):
    """Paths, and what the table says of their shapes."""
    report, native = native_count(Request.from_arguments(target, inputs))
    shaped = with_shapes(report, native.graph, native.trace)
    rows = view(shaped, "module").to_dicts()
    return {row["module"]: (row["input"], row["output"], row["weight"]) for row in rows}


def test_a_file_says_what_crosses_the_borders_of_its_modules(tmp_path):
    """Of two products in `block` the first one's result stays inside."""
    model = with_weights(
        """g (float[2,3] x, float[3,5] v, float[5,7] w) => (float[2,7] z) {
            h = MatMul(x, v)
            y = MatMul(h, w)
            z = Relu(y)
        }""",
        "v", "w",
    )  # fmt: skip
    for node, path in zip(model.graph.node, ("block/a", "block/b", "act"), strict=True):
        node.name = f"/{path}/{node.op_type}"
    assert table(saved(tmp_path, model)) == {
        "": ("2x3", "2x7", ""),
        "block": ("2x3", "2x7", ""),
        "block.a": ("2x3", "2x5", "3x5"),
        "block.b": ("2x5", "2x7", "5x7"),
        "act": ("2x7", "2x7", ""),
    }


@pytest.mark.torch
def test_a_module_has_the_shapes_of_its_first_call():
    """Also one that leaves no node, one of several inputs, and one that is called twice."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.shared = nn.Linear(6, 6)
            self.drop = nn.Dropout()
            self.mix = nn.Bilinear(6, 6, 2)

        def forward(self, x):
            return self.mix(self.drop(self.shared(x)), self.shared(x[:1]).expand_as(x))

    assert table(Net(), torch.zeros(4, 6)) == {
        "": ("4x6", "4x2", ""),
        "shared": ("4x6", "4x6", "6x6"),
        "drop": ("4x6", "4x6", ""),
        "mix": ("4x6, 4x6", "4x2", "2x6x6"),
    }
