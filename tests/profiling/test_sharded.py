"""Models that two processes share: each counts the whole model on its own batch."""

import os
import socket
import warnings

import pytest

pytestmark = pytest.mark.torch

ROWS = 8
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


def _rank(rank, world, port, kind, folder):
    import torch
    from torch import distributed

    import crossflops

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world)}
    distributed.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(0)
    model = _shared(kind, world)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    profiler = crossflops.FlopsProfiler(model, step=2, output_file=folder / "page.txt")
    with warnings.catch_warnings(action="ignore"):
        for _ in range(3):
            with profiler.watch():
                optimizer.zero_grad()
                model(torch.ones(ROWS, 16)).sum().backward()
                optimizer.step()
    profile = profiler.profile
    (folder / str(rank)).write_text(f"{profile.work.forward_macs} {profile.backward_macs}")
    distributed.destroy_process_group()


@pytest.mark.parametrize("kind", ["DistributedDataParallel", "fully_shard", "parallelize_module"])
def test_each_process_counts_the_whole_model(kind, tmp_path):
    """On its own rows, by hand; only the first prints."""
    import torch

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    torch.multiprocessing.spawn(_rank, (2, port, kind, tmp_path), nprocs=2)
    assert [(tmp_path / rank).read_text() for rank in "01"] == [f"{FORWARD} {BACKWARD}"] * 2
    assert (tmp_path / "page.txt").exists()
