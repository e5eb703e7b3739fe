"""`crossflops sweep`."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from crossflops.cli.options import OUTPUT, Positive, command_options, verb
from crossflops.cli.output import Progress, print_to_stderr, showing_progress, write_verb_result
from crossflops.errors import InputError
from crossflops.limits import TIMEOUT

if TYPE_CHECKING:
    from concurrent.futures import Executor

NO_ANSWER = 3
_PAUSE = 5.0  # seconds between lines where stderr is no terminal


@verb(
    "sweep",
    example="crossflops sweep suite.toml --store sweeps -o sweep.csv",
    first=("--store", "--only", "--limit", "--compare-to", "-o"),
)
@click.argument("suite", metavar="SUITE.toml", type=click.Path(path_type=Path))
@command_options(
    click.option("--store", required=True, metavar="FOLDER",
                 help="Record each row in this folder, and do not count it again: a sweep that "
                      "was ended continues."),
    click.option("--only", multiple=True, metavar="PATTERN",
                 help="Take only targets that match, such as 'resnet*'. Repeatable."),
    click.option("--limit", type=click.IntRange(1), metavar="N",
                 help="Take only the first N models and inputs of the suite."),
    click.option("--compare-to", default="", metavar="FOLDER",
                 help="Show what differs from the rows of this other store."),
    click.option("--jobs", type=click.IntRange(1), metavar="N",
                 help="Count up to N models in parallel. Default: at most one per CPU and per "
                      "4 GiB of memory."),
    click.option("--timeout", type=Positive(1e6), default=TIMEOUT, show_default=True,
                 metavar="SECONDS",
                 help="Maximum time of one model, and of each tool on it."),
    click.option("--memory", type=Positive(), metavar="GIB",
                 help="Maximum address space of each tool. Default: the memory of the machine."),
    click.option("--retry-failures", is_flag=True,
                 help="Count again what the store has as a failure, such as a tool that took "
                      "longer than --timeout."),
    click.option("--dask", metavar="tcp://HOST:PORT",
                 help="Count on the workers of this Dask scheduler."),
    click.option("--ray", is_flag=True,
                 help="Count on the workers of Ray: of the cluster that RAY_ADDRESS names, else "
                      "of this machine."),
    *OUTPUT,
)  # fmt: skip
def sweep(suite: Path, dask: str | None, ray: bool, memory: float | None, **fields: Any) -> int:
    """Count many models with many tools into a store that can be continued.

    SUITE.toml has tables [[model]] with target, and input, arg, dim, batch, seq, image_size,
    family, train; tools and as (conventions) there or for all models.
    """
    from crossflops.verbs.sweep.sweep import SweepChoice, run_sweep

    if dask is not None and ray:
        raise InputError("--dask and --ray cannot be combined", "leave out one of the two")
    if (dask is not None or ray) and fields["jobs"] is not None:
        raise InputError(
            f"--jobs has no effect with {'--ray' if ray else '--dask'}, which has its own workers",
            "leave out --jobs",
        )
    shown = {name: fields.pop(name) for name in ("as_json", "file")}
    with (
        _open_cluster_executor(dask, ray) as executor,
        showing_progress(f"reading {suite}") as display,
    ):
        memory_bytes = None if memory is None else round(memory * 2**30)
        choice = SweepChoice(**fields, memory=memory_bytes, executor=executor)
        try:
            result = run_sweep(suite, choice, _choose_reporter(display))
        except KeyboardInterrupt:
            print_to_stderr(
                f"interrupted: what was counted is in {choice.store}; run the command again to "
                "continue"
            )
            raise
    write_verb_result(result, **shown)
    return 0 if any(row.total is not None for row in result.rows) else NO_ANSWER


@contextmanager
def _open_cluster_executor(dask: str | None, ray: bool) -> Iterator["Executor | None"]:
    """Yield the executor of the cluster that was asked for, None for this machine."""
    if dask is None and not ray:
        yield None
        return
    from crossflops.workers.cluster_executors import connect_to_dask, connect_to_ray

    with connect_to_dask(dask) if dask is not None else connect_to_ray() as executor:
        yield executor


def _choose_reporter(display: Progress) -> Callable[[str], None]:
    """Return a function that shows progress: in the terminal, else as lines on stderr, which are
    some seconds apart.
    """
    if sys.stderr.isatty():
        return display
    last = [time.monotonic()]

    def print_progress_line(text: str) -> None:
        """Print the text, if it is the last one or some time went by."""
        if text.endswith("\n") or time.monotonic() - last[0] >= _PAUSE:
            last[0] = time.monotonic()
            print_to_stderr(text)

    return print_progress_line
