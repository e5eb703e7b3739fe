"""`crossflops doctor`."""

import platform
import re
import sys
from importlib.metadata import requires
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from crossflops.adapters.installation import extra, installed_version
from crossflops.adapters.interpreters import chosen
from crossflops.cli.interpreters import python_option
from crossflops.cli.options import output_options
from crossflops.cli.output import deliver
from crossflops.cli.progress import progress
from crossflops.cli.toolbox import toolbox
from crossflops.render.inventory import Component, Health

CORE = ("crossflops", "onnx", "numpy", "msgspec")
# a distribution, the extra that brings it
EXTRAS = {
    "torch": "torch",
    "onnxscript": "torch",
    "onnx2torch": "rebuild",
    "onnxruntime": "runtime",
    "nvidia-ml-py": "hw",
}


@click.command("doctor")
@python_option
@output_options
def command(python: dict[str, str], **fields: Any) -> int:
    """Look at what is installed here, and say what is missing."""
    interpreters = chosen(python)
    with progress("looking around"):
        noun = Health(_components(), toolbox(interpreters))
    deliver(noun, **fields)
    return 0


def _components() -> tuple[Component, ...]:
    python = Component(
        name="Python", version=platform.python_version(), python=sys.executable, state="ok"
    )
    core = [_part(name) for name in CORE]
    extras = [_part(name, extra(brings)) for name, brings in EXTRAS.items()]
    return (python, *core, *extras, _torchvision())


def _part(name: str, install: str = "") -> Component:
    version = installed_version(name)
    if version is None:
        return Component(name=name, version=None, state="missing", install=install)
    return Component(name=name, version=version, state="ok")


def _torchvision() -> Component:
    """Whether torchvision is of the torch beside it. Nothing is imported: that takes seconds."""
    version, torch = installed_version("torchvision"), installed_version("torch")
    if version is None:
        install = f"{sys.executable} -m pip install --no-deps torchvision"
        return Component(name="torchvision", version=None, state="missing", install=install)
    wanted = _torch_of("torchvision")
    if torch is not None and wanted not in (None, torch.split("+")[0]):
        message = f"is made for torch {wanted}, and this is {torch}"
        return Component(name="torchvision", version=version, state="broken", message=message)
    if "+cu" in _built("torchvision") and "+cu" not in _built("torch"):
        message = "imports with the shim that crossflops brings: its build is for another torch"
        return Component(name="torchvision", version=version, state="ok", message=message)
    return Component(name="torchvision", version=version, state="ok")


def _torch_of(distribution: str) -> str | None:
    """The release of torch that a distribution pins."""
    found = (re.match(r"torch \(?==([\d.]+)", one) for one in requires(distribution) or ())
    return next((one[1] for one in found if one), None)


def _built(package: str) -> str:
    """The version that a package gives itself, with the label of its build ("0.28.0+cu130").

    PyPI's metadata leaves that label out. "" where the package does not say.
    """
    spec = find_spec(package)
    file = Path(spec.origin).with_name("version.py") if spec and spec.origin else Path()
    if not file.is_file():
        return ""
    found = re.search(r"^__version__ = '([^']+)'", file.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else ""
