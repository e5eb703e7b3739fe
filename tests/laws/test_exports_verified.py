"""The exported graph is the model: run in onnxruntime it gives the model's outputs.

Every 25th probe, and the models that tools disagree about, in evaluation and in training; with
CROSSFLOPS_EVERY_EXPORT=1 every probe and the models of the training laws.
"""

import importlib
import os

import pytest

from crossflops.frontends import load_with_retry
from crossflops.ir.trace import Setting
from crossflops.testing.probes import probes
from crossflops.verbs.api import export
from tests.models import torch, zoo

pytestmark = pytest.mark.tools
pytest.importorskip("onnxruntime")
EVERY = bool(os.environ.get("CROSSFLOPS_EVERY_EXPORT"))
# Of the drawn numbers of a stochastic depth, as it trains.
WITHOUT_KERNEL = ("RandomUniformLike(22)", "RandomNormalLike(22)")
# torchlib adds a mask of truth values to the scores of an attention with dropout.
REFUSED_IN_TRAINING = {"distilbert": "Type 'tensor(bool)' of input parameter"}


def models():
    """The name and the builder of each model."""
    for number, (name, probe) in enumerate(sorted(probes().items())):
        if EVERY or number % 25 == 0:
            yield name, lambda probe=probe: paired(probe.build())
    for name, pair in zoo().items():
        yield name, lambda pair=pair: pair
    if EVERY:
        from tests.training_zoo import MODELS

        load_with_retry(lambda: importlib.import_module("torchvision"))

        for name, make in MODELS.items():
            yield name, lambda make=make: paired(make())


def paired(made):
    """A model, and its positional and keyword inputs as one."""
    model, args, kwargs = made
    return model, (args, kwargs)


CASES = dict(models())


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("name", CASES)
def test_the_file_computes_what_the_model_computes(name, training, tmp_path):
    """Drawn numbers apart; where no runtime loads the file, the reason is the one in the list."""
    torch.manual_seed(0)
    model, inputs = CASES[name]()
    agreement = export(
        model, inputs, to="onnx", file=tmp_path / "model.onnx", verify=True,
        setting=Setting(training=training),
    ).agreement  # fmt: skip
    if training and name in REFUSED_IN_TRAINING:
        assert REFUSED_IN_TRAINING[name] in agreement.problem
    elif training and any(operator in agreement.problem for operator in WITHOUT_KERNEL):
        pytest.skip("onnxruntime draws no numbers as operator set 22 has them")
    else:
        assert agreement.holds, agreement
