"""Counts of PyTorch models in one process, beside `torch.export` of the same models.

    python benchmarks/in_process.py                   the models of the page
    python benchmarks/in_process.py resnet18 vgg11    others of torchvision
    python benchmarks/in_process.py video.swin3d_s    a model of clips
    python benchmarks/in_process.py --variants 300    random models of a search space
    python benchmarks/in_process.py --same 500        one model of it, for the memory

A count and an export take turns, after one of each of another model. All times are CPU seconds
with one thread. The first count and the first export of a model are each made in a process of its
own that has counted the models before it, forked from this one; all others are medians.
"""

import argparse
import multiprocessing
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
from torch import nn

import crossflops
from crossflops.frontends import load_with_retry

MODELS = ("resnet18", "resnet50", "mobilenet_v3_large", "vit_b_16", "swin_t")
WARM = "alexnet"
CLIP_SHAPE, IMAGE_SHAPE = (1, 3, 16, 224, 224), (1, 3, 224, 224)
HEAD = (
    "| model | first count | first torch.export | count | torch.export "
    "| ratio of firsts | first count of export | count of export |"
)


def main() -> int:
    """Measure what is asked for, and print a table of Markdown."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--same", type=int, metavar="N", help="count one model so many times")
    parser.add_argument("--variants", type=int, metavar="N", help="count so many random models")
    options = parser.parse_args()
    torch.set_num_threads(1)
    models = load_with_retry(lambda: import_module("torchvision.models"))
    if options.variants:
        print(variants(options.variants))
        return 0
    if options.same:
        print(same(options.same))
        return 0
    measured(models, WARM, 1)
    print(f"{HEAD}\n|{'---|' * 8}", flush=True)
    for name in options.models:
        print(measured(models, name, options.runs), flush=True)
    return 0


def measured(models: Any, name: str, runs: int) -> str:
    """A line of the table: counts and exports of a model in turn."""
    model = attrgetter(name)(models)(weights=None).eval()
    image = torch.zeros(CLIP_SHAPE if name.startswith("video.") else IMAGE_SHAPE)

    def count() -> object:
        return crossflops.count(model, image)

    def export() -> object:
        return torch.export.export(model, (image,), strict=False)

    first_export, first_count = seconds_apart(export), seconds_apart(count)
    count()  # its signatures are known from here on
    exports, counts = zip(*((seconds(export), seconds(count)) for _ in range(runs)), strict=True)
    usual_count, usual_export = statistics.median(counts), statistics.median(exports)
    times = (first_count, first_export, usual_count, usual_export)
    ratios = (first_count / first_export, first_count / usual_export, usual_count / usual_export)
    return " | ".join((f"| {name}", *(f"{value:.2f}" for value in (*times, *ratios)))) + " |"


def seconds_apart(run: Callable[[], object]) -> float:
    """The CPU seconds of a run in a fork of this process, which stays as it is."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, str(seconds(run)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with os.fdopen(read) as answer:
        return float(answer.read())


def seconds(run: Callable[[], object]) -> float:
    """The CPU seconds of a run."""
    begin = time.process_time()
    run()
    return time.process_time() - begin


def variants(number: int) -> str:
    """The time of counts of random models, and how much memory they leave behind."""
    times, memory = [], []
    for seed in range(number):
        model, image = variant(random.Random(seed))
        times.append(seconds(partial(crossflops.count, model, image)))
        memory.append(resident())
    # after the counts, since an export leaves memory behind, too
    exports = [export_seconds(seed) for seed in range(0, number, 3)]
    quarter, early = number // 4, min(30, number) - 1
    compared = random.Random(0).sample(range(number), min(number, 20))
    return (
        f"{number} models: {statistics.median(times):.2f} CPU seconds in the median, "
        f"{statistics.median(times[-quarter:]):.2f} of the last quarter, "
        f"{statistics.median(exports):.2f} of torch.export after them; "
        f"{memory[early]:.0f} MB after {early + 1}, {memory[-1]:.0f} MB at the end; "
        f"{differing(compared)} of {len(compared)} differ from a count in a fresh process"
    )


def export_seconds(seed: int) -> float:
    """The CPU seconds of `torch.export` of the model of a seed."""
    model, image = variant(random.Random(seed))
    return seconds(partial(torch.export.export, model, (image,), strict=False))


def differing(seeds: Sequence[int]) -> int:
    """How many of these models have another report in a process that counted nothing before."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(2, maxtasksperchild=1) as pool:
        fresh = pool.map(report, seeds, chunksize=1)
    return sum(report(seed) != other for seed, other in zip(seeds, fresh, strict=True))


def report(seed: int) -> str:
    """The whole report of the model of a seed, as JSON."""
    load_with_retry(lambda: import_module("torchvision.models"))
    return crossflops.count(*variant(random.Random(seed))).to_json()


def same(number: int) -> str:
    """The memory that counts of one model leave behind."""
    model, image = variant(random.Random(0))
    memory = []
    for _ in range(number):
        crossflops.count(model, image)
        memory.append(resident())
    early = min(30, number) - 1
    return (
        f"one model {number} times: {memory[early]:.0f} MB after {early + 1}, "
        f"{memory[-1]:.0f} MB at the end"
    )


def variant(choose: random.Random) -> tuple[nn.Module, torch.Tensor]:
    """A MobileNet of random kernels, widths, depths and sizes, as a search looks at them."""
    from torchvision.models.mobilenetv3 import InvertedResidualConfig, MobileNetV3

    blocks, before = [], 16
    for stage, width in enumerate((24, 40, 80, 112, 160)):
        for number in range(choose.randint(1, 3)):
            kernel, expansion = choose.choice((3, 5, 7)), choose.choice((3, 4, 6))
            attention, kind = stage in (1, 3, 4), "HS" if stage > 1 else "RE"
            stride = 2 if number == 0 and stage != 3 else 1
            blocks.append(
                InvertedResidualConfig(
                    before, kernel, before * expansion, width, attention, kind, stride, 1, 1.0
                )
            )
            before = width
    side = choose.choice((160, 176, 192, 208, 224))
    return MobileNetV3(blocks, 1280).eval(), torch.zeros(1, 3, side, side)


def resident() -> float:
    """The memory of this process in MB."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return float(line.split()[1]) / 1000


if __name__ == "__main__":
    sys.exit(main())
