"""Backward MACs of models of many families are those that PyTorch runs, whatever is trained."""

import pytest

torch = pytest.importorskip("torch")

from crossflops.frontends.pytorch.load.libraries import repair_torchvision_import  # noqa: E402
from crossflops.ir.trace import Setting  # noqa: E402
from crossflops.ledger.training.weights import TrainedWeights  # noqa: E402
from crossflops.ledger.training.work import count_training_step, total_work  # noqa: E402
from crossflops.targets.request import Request  # noqa: E402
from crossflops.verbs.count import native_count  # noqa: E402
from tests import executed  # noqa: E402
from tests.training_zoo import MODELS, VARIANTS, adapters  # noqa: E402

OWN = ("pyramid", "unet", "dcgan", "lstm", "bilstm", "gru", "rnn", "encoder")
LIBRARY = ("bert", "gpt2", "t5", "llama", "mixtral", "clip")


def made(name):
    """The model with its arguments, from one seed."""
    torch.manual_seed(0)
    try:
        model, args, kwargs = MODELS[name]()
    except Exception as error:  # transformers imports torchvision, whose wheel may want CUDA
        if not repair_torchvision_import(error):
            raise
        model, args, kwargs = MODELS[name]()
    return model.eval(), args, kwargs


def compared(name, variant, native):
    """Forward and backward MACs as they are counted, and as they are run."""
    model, args, kwargs = made(name)
    variant(model).eval()
    frozen, trained = [], []
    for path, parameter in model.named_parameters(remove_duplicate=False):
        (trained if parameter.requires_grad else frozen).append(path)
    step = total_work(
        count_training_step(native.graph, TrainedWeights(native.trace, frozen, trained))
    )
    return (step.forward.macs, step.backward.macs), executed.step(model, args, kwargs)


@pytest.mark.torch
@pytest.mark.parametrize("name", OWN)
def test_a_family_by_what_is_trained(name):
    """One export, and one with adapters: everything, a half, norms and biases, a probe ..."""
    check(name)


@pytest.mark.tools
@pytest.mark.parametrize("name", LIBRARY)
def test_a_family_of_transformers_by_what_is_trained(name):
    """The same, of the library's models."""
    pytest.importorskip("transformers")
    check(name)


def check(name):
    """Every variant of a model has the MACs that are run."""
    model, args, kwargs = made(name)
    native = native_count(Request.from_arguments(model, (args, kwargs)))[1]
    for variant in VARIANTS.values():
        if variant is not adapters:
            counted, ran = compared(name, variant, native)
            assert counted == ran, variant.__name__
    if any(type(module) is torch.nn.Linear for module in model.modules()):
        native = native_count(Request.from_arguments(adapters(model), (args, kwargs)))[1]
        counted, ran = compared(name, adapters, native)
        assert counted == ran, "adapters"


@pytest.mark.tools
@pytest.mark.parametrize("reentrant", [False, True])
def test_the_checkpoints_of_transformers(reentrant):
    """Its layers, of which it asks gradients for the words; a half is frozen, and all trained."""
    pytest.importorskip("transformers")
    model, args, kwargs = made("llama")
    options = {"use_reentrant": reentrant}
    model.train().gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)
    setting = Setting(training=True)
    native = native_count(Request.from_arguments(model, (args, kwargs), setting=setting))[1]
    names = [name for name, _ in model.named_parameters()]
    for frozen in ([], names[: len(names) // 2]):
        exact = count_training_step(native.graph, TrainedWeights(native.trace, frozen, ()))
        for name, parameter in model.named_parameters():
            parameter.requires_grad = name not in frozen
        again = sum(cost.macs for cost in exact.checkpointed.values())
        ran = executed.step(model.train(), args, kwargs)
        assert again > 0
        assert (total_work(exact).forward.macs, total_work(exact).backward.macs + again) == ran
