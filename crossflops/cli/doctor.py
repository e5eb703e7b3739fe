"""`crossflops doctor`."""

import platform
import subprocess
import sys
from typing import Any

import click

from crossflops.cli.installation import extra, installed_version
from crossflops.cli.options import output_options
from crossflops.cli.output import deliver
from crossflops.cli.progress import progress
from crossflops.cli.toolbox import toolbox
from crossflops.render.inventory import Component, Health

CORE = ("crossflops", "onnx", "numpy", "msgspec")
EXTRAS = {"torch": "torch", "onnxscript": "torch"}  # a distribution, the extra that brings it
IMPORT_LIMIT = 120  # seconds
OTHER_BUILD = "torchvision::nms does not exist"


@click.command("doctor")
@output_options
def command(**fields: Any) -> int:
    """Look at what is installed here, and say what is missing."""
    with progress("looking around"):
        noun = Health(_components(), toolbox())
    deliver(noun, **fields)
    return 0


def _components() -> tuple[Component, ...]:
    python = Component(name="Python", version=platform.python_version(), state="ok")
    core = [_part(name) for name in CORE]
    extras = [_part(name, extra(brings)) for name, brings in EXTRAS.items()]
    return (python, *core, *extras, _torchvision())


def _part(name: str, install: str = "") -> Component:
    version = installed_version(name)
    if version is None:
        return Component(name=name, version=None, state="missing", install=install)
    return Component(name=name, version=version, state="ok")


def _torchvision() -> Component:
    """Whether torchvision imports by itself: its PyPI wheel does not beside a CPU-only torch."""
    version = installed_version("torchvision")
    if version is None:
        install = f"{sys.executable} -m pip install --no-deps torchvision"
        return Component(name="torchvision", version=None, state="missing", install=install)
    complaint = _import_in_another_process("torchvision")
    if not complaint:
        return Component(name="torchvision", version=version, state="ok")
    if OTHER_BUILD in complaint:
        message = "imports with the shim that crossflops brings: its build is for another torch"
        return Component(name="torchvision", version=version, state="ok", message=message)
    return Component(name="torchvision", version=version, state="broken", message=complaint)


def _import_in_another_process(module: str) -> str:
    """The last line of what Python says when it imports the module; "" when it does."""
    line = [sys.executable, "-c", f"import {module}"]
    try:
        done = subprocess.run(
            line, capture_output=True, text=True, timeout=IMPORT_LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        return f"did not import within {IMPORT_LIMIT} seconds"
    if done.returncode == 0:
        return ""
    said = done.stderr.strip().splitlines()
    return said[-1] if said else f"the import ended with status {done.returncode}"
