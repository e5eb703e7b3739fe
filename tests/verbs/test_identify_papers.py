"""Figures of papers about one model each are traced to their source.

They take minutes, so that the environment with all frameworks runs them; test_identify.py has
those of a few models for every environment with PyTorch.
"""

import functools

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

from crossflops.report.model_numbers import NATIVE
from crossflops.report.published import parse_figure
from crossflops.report.readings import find_readings
from crossflops.targets.request import Request
from crossflops.verbs.model_numbers import choose_conventions, predict_model_numbers

pytestmark = pytest.mark.frameworks
MACS, PARAMS = (NATIVE, "MACs"), (NATIVE, "params")
DOCS = "torchvision, docs/source/models.rst: table of weights, GFLOPS and params"
TIMM = "pytorch-image-models, results/benchmark-infer-*.csv"
VGG = "Simonyan and Zisserman 2014, 1409.1556, table 2"
RESNEXT = "Xie et al. 2016, 1611.05431, table 1"
SWIN = "Liu et al. 2021, 2103.14030, table 1"
EFFICIENT = "Tan and Le 2019, 1905.11946, table 2"
REGNET = "Radosavovic et al. 2020, 2003.13678, table of RegNetY models"
FIGURES = [
    ("vgg16", "138M", PARAMS, f"{VGG}: configuration D"),
    ("vgg16", "15.47 GFLOPs", MACS, DOCS),
    ("googlenet", "1.5B multiply-adds", MACS, "Szegedy et al. 2014, 1409.4842, section 1"),
    ("googlenet", "1.50 GFLOPs", MACS, DOCS),
    ("resnext50_32x4d", "4.2 x 10^9", MACS, RESNEXT),
    ("resnext50_32x4d", "25.0M params", PARAMS, RESNEXT),
    ("resnext50_32x4d", "4.23 GFLOPs", MACS, DOCS),
    ("resnext50_32x4d", "4.26G", ("fvcore", "flops"), TIMM),
    ("swin_t", "4.5G", MACS, f"{SWIN}: Swin-T"),
    ("swin_t", "4.49 GFLOPs", MACS, DOCS),
    ("swin_t", "28.3M", PARAMS, DOCS),
    ("vit_b_16", "17.6 GFLOPs", MACS, "Wang et al. 2021, 2102.12122, table 2: ViT-Base/16"),
    ("vit_b_16", "86M", PARAMS, "Dosovitskiy et al. 2020, 2010.11929, table 1: ViT-Base"),
    ("vit_b_16", "17.56 GFLOPs", MACS, DOCS),
    ("vit_b_16", "86.6M", PARAMS, DOCS),
    ("efficientnet_b0", "0.39B", MACS, EFFICIENT),
    ("efficientnet_b0", "5.3M", PARAMS, EFFICIENT),
    ("efficientnet_b0", "0.386G", MACS, "torchvision, meta['_ops'] of the weights"),
    ("efficientnet_b0", "0.39 GFLOPs", MACS, DOCS),
    ("regnet_y_400mf", "0.4B", MACS, REGNET),
    ("regnet_y_400mf", "4.3M", PARAMS, REGNET),
    ("regnet_y_400mf", "0.41G", ("fvcore", "flops"), f"{TIMM}: regnety_004"),
    ("densenet121", "8.0M params", PARAMS, DOCS),
    ("densenet121", "2.83 GFLOPs", MACS, DOCS),
    ("densenet121", "2.87G", ("fvcore", "flops"), TIMM),
]


@functools.cache
def numbers_of(name):
    """Return every convention's number of a model, counted once for all of its figures."""
    request = Request.from_arguments(f"torchvision:{name}")
    return predict_model_numbers(request, choose_conventions(()))


@pytest.mark.filterwarnings("ignore:using the default input", "ignore::FutureWarning")
@pytest.mark.parametrize(
    ("name", "text", "expected", "source"), FIGURES, ids=lambda value: str(value)[:24]
)
def test_the_right_source_comes_first(name, text, expected, source):
    """As it is: neither doubled nor halved."""
    first = find_readings(parse_figure(text), numbers_of(name))[0]
    assert (first.number.tool, first.number.unit) == expected, source
    assert first.factor == 1
