"""Rehearse a release: build all packages, install them from a local index, and run the pages.

    python -m release.rehearse                   all steps
    python -m release.rehearse core extras       only these
    python -m release.rehearse --packages dist   with files that are built

Each step has a clean virtual environment in a folder of its own, outside of the repository. It
gets the package from an index of the built files, and all else from pip's usual index, in the
versions of constraints.txt. Steps:

    core      the package alone; the blocks of README.md and the tutorial that need no framework
    tools     [torch,tools] and models; all blocks of these two pages
    extras    each small extra, installed; every other one, resolved without an installation
    runners   `uvx` and `pipx run`
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from release.build import build_packages, check_packages
from release.versions import ROOT, current_version
from tests.docs.blocks import Block, agrees, blocks, commands, prepare

PAGES = (ROOT / "README.md", ROOT / "docs" / "tutorial.md")
CONSTRAINTS = ROOT / "constraints.txt"
SMALL_EXTRAS = ("runtime", "shapes", "hw", "plots", "testing", "sklearn", "tflite")
MODELS = ("torchvision", "timm", "onnx2torch")
# the build of DeepSpeed imports PyTorch, so pip cannot read what it requires before that is there
UNRESOLVABLE = ("deepspeed", "deepspeed-macs")
PRINTED = re.compile(r"print\(.*\)  # (.*)$", re.MULTILINE)


class RehearsalError(Exception):
    """A step that does not do what the pages say."""


class Rehearsal(NamedTuple):
    """The folders of a rehearsal: the index of the built files, and the place for environments."""

    index_folder: Path
    folder: Path

    @property
    def index_address(self) -> str:
        """The URL of the index."""
        return self.index_folder.as_uri()


def make_index(files: list[Path], folder: Path) -> Path:
    """Return a folder with the files as a package index (PEP 503), one page for each project."""
    index = folder / "index"
    for path in files:
        project = index / path.name.partition("-")[0].replace("_", "-")
        project.mkdir(parents=True, exist_ok=True)
        (project / path.name).write_bytes(path.read_bytes())
    for project in sorted(index.iterdir()):
        links = "".join(f'<a href="{p.name}">{p.name}</a>\n' for p in sorted(project.iterdir()))
        (project / "index.html").write_text(f"<!DOCTYPE html>\n{links}", encoding="utf-8")
    return index


class Environment(NamedTuple):
    """A virtual environment, and the empty folder in which its commands run."""

    root: Path
    work: Path
    index_address: str

    def run(self, words: list[str], expected: int = 0) -> str:
        """Return what a command prints.

        Raises RehearsalError if it ends with another status than the expected one.
        """
        done = subprocess.run(
            words, cwd=self.work, env=self.variables(), capture_output=True, text=True, check=False
        )
        printed = done.stdout + done.stderr
        if done.returncode != expected:
            raise RehearsalError(f"{' '.join(words)} ended with {done.returncode}:\n{printed}")
        return printed

    def install(self, *words: str) -> str:
        """Return what `pip install` prints, with the index of the built files."""
        pip = [str(self.root / "bin" / "python"), "-m", "pip", "install", "--no-cache-dir"]
        where = ["-c", str(CONSTRAINTS), "--extra-index-url", self.index_address]
        return self.run([*pip, *where, *words])

    def variables(self) -> dict[str, str]:
        """Return the variables of its commands: its PATH, and nothing of the repository."""
        left_out = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "COLUMNS")
        kept = {name: value for name, value in os.environ.items() if name not in left_out}
        path = os.pathsep.join((str(self.root / "bin"), os.environ["PATH"]))
        return kept | {"PATH": path, "OMP_NUM_THREADS": "1"}


def make_environment(rehearsal: Rehearsal, name: str) -> Environment:
    """Return a new virtual environment with nothing but pip."""
    root, work = rehearsal.folder / name, rehearsal.folder / f"{name}-work"
    work.mkdir()
    subprocess.run([sys.executable, "-m", "venv", str(root)], check=True)
    return Environment(root, work, rehearsal.index_address)


def page_blocks(markers: tuple[str, ...]) -> Iterator[Block]:
    """The blocks of the pages that run where these markers do."""
    for page in PAGES:
        yield from (block for block in blocks(page) if block.runs in markers)


def run_block(environment: Environment, block: Block) -> None:
    """Run a block as a reader would. Raises RehearsalError if it prints something else."""
    prepare(block, environment.work)
    if block.language == "python":
        code = "\n".join(block.lines)
        printed = environment.run(["python", "-c", code]).splitlines()
        if printed != PRINTED.findall(code):
            raise RehearsalError(f"{block} prints\n" + "\n".join(printed))
        return
    for command in commands(block):
        done = subprocess.run(
            ["sh", "-c", command.text],
            cwd=environment.work,
            env=environment.variables(),
            capture_output=True,
            text=True,
            check=False,
        )
        text = done.stdout + (done.stderr if done.returncode else "")
        printed = [line.rstrip() for line in text.splitlines()]
        if command.output and not agrees(command.output, printed):
            raise RehearsalError(f"{block}: {command.text} prints\n{text}{done.stderr}")
        if not command.output and done.returncode:
            raise RehearsalError(f"{block}: {command.text} fails\n{text}")


def run_blocks(environment: Environment, *markers: str) -> None:
    """Run the blocks of these markers in an environment."""
    chosen = list(page_blocks(markers))
    for block in chosen:
        run_block(environment, block)
    if not chosen:
        raise RehearsalError(f"no block has one of the markers {', '.join(markers)}")
    print(f"    {len(chosen)} blocks of the pages print what they show", flush=True)


def rehearse_core(rehearsal: Rehearsal) -> None:
    """Install the package alone, run its blocks, and read the hint for a plugin."""
    environment = make_environment(rehearsal, "core")
    environment.install("crossflops")
    printed = environment.run(["crossflops", "--version"])
    if current_version() not in printed:
        raise RehearsalError(f"crossflops --version prints {printed}")
    run_blocks(environment, "core")
    hint = environment.run(["crossflops", "compare", "cnn.onnx", "--tool", "thop"], expected=2)
    if not re.search(r"pip install crossflops-thop(?!\S)", hint):
        raise RehearsalError(f"the hint does not install the plugin from the index:\n{hint}")
    print("    a hint installs a plugin by its name", flush=True)


def rehearse_tools(rehearsal: Rehearsal) -> None:
    """Install PyTorch, the tools and models, and run all blocks."""
    environment = make_environment(rehearsal, "tools")
    environment.install("crossflops[torch,tools]", "transformers", "pillow")
    # the wheel of torchvision names a torch of its own
    environment.install("--no-deps", *MODELS)
    run_blocks(environment, "core", "torch", "tools")


def rehearse_extras(rehearsal: Rehearsal) -> None:
    """Install each small extra by itself, and resolve every other one."""
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    declared = tables["project"]["optional-dependencies"]
    for extra in SMALL_EXTRAS:
        environment = make_environment(rehearsal, f"extra-{extra}")
        environment.install(f"crossflops[{extra}]")
        environment.run(["python", "-m", "pip", "check"])
        environment.run(["crossflops", "doctor"])
        print(f"    crossflops[{extra}] is installed", flush=True)
    resolver = make_environment(rehearsal, "resolver")
    for extra in sorted(set(declared) - {*SMALL_EXTRAS, *UNRESOLVABLE}):
        printed = resolver.install("--dry-run", f"crossflops[{extra}]")
        if f"crossflops-{current_version()}" not in printed:
            raise RehearsalError(f"crossflops[{extra}] installs another crossflops:\n{printed}")
        print(f"    crossflops[{extra}] is resolved", flush=True)
    print(f"    not tried, since their build imports PyTorch: {', '.join(UNRESOLVABLE)}")


def rehearse_runners(rehearsal: Rehearsal) -> None:
    """Run the command by `uvx` and by `pipx run`, which install it themselves."""
    environment = make_environment(rehearsal, "runners")
    environment.install("pipx", "uv")
    address = rehearsal.index_address
    uvx = ["uvx", "--index", address, "--from", "crossflops", "crossflops", "--version"]
    pip_arguments = f"--extra-index-url {address}"
    pipx = ["pipx", "run", "--no-cache", "--spec", "crossflops", f"--pip-args={pip_arguments}"]
    for words in (uvx, [*pipx, "crossflops", "--version"]):
        if current_version() not in environment.run(words):
            raise RehearsalError(f"{' '.join(words)} prints another version")
        print(f"    {words[0]} runs crossflops", flush=True)


STEPS: dict[str, Callable[[Rehearsal], None]] = {
    "core": rehearse_core,
    "extras": rehearse_extras,
    "runners": rehearse_runners,
    "tools": rehearse_tools,
}


def main() -> int:
    """Rehearse, and return 1 if a step fails."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("steps", nargs="*", help="core, tools, extras, runners (default: all)")
    parser.add_argument("--packages", type=Path, help="a folder of built files, used as they are")
    options = parser.parse_args()
    if unknown := set(options.steps) - set(STEPS):
        parser.error(f"unknown steps: {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory(prefix="crossflops-release-") as name:
        folder = Path(name)
        try:
            built = options.packages
            files = sorted(built.iterdir()) if built else build_packages(folder / "dist")
            check_packages(files)
            rehearsal = Rehearsal(make_index(files, folder), folder)
            for step in options.steps or STEPS:
                print(f"==> {step}", flush=True)
                STEPS[step](rehearsal)
            # the folder, of some GB, is removed after this
            print("the rehearsal is done", flush=True)
        except (RehearsalError, subprocess.CalledProcessError, ValueError) as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
