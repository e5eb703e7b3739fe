"""Models that several processes share: each counts the whole model on its own batch."""

import json
import multiprocessing
import os
import signal
import socket
import time
import traceback
import warnings

import pytest

from crossflops.report.profile import TrainingProfile
from tests.profiling.test_watch import bare

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
        (folder / "attributes.json").write_text(json.dumps(_of_attributes()))
    distributed.destroy_process_group()


def _of_attributes():
    """MACs of a model that multiplies by a piece and by pieces in a list; and what is refused."""
    import torch
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Shard, distribute_tensor

    import crossflops

    mesh = DeviceMesh("cpu", [0])  # of the first process alone
    pieces = [distribute_tensor(torch.ones(16, 4), mesh, [Shard(0)]) for _ in range(2)]

    class Held(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.piece, self.more = pieces[0], {"list": [pieces[1]]}

        def forward(self, x):
            return x @ self.piece + x @ self.more["list"][0]

    class Made(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.piece = pieces[0]

        def forward(self, x):
            return DTensor.from_local(x, mesh) @ self.piece

    try:
        hint = str(crossflops.count(Made(), torch.ones(ROWS, 16)).macs)
    except crossflops.errors.NormalizeError as error:
        hint = error.hint
    return crossflops.count(Held(), torch.ones(ROWS, 16)).macs, hint


def _spawned(work, world, *more):
    """So many processes that do the work with their ranks."""
    import torch

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    multiprocessing.set_forkserver_preload([__name__, "torch.distributed.fsdp", "crossflops"])
    return torch.multiprocessing.start_processes(
        work, (world, port, *more), nprocs=world, join=False, start_method="forkserver"
    )


@pytest.fixture(scope="module", params=SHARING)
def trained(request, tmp_path_factory):
    """How many processes have trained a model of each kind, and the folder with their profiles."""
    folder = tmp_path_factory.mktemp(f"of{request.param}")
    processes = _spawned(_each_kind, request.param, folder)
    while not processes.join():
        pass
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
    assert f"no profile was received from rank {named}" in text


def test_pieces_that_are_plain_attributes_are_counted_as_whole(trained):
    """Two products of 8x16 by 16x4. What forward itself cuts is refused, with what to do."""
    macs, hint = json.loads((trained[1] / "attributes.json").read_text())
    assert macs == 2 * ROWS * 16 * 4
    assert "before it is sharded" in hint


def _fails(rank, world, port, folder, guilty, how):
    """A step in whose middle one process is killed, or raises; every one keeps its own error."""
    import torch

    import crossflops

    _join(rank, world, port)
    net = _shared("data", world)
    before = bare(net)

    class Guilty(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            if rank == guilty and how == "is killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if rank == guilty:
                raise ZeroDivisionError("the user's own")
            return gradient

    profiler = crossflops.FlopsProfiler(net, peak_tflops=1)
    profiler.start()
    try:
        Guilty.apply(net(torch.ones(ROWS, 16))).sum().backward()
    except Exception:
        (folder / f"{rank}.txt").write_text(traceback.format_exc())
        assert bare(net) == before
        raise


@pytest.mark.parametrize(
    ("guilty", "how", "says"),
    [
        (2, "is killed", "RuntimeError|rank 2 ended without a message (process {pid}"),
        (1, "raises", "RuntimeError|rank 1 raised ZeroDivisionError: the user's"),
        (0, "is killed", "RuntimeError|rank 0"),  # with the store, so that nobody can be asked
    ],
)
def test_a_process_that_ends_in_the_middle_of_a_step_is_named_by_the_others(
    guilty, how, says, tmp_path
):
    """They end by their own error, in time, with a note; what it raised itself is as it was."""
    context = _spawned(_fails, 4, tmp_path, guilty, how)
    end = time.monotonic() + 60
    for process in context.processes:
        process.join(end - time.monotonic())
    statuses = [process.exitcode for process in context.processes]
    assert statuses.pop(guilty) == (-signal.SIGKILL if how == "is killed" else 1)
    assert statuses == [1, 1, 1]
    kind, note = says.format(pid=context.processes[guilty].pid).split("|")
    for rank in {0, 1, 2, 3} - {guilty}:
        text = (tmp_path / f"{rank}.txt").read_text()
        assert f"\n{kind}: " in text
        assert note in text.splitlines()[-1], text
    if how == "raises":
        text = (tmp_path / f"{guilty}.txt").read_text()
        assert text.endswith("\nZeroDivisionError: the user's own\n")
