"""Notify listeners when a framework's converter begins and ends, so that they can end it.

A converter is another project's code, and some take time that grows with the square of the model.
The command line has it run in a process that can be ended (crossflops/cli/supervision.py); from
Python no message is shown unless `add_conversion_listener` asks for it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from crossflops.threads import silence_logs

if TYPE_CHECKING:
    from logging import LogRecord

Listener: TypeAlias = Callable[[str | None], None]
ERROR = 40  # the level of `logging`, which a count of a file need not import
_listeners: list[Listener] = []
_running: list[str] = []


def add_conversion_listener(listener: Listener) -> None:
    """Add a listener, called with a converter's name when it begins, and with None at its end."""
    _listeners.append(listener)


def remove_conversion_listeners() -> None:
    """Remove all listeners: a forked process does not have those of its parent."""
    _listeners.clear()


@contextmanager
def announcing_converter(converter: str) -> Iterator[None]:
    """Return a context in which listeners know that this converter runs; "" is no converter."""
    if not converter:
        yield
        return
    _running.append(converter)
    _notify_listeners(_running[-1])
    try:
        yield
    finally:
        _running.pop()
        _notify_listeners(None)


@contextmanager
def announcing_no_converter() -> Iterator[None]:
    """Return a context in which listeners know that no converter runs."""
    _notify_listeners(None)
    try:
        yield
    finally:
        if _running:
            _notify_listeners(_running[-1])


def _notify_listeners(converter: str | None) -> None:
    """Call each listener with the name of the running converter, or with None if none runs."""
    for listener in _listeners:
        listener(converter)


@contextmanager
def silencing_loggers(*names: str, up_to: int = ERROR) -> Iterator[None]:
    """Return a context in which these loggers drop records up to the level `up_to`."""
    families = tuple(f"{name}." for name in names)

    def is_record_silenced(record: "LogRecord") -> bool:
        """Return whether a record is from a silenced logger and not above the level."""
        return record.levelno <= up_to and f"{record.name}.".startswith(families)

    with silence_logs(is_record_silenced):
        yield
