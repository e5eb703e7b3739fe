"""torchvision beside a build of PyTorch that has no CUDA: its import, and its operators."""

import subprocess
import sys

import pytest

from crossflops.errors import TargetError
from crossflops.frontends import load_with_retry
from crossflops.targets.target import build_target

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch


def test_a_failure_of_another_kind_is_passed_on():
    """Only the operators of torchvision are mended."""

    def load():
        raise RuntimeError("something else")

    with pytest.raises(RuntimeError, match="something else"):
        load_with_retry(load)


def test_what_loads_is_loaded_once():
    """Where nothing is broken nothing is done."""
    calls = []
    assert load_with_retry(lambda: calls.append(1) or "loaded") == "loaded"
    assert calls == [1]


def test_a_torchvision_model_is_built():
    """`torchvision.models:NAME` works with whatever wheel is installed."""
    pytest.importorskip("PIL", reason="torchvision needs pillow")
    try:
        model, own = build_target("torchvision.models:squeezenet1_1", {"weights": None})
    except TargetError as error:
        if "module torchvision is not installed" in error.message:
            pytest.skip("torchvision is not installed")
        raise
    assert isinstance(model, torch.nn.Module)
    assert own is None


def test_broken_operators_are_declared(tmp_path):
    """A package that fails as torchvision's wheel does without CUDA is imported all the same.

    In a process of its own: operators are declared for good.
    """
    package = tmp_path / "torchvision"
    package.mkdir()
    (package / "__init__.py").write_text(
        "import torch\nfrom torchvision import half\n"
        "torch.library.register_fake('torchvision::nms')(lambda d, s, t: d)\n"
    )
    (package / "models.py").write_text("import torch\nclass Net(torch.nn.Module): pass\n")
    (package / "half.py").write_text("")
    code = (
        "from crossflops.targets.target import build\n"
        "print(type(build('torchvision.models:Net', {})[0]).__name__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{code}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "Net\n", done.stderr


def test_boxes_that_are_kept_are_counted():
    """Of two equal boxes and one apart two stay: 2 rows of 4 by 4, and nothing uncounted.

    In a process of its own: torchvision's operator is stood in for, as its wheel may lack it.
    """
    code = """
import torch, crossflops
library = torch.library.Library("torchvision", "FRAGMENT")
library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
library.impl("nms", lambda dets, scores, limit: torch.tensor([1, 2]), "CPU")
@torch.library.register_fake("torchvision::nms")
def _(dets, scores, limit):
    return dets.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.int64)
class Head(torch.nn.Linear):
    def forward(self, boxes, scores):
        kept = torch.ops.torchvision.nms(boxes, scores, 0.5)
        return super().forward(boxes[kept])
boxes = torch.tensor([[0.0, 0, 2, 2], [0, 0, 2, 2], [5, 5, 6, 6]])
report = crossflops.count(Head(4, 4), (boxes, torch.tensor([0.1, 0.9, 0.5])))
print(report.macs, report.uncounted)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.stdout == "32 ()\n", done.stderr
