"""The pip and crossflops commands in hints, in the form that works in this environment.

A hint is written as if everything lay on PyPI and on the PATH: "pip install 'crossflops[torch]'",
"`crossflops doctor`". Before it is shown, `localize_commands` puts in which Python and which
command are meant, and what an extra consists of: that installs whether or not there is a release.
"""

import os
import re
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

NAME = "crossflops"
ROOT = Path(__file__).resolve().parents[1]
# Compiled when a hint is shown, since most runs show none.
_PIP = r"(?<!-m )(?<!uv )\bpip ((?:un)?install) "
_EXTRA = rf"'?\b{NAME}\[([\w,-]+)\](?:==[\w.+]+)?'?"
_PLUGIN = rf"(?<![\w/.@=-]){NAME}-[a-z][a-z-]*[a-z](?![\w/.=-])"
_SELF = rf"(?<=`){NAME} (?=[a-z-])|(?<=: ){NAME} (?=[a-z]+ )"


def localize_commands(text: str) -> str:
    """Return the text with its pip and crossflops commands in the form that works in this
    environment.
    """
    if "pip " in text and re.search(_PIP, text):
        text = re.sub(_PLUGIN, lambda match: shlex.join(_pip_arguments(match[0])), text)
        text = re.sub(
            _EXTRA, lambda match: shlex.join(_requirements_of_extras(match[1].split(","))), text
        )
        text = re.sub(_PIP, lambda match: f"{_installer_command(match[1])} ", text)
    return re.sub(_SELF, f"{program_command()} ", text) if NAME in text else text


def program_command() -> str:
    """Return the command by which crossflops was started, as it can be typed again: "crossflops",
    a path, or "python -m crossflops".
    """
    called = Path(sys.argv[0] or NAME)
    if called.name == "__main__.py" and called.parent.name == NAME:
        return f"{python_command()} -m {NAME}"
    if called.stem != NAME or _is_command_on_path(called.name, called):  # or called from Python
        return NAME
    return shlex.quote(_path_from_current_folder(called))


def python_command() -> str:
    """Return the shortest shell command that starts this Python interpreter: "python", "python3"
    or a path.
    """
    python = Path(sys.executable or "python3")
    short = next(
        (name for name in ("python", "python3") if _is_command_on_path(name, python)), None
    )
    return short or shlex.quote(_path_from_current_folder(python))


def extra_requirements(extra: str) -> tuple[tuple[str, ...], ...]:
    """Return the packages of an extra of crossflops, each as a tuple of pip arguments; () if the
    extra is unknown.
    """
    folders: list[tuple[str, ...]] = []
    for requirement in _requirements_by_extra().get(extra, ()):
        extras = re.fullmatch(_EXTRA, requirement)
        names = extras[1].split(",") if extras else ()
        folders += [part for name in names for part in extra_requirements(name)]
        folders += [] if extras else [_pip_arguments(requirement)]
    return tuple(dict.fromkeys(folders))


def _installer_command(verb: str) -> str:
    """Return the command "python -m pip VERB" or "uv pip VERB" for this interpreter; the verb is
    "install" or "uninstall".
    """
    from shutil import which

    if find_spec("pip") is None and which("uv"):
        return f"uv pip {verb} --python {python_command()}"
    return f"{python_command()} -m pip {verb}"


def _requirements_of_extras(extras: list[str]) -> list[str]:
    """Return the pip arguments that install these extras; ["crossflops[NAME,...]"] if the packages
    of one are unknown.
    """
    parts = [extra_requirements(name) for name in extras]
    if not all(parts):
        return [f"{NAME}[{','.join(extras)}]"]
    return [word for named in dict.fromkeys(sum(parts, ())) for word in named]


def _pip_arguments(requirement: str) -> tuple[str, ...]:
    """Return the pip arguments that install a requirement; for a plugin of crossflops, from the
    source of crossflops itself.
    """
    if not requirement.startswith(f"{NAME}-"):
        return (requirement,)
    folder = ROOT / "plugins" / requirement
    if (folder / "pyproject.toml").is_file():
        return "-e", _path_from_current_folder(folder)
    origin = _install_origin()
    if "vcs_info" not in origin:
        return (requirement,)
    address = f"{origin['vcs_info']['vcs']}+{origin['url']}"
    return (f"{requirement} @ {address}#subdirectory=plugins/{requirement}",)


def _requirements_by_extra() -> dict[str, list[str]]:
    """Return the requirements of each extra, by its name: from the source folder, else from the
    installed package.
    """
    project = ROOT / "pyproject.toml"
    if project.is_file():
        import tomllib

        table: dict[str, Any] = tomllib.loads(project.read_text(encoding="utf-8"))
        declared: dict[str, list[str]] = table["project"]["optional-dependencies"]
        return declared
    from importlib import metadata

    try:
        lines = metadata.requires(NAME) or []
    except metadata.PackageNotFoundError:
        return {}
    by_extra: dict[str, list[str]] = {}
    for line in lines:
        name, _, marker = line.partition(";")
        extra = marker.partition("extra ==")[2].strip(" '\"")
        by_extra.setdefault(extra, []).append(name.strip())
    return by_extra


def _install_origin() -> dict[str, Any]:
    """Return what pip recorded about the source of crossflops (PEP 610: "url", "vcs_info"); {} if
    it came from a package index.
    """
    import json
    from importlib import metadata

    try:
        text = metadata.distribution(NAME).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return {}
    return json.loads(text) if text else {}


def _is_command_on_path(name: str, requested: Path) -> bool:
    """Return whether the shell runs exactly this file when the command `name` is typed."""
    from shutil import which

    command = which(name)
    return command is not None and Path(command).absolute() == requested.absolute()


def _path_from_current_folder(path: Path) -> str:
    """Return a path as text: relative to the current folder if it is inside it, else absolute."""
    absolute = Path(os.path.abspath(path))
    here = Path.cwd()
    return str(absolute.relative_to(here)) if absolute.is_relative_to(here) else str(absolute)
