"""Figures of papers, model cards and repositories are traced to the tool that printed them."""

import functools

import pytest

from crossflops.report.model_numbers import NATIVE
from crossflops.report.published import parse_figure
from crossflops.report.readings import find_near_readings, find_readings
from crossflops.targets.request import Request
from crossflops.targets.target import alternative_target_arguments
from crossflops.verbs import identify
from crossflops.verbs.model_numbers import choose_conventions, predict_model_numbers

pytestmark = pytest.mark.torch

# Where the figures stand. timm's have the architecture of torchvision's model of that name.
DOCS = "torchvision, docs/source/models.rst: table of weights, GFLOPS and params"
OPS = "torchvision, meta['_ops'] of the weights"
TIMM = "pytorch-image-models, results/benchmark-infer-*.csv"
THOP = "pytorch-OpCounter, README, table of results"
RAN = "the tool itself, run on this model: README.md and tests/tools"
MACS, FLOPS, PARAMS = (NATIVE, "MACs"), (NATIVE, "FLOPs"), (NATIVE, "params")

FIGURES = [
    ("alexnet", "0.71 GFLOPs", MACS, DOCS),
    ("alexnet", "61.1M", PARAMS, DOCS),
    ("alexnet", "0.714G", MACS, OPS),
    ("squeezenet1_1", "0.35 GFLOPs", MACS, DOCS),
    ("squeezenet1_1", "0.349G", MACS, OPS),
    ("squeezenet1_1", "1.2M params", PARAMS, DOCS),
    ("resnet18", "1.81 GFLOPs", MACS, DOCS),
    ("resnet18", "1.814G", MACS, OPS),
    ("resnet18", "11.7M", PARAMS, DOCS),
    ("resnet18", "1.8 x 10^9 FLOPs", MACS, "He et al. 2015, 1512.03385, table 1"),
    ("resnet18", "1.82G", ("fvcore", "flops"), TIMM),
    ("resnet18", "11.69M", PARAMS, TIMM),
    ("resnet50", "4.09 GFLOPs", MACS, DOCS),
    ("resnet50", "4.089G", MACS, OPS),
    ("resnet50", "25.6M params", PARAMS, DOCS),
    ("resnet50", "4.1 x 10^9", MACS, "Xie et al. 2016, 1611.05431, table 1"),
    ("resnet50", "25.56M", PARAMS, TIMM),
    ("resnet50", "4.11G", ("fvcore", "flops"), TIMM),
    ("resnet50", "4 111 514 624", ("thop", "MACs"), "thop 0.0.31, run on this model"),
    ("resnet50", "4.134 GMACs", ("thop", "MACs"), RAN),
    ("resnet50", "4 133 742 592", ("thop", "MACs"), RAN),
    ("resnet50", "4.132 GMac", ("ptflops-pytorch", "MACs"), RAN),
    ("resnet50", "8178368512 FLOPs", ("torch-flop-counter", "FLOPs"), RAN),
    ("mobilenet_v2", "300M", MACS, "Sandler et al. 2018, 1801.04381, table 4: MAdds"),
    ("mobilenet_v2", "0.3 GFLOPs", MACS, DOCS),
    ("mobilenet_v2", "0.301G", MACS, OPS),
    ("mobilenet_v2", "3.5M", PARAMS, DOCS),
    ("mobilenet_v2", "0.31G", ("fvcore", "flops"), f"{TIMM}: mobilenetv2_100"),
    ("mobilenet_v2", "0.33G", ("thop", "MACs"), THOP),
    ("mnasnet1_0", "0.31 GFLOPs", MACS, DOCS),
    ("mnasnet1_0", "0.314G", MACS, OPS),
    ("mnasnet1_0", "4.4M", PARAMS, DOCS),
    ("mnasnet1_0", "0.34G", ("thop", "MACs"), THOP),
    ("convnext_tiny", "4.46 GFLOPs", MACS, DOCS),
    ("convnext_tiny", "4.456G", MACS, OPS),
    ("convnext_tiny", "28.6M", PARAMS, DOCS),
    ("convnext_tiny", "4.5G", MACS, "Liu et al. 2022, 2201.03545, table 1: ConvNeXt-T"),
    ("convnext_tiny", "29M", PARAMS, "Liu et al. 2022, 2201.03545, table 1: ConvNeXt-T"),
    ("convnext_tiny", "4.47G", ("fvcore", "flops"), TIMM),
]


