"""Models that several processes share: each counts the whole model on its own batch."""

import multiprocessing
import os
import socket
import warnings

import pytest

from crossflops.report.profile import TrainingProfile

pytestmark = pytest.mark.torch

ROWS = 8
FORWARD = ROWS * (16 * 32 + 32 * 4)  # of 16-32-4
BACKWARD = 2 * FORWARD - ROWS * 16 * 32  # but for the gradient of the input

# how a model is shared, and how many processes compute one batch together
SHARING = {
    2: {"data": 1, "pieces": 1, "tensors": 2},
    4: {"data": 1, "pieces": 1, "tensors": 4, "mesh": 2},
}


def _shared(kind, world):
    """A model of 16-32-4, cut or copied as `kind` says."""
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    if kind == "data":
        return nn.parallel.DistributedDataParallel(model)
    if kind == "pieces":
        return fully_shard(nn.Sequential(*map(fully_shard, model)))
    if kind == "tensors":
        return parallelize_module(model, init_device_mesh("cpu", (world,)), plan)
    mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("batches", "tensors"))
    parallelize_module(model, mesh["tensors"], plan)
    for layer in model:
        fully_shard(layer, mesh=mesh["batches"])
    return fully_shard(model, mesh=mesh["batches"])


def _join(rank, world, port):
    from torch import distributed

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world)}
    distributed.init_process_group("gloo", rank=rank, world_size=world)


def _train(kind, world, **options):
    """Three steps, all of them watched for the one that is profiled."""
    import torch

    import crossflops

    torch.manual_seed(0)
    model = _shared(kind, world)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    profiler = crossflops.FlopsProfiler(model, peak_tflops=1, **options)
    with warnings.catch_warnings(action="ignore"):
        for _ in range(3):
            with profiler.watch():
                optimizer.zero_grad()
                model(torch.ones(ROWS, 16)).sum().backward()
                optimizer.step()
    return profiler


def _each_kind(rank, world, port, folder):
    """One after the other in the same processes; at last a step that only the first profiles."""
    from torch import distributed

    _join(rank, world, port)
    for kind in SHARING[world]:
        profiler = _train(kind, world, step=2, output_file=folder / f"{kind}.txt")
        (folder / f"{kind}{rank}.json").write_text(profiler.profile.to_json())
    alone = _train("data", world, step=100 if rank else 2, output_file=folder / "alone.txt")
    if rank == 0:
        (folder / "alone.json").write_text(alone.profile.to_json())
    distributed.destroy_process_group()


def _spawned(work, world, *more):
    """The work, by so many processes with their ranks."""
    import torch

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    multiprocessing.set_forkserver_preload([__name__, "torch.distributed.fsdp", "crossflops"])
    torch.multiprocessing.start_processes(
        work, (world, port, *more), nprocs=world, start_method="forkserver"
    )


@pytest.fixture(scope="module", params=SHARING)
def trained(request, tmp_path_factory):
    """How many processes have trained a model of each kind, and the folder with their profiles."""
    folder = tmp_path_factory.mktemp(f"of{request.param}")
    _spawned(_each_kind, request.param, folder)
    return request.param, folder


def test_each_process_counts_the_whole_model(trained):
    """On its own rows, by hand; the first adds them up, each batch once, and alone prints."""
    world, folder = trained
    for kind, sharing in SHARING[world].items():
        profiles = [
            TrainingProfile.from_json((folder / f"{kind}{rank}.json").read_bytes())
            for rank in range(world)
        ]
        for profile in profiles:
            assert (profile.work.forward_macs, profile.backward_macs) == (FORWARD, BACKWARD), kind
            assert profile.peak.rate == sharing * 1e12, kind
        first, *others = profiles
        assert {profile.ranks for profile in others} == {None}
        assert (first.ranks.missing, first.ranks.sharing) == ((), sharing), kind
        assert [step.rank for step in first.ranks.steps] == [*range(world)]
        batches = world // sharing
        assert first.ranks.macs == batches * (FORWARD + BACKWARD), kind
        assert first.ranks.examples == batches * ROWS, kind
        assert "\n Processes\n" in (folder / f"{kind}.txt").read_text()


def test_a_process_that_does_not_profile_is_named_and_not_waited_for(trained):
    """The first process says whose profile it lacks, and no sum."""
    world, folder = trained
    first = TrainingProfile.from_json((folder / "alone.json").read_bytes())
    missing = tuple(range(1, world))
    assert (first.ranks.missing, first.ranks.macs) == (missing, None)
    named = ", ".join(map(str, missing))
    text = (folder / "alone.txt").read_text()
    assert f"no profile came from the processes with rank {named}" in text
