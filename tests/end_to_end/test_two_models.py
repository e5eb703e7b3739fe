"""Two models of libraries set against each other: amounts by hand, and nothing left over."""

from importlib.util import find_spec

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

from crossflops.ir.reconciliation import Alignment
from crossflops.verbs.api import compare

pytestmark = pytest.mark.frameworks
IMAGE = ["1x3x224x224"]


def needs(*packages):
    """Skip where one of them is not installed; nothing is imported to see."""
    for package in packages:
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed")


def between(target, other, **options):
    """The alignment of two models, which adds up in every layer and on the whole."""
    against = {"against": other, "against_options": options}
    report = compare(target, IMAGE, tools=(), **against)
    alignment = report.against.alignment
    assert isinstance(alignment, Alignment)
    assert (alignment.first_work.macs, alignment.second_work.macs) == (
        report.macs,
        report.against.totals.macs,
    )
    for row in alignment.layers:
        for kind in ("macs", "flops", "params"):
            added = sum(getattr(shift, kind) for shift in row.shifts)
            assert added == getattr(row.second_work, kind) - getattr(row.first_work, kind)
    left = alignment.residual
    assert (left.macs, left.flops, left.params) == (0, 0, 0)
    return alignment


def causes(alignment, kind="macs"):
    """Amounts by cause, those that are none left out."""
    amounts = {row.cause: getattr(row, kind) for row in alignment.causes}
    return {cause: amount for cause, amount in amounts.items() if amount}


def test_resnet50_of_torchvision_and_of_keras():
    """The stride stands in the 3x3 of a stage's first block, or in the 1x1 before it.

    That 1x1 takes 256 channels of 56 x 56 to 128 in the second stage, 512 of 28 x 28 to 256 in
    the third, 1024 of 14 x 14 to 512 in the fourth, at all places or at a quarter of them. The 53
    convolutions of Keras have a bias: 64 channels, then in every stage of n blocks of width w
    n x (w + w + 4w) and 4w of the shortcut.
    """
    needs("torchvision", "keras", "tf2onnx")
    keras = "keras.applications:ResNet50"
    alignment = between("torchvision.models:resnet50", keras, arguments={"weights": None})
    before = 56**2 * 256 * 128 + 28**2 * 512 * 256 + 14**2 * 1024 * 512
    assert causes(alignment) == {"model.stride": -(before * 3) // 4}
    assert alignment.first_work.macs == 4_089_184_256
    biases = 64 + sum(
        blocks * 6 * width + 4 * width for blocks, width in ((3, 64), (4, 128), (6, 256), (3, 512))
    )
    assert causes(alignment, "params") == {"model.bias": biases}
    strided = [
        row.first.path for row in alignment.layers if any(shift.macs for shift in row.shifts)
    ]
    assert strided == ["layer2.0.conv1", "layer3.0.conv1", "layer4.0.conv1"]


@pytest.mark.parametrize(
    ("torch", "keras"),
    [("mobilenet_v2", "MobileNetV2"), ("densenet121", "DenseNet121")],
)
def test_models_with_the_same_work(torch, keras):
    """The same MACs and parameters in every layer; Keras has a softmax at the end."""
    needs("torchvision", "keras", "tf2onnx")
    target = f"torchvision.models:{torch}"
    alignment = between(target, f"keras.applications:{keras}", arguments={"weights": None})
    assert causes(alignment) == {}
    assert causes(alignment, "params") == {}
    assert all(row.first and row.second for row in alignment.layers)
    names = {row.cause for row in alignment.causes}
    assert names <= {"model.representation", "model.elementwise", "model.padding"}


def test_vit_of_two_libraries():
    """12 blocks and a head, each layer of one the layer of the other."""
    needs("torchvision", "timm")
    assert between("timm:vit_base_patch16_224", "torchvision.models:vit_b_16").same


def test_another_batch_and_another_size():
    """Seven images more are seven times the work; 160 for 224 changes no parameter."""
    needs("torchvision")
    resnet = "torchvision.models:resnet18"
    alignment = between(resnet, resnet, inputs=["8x3x224x224"])
    assert causes(alignment) == {"model.batch": 7 * alignment.first_work.macs}
    alignment = between(resnet, resnet, inputs=["1x3x160x160"])
    assert set(causes(alignment)) == {"model.input-size"}
    assert causes(alignment, "params") == {}


def test_a_deeper_and_a_wider_model():
    """34 layers have 16 - 8 blocks more, of two convolutions each; a wide one is wider inside."""
    needs("torchvision")
    alignment = between("torchvision.models:resnet18", "torchvision.models:resnet34")
    missing = [row for row in alignment.layers if row.first is None]
    assert len(missing) == 2 * (16 - 8)
    assert set(causes(alignment)) == {"model.layer-missing"}
    alignment = between("torchvision.models:resnet50", "torchvision.models:wide_resnet50_2")
    assert set(causes(alignment)) == {"model.width"}


def test_a_model_and_its_own_file(tmp_path):
    """The file that crossflops exports is the model; with the norms folded it has biases."""
    needs("torchvision")
    from crossflops.verbs.api import export

    file = tmp_path / "resnet18.onnx"
    export("torchvision.models:resnet18", IMAGE, to="onnx", file=file)
    alignment = between("torchvision.models:resnet18", str(file))
    assert alignment.delta.macs == alignment.delta.params == 0
    assert {row.cause for row in alignment.causes} <= {"model.representation"}
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(tmp_path / "folded.onnx")
    ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    alignment = between(str(file), str(tmp_path / "folded.onnx"))
    # 20 norms: 64, then two blocks of 64, 128, 256 and 512, and three shortcuts
    channels = 64 + 4 * (64 + 128 + 256 + 512) + (128 + 256 + 512)
    assert causes(alignment, "params") == {"model.norm-folded": -channels}
    assert causes(alignment) == {}
