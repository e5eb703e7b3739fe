"""The callback for Lightning: a profile of one step of the optimizer, and rates in later logs."""

import csv
import importlib
import math
import time
import warnings
from pathlib import Path

import pytest

pytestmark = pytest.mark.tools

ROWS, STEPS, AT, ACCUMULATED = 4, 6, 3, 2


SLOW = 0.5  # seconds of a validation


def trained(callbacks, folder, *, is_validated=False):
    """A module of 16-8-2 that was trained on batches of 4 rows, two a step, and its log."""
    import torch

    from crossflops.frontends import load_with_retry

    # the torchvision of PyPI has no operators beside another torch
    load_with_retry(lambda: importlib.import_module("lightning.pytorch"))
    from lightning.pytorch import LightningModule, Trainer, seed_everything
    from lightning.pytorch.loggers import CSVLogger
    from torch import nn

    class Module(LightningModule):
        """Its model is a part of it, as in Lightning's own examples."""

        def __init__(self):
            super().__init__()
            self.model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 2))

        def training_step(self, batch, batch_idx):
            """The loss."""
            loss = self.model(batch).square().mean()
            self.log("loss", loss)
            return loss

        def validation_step(self, batch, batch_idx):
            """Takes its time."""
            time.sleep(SLOW)

        def configure_optimizers(self):
            """Plain steps."""
            return torch.optim.SGD(self.parameters(), lr=0.1)

    seed_everything(0, verbose=False)
    rows = torch.utils.data.DataLoader(torch.randn(64, 16), batch_size=ROWS)
    logger = CSVLogger(folder)
    trainer = Trainer(
        max_steps=STEPS, accumulate_grad_batches=ACCUMULATED, log_every_n_steps=1, logger=logger,
        callbacks=callbacks, accelerator="cpu", enable_progress_bar=False,
        enable_checkpointing=False, enable_model_summary=False, num_sanity_val_steps=0,
        limit_val_batches=1 if is_validated else 0, val_check_interval=1,
    )  # fmt: skip
    module = Module()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*workers")  # of the loader
        trainer.fit(module, rows, rows if is_validated else None)
    with (Path(logger.log_dir) / "metrics.csv").open() as file:
        rows = [{k: float(v) for k, v in row.items() if v} for row in csv.DictReader(file)]
    return module, [row for row in rows if "loss" in row]


def test_a_step_is_profiled_and_later_logs_have_its_rates(tmp_path):
    """Losses are those of a training without it, and nothing is left on the model."""
    import crossflops

    _, plain = trained([], tmp_path / "plain")
    page = tmp_path / "step.json"
    callback = crossflops.lightning_callback(step=AT, peak_tflops=1, output_file=page)
    module, logs = trained([callback], tmp_path / "watched")
    assert len(logs) == STEPS
    assert [row["loss"] for row in logs] == [row["loss"] for row in plain]
    assert not any(part._forward_hooks for part in module.modules())

    macs = ACCUMULATED * ROWS * (16 * 8 + 8 * 2)
    assert callback.profile.work.forward_macs == macs
    assert b'"rates"' in page.read_bytes()
    rated = [row for row in logs if "mfu" in row]
    assert len(rated) == STEPS - AT
    for row in rated:
        steps = row["samples_per_second"] / (ACCUMULATED * ROWS)
        expected = 2 * callback.profile.model_macs * steps / 1e12
        assert math.isclose(row["tflops_per_second"], expected, rel_tol=1e-5)  # logged as float32
        assert math.isclose(row["mfu"], row["tflops_per_second"], rel_tol=1e-5)


def test_validations_are_in_no_rate_and_passes_not_in_the_optimizers_time(tmp_path):
    """One behind every batch; automatic optimization runs both passes in the optimizer's step."""
    import crossflops

    callback = crossflops.lightning_callback(step=AT, peak_tflops=1, output_file=tmp_path / "p.md")
    _, logs = trained([callback], tmp_path / "watched", is_validated=True)
    rates = [row["samples_per_second"] for row in logs if "mfu" in row]
    assert len(rates) == STEPS - AT
    assert min(rates) > ACCUMULATED * ROWS / SLOW
    times = callback.profile.latencies
    assert times.forward + times.backward + times.optimizer <= 1.05 * times.iteration
    assert callback.profile.examples == ACCUMULATED * ROWS


def test_a_training_that_ends_sooner_says_so(tmp_path):
    """Step 100 of six."""
    import crossflops

    callback = crossflops.lightning_callback(step=100)
    with pytest.warns(crossflops.errors.CrossflopsWarning, match="before the end of step 100"):
        trained([callback], tmp_path)


def test_a_step_that_is_passed_by_is_the_next():
    """Two optimizers in a batch: 1, 3 and 5 are numbers of steps, and 4 is none."""
    from crossflops.training_loops.callbacks import ProfiledStep

    step = ProfiledStep(4, {})
    assert [at for at in (1, 3, 5) if step.is_due(at)] == [5]


def test_a_step_without_a_profile_is_said_once():
    """The training did not end before it."""
    from crossflops.training_loops.callbacks import ProfiledStep

    step = ProfiledStep(4, {})
    with pytest.warns(UserWarning, match="no profile: so it is"):
        step.give_up_profile("so it is")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step.warn_if_not_profiled()


def test_the_first_step_is_refused():
    """Nothing was called before it."""
    import crossflops

    with pytest.raises(crossflops.errors.InputError, match="first step"):
        crossflops.lightning_callback(step=1)
