"""`crossflops bench`."""

import re
from typing import Any

import click

from crossflops.cli.options import (
    IMAGE_SIZE,
    MODEL,
    OUTPUT,
    SEQ,
    TARGET,
    Positive,
    command_options,
    picture,
    refuse_without_page,
    reject_options,
    request,
    verb,
)
from crossflops.cli.output import deliver, keep_curve, progress
from crossflops.errors import InputError
from crossflops.frontends import FRONTENDS
from crossflops.render.pages.bench import TOP, BenchView

A_CHECK_FAILED = 1
_SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_POSITIVE = Positive()
_RUNTIMES = ("onnxruntime", *(frontend.runtime for frontend in FRONTENDS if frontend.runtime))


@verb(
    "bench",
    example="crossflops bench model.onnx --seconds 1",
    first=("--input", "--batch", "--runtime", "--seconds", "-o"),
)
@command_options(
    TARGET,
    *MODEL,
    click.option("--train", is_flag=True,
                 help="Time training steps of a model of PyTorch: forward, backward and the "
                      "optimizer, each beside its count."),
    click.option("--optimizer", default="adamw", show_default=True, metavar="NAME",
                 help="With --train: a class of torch.optim, such as adamw or sgd, or none."),
    click.option("--batch", "batches", metavar="N,N,...|auto",
                 help="Batch sizes to try; auto doubles and bisects to the fastest, and with "
                      "--memory-limit to the largest that fits. Default: that of the inputs."),
    *SEQ, *IMAGE_SIZE,
    click.option("--batch-dim", metavar="NAME",
                 help="The dimension of an ONNX file that is the batch."),
    click.option("--max-latency-ms", type=_POSITIVE, metavar="X",
                 help="Choose a batch whose p99 is within X ms."),
    click.option("--memory-limit", metavar="SIZE",
                 help="Address space of a worker, such as 4G. Default: all."),
    click.option("--threads", type=click.IntRange(1), metavar="N",
                 help="Threads of an operator. Default: OMP_NUM_THREADS, else the CPUs of this "
                      "process."),
    click.option("--runtime", type=click.Choice(_RUNTIMES), default="onnxruntime",
                 show_default=True,
                 help="onnxruntime, or the model's own framework."),
    click.option("--optimization", type=click.Choice(["all", "extended", "basic", "off"]),
                 default="all", show_default=True,
                 help="Whether onnxruntime may fuse nodes."),
    click.option("--seconds", type=_POSITIVE, metavar="X",
                 help="Time for warm-up at most, and for timing, of each batch. Default: 5, and "
                      "at most 100 runs."),
    click.option("--trace", metavar="FILE.json",
                 help="Run nothing: read a profile of onnxruntime or a trace of torch.profiler "
                      "of this model."),
    click.option("--write-trace", metavar="DIR|FILE.json",
                 help="Leave a trace of some runs there, for Perfetto (a file) or TensorBoard "
                      "(a folder)."),
    click.option("--peak-tflops", type=_POSITIVE, metavar="X",
                 help="The FP32 peak of this machine in TFLOP/s."),
    click.option("--top", type=click.IntRange(1), default=TOP, show_default=True, metavar="N",
                 help="How many kernels to show."),
    click.option("--plot", callback=picture, metavar="FILE",
                 help="Draw speed over batch: .svg or .png."),
    *OUTPUT,
)  # fmt: skip
def bench(as_json: bool, file: Any, plot: str | None, **fields: Any) -> int:
    """Run a model, and say how fast it is and where its time goes.

    It runs in onnxruntime (an ONNX file as it is, any other TARGET as its normalized graph), in a
    worker process: warm-up until the median of five runs stands still, then runs that count. The
    time of every kernel is joined to the nodes that it stands for, and to their MACs. Exit status
    1 says that some kernel, or all of it, was faster than the peak, which no sound measurement is.
    """
    from crossflops.bench.timing import BenchLimits
    from crossflops.verbs import bench as bench_verb

    refuse_without_page({"as_json": as_json, "file": file}, "top")
    if fields["train"]:
        others = () if fields["runtime"] == "torch" else ("runtime",)
        why = "a training step runs in PyTorch, and is timed by its phases"
        reject_options((*_OF_KERNELS, *others), why, "leave it out, or --train")
    else:
        reject_options(("optimizer",), "nothing is trained", "add --train, or leave it out")
    top, timeout = fields.pop("top"), fields["timeout"]
    usual = {name: fields.pop(name) for name in ("seq", "image_size")}
    provided = {name: size for name, size in usual.items() if size is not None}
    model = request(fields, observe=not fields["train"], sizes=provided)
    batches, memory = (
        _parse_batch_sizes(fields.pop("batches")),
        _parse_memory_size(fields.pop("memory_limit")),
    )
    seconds = fields.pop("seconds")
    limits = BenchLimits() if seconds is None else BenchLimits(seconds=seconds, runs=None)
    config = bench_verb.Conditions(
        batches=batches, memory=memory, timeout=timeout, limits=limits, **fields
    )
    doing = f"running {model.target}" if config.trace is None else f"reading {config.trace}"
    with progress(doing) as on_progress:
        benched = bench_verb.bench_request(model, config, on_progress)
    deliver(BenchView(benched, top), as_json=as_json, file=file)
    if plot is not None:
        keep_curve(benched, plot)
    return A_CHECK_FAILED if benched.errors else 0


_OF_KERNELS = ("top", "write_trace", "optimization")


def _parse_batch_sizes(text: str | None) -> tuple[int, ...] | str:
    if text is None or text == "auto":
        return text or ()
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and 0 < int(part) < 1 << 31 for part in parts):
        raise InputError(f"--batch {text!r} is no list of sizes", "write --batch 1,2,4,8 or auto")
    return tuple(map(int, parts))


def _parse_memory_size(text: str | None) -> int | None:
    if text is None:
        return None
    size = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", text.strip().lower())
    if not size or not float(size[1]):
        raise InputError(f"--memory-limit {text!r} is no size", "write for example 4G or 512M")
    return int(float(size[1]) * _SIZES[size[2]])
