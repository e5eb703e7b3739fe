"""Executors of clusters: those of Dask and of Ray, which are imported when they are used.

In: an address. Out: an Executor of `concurrent.futures`; each raises MissingExtraError where its
library is not installed.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from crossflops.errors import InputError, MissingExtraError
from crossflops.plugins.discovery import extra_install_command

_PATIENCE = 20  # seconds for a scheduler to answer
_ATTEMPTS = 3  # of a call whose worker ended


@contextmanager
def connect_to_dask(address: str) -> Iterator[Executor]:
    """Yield an executor that calls functions on the workers of a Dask scheduler.

    A call whose worker ends is made again on another one. Raises MissingExtraError without
    distributed, InputError where no scheduler answers.
    """
    distributed = _import_library("distributed", "dask")
    try:
        client = distributed.Client(address, timeout=_PATIENCE)
    except (OSError, ValueError, TimeoutError) as error:
        raise InputError(
            f"no Dask scheduler answers at {address}",
            "start one with `dask scheduler`, and give its address: --dask tcp://HOST:8786",
        ) from error
    with client:
        yield client.get_executor(retries=_ATTEMPTS, pure=False)


@contextmanager
def connect_to_ray() -> Iterator[Executor]:
    """Yield an executor that calls functions on the workers of Ray: of the cluster that
    RAY_ADDRESS names, else of this machine.

    Raises MissingExtraError without ray, InputError where the cluster does not answer.
    """
    ray = _import_library("ray", "ray")
    is_started = not ray.is_initialized()
    try:
        if is_started:
            ray.init(log_to_driver=False, include_dashboard=False)
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        raise InputError(
            f"Ray cannot be started: {error}", "run `ray status`, and correct RAY_ADDRESS"
        ) from error
    try:
        yield RayExecutor(ray)
    finally:
        if is_started:
            ray.shutdown()


class RayExecutor(Executor):
    """An executor of tasks of Ray. A task whose worker ends is run again."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Run the function as a task, and return its future."""
        task = self._ray.remote(max_retries=_ATTEMPTS)(fn)
        future: Future[Any] = task.remote(*args, **kwargs).future()
        return future


def _import_library(name: str, extra_name: str) -> Any:
    """Return a library. Raises MissingExtraError with the command that installs it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingExtraError(
            f"{name} is not installed", extra_install_command(extra_name)
        ) from error
