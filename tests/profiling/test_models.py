"""ResNet-50, BERT-base and a small Llama: the profiled step of a training, beside one without."""

import contextlib
import importlib

import pytest

import crossflops
from crossflops.frontends import load_with_retry
from crossflops.report.profile import children_by_path

torch = pytest.importorskip("torch")

from tests.profiling.test_watch import bare  # noqa: E402

pytestmark = pytest.mark.tools

AT, STEPS = 5, 6


def _resnet():
    torchvision = load_with_retry(lambda: importlib.import_module("torchvision"))
    model, images = torchvision.models.resnet50(), torch.randn(2, 3, 64, 64)
    return model, lambda: torch.nn.functional.cross_entropy(model(images), torch.tensor([1, 2]))


def _bert():
    bert = load_with_retry(
        lambda: importlib.import_module("transformers.models.bert.modeling_bert")
    )
    model, ids = bert.BertForMaskedLM(bert.BertConfig(vocab_size=1000)), _ids()
    return model, lambda: model(input_ids=ids, labels=ids).loss


def _llama():
    llama = load_with_retry(
        lambda: importlib.import_module("transformers.models.llama.modeling_llama")
    )
    sizes = {"hidden_size": 128, "intermediate_size": 344, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000}
    model, ids = llama.LlamaForCausalLM(llama.LlamaConfig(**sizes, **heads)), _ids()
    return model, lambda: model(input_ids=ids, labels=ids).loss


def _ids():
    return torch.randint(0, 1000, (2, 32))


def _trained(make, file=None):
    """The loss of every step, and with a file the profile of one; else the model is bare."""
    torch.manual_seed(0)
    model, loss_of = make()
    model.train()
    before = bare(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    profiler = crossflops.FlopsProfiler(model, step=AT, peak_tflops=1e3, output_file=file)
    losses = []
    for _ in range(STEPS):
        with profiler.watch() if file else contextlib.nullcontext():
            optimizer.zero_grad()
            loss = loss_of()
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
        assert bare(model) == before
    return losses, profiler.profile if file else None


@pytest.mark.parametrize("make", [_resnet, _bert, _llama])
def test_the_tree_sums_to_the_count_and_leaves_the_training_as_it_is(make, tmp_path):
    """To the last MAC; parts take no more time than their whole, and losses are bit-identical.

    How much of a whole its parts cover is a matter of the machine, and no test.
    """
    plain, _ = _trained(make)
    losses, profile = _trained(make, tmp_path / "step.txt")
    assert losses == plain
    inside = children_by_path(profile.modules)
    for row in profile.modules:
        assert row.macs == row.own_macs + sum(part.macs for part in inside[row.path]), row.path
        parts = sum(part.forward_seconds or 0 for part in inside[row.path])
        assert not row.forward_seconds or parts <= row.forward_seconds, row.path
    assert profile.module("").macs == profile.work.forward_macs
    assert profile.errors == ()
