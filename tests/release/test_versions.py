"""The package, its plugins and CITATION.cff have one version, which one command writes."""

import zipfile

import pytest

from release.build import foreign_files
from release.rehearse import make_index
from release.versions import core_range, files_to_change, main, version_files, with_version

PROJECT = """
[project]
name = "crossflops-thop"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["crossflops>=0.1,<0.2", "thop>=0.0.31"]
"""


def test_all_packages_have_the_version_of_the_package(capsys):
    """The 14 plugins too, and the file for citations."""
    assert len(version_files()) == 16
    assert main([]) == 0
    assert capsys.readouterr().out == "0.1.0\n"


def test_a_new_version_is_written_with_the_range_that_plugins_accept():
    """And nothing else of the file changes."""
    changed = PROJECT.replace('version = "0.1.0"', 'version = "0.2.0"')
    changed = changed.replace("crossflops>=0.1,<0.2", "crossflops>=0.2,<0.3")
    assert with_version(PROJECT, "0.2.0") == changed
    assert with_version('cff-version: 1.2.0\nversion: "0.1.0"\n', "1.0.0") == (
        'cff-version: 1.2.0\nversion: "1.0.0"\n'
    )
    assert core_range("1.4.2") == ">=1.4,<1.5"
    assert len(files_to_change("9.0.0")) == 16


@pytest.mark.parametrize("text", ["[project]\n", 'version = "1"\nversion = "2"\n'])
def test_a_file_without_one_version_is_an_error(text):
    """It would stay as it is without a word."""
    with pytest.raises(ValueError, match="expected one line with a version"):
        with_version(text, "0.2.0")


def test_a_version_is_three_numbers(capsys):
    """Nothing is written otherwise."""
    assert main(["v2"]) == 2
    assert capsys.readouterr().err.startswith("error: 'v2' is not a version\nhint: ")


def test_a_wheel_with_tests_is_found(tmp_path):
    """Every file outside of the package is named."""
    wheel = tmp_path / "crossflops-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ("crossflops/a.py", "crossflops-0.1.0.dist-info/METADATA", "tests/a.py"):
            archive.writestr(name, "")
    assert foreign_files(wheel) == [f"{wheel.name}: tests/a.py"]


def test_an_index_has_a_page_for_each_project(tmp_path):
    """Under the normalized name, by which pip asks (PEP 503)."""
    names = ["crossflops_onnx_tool-0.1.0.tar.gz", "crossflops-0.1.0-py3-none-any.whl"]
    for name in names:
        (tmp_path / name).write_bytes(b"content")
    index = make_index([tmp_path / name for name in names], tmp_path)
    assert sorted(path.name for path in index.iterdir()) == ["crossflops", "crossflops-onnx-tool"]
    page = (index / "crossflops-onnx-tool" / "index.html").read_text()
    assert f'<a href="{names[0]}">' in page
    assert (index / "crossflops" / names[1]).read_bytes() == b"content"
