"""Build the sdist and the wheel of the package and of all plugins, and check them.

    python -m release.build [FOLDER]    write them to FOLDER (default: dist)

Needs build, twine, hatchling and hatch-fancy-pypi-readme in this environment.
"""

import argparse
import subprocess
import sys
import zipfile
from pathlib import Path

from release.versions import ROOT, current_version, files_to_change, project_folders


def build_packages(target: Path) -> list[Path]:
    """Build every package into an empty folder, and return its files, sorted.

    Raises ValueError if the folder is not empty or the versions disagree, and CalledProcessError
    if a build fails.
    """
    if target.is_dir() and any(target.iterdir()):
        raise ValueError(f"{target} is not empty: remove it, or name another folder")
    version = current_version()
    if files_to_change(version):
        raise ValueError("the packages have different versions: see python -m release.versions")
    for folder in project_folders():
        # the wheel is built from the sdist, as pip does it where it gets no wheel
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(target)]
        subprocess.run([*command, str(folder)], check=True, stdout=subprocess.DEVNULL)
        print(f"built {folder.name if folder != ROOT else 'crossflops'} {version}", flush=True)
    return sorted(target.iterdir())


def check_packages(files: list[Path]) -> None:
    """Check the descriptions by twine, the number of files, and what the wheels contain.

    Raises CalledProcessError or ValueError for what is wrong.
    """
    check = [sys.executable, "-m", "twine", "check", "--strict", *map(str, files)]
    subprocess.run(check, check=True)
    wheels = [path for path in files if path.suffix == ".whl"]
    expected = len(project_folders())
    if (len(wheels), len(files)) != (expected, 2 * expected):
        raise ValueError(f"expected {expected} sdists and wheels, got {len(files)} files")
    strays = [stray for wheel in wheels for stray in foreign_files(wheel)]
    if strays:
        raise ValueError(f"files outside of the package: {', '.join(strays)}")


def foreign_files(wheel: Path) -> list[str]:
    """Return the files of a wheel outside of its own package: tests, reports, pages."""
    package = wheel.name.partition("-")[0]
    with zipfile.ZipFile(wheel) as archive:
        tops = {name: name.partition("/")[0] for name in archive.namelist()}
    return [
        f"{wheel.name}: {name}"
        for name, top in tops.items()
        if top != package and not top.endswith(".dist-info")
    ]


def main() -> int:
    """Build and check; return 1 if something is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "dist")
    try:
        files = build_packages(parser.parse_args().folder)
        check_packages(files)
    except (subprocess.CalledProcessError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{len(files)} files in {files[0].parent}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
