"""`crossflops bench`."""

import re
from typing import Any

import click

from crossflops.cli.options import Request, model_options, output_options, picture, request
from crossflops.cli.output import deliver, keep_curve
from crossflops.cli.progress import progress
from crossflops.core.bench import Bench, Peak
from crossflops.errors import InputError
from crossflops.render.bench import TOP, Benched

A_CHECK_FAILED = 1
_SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_POSITIVE = click.FloatRange(min=0, min_open=True)


@click.command("bench")
@model_options
@click.option(
    "--batch",
    "batches",
    metavar="N,N,...|auto",
    help="Batch sizes to try; auto doubles and bisects to the fastest, and with --memory-limit to "
    "the largest that fits. Default: that of the inputs.",
)
@click.option(
    "--batch-dim", metavar="NAME", help="The dimension of an ONNX file that is the batch."
)
@click.option(
    "--max-latency-ms",
    type=_POSITIVE,
    metavar="X",
    help="Choose a batch whose p99 is within X ms.",
)
@click.option(
    "--memory-limit", metavar="SIZE", help="Address space of a worker, such as 4G. Default: all."
)
@click.option(
    "--threads",
    type=click.IntRange(1),
    metavar="N",
    help="Threads of an operator. Default: OMP_NUM_THREADS, else the CPUs of this process.",
)
@click.option(
    "--runtime",
    type=click.Choice(["onnxruntime", "torch", "keras", "jax"]),
    default="onnxruntime",
    show_default=True,
    help="onnxruntime, or the model's own framework.",
)
@click.option(
    "--optimization",
    type=click.Choice(["all", "extended", "basic", "off"]),
    default="all",
    show_default=True,
    help="Whether onnxruntime may fuse nodes.",
)
@click.option("--seconds", type=_POSITIVE, default=5.0, show_default=True, metavar="X",
              help="Time for warm-up, and again for timing, of each batch.")  # fmt: skip
@click.option("--timeout", type=_POSITIVE, default=300.0, show_default=True, metavar="X",
              help="Seconds after which a worker is stopped.")  # fmt: skip
@click.option(
    "--trace",
    metavar="FILE.json",
    help="Run nothing: read a profile of onnxruntime or a trace of torch.profiler of this model.",
)
@click.option(
    "--write-trace",
    metavar="DIR|FILE.json",
    help="Leave a trace of some runs there, for Perfetto (a file) or TensorBoard (a folder).",
)
@click.option(
    "--peak-tflops", type=_POSITIVE, metavar="X", help="The FP32 peak of this machine in TFLOP/s."
)
@click.option(
    "--top", type=click.IntRange(1), default=TOP, show_default=True, metavar="N",
    help="How many kernels to show.",
)  # fmt: skip
@click.option(
    "--plot", callback=picture, metavar="FILE", help="Draw speed over batch: .svg or .png."
)
@output_options
def command(as_json: bool, file: Any, plot: str | None, **fields: Any) -> int:
    """Run a model, and say how fast it is and where its time goes.

    It runs in onnxruntime (an ONNX file as it is, any other TARGET as its normalized graph), in a
    worker process: warm-up until the median of five runs stands still, then runs that count. The
    time of every kernel is joined to the nodes that it stands for, and to their MACs. Exit status
    1 says that some kernel was faster than the peak, which no sound measurement is.
    """
    asked = request(fields)
    top = fields.pop("top")
    trace = fields.pop("trace")
    if trace is not None:
        found = _read(asked, trace, fields)
    else:
        from crossflops.pipeline.benching.bench import bench

        with progress(f"running {asked.target}") as tell:
            found = bench(asked.target, **asked.keywords, **_keywords(fields), on_progress=tell)
    deliver(Benched(found, top), as_json=as_json, file=file)
    if plot is not None:
        keep_curve(found, plot)
    return A_CHECK_FAILED if found.errors else 0


def _read(asked: Request, trace: str, fields: dict[str, Any]) -> Bench:
    """What is in a trace, for which nothing is run."""
    from crossflops.pipeline.benching.reading import read_trace

    for name in ("batches", "max_latency_ms", "write_trace", "memory_limit"):
        if fields[name] is not None:
            option = "--batch" if name == "batches" else f"--{name.replace('_', '-')}"
            raise InputError(f"--trace runs nothing, and {option} is about runs", "leave one out")
    keywords = asked.keywords
    if keywords.pop("inputs_file") is not None:
        raise InputError("--trace runs nothing, and --inputs is about runs", "give --input")
    peak = fields["peak_tflops"]
    with progress(f"reading {trace}"):
        return read_trace(
            asked.target, trace=trace, peak=None if peak is None else _given(peak), **keywords
        )


def _keywords(fields: dict[str, Any]) -> dict[str, Any]:
    """What the options come to, as the pipeline takes it."""
    from crossflops.measure.timing import Limits
    from crossflops.pipeline.benching.attempts import Conditions
    from crossflops.pipeline.benching.bench import cpus

    latency, peak = fields["max_latency_ms"], fields["peak_tflops"]
    return {
        "batches": _batches(fields["batches"]),
        "batch_dim": fields["batch_dim"],
        "max_latency": None if latency is None else latency / 1e3,
        "peak": None if peak is None else _given(peak),
        "conditions": Conditions(
            runtime=fields["runtime"],
            write_trace=fields["write_trace"],
            optimization=fields["optimization"],
            threads=fields["threads"] or cpus(),
            limits=Limits(seconds=fields["seconds"]),
            memory=_size(fields["memory_limit"]),
            timeout=fields["timeout"],
        ),
    }


def _given(tflops: float) -> Peak:
    return Peak(rates={"float32": tflops * 1e12}, source="given")


def _batches(text: str | None) -> tuple[int, ...] | str:
    if text is None or text == "auto":
        return text or ()
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and 0 < int(part) < 1 << 31 for part in parts):
        raise InputError(f"--batch {text!r} is no list of sizes", "write --batch 1,2,4,8 or auto")
    return tuple(map(int, parts))


def _size(text: str | None) -> int | None:
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", text.strip().lower())
    if not found or not float(found[1]):
        raise InputError(f"--memory-limit {text!r} is no size", "write for example 4G or 512M")
    return int(float(found[1]) * _SIZES[found[2]])
