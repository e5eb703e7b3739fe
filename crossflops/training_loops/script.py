"""The run of a training script by its own command, with one step of it profiled."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from crossflops.errors import CrossflopsError, InputError
from crossflops.report.profile import TrainingProfile
from crossflops.tools.registry import conventions_from_texts
from crossflops.training_loops.inside import FIRST_STEP, SETTINGS, ScriptSettings
from crossflops.verbs.profile.account import RatedAgainst

# Python imports a module of this name before any script. Another one that it hides comes after.
_STARTUP = """\
import os, sys
here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [path for path in sys.path if os.path.abspath(path) != here]
try:
    from crossflops.training_loops.inside import await_torch_optim_import
except ImportError as error:
    with open(os.path.join(here, "reason"), "a") as file:
        file.write(f"{sys.executable} cannot import crossflops: {error}\\n")
else:
    await_torch_optim_import()
this = sys.modules.pop("sitecustomize")
try:
    import sitecustomize
except ModuleNotFoundError:
    sys.modules["sitecustomize"] = this
"""


class ScriptRun(NamedTuple):
    """The exit status of the command, and the profile of the step or the reason for none."""

    status: int
    profile: TrainingProfile | None
    reason: str = ""


class StepChoice(NamedTuple):
    """The optimizer step to profile, the peak to compare with, and the conventions to show."""

    step: int = 5
    device: str | None = None
    peak_tflops: str | None = None
    precision: str | None = None
    as_: tuple[str, ...] = ()


def run_script(command: Sequence[str], choice: StepChoice, quiet: bool = False) -> ScriptRun:
    """Run the command of a training script and profile one step of it; return its exit status with
    the profile or the reason for none.

    The script is any program that runs Python; what it writes to stdout goes to stderr where it
    is to be `quiet`. Raises InputError for a command that cannot be run, or step 1, and
    UnknownNameError for a device, a precision or a convention that is not known.
    """
    if choice.step < FIRST_STEP:
        raise InputError(
            "the first step of a script cannot be profiled, because its model is not yet known",
            f"give --step {FIRST_STEP} or higher",
        )
    if shutil.which(command[0]) is None:
        raise InputError(
            f"command {command[0]!r} was not found",
            "write after -- a program that can run, such as -- python train.py; a target "
            "needs no --",
        )
    peaks = () if choice.peak_tflops is None else (choice.peak_tflops,)
    RatedAgainst(
        device=choice.device, peak_tflops=peaks, precision=choice.precision
    ).check_peak_options()
    conventions_from_texts(choice.as_)
    with tempfile.TemporaryDirectory(prefix="crossflops-") as name:
        folder = Path(name)
        (folder / "sitecustomize.py").write_text(_STARTUP, encoding="utf-8")
        settings = ScriptSettings(
            profile=str(folder / "profile"), reason=str(folder / "reason"), **choice._asdict()
        )
        status = _run_script_command(command, _script_environment(folder, settings), quiet)
        return ScriptRun(
            status,
            _read_script_profile(folder / "profile"),
            _last_script_reason(folder / "reason"),
        )


def _script_environment(folder: Path, settings: ScriptSettings) -> dict[str, str]:
    """Return the environment variables with which Python runs the profiler before a script."""
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        SETTINGS: msgspec.json.encode(settings).decode(),
    }


def _run_script_command(command: Sequence[str], environment: dict[str, str], quiet: bool) -> int:
    """Run a command and return its exit status; 128 + N if signal N ended it."""
    try:
        child = subprocess.Popen(command, env=environment, stdout=2 if quiet else None)
    except OSError as error:
        raise InputError(
            f"cannot run {command[0]}: {error.strerror}",
            "give a command that can be run, such as -- python train.py",
        ) from error
    while True:
        try:
            status = child.wait()
        except KeyboardInterrupt:  # it has heard that, too, and ends as it likes
            continue
        return status if status >= 0 else 128 - status


def _read_script_profile(path: Path) -> TrainingProfile | None:
    """Return the profile that the process of the script wrote to `path`, or None if there is no
    such file.
    """
    if not path.is_file():
        return None
    try:
        return TrainingProfile.from_json(path.read_bytes())
    except msgspec.ValidationError as error:
        raise CrossflopsError(
            f"cannot read the profile of the script: {error}",
            "install the same version of crossflops for the Python of the script",
        ) from error


def _last_script_reason(path: Path) -> str:
    """Return the last reason why no step was profiled, from the file of reasons; without the file,
    that no process imported torch.optim.
    """
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return lines[-1] if lines else "none of its processes imported torch.optim"
