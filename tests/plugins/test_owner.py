"""Which of two distributions with the same package the files on disk belong to."""

import base64
import hashlib
import sys

import pytest

from crossflops.errors import MissingExtraError
from crossflops.plugins.discovery import distribution_of_package

PACKAGE = "shared_package_of_two"


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder on sys.path into which distributions are installed as pip does it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, PACKAGE, raising=False)

    def install(name, version, code, record=True):
        package = tmp_path / PACKAGE
        package.mkdir(exist_ok=True)
        rows = []
        for file, text in {"__init__.py": "", "profile.py": code}.items():
            (package / file).write_text(text)
            digest = hashlib.sha256(text.encode()).digest()
            encoded = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            rows.append(f"{PACKAGE}/{file},sha256={encoded},{len(text)}")
        info = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        if record:
            (info / "RECORD").write_text("\n".join(rows))

    return install


def found(*candidates):
    """Name and version of the owner."""
    distribution = distribution_of_package(PACKAGE, candidates)
    return distribution.name, distribution.version


def test_the_only_one_installed_owns_its_package(site):
    """The ordinary case."""
    site("first-tool", "1.0", "count = 1")
    assert found("first-tool", "second-tool") == ("first-tool", "1.0")


def test_the_only_other_one_owns_it(site):
    """The caller learns that it is not the one that was wanted."""
    site("second-tool", "2.0", "count = 2")
    assert found("first-tool", "second-tool") == ("second-tool", "2.0")


@pytest.mark.parametrize("order", [("first-tool", "second-tool"), ("second-tool", "first-tool")])
def test_of_two_the_one_installed_last_owns_it(site, order):
    """Both are listed as installed; the code is that of the second, whichever that was."""
    for name in order:
        site(name, "1.0", f"tool = {name!r}")
    assert found("first-tool", "second-tool") == (order[-1], "1.0")


def test_without_a_record_a_single_one_is_believed(site):
    """An editable installation lists no files."""
    site("first-tool", "1.0", "count = 1", record=False)
    assert found("first-tool", "second-tool") == ("first-tool", "1.0")


def test_what_cannot_be_told_is_refused(site):
    """Two distributions and not one file as recorded: no guess."""
    site("first-tool", "1.0", "count = 1", record=False)
    site("second-tool", "1.0", "count = 2", record=False)
    with pytest.raises(MissingExtraError, match="first-tool and second-tool both install"):
        found("first-tool", "second-tool")


def test_what_is_not_installed_is_said():
    """With the command that installs it."""
    with pytest.raises(MissingExtraError, match="first-tool is not installed") as caught:
        found("first-tool", "second-tool")
    assert caught.value.hint == "pip install first-tool"
