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
    check_picture_file,
    command_options,
    pop_request,
    reject_options,
    reject_page_options_with_json,
    verb,
)
from crossflops.cli.output import showing_progress, write_batch_curve, write_verb_result
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
                 help="Time training steps of a PyTorch model: forward, backward and "
                      "optimizer, each with its count."),
    click.option("--optimizer", default="adamw", show_default=True, metavar="NAME",
                 help="With --train: a class of torch.optim, such as adamw or sgd, or none."),
    click.option("--batch", "batches", metavar="N,N,...|auto",
                 help="Batch sizes to try. auto doubles and bisects to find the fastest and, "
                      "with --memory-limit, the largest that fits. Default: the batch size of "
                      "the inputs."),
    *SEQ, *IMAGE_SIZE,
    click.option("--batch-dim", metavar="NAME",
                 help="The name of the batch dimension of an ONNX file."),
    click.option("--max-latency-ms", type=_POSITIVE, metavar="X",
                 help="Choose a batch whose p99 latency is at most X ms."),
    click.option("--memory-limit", metavar="SIZE",
                 help="Maximum address space of a worker, such as 4G. Default: no limit."),
    click.option("--threads", type=click.IntRange(1), metavar="N",
                 help="Threads per operator. Default: OMP_NUM_THREADS, else the CPUs of this "
                      "process."),
    click.option("--runtime", type=click.Choice(_RUNTIMES), default="onnxruntime",
                 show_default=True,
                 help="The runtime that runs the model: onnxruntime, or the model's own "
                      "framework."),
    click.option("--optimization", type=click.Choice(["all", "extended", "basic", "off"]),
                 default="all", show_default=True,
                 help="Whether onnxruntime may fuse nodes."),
    click.option("--seconds", type=_POSITIVE, metavar="X",
                 help="For each batch, the maximum time of the warm-up, and then of the timing. "
                      "Default: 5 s, and at most 100 runs."),
    click.option("--trace", metavar="FILE.json",
                 help="Do not run the model: read an onnxruntime profile or a torch.profiler "
                      "trace of it."),
    click.option("--write-trace", metavar="DIR|FILE.json",
                 help="Write a trace of some runs, for Perfetto (to a file) or TensorBoard "
                      "(to a folder)."),
    click.option("--peak-tflops", type=_POSITIVE, metavar="X",
                 help="The FP32 peak of this machine in TFLOP/s."),
    click.option("--top", type=click.IntRange(1), default=TOP, show_default=True, metavar="N",
                 help="Number of kernels to show."),
    click.option("--plot", callback=check_picture_file, metavar="FILE",
                 help="Plot speed against batch size: .svg or .png."),
    *OUTPUT,
)  # fmt: skip
def bench(as_json: bool, file: Any, plot: str | None, **fields: Any) -> int:
    """Run a model and measure its speed and the time of each node.

    The model runs in onnxruntime, in a worker process: an ONNX file unchanged, any other TARGET
    as its normalized graph. Warm-up ends when the median of five runs is stable; then runs are
    timed. The time of each kernel is assigned to the nodes it computes, and compared with their
    MACs. Exit status 1 means that a kernel or the whole run was faster than the peak, which is
    impossible.
    """
    from crossflops.bench.timing import BenchLimits
    from crossflops.verbs import bench as bench_verb

    reject_page_options_with_json({"as_json": as_json, "file": file}, "top")
    if fields["train"]:
        others = () if fields["runtime"] == "torch" else ("runtime",)
        why = "with --train, PyTorch runs the step and each phase is timed"
        reject_options((*_OF_KERNELS, *others), why, "leave out {option}, or leave out --train")
    else:
        reject_options(
            ("optimizer",), "it applies to training only", "add --train, or leave out {option}"
        )
    top, timeout = fields.pop("top"), fields["timeout"]
    usual = {name: fields.pop(name) for name in ("seq", "image_size")}
    provided = {name: size for name, size in usual.items() if size is not None}
    model = pop_request(fields, observe=not fields["train"], sizes=provided)
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
    with showing_progress(doing) as on_progress:
        benched = bench_verb.bench_request(model, config, on_progress)
    write_verb_result(BenchView(benched, top), as_json=as_json, file=file)
    if plot is not None:
        write_batch_curve(benched, plot)
    return A_CHECK_FAILED if benched.errors else 0


_OF_KERNELS = ("top", "write_trace", "optimization")


def _parse_batch_sizes(text: str | None) -> tuple[int, ...] | str:
    """Return the value of --batch: () if not given, "auto", or the sizes in a text such as
    "1,2,4". Raises InputError.
    """
    if text is None or text == "auto":
        return text or ()
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and 0 < int(part) < 1 << 31 for part in parts):
        raise InputError(
            f"--batch must be a list of sizes or auto, got {text!r}",
            "write --batch 1,2,4,8 or auto",
        )
    return tuple(map(int, parts))


def _parse_memory_size(text: str | None) -> int | None:
    """Return a memory size such as "4G" or "512M" in bytes, or None if not given. Raises
    InputError.
    """
    if text is None:
        return None
    size = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", text.strip().lower())
    if not size or not float(size[1]):
        raise InputError(
            f"--memory-limit must be a size in bytes, got {text!r}",
            "write, for example, 4G or 512M",
        )
    return int(float(size[1]) * _SIZES[size[2]])
