"""One version for the package and all plugins: that of pyproject.toml.

python -m release.versions          print it; fails where a plugin or CITATION.cff has another
python -m release.versions 0.2.0    write it into all of them
"""

import argparse
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSION_LINE = re.compile(r'^version(?: = "|: ")([^"]+)"$', re.MULTILINE)
CORE_RANGE = re.compile(r'"crossflops>=[\d.]+,<[\d.]+"')
VERSION = re.compile(r"\d+\.\d+\.\d+(?:rc\d+)?")


def project_folders() -> list[Path]:
    """Return the folder of the package, then those of its plugins, sorted."""
    return [ROOT, *(file.parent for file in sorted(ROOT.glob("plugins/*/pyproject.toml")))]


def current_version() -> str:
    """Return the version of the package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return str(project["version"])


def version_files() -> list[Path]:
    """Return the files that have a version: each pyproject.toml, and CITATION.cff."""
    return [*(folder / "pyproject.toml" for folder in project_folders()), ROOT / "CITATION.cff"]


def core_range(version: str) -> str:
    """Return the versions of crossflops that plugins of this version accept: ">=0.1,<0.2"."""
    major, minor = map(int, version.split(".")[:2])
    return f">={major}.{minor},<{major}.{minor + 1}"


def with_version(text: str, version: str) -> str:
    """Return the text of a version file with this version, and with the range that fits it.

    Raises ValueError if the text does not have exactly one version.
    """
    changed, count = VERSION_LINE.subn(lambda match: match[0].replace(match[1], version, 1), text)
    if count != 1:
        raise ValueError(f"expected one line with a version, got {count}")
    return CORE_RANGE.sub(f'"crossflops{core_range(version)}"', changed)


def files_to_change(version: str) -> dict[Path, str]:
    """Return the new text of each file that does not have this version yet."""
    texts = {path: path.read_text("utf-8") for path in version_files()}
    changed = {path: with_version(text, version) for path, text in texts.items()}
    return {path: text for path, text in changed.items() if text != texts[path]}


def main(words: list[str] | None = None) -> int:
    """Print the version, or write another one; return 1 if the files disagree."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("version", nargs="?", help="the version to write, such as 0.2.0")
    requested = parser.parse_args(words).version
    if requested is not None and VERSION.fullmatch(requested) is None:
        print(f"error: {requested!r} is not a version", file=sys.stderr)
        print("hint: write three numbers, such as 0.2.0 or 0.2.0rc1", file=sys.stderr)
        return 2
    if requested is not None:
        for path, text in files_to_change(requested).items():
            path.write_text(text, encoding="utf-8", newline="\n")
            print(path.relative_to(ROOT))
        return 0
    version = current_version()
    different = [str(path.relative_to(ROOT)) for path in files_to_change(version)]
    if different:
        print(f"error: not of version {version}: {', '.join(different)}", file=sys.stderr)
        print(f"hint: write it with python -m release.versions {version}", file=sys.stderr)
        return 1
    print(version)
    return 0


if __name__ == "__main__":
    sys.exit(main())
