"""Modules of torch.nn that no other test has: the file computes and costs what the module does.

Of each group one, and with CROSSFLOPS_EVERY_EXPORT=1 all.
"""

import pytest

from crossflops import count
from crossflops.verbs.api import export
from tests.exported import differences, some
from tests.models import nn, torch

pytestmark = pytest.mark.tools
pytest.importorskip("onnxruntime")

torch.manual_seed(0)
ROWS, OTHER, MORE = torch.randn(3, 4, 5).unbind()
LABELS, SIGNS = torch.tensor([0, 2, 1, 4]), torch.tensor([1.0, -1.0, 1.0, -1.0])
SHARES = torch.rand(4, 5)
LINE, IMAGE, VOLUME = torch.randn(2, 3, 8), torch.randn(2, 3, 8, 8), torch.randn(1, 2, 4, 6, 6)
ENDED = torch.tensor([[1, 2, -1, 0, 0], [0, -1, 3, 3, 3], [4, 3, 2, 1, 0], [-1, 0, 0, 0, 0]])


def pair(name, *settings, given, **named):
    """A module and what it is given."""
    return lambda: (getattr(nn, name)(*settings, **named).eval(), given)


MODULES = {
    "AdaptiveMaxPool1d": pair("AdaptiveMaxPool1d", 4, given=(LINE,)),
    "AdaptiveMaxPool2d": pair("AdaptiveMaxPool2d", (4, 2), given=(IMAGE,)),
    "AdaptiveMaxPool3d": pair("AdaptiveMaxPool3d", (2, 3, 2), given=(VOLUME,)),
    "AvgPool1d": pair(
        "AvgPool1d", 3, 2, 1, ceil_mode=True, count_include_pad=False, given=(LINE,)
    ),
    "AvgPool3d": pair("AvgPool3d", 2, divisor_override=3, given=(VOLUME,)),
    "LPPool1d": pair("LPPool1d", 2, 3, 2, given=(LINE,)),
    "LPPool2d": pair("LPPool2d", 1.5, 2, given=(IMAGE.abs(),)),
    "LPPool3d": pair("LPPool3d", 2, 2, given=(VOLUME,)),
    "MaxPool1d": pair("MaxPool1d", 3, 2, 1, dilation=2, return_indices=True, given=(LINE,)),
    "MaxPool3d": pair("MaxPool3d", 2, ceil_mode=True, given=(VOLUME,)),
    "MaxUnpool2d": pair(
        "MaxUnpool2d", 2, given=nn.functional.max_pool2d(IMAGE, 2, return_indices=True)
    ),
    "ConvTranspose1d": pair("ConvTranspose1d", 3, 4, 3, 2, 1, 1, dilation=2, given=(LINE,)),
    "Unfold": pair("Unfold", (2, 3), dilation=2, padding=1, stride=2, given=(IMAGE,)),
    "CircularPad1d": pair("CircularPad1d", (2, 1), given=(LINE,)),
    "CircularPad2d": pair("CircularPad2d", (2, 1, 0, 3), given=(IMAGE,)),
    "CircularPad3d": pair("CircularPad3d", 1, given=(VOLUME,)),
    "ConstantPad1d": pair("ConstantPad1d", (2, -1), 3.5, given=(LINE,)),
    "ConstantPad3d": pair("ConstantPad3d", 1, 0.5, given=(VOLUME,)),
    "ReflectionPad1d": pair("ReflectionPad1d", (2, 1), given=(LINE,)),
    "ReflectionPad2d": pair("ReflectionPad2d", (2, 1, 0, 3), given=(IMAGE,)),
    "ReflectionPad3d": pair("ReflectionPad3d", 1, given=(VOLUME,)),
    "ReplicationPad2d": pair("ReplicationPad2d", 1, given=(IMAGE,)),
    "ReplicationPad3d": pair("ReplicationPad3d", 1, given=(VOLUME,)),
    "ZeroPad1d": pair("ZeroPad1d", (1, 2), given=(LINE,)),
    "GLU": pair("GLU", 1, given=(IMAGE[:, :2],)),
    "Hardshrink": pair("Hardshrink", given=(ROWS,)),
    "Hardtanh": pair("Hardtanh", -2, 0.5, given=(ROWS,)),
    "LogSigmoid": pair("LogSigmoid", given=(ROWS,)),
    "Softmin": pair("Softmin", 1, given=(ROWS,)),
    "Softmax2d": pair("Softmax2d", given=(IMAGE,)),
    "Softshrink": pair("Softshrink", 0.3, given=(ROWS,)),
    "Tanhshrink": pair("Tanhshrink", given=(ROWS,)),
    "Threshold": pair("Threshold", 0.1, 20, given=(ROWS,)),
    "InstanceNorm1d": pair("InstanceNorm1d", 3, affine=True, given=(LINE,)),
    "InstanceNorm3d": pair(
        "InstanceNorm3d", 2, affine=True, track_running_stats=True, given=(VOLUME,)
    ),
    "LocalResponseNorm": pair("LocalResponseNorm", 3, given=(IMAGE,)),
    "PixelUnshuffle": pair("PixelUnshuffle", 2, given=(IMAGE,)),
    "UpsamplingNearest2d": pair("UpsamplingNearest2d", scale_factor=2, given=(IMAGE,)),
    "CosineSimilarity": pair("CosineSimilarity", 1, given=(ROWS, OTHER)),
    "PairwiseDistance": pair("PairwiseDistance", 3, keepdim=True, given=(ROWS, OTHER)),
    "BCELoss": pair("BCELoss", weight=SHARES[0], given=(ROWS.sigmoid(), SHARES)),
    "BCEWithLogitsLoss": pair(
        "BCEWithLogitsLoss", pos_weight=SHARES[0], reduction="sum", given=(ROWS, SHARES)
    ),
    "CosineEmbeddingLoss": pair("CosineEmbeddingLoss", 0.2, given=(ROWS, OTHER, SIGNS)),
    "GaussianNLLLoss": pair("GaussianNLLLoss", full=True, given=(ROWS, OTHER, SHARES + 0.1)),
    "HingeEmbeddingLoss": pair("HingeEmbeddingLoss", 0.7, given=(ROWS[:, 0], SIGNS)),
    "HuberLoss": pair("HuberLoss", delta=0.4, given=(ROWS, OTHER)),
    "KLDivLoss": pair(
        "KLDivLoss", reduction="batchmean", log_target=True,
        given=(ROWS.log_softmax(1), OTHER.log_softmax(1)),
    ),
    "L1Loss": pair("L1Loss", given=(ROWS, OTHER)),
    "MarginRankingLoss": pair(
        "MarginRankingLoss", 0.3, given=(ROWS[:, 0], OTHER[:, 0], SIGNS)
    ),
    "MultiLabelMarginLoss": pair("MultiLabelMarginLoss", given=(ROWS, ENDED)),
    "MultiLabelMarginLoss of a row": pair("MultiLabelMarginLoss", given=(ROWS[0], ENDED[0])),
    "MultiLabelMarginLoss by row": pair(
        "MultiLabelMarginLoss", reduction="none", given=(ROWS, ENDED)
    ),
    "MultiLabelSoftMarginLoss": pair(
        "MultiLabelSoftMarginLoss", weight=SHARES[0], given=(ROWS, SHARES.round())
    ),
    "MultiMarginLoss": pair(
        "MultiMarginLoss", 2, margin=0.8, weight=SHARES[0], given=(ROWS, LABELS)
    ),
    "NLLLoss": pair(
        "NLLLoss", weight=SHARES[0], ignore_index=1, given=(ROWS.log_softmax(1), LABELS)
    ),
    "PoissonNLLLoss": pair("PoissonNLLLoss", full=True, given=(ROWS, (SHARES * 4).floor())),
    "SmoothL1Loss": pair("SmoothL1Loss", beta=0.3, given=(ROWS, OTHER)),
    "SoftMarginLoss": pair("SoftMarginLoss", given=(ROWS, OTHER.sign())),
    "TripletMarginLoss": pair("TripletMarginLoss", 0.8, swap=True, given=(ROWS, OTHER, MORE)),
    "TripletMarginWithDistanceLoss": pair(
        "TripletMarginWithDistanceLoss", distance_function=nn.PairwiseDistance(),
        given=(ROWS, OTHER, MORE),
    ),
}  # fmt: skip
ALWAYS = (
    "LPPool2d", "MaxUnpool2d", "InstanceNorm3d", "MultiLabelMarginLoss",
    "MultiLabelMarginLoss of a row", "PoissonNLLLoss",
)  # fmt: skip


@pytest.mark.parametrize("name", some(MODULES, ALWAYS, 100))
def test_the_file_computes_and_costs_what_the_module_does(name, tmp_path):
    """All totals, parameters and the bytes of the model, and every output."""
    module, given = MODULES[name]()
    assert differences(module, given, tmp_path) == {}
    agreement = export(
        module, given, to="onnx", file=tmp_path / "file.onnx", verify=True
    ).agreement
    assert agreement.is_proven, agreement


def test_a_margin_of_several_labels_is_what_the_terms_cost():
    """By hand, of 4 rows and 5 classes: a term for each label and class, 1 - (a - b), and 0.

    The labels end at the first -1 (a compare for each place, the least of 5, and a compare), and a
    class is another one where none of 5 labels is it.
    """
    module, given = MODULES["MultiLabelMarginLoss"]()
    totals = count(module, given).totals
    assert totals.adds == 4 * 5 + 4 * 25 + 4 * 24 + 3
    assert totals.divs == 4 + 1
    assert totals.compares == 4 * (5 + 4 + 5) + 4 * (25 + 20) + 4 * 25