@functools.cache
def numbers_of(name):
    """Every convention's number of a model, counted once for all of its figures."""
    request = Request.from_arguments(f"torchvision:{name}")
    return predict_model_numbers(request, choose_conventions(()))


def test_the_figures_are_many():
    """Forty and more, with a source each."""
    assert len({(name, text) for name, text, *_ in FIGURES}) >= 39
    assert all(source for *_, source in FIGURES)


@pytest.mark.filterwarnings("ignore:using the default input")
@pytest.mark.parametrize(
    ("name", "text", "expected", "source"), FIGURES, ids=lambda value: str(value)[:24]
)
def test_the_right_source_comes_first(name, text, expected, source):
    """As it is: neither doubled nor halved."""
    first = find_readings(parse_figure(text), numbers_of(name))[0]
    assert (first.number.tool, first.number.unit) == expected, source
    assert first.factor == 1


@pytest.mark.filterwarnings("ignore:using the default input")
def test_an_old_edition_is_told_from_the_new_one():
    """thop 0.0.31 counts 2 for each element of a batch norm, 0.1.1 counts 4."""
    old, new = (
        find_readings(parse_figure(text), numbers_of("resnet50"))[0].number.edition
        for text in ("4111514624", "4133742592")
    )
    assert (old, new) == ("0.0.31", "0.1.1")


@pytest.mark.filterwarnings("ignore:using the default input")
def test_a_near_number_names_its_cause():
    """ptflops without its 22 227 968 of batch norms (README.md) is 4 110 209 000."""
    near = find_near_readings(parse_figure("4.1102G"), numbers_of("resnet50"), identify.NEAR)
    found = {reading.missing: reading for reading in near if reading.number.tool[:8] == "ptflops-"}
    reading = found["norm.batch",]
    assert reading.amount == 4_132_436_968 - 22_227_968


def test_arguments_of_torchvisions_weights():
    """Segmentation models with weights have an auxiliary classifier, GoogLeNet has none."""
    names = ("fcn_resnet50", "deeplabv3_mobilenet_v3_large", "googlenet", "inception_v3", "vgg11")
    assert [alternative_target_arguments(f"torchvision:{name}") for name in names] == [
        ({"aux_loss": True},), ({"aux_loss": True},), ({"aux_logits": False},),
        ({"aux_logits": False},), (),
    ]  # fmt: skip
    assert alternative_target_arguments("model.py:build") == ()


@pytest.mark.filterwarnings("ignore:using the default input")
def test_the_model_of_the_weights_is_found():
    """6 624 904 parameters of GoogLeNet without its auxiliary classifiers (torchvision's meta)."""
    request = Request.from_arguments("torchvision:googlenet")
    found = identify.identify_figure("6.6M params", request, ["fvcore"])
    assert (found.exact[0].unit, found.exact[0].prints) == ("params", 6_624_904)
    assert found.exact[0].command == (
        "crossflops count torchvision:googlenet --arg aux_logits=false"
    )
    assert "with --arg aux_logits=false" in found.tried


@pytest.mark.filterwarnings("ignore:using the default input")
def test_another_image_size_is_found():
    """timm prints 3.01 for resnet18 at 288 and 0.93 at 160."""
    request = Request.from_arguments("torchvision:resnet18")
    found = identify.identify_figure("3.01G", request, ["fvcore"])
    first = found.exact[0]
    assert (first.tool, first.inputs, first.given) == ("fvcore", ("1x3x288x288",), False)
    assert first.command == (
        "crossflops count torchvision:resnet18 --image-size 288 --as fvcore@0.1.5"
    )
