"""Models that two processes share: each counts the whole model on its own batch."""

import os
import socket
import warnings

import pytest

from crossflops.report.profile import TrainingProfile

pytestmark = pytest.mark.torch

WORLD, ROWS = 2, 8
FORWARD = ROWS * (16 * 32 + 32 * 4)  # of 16-32-4
BACKWARD = 2 * FORWARD - ROWS * 16 * 32  # but for the gradient of the input


def _shared(kind, world):
    """A model of 16-32-4 with a norm between, cut or copied as `kind` says."""
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh

    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    if kind == "DistributedDataParallel":
        return nn.parallel.DistributedDataParallel(model)
    if kind == "fully_shard":
        from torch.distributed.fsdp import fully_shard

        return fully_shard(nn.Sequential(*map(fully_shard, model)))
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    return parallelize_module(model, init_device_mesh("cpu", (world,)), plan)


def _rank(rank, world, port, kind, folder, profiling=frozenset({0, 1})):
    import torch
    from torch import distributed

    import crossflops

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world)}
    distributed.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(0)
    model = _shared(kind, world)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = 2 if rank in profiling else 100
    profiler = crossflops.FlopsProfiler(
        model, step=step, output_file=folder / "page.txt", peak_tflops=1
    )
    with warnings.catch_warnings(action="ignore"):
        for _ in range(3):
            with profiler.watch():
                optimizer.zero_grad()
                model(torch.ones(ROWS, 16)).sum().backward()
                optimizer.step()
    if rank in profiling:
        (folder / f"{rank}.json").write_text(profiler.profile.to_json())
    distributed.destroy_process_group()


@pytest.mark.parametrize(
    ("kind", "sharing"),
    [("DistributedDataParallel", 1), ("fully_shard", 1), ("parallelize_module", WORLD)],
)
def test_each_process_counts_the_whole_model(kind, sharing, tmp_path):
    """On its own rows, by hand; the first adds them up, each batch once, and alone prints."""
    import torch

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    torch.multiprocessing.spawn(_rank, (WORLD, port, kind, tmp_path), nprocs=WORLD)
    first, second = (
        TrainingProfile.from_json((tmp_path / f"{rank}.json").read_bytes())
        for rank in range(WORLD)
    )
    for profile in (first, second):
        assert (profile.work.forward_macs, profile.backward_macs) == (FORWARD, BACKWARD)
        assert profile.peak.rate == sharing * 1e12
    assert second.ranks is None
    assert (first.ranks.missing, first.ranks.sharing) == ((), sharing)
    assert [step.rank for step in first.ranks.steps] == [0, 1]
    batches = WORLD // sharing
    assert first.ranks.macs == batches * (FORWARD + BACKWARD)
    assert first.ranks.examples == batches * ROWS
    assert "\n Processes\n" in (tmp_path / "page.txt").read_text()


def test_a_process_that_does_not_profile_is_named_and_not_waited_for(tmp_path):
    """The first process says whose profile it lacks, and no sum."""
    import torch

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    kind = "DistributedDataParallel"
    torch.multiprocessing.spawn(_rank, (WORLD, port, kind, tmp_path, {0}), nprocs=WORLD)
    first = TrainingProfile.from_json((tmp_path / "0.json").read_bytes())
    assert (first.ranks.missing, first.ranks.macs) == ((1,), None)
    assert "no profile came from the processes with rank 1" in (tmp_path / "page.txt").read_text()
