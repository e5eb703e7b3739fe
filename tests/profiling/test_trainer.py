"""The callback for transformers' Trainer: a profile of one step, and rates in every later log."""

import importlib
import math
import time

import pytest

pytestmark = pytest.mark.tools

BATCH, TOKENS, STEPS, AT = 4, 8, 6, 3


SLOW = 0.5  # seconds of an evaluation


def trained(tmp_path, callbacks, data=(), **options):
    """A Trainer that has trained a tiny GPT-2 for six steps, with its log."""
    import torch

    from crossflops.frontends import load_with_retry

    # the torchvision of PyPI has no operators beside another torch
    load_with_retry(lambda: importlib.import_module("transformers.models.gpt2.modeling_gpt2"))
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

    set_seed(0)
    config = GPT2Config(n_layer=1, n_embd=16, n_head=2, vocab_size=32, n_positions=TOKENS)
    rows = [{"input_ids": ids, "labels": ids} for ids in torch.arange(8).repeat(64, 1)]
    arguments = TrainingArguments(
        output_dir=str(tmp_path), max_steps=STEPS, per_device_train_batch_size=BATCH,
        logging_steps=1, report_to=[], use_cpu=True, disable_tqdm=True, save_strategy="no",
        **options,
    )  # fmt: skip
    trainer = Trainer(
        model=GPT2LMHeadModel(config),
        args=arguments,
        train_dataset=rows,
        callbacks=callbacks,
        **dict(data),
    )
    trainer.train()
    return trainer, [row for row in trainer.state.log_history if "loss" in row]


def test_a_step_is_profiled_and_later_logs_have_its_rates(tmp_path, capsys):
    """Losses are those of a training without it, and nothing is left on the model."""
    import crossflops

    _, plain = trained(tmp_path / "plain", [])
    page = tmp_path / "step.json"
    callback = crossflops.trainer_callback(step=AT, peak_tflops=1, output_file=page)
    trainer, logs = trained(tmp_path / "watched", [callback])
    assert [row["loss"] for row in logs] == [row["loss"] for row in plain]
    assert not any(module._forward_hooks for module in trainer.model.modules())

    # per token: q, k, v, output 4 x 16 x 16, the layers around 8 x 16 x 16, the head 16 x 32;
    # and in attention 2 products of 8 x 8 x 16 for each row
    macs = BATCH * (TOKENS * (12 * 16 * 16 + 16 * 32) + 2 * TOKENS * TOKENS * 16)
    assert callback.profile.work.forward_macs == macs
    assert callback.profile.latencies.optimizer > 0
    assert b'"rates"' in page.read_bytes()

    rated = [row for row in logs if "mfu" in row]
    assert [row["step"] for row in rated] == list(range(AT + 1, STEPS + 1))
    for row in rated:
        assert math.isclose(row["tokens_per_second"], TOKENS * row["samples_per_second"])
        steps = row["samples_per_second"] / BATCH
        assert math.isclose(
            row["tflops_per_second"], 2 * callback.profile.model_macs * steps / 1e12
        )
        assert math.isclose(row["mfu"], row["tflops_per_second"])


def test_evaluations_are_in_no_rate(tmp_path):
    """One behind every step, whose data takes its time."""
    import torch

    import crossflops

    class Slow(torch.utils.data.Dataset):
        def __len__(self):
            return 1

        def __getitem__(self, _):
            time.sleep(SLOW)
            return {"input_ids": torch.arange(TOKENS), "labels": torch.arange(TOKENS)}

    callback = crossflops.trainer_callback(step=AT, peak_tflops=1, output_file=tmp_path / "p.md")
    _, logs = trained(
        tmp_path, [callback], {"eval_dataset": Slow()}, eval_strategy="steps", eval_steps=1
    )
    rates = [row["samples_per_second"] for row in logs if "mfu" in row]
    assert len(rates) == STEPS - AT
    assert min(rates) > BATCH / SLOW
    times = callback.profile.latencies
    assert times.forward + times.backward + times.optimizer <= 1.05 * times.iteration


def test_a_training_that_ends_sooner_says_so(tmp_path):
    """Step 100 of six."""
    import crossflops

    callback = crossflops.trainer_callback(step=100)
    with pytest.warns(crossflops.errors.CrossflopsWarning, match="before the end of step 100"):
        trained(tmp_path, [callback])
    assert callback.profile is None
